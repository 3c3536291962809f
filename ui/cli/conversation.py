"""A conversation as a file and as messages: what `draftline chat` keeps. No terminal, no model.

Files are JSON: a list of messages, as an API takes them. They are written whole, and never over
another file.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

Message = dict[str, str]
LARGEST = 16 << 20  # bytes of a file
ROLES = ("user", "assistant")


class ConversationError(ValueError):
    """What cannot be done with a conversation; one line with the remedy."""


@dataclass(slots=True)
class Conversation:
    """Questions and answers by turns, behind an instruction for all of them."""

    system: str = ""
    turns: list[Message] = field(default_factory=list)

    def messages(self, question: str, start: int = 0) -> tuple[Message, ...]:
        """What is sent to the model for a question, from that turn on."""
        first = [{"role": "system", "content": self.system}] if self.system else []
        return (*first, *self.turns[start:], {"role": "user", "content": question})

    def add(self, question: str, answer: str) -> None:
        self.turns.append({"role": "user", "content": question})
        self.turns.append({"role": "assistant", "content": answer})

    def remove(self) -> tuple[str, str]:
        """Take the last question and its answer out. ConversationError where there is none."""
        if not self.turns:
            raise ConversationError("nothing was said yet: ask something first")
        question, answer = (one["content"] for one in self.turns[-2:])
        del self.turns[-2:]
        return question, answer

    def save(self, path: Path) -> None:
        """Write a new file. ConversationError where there is one, or it cannot be written."""
        first = [{"role": "system", "content": self.system}] if self.system else []
        text = json.dumps([*first, *self.turns], indent=1, ensure_ascii=False) + "\n"
        new = path.with_name(f".{path.name[:100]}.{os.getpid()}.new")
        try:
            with new.open("x", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.link(new, path)  # fails where there is a file of that name
        except FileExistsError as error:
            raise ConversationError(f"{path}: is there already: choose another name") from error
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise ConversationError(f"{path}: not written ({why}): check the folder") from error
        finally:
            new.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path) -> Conversation:
        """What `save` wrote. ConversationError where it is something else."""
        try:
            large = path.stat().st_size > LARGEST
            data = b"" if large else path.read_bytes()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise ConversationError(f"{path}: not read ({why}): check the name") from error
        if large:
            raise ConversationError(f"{path}: over {LARGEST >> 20} MiB: no conversation")
        try:
            found = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ConversationError(f"{path}: no JSON: name a file that !!save wrote") from error
        if not isinstance(found, list) or not all(map(_is_message, found)):
            raise ConversationError(f"{path}: no list of messages: name a file that !!save wrote")
        system = ""
        if found and found[0]["role"] == "system":
            system = found.pop(0)["content"]
        roles = [one["role"] for one in found]
        if roles != [*ROLES] * (len(found) // 2):
            raise ConversationError(f"{path}: question and answer must take turns, from a question")
        return cls(system, found)


def _is_message(one: object) -> bool:
    if not isinstance(one, dict) or set(one) != {"role", "content"}:
        return False
    return all(map(_is_text, one.values()))


def _is_text(value: object) -> bool:
    return isinstance(value, str) and not re.search("[\ud800-\udfff]", value)
