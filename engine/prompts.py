"""Text to token ids and back: the only place that knows the tokenizer and the chat template.

User text never becomes a control token: the tokenizer here has none, and control tokens are put
in by hand where the model's own template writes them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from engine.edits import inner, plain
from engine.infill import ends, infill_ids
from engine.records import Message, Request, RequestError

EDIT_SYSTEM = (
    "You are a careful code editor. You rewrite the given code by the instruction, change nothing "
    "else, and answer with the rewritten code only, in one code block."
)
CHAT_TOKENS, COMPLETE_TOKENS = 1024, 256  # room where the request names none
EDIT_END = "Change nothing else."
SLOT = "\ue000{}\ue001"  # where a message's text goes in a rendered template; private-use marks
LANGUAGES = {
    ".py": "python", ".js": "javascript", ".ts": "typescript", ".go": "go", ".rs": "rust",
    ".c": "c", ".h": "c", ".cpp": "cpp", ".hpp": "cpp", ".java": "java", ".md": "markdown",
    ".sh": "bash", ".html": "html", ".css": "css", ".json": "json", ".toml": "toml",
    ".yaml": "yaml", ".yml": "yaml", ".rb": "ruby", ".lua": "lua", ".sql": "sql",
}  # fmt: skip


@dataclass(slots=True)
class Prompt:
    """What the model reads and what it is expected to repeat, in tokens; and when it stops."""

    ids: list[int]
    predictions: list[list[int]] = field(default_factory=list)
    stop: tuple[str, ...] = ()
    max_tokens: int = CHAT_TOKENS
    ends: frozenset[int] = frozenset()  # ids that end the answer, beside the model's own


class Tokenizer:
    """A model folder's tokenizer.json, chat template and end tokens, without control tokens."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer as Backend

        raw = (folder / "tokenizer.json").read_bytes()
        self.fingerprint = sha256(raw).hexdigest()
        spec = json.loads(raw)
        self.control = {token["content"]: token["id"] for token in spec["added_tokens"]}
        vocabulary = spec["model"]["vocab"]
        self.control |= {
            name: vocabulary[name] for name in self.control if isinstance(vocabulary, dict)
            and name in vocabulary
        }  # fmt: skip
        self._spec = {key: spec.get(key) for key in ("model", "decoder")}
        spec |= {"added_tokens": [], "post_processor": None, "truncation": None, "padding": None}
        self.backend = Backend.from_str(json.dumps(spec))
        self.settings = read_json(folder / "tokenizer_config.json")
        self.template = chat_template(folder, self.settings)
        self.eos = end_tokens(folder)
        names = sorted(map(re.escape, self.control), key=len, reverse=True)
        self._marks = re.compile(f"({'|'.join(names)})") if names else None

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; nothing in it is a control token."""
        ids: list[int] = self.backend.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: list[int]) -> str:
        text: str = self.backend.decode(ids, skip_special_tokens=True)
        return text

    # -- for the index -------------------------------------------------------------------------

    def encode_batch(self, texts: list[str]) -> list[np.ndarray[Any, Any]]:
        """Ids (int32) of many texts, on all cores."""
        batch = self.backend.encode_batch_fast(texts, add_special_tokens=False)
        return [np.asarray(one.ids, np.int32) for one in batch]

    def encode_with_offsets(self, text: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Ids and where each starts in `text`, in code points."""
        one = self.backend.encode(text, add_special_tokens=False)
        return np.asarray(one.ids, np.int32), np.asarray([a for a, _ in one.offsets], np.int64)

    @cached_property
    def byte_lengths(self) -> np.ndarray[Any, Any]:
        """UTF-8 bytes each id stands for (int32); -1 where that is not fixed."""
        vocabulary = self._spec["model"]["vocab"]
        decoder = self._spec["decoder"] or {}
        lengths = np.full(self.backend.get_vocab_size(), -1, np.int32)
        if decoder.get("type") == "ByteLevel" and isinstance(vocabulary, dict):
            for text, number in vocabulary.items():  # one character stands for one byte
                if number < len(lengths) and text not in self.control:
                    lengths[number] = len(text)
        return lengths

    def places(
        self, ids: np.ndarray[Any, Any]
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """The code points (int64) that each token covers, also in part: starts and stops, from 0.
        For ids whose bytes add up to a text."""
        begun, inside = self._code_points
        begun = begun[ids]
        stops = np.cumsum(begun, dtype=np.int64)
        return stops - begun - inside[ids], stops

    @cached_property
    def _code_points(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """By id (int32): the code points that begin in its bytes, and 1 where its first byte is
        inside one. 0 where the bytes are not fixed."""
        begun, inside = np.zeros((2, len(self.byte_lengths)), np.int32)
        fixed = (self.byte_lengths >= 0).tolist()
        if any(fixed):
            begins = str.maketrans({char: "01"[n & 0xC0 != 0x80] for n, char in byte_characters()})
            for text, number in self._spec["model"]["vocab"].items():
                if number < len(fixed) and fixed[number]:
                    marks = text.translate(begins)
                    begun[number], inside[number] = marks.count("1"), marks.startswith("0")
        return begun, inside

    # -- chat ----------------------------------------------------------------------------------

    def chat(self, messages: tuple[Message, ...] | list[Message], reply: str = "") -> list[int]:
        """Ids of a conversation, up to the assistant's turn, which starts with `reply`."""
        if self.template is None:
            turns = "".join(f"{one['role']}: {one['content']}\n\n" for one in messages)
            return self.encode(f"{turns}assistant: {reply}")
        slots = [{"role": one["role"], "content": SLOT.format(n)} for n, one in enumerate(messages)]
        rendered = render(self.template, slots, self.settings)
        ids: list[int] = []
        for n, part in enumerate(re.split("\ue000([0-9]+)\ue001", rendered)):
            ids += self.encode(messages[int(part)]["content"]) if n % 2 else self._template(part)
        return ids + self.encode(reply)

    def _template(self, text: str) -> list[int]:
        """Ids of a template's own text, in which control tokens are control tokens."""
        ids: list[int] = []
        for n, part in enumerate(self._marks.split(text) if self._marks else [text]):
            ids += [self.control[part]] if n % 2 else self.encode(part)
        return ids


class Detokenizer:
    """Text of a growing list of ids, piece by piece; a character is never split between pieces."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.ids: list[int] = []
        self.start = self.read = 0  # ids[start:read] is decoded again as context for what follows

    def push(self, token: int) -> str:
        """The text that `token` completes, "" while a character is open."""
        self.ids.append(token)
        before = self.tokenizer.decode(self.ids[self.start : self.read])
        text = self.tokenizer.decode(self.ids[self.start :])
        if text.endswith("\ufffd") and len(self.ids) - self.read < 8:
            return ""
        self.start, self.read = self.read, len(self.ids)
        return text[len(before) :]

    def flush(self) -> str:
        """What is left at the end: an unfinished character, shown as U+FFFD."""
        before = self.tokenizer.decode(self.ids[self.start : self.read])
        text = self.tokenizer.decode(self.ids[self.start :])
        self.start = self.read = len(self.ids)
        return text[len(before) :]


def prompt_of(request: Request, tokenizer: Tokenizer) -> Prompt:
    """The Prompt of a Request, without a limit by context. RequestError where it asks nothing."""
    predictions = [tokenizer.encode(plain(text)) for text in request.predictions if text]
    if request.kind == "complete":
        room = COMPLETE_TOKENS if request.max_tokens is None else request.max_tokens
        if request.suffix is None:
            return Prompt(tokenizer.encode(plain(request.text)), predictions, request.stop, room)
        ids = infill_ids(request, tokenizer)
        return Prompt(ids, predictions, request.stop, room, ends(tokenizer))
    if request.kind == "chat":
        if not request.messages:
            raise RequestError("no messages: a chat needs at least one")
        ids = tokenizer.chat(request.messages)
        room = CHAT_TOKENS if request.max_tokens is None else request.max_tokens
        return Prompt(ids, predictions, request.stop, room)
    return edit_prompt(request, tokenizer, predictions)


def edit_prompt(request: Request, tokenizer: Tokenizer, predictions: list[list[int]]) -> Prompt:
    """The reply starts with an opened code fence, so the answer is the code itself, token for
    token as it stands in the file, and ends with the closing fence. Only the selection is shown:
    small models rewrite whatever else they see, too. Wording and order were compared on EditEval's
    even records with the default model."""
    if not request.instruction.strip():
        raise RequestError("the instruction is empty: say what to change")
    start, stop = request.selection or (0, len(request.text))
    if not 0 <= start <= stop <= len(request.text):
        raise RequestError(
            f"selection {start}:{stop} lies outside the text (0:{len(request.text)})"
        )
    first, last = inner(request.text, start, stop)
    chosen = plain(request.text[first:last])
    fence = "`" * max(3, 1 + longest_run(request.text, "`"))
    language = LANGUAGES.get(Path(request.path).suffix.lower(), "")
    asked = f"{fence}{language}\n{chosen}\n{fence}\n{request.instruction.strip()}\n{EDIT_END}"
    messages = [
        {"role": "system", "content": EDIT_SYSTEM},
        {"role": "user", "content": asked},
    ]
    ids = tokenizer.chat(messages, reply=f"{fence}{language}\n")
    expected = tokenizer.encode(f"{chosen}\n{fence}")
    room = request.max_tokens
    if room is None:
        room = 256 + len(expected) * 3 // 2
    return Prompt(ids, [expected, *predictions], (f"\n{fence}", *request.stop), room)


def longest_run(text: str, mark: str) -> int:
    """Length of the longest run of one character."""
    return max((len(run) for run in re.findall(f"{re.escape(mark)}+", text)), default=0)


def render(template: str, messages: list[Message], settings: dict[str, Any]) -> str:
    """A chat template's text, in a sandbox: templates come with models and are not trusted."""
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise RequestError(f"the model's chat template refuses this conversation: {message}")

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = refuse
    names = {key: token_text(settings.get(key)) for key in ("bos_token", "eos_token")}
    try:
        return environment.from_string(template).render(
            messages=messages, add_generation_prompt=True, tools=None, **names
        )
    except TemplateError as error:
        raise RequestError(f"the model's chat template fails: {error}; choose another") from error


def token_text(token: Any) -> str:
    """A special token's text, whether stored as a string or as an object."""
    return token["content"] if isinstance(token, dict) else token or ""


def byte_characters() -> list[tuple[int, str]]:
    """Bytes and the characters that stand for them in a byte-level vocabulary, as GPT-2 has it:
    printable ones for themselves, the others in order for those from U+0100."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return [(n, chr(n if n in printable else 256 + others.index(n))) for n in range(256)]


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, {} where the file is missing."""
    if not path.is_file():
        return {}
    loaded: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return loaded


def chat_template(folder: Path, settings: dict[str, Any]) -> str | None:
    """The folder's chat template, None where the model has none."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text("utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):  # several, by name
        named = {one["name"]: one["template"] for one in template}
        template = named.get("default", next(iter(named.values()), None))
    return template


def end_tokens(folder: Path) -> frozenset[int]:
    """Ids that end an answer, of generation_config.json and config.json."""
    found: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        value = read_json(folder / name).get("eos_token_id")
        if value is not None:
            found |= set(value if isinstance(value, list) else [value])
    return frozenset(found)
