"""The conversation of `draftline chat`, as chat messages and as a file.

A file is a JSON list of messages, as a chat API takes them. It is written atomically and never
replaces another file.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from ui.common.errors import reason

Message = dict[str, str]
MAX_FILE_BYTES = 16 << 20
ROLES = ("user", "assistant")


class ConversationError(ValueError):
    """A command that is impossible, or a file that cannot be read or written. One line."""


@dataclass(slots=True)
class Conversation:
    """A system message, and questions and answers in turns."""

    system: str = ""
    turns: list[Message] = field(default_factory=list)  # user, assistant, user, ...

    def messages(self, question: str, start: int = 0) -> tuple[Message, ...]:
        """Build the messages of a prompt that asks `question`, with the turns from `start` on."""
        return (*self._system(), *self.turns[start:], {"role": "user", "content": question})

    def add(self, question: str, answer: str) -> None:
        self.turns.append({"role": "user", "content": question})
        self.turns.append({"role": "assistant", "content": answer})

    def remove(self) -> tuple[str, str]:
        """Remove the last question and its answer. ConversationError if there are none."""
        if not self.turns:
            raise ConversationError("the conversation is empty: ask something first")
        question, answer = (message["content"] for message in self.turns[-2:])
        del self.turns[-2:]
        return question, answer

    def save(self, path: Path) -> None:
        """Write a new file. ConversationError if it exists or cannot be written."""
        text = json.dumps([*self._system(), *self.turns], indent=1, ensure_ascii=False) + "\n"
        new = path.with_name(f".{path.name[:100]}.{os.getpid()}.new")
        try:
            with new.open("x", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.link(new, path)  # unlike a rename, fails if the file exists
        except FileExistsError as error:
            raise ConversationError(f"{path}: already exists: choose another name") from error
        except (OSError, ValueError) as error:
            why = f"{path}: not written ({reason(error)}): check the folder"
            raise ConversationError(why) from error
        finally:
            new.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path) -> Conversation:
        """Read a file that `save` wrote. ConversationError if it is anything else."""
        try:
            large = path.stat().st_size > MAX_FILE_BYTES
            data = b"" if large else path.read_bytes()
        except (OSError, ValueError) as error:
            why = f"{path}: not read ({reason(error)}): check the name"
            raise ConversationError(why) from error
        if large:
            why = f"{path}: over {MAX_FILE_BYTES >> 20} MiB: name a file that /save wrote"
            raise ConversationError(why)
        try:
            found = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ConversationError(f"{path}: not JSON: name a file that /save wrote") from error
        if not isinstance(found, list) or not all(map(_is_message, found)):
            raise ConversationError(f"{path}: not a list of messages: name a file that /save wrote")
        system = ""
        if found and found[0]["role"] == "system":
            system = found.pop(0)["content"]
        roles = [message["role"] for message in found]
        if roles != [*ROLES] * (len(found) // 2):
            why = f"{path}: not questions and answers in turn: name a file that /save wrote"
            raise ConversationError(why)
        return cls(system, found)

    def _system(self) -> list[Message]:
        return [{"role": "system", "content": self.system}] if self.system else []


def _is_message(value: object) -> bool:
    if not isinstance(value, dict) or set(value) != {"role", "content"}:
        return False
    return all(map(_is_text, value.values()))


def _is_text(value: object) -> bool:
    return isinstance(value, str) and not re.search("[\ud800-\udfff]", value)
