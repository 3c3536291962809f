"""A model folder's chat template, rendered as text, and the ids of its end tokens.

Templates come with models and are not trusted: they run in jinja's sandbox, in a child process
(template_child.py) with limits of memory and CPU time. The process is started by the first
conversation and kept for the next ones.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.records import RequestError
from engine.weights.config_json import is_token, text_part
from engine.weights.errors import one_line
from engine.weights.fetch.integrity import damaged, read_object, regular
from index.child_environment import child_environment

CHILD = Path(__file__).with_name("template_child.py")
MAX_TEMPLATE_CHARS = 1 << 20
MAX_CHARS = 16 << 10  # characters of rendered text, and as many for each message
MAX_MEMORY_BYTES = 512 << 20  # bytes; the address space of the child process
MAX_CPU_SECONDS = 2  # seconds of CPU time for one rendering
TIMEOUT_SECONDS = 60.0  # seconds for one rendering, where CPU time cannot be limited
MAX_REPEATS = 2  # times that one message may be in the rendered text
SPECIAL_TOKENS = tuple(
    f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
)

# What templates call it that a model is to answer at once.
NO_THINKING: dict[str, Any] = {"enable_thinking": False, "thinking": False, "thinking_budget": 0}

SLOT = "\ue000{}\ue001"  # placeholder of a message's text in a rendered template (private use)
SLOTS = re.compile("\ue000([0-9]+)\ue001")


class TemplateRefusal(RequestError):
    """The template itself refuses a conversation; it may render another one."""


@dataclass(frozen=True)
class ToolUse:
    """The tools and calls that a template shows, with a `SLOT` for every text that has marks."""

    definitions: list[Any] = field(default_factory=list)
    fields: dict[int, dict[str, Any]] = field(default_factory=dict)  # by message
    texts: list[str] = field(default_factory=list)  # texts of the slots after the messages'


class ChatTemplate:
    """A chat template and the child process that renders it. Used from any thread."""

    def __init__(self, text: str, **special_tokens: str) -> None:
        """Take the template. `special_tokens`: those that it may name, as `bos_token`."""
        self.text, self.names = text, special_tokens
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def render(self, roles: list[str], thinking: bool = True, tools: ToolUse | None = None) -> str:
        """Write a conversation as the model's template does, up to the assistant's turn.

        A `SLOT` is in place of each message's text. `thinking=False` requests that a model that
        reasons answers at once. RequestError where the template refuses it or takes too much.
        """
        tools = tools or ToolUse()
        slots = [SLOT.format(n) for n in range(len(roles))]
        users = {str(number) for number, role in enumerate(roles) if role == "user"}
        refusal = None
        try:
            text = self._render(roles, slots, thinking, tools)
            if users <= {*SLOTS.findall(text)}:
                return text
        except TemplateRefusal as error:
            refusal = error
        try:  # templates of models that see expect it so
            parts = [[{"type": "text", "text": slot}] for slot in slots]
            listed = self._render(roles, parts, thinking, tools)
        except TemplateRefusal:
            listed = ""
        if users and users <= {*SLOTS.findall(listed)}:
            return listed
        if refusal is not None:
            raise refusal
        return text

    def _render(
        self, roles: list[str], contents: Sequence[Any], thinking: bool, tools: ToolUse
    ) -> str:
        """Write a conversation as the template does. `contents`: the messages' texts."""
        messages = [
            {"role": role, "content": content} | tools.fields.get(number, {})
            for number, (role, content) in enumerate(zip(roles, contents, strict=True))
        ]
        conversation = {"messages": messages, "add_generation_prompt": True, **self.names}
        conversation |= {"tools": tools.definitions or None, "documents": None}
        if not thinking:
            conversation |= NO_THINKING | {"reasoning_effort": self._least_effort}
        with self._lock:
            reply = self._ask(json.dumps(conversation).encode() + b"\n")
        if "text" not in reply:
            raise TemplateRefusal(_refusal(reply.get("error", "its process failed")))
        text = str(reply["text"])
        found = Counter(SLOTS.findall(text))
        if found.keys() - {str(n) for n in range(len(roles) + len(tools.texts))}:
            raise RequestError(_refusal("it writes a message that is not there"))
        if found and max(found.values()) > MAX_REPEATS:
            raise RequestError(_refusal(f"it repeats a message more than {MAX_REPEATS} times"))
        return text

    @property
    def _least_effort(self) -> str:
        """The value of `reasoning_effort` for the least reasoning that the template knows."""
        return "none" if re.search("""["']none["']""", self.text) else "low"

    def close(self) -> None:
        """End the process. The next conversation starts another."""
        if self._process is not None:
            self._end()
            self._process = None

    def _ask(self, line: bytes) -> dict[str, Any]:
        """Send one line and read the reply. A process that does not reply is ended."""
        process = self._process or self._started()
        timer = threading.Timer(TIMEOUT_SECONDS, process.kill)
        timer.start()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(line)
            process.stdin.flush()
            reply: dict[str, Any] = json.loads(process.stdout.readline())
            return reply
        except (OSError, ValueError) as error:
            self.close()
            raise RequestError(
                _refusal(
                    f"it takes more than {MAX_CPU_SECONDS} seconds or {MAX_MEMORY_BYTES >> 20} MiB"
                )
            ) from error
        finally:
            timer.cancel()

    def _started(self) -> subprocess.Popen[bytes]:
        limits = (str(MAX_CHARS), str(MAX_MEMORY_BYTES), str(MAX_CPU_SECONDS))
        # -P: import nothing from the working directory
        process = subprocess.Popen(
            [sys.executable, "-PB", str(CHILD), *limits],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=child_environment(),
        )  # fmt: skip
        self._process, self._end = process, weakref.finalize(self, _end, process)
        assert process.stdin is not None
        process.stdin.write(json.dumps(self.text).encode() + b"\n")
        return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def _refusal(why: str) -> str:
    return one_line(
        f"the model's chat template refuses this conversation: {why}; fix the template, or "
        "choose another model"
    )


def chat_template(folder: Path) -> ChatTemplate | None:
    """Read the folder's chat template; None where the model has none.

    WeightsError where it is damaged.
    """
    file, settings = folder / "tokenizer_config.json", {}
    if file.is_file():
        settings = read_object(file)
    template = settings.get("chat_template")
    if isinstance(template, list):  # several, by name
        named = {entry["name"]: entry["template"] for entry in template if _is_named(entry)}
        template = named.get("default", next(iter(named.values()), None))
    if (own := folder / "chat_template.jinja").is_file():
        template = _read(own)
    if template is None:
        return None
    if not isinstance(template, str) or len(template) > MAX_TEMPLATE_CHARS:
        raise damaged(file, f"'chat_template' is no text of {MAX_TEMPLATE_CHARS} characters")
    tokens = {name: _token(file, settings, name) for name in SPECIAL_TOKENS}
    return ChatTemplate(template, **{name: token for name, token in tokens.items() if token})


def _is_named(one: Any) -> bool:
    return isinstance(one, dict) and all(
        isinstance(one.get(key), str) for key in ("name", "template")
    )


def _read(file: Path) -> str:
    """Read a template's file. One that is too long is cut just behind the limit."""
    try:
        with regular(file).open(encoding="utf-8") as opened:
            return opened.read(MAX_TEMPLATE_CHARS + 1)
    except UnicodeDecodeError as error:
        raise damaged(file, f"not UTF-8: {error}") from error


def _token(file: Path, settings: dict[str, Any], name: str) -> str:
    """Return a special token's text, whether stored as a string or as an object; "" for none."""
    found = settings.get(name)
    token = found.get("content") if isinstance(found, dict) else found
    if token is not None and not isinstance(token, str):
        raise damaged(file, f"'{name}' is no token")
    return token or ""


def end_tokens(folder: Path) -> frozenset[int]:
    """Return the end token ids of generation_config.json and config.json."""
    found: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        file = folder / name
        value = text_part(read_object(file)).get("eos_token_id") if file.is_file() else None
        ids = value if isinstance(value, list) else [] if value is None else [value]
        if not all(map(is_token, ids)):
            raise damaged(file, "'eos_token_id' is no token id")
        found |= set(ids)
    return frozenset(found)
