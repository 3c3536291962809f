"""Text to token ids and back: the only place that knows the tokenizer and the chat template.

User text never becomes a control token: the tokenizer here has none, and control tokens are put
in by hand where the model's own template writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from engine.editing.edits import inner, plain
from engine.prompts.chat_template import chat_template, end_tokens, read_json, render
from engine.prompts.fim import ends, infill_ids
from engine.prompts.prompt_spans import Turn, places
from engine.prompts.token_bytes import is_byte_level, words_bytes
from engine.records import Message, Request, RequestError
from engine.weights.integrity import read_object
from index.records import Span

EDIT_SYSTEM = (
    "You are a careful code editor. You rewrite the given code by the instruction, change nothing "
    "else, and answer with the rewritten code only, in one code block."
)
CHAT_TOKENS, COMPLETE_TOKENS = 1024, 256  # room where the request names none
AROUND = 32_000  # characters before and after a selection that may be copied from
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
    whole: bool = False  # predictions[0] is a whole file, which the answer repeats
    span: Callable[[int, int], Span | None] | None = None  # (prediction, token) -> its place
    documents: Callable[[int], Span | None] | None = None  # token of ids -> its place


class Tokenizer:
    """A model folder's tokenizer.json, chat template and end tokens, without control tokens."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer as Backend

        raw = (folder / "tokenizer.json").read_bytes()
        self.fingerprint = sha256(raw).hexdigest()
        spec: Any = read_object(folder / "tokenizer.json")
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

    @cached_property
    def words(self) -> dict[str, int]:
        """Every word as the tokenizer's file writes it, control tokens too, and its id. Models of
        the same words read the same tokens."""
        known = self._spec["model"]["vocab"]
        if not isinstance(known, dict):  # Unigram: pairs of a word and its score
            known = {pair[0]: number for number, pair in enumerate(known)}
        return known | self.control

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
        if not self._byte_level:
            return np.full(len(self.token_bytes), -1, np.int32)
        return np.array([-1 if one is None else len(one) for one in self.token_bytes], np.int32)

    @cached_property
    def token_bytes(self) -> list[bytes | None]:
        """UTF-8 bytes of each id's text, as far as one token has a text of its own; None for
        control tokens and unused ids. Where blanks are written "\u2581" the first one of a text is
        not in it."""
        known = words_bytes(self._spec["model"]["vocab"], self._spec["decoder"] or {}, self.backend)
        for number in self.control.values():
            if number < len(known):
                known[number] = None
        return known

    @property
    def _byte_level(self) -> bool:
        """Whether a token's characters stand for one byte each."""
        return is_byte_level(self._spec["model"]["vocab"], self._spec["decoder"] or {})

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
        lengths = np.maximum(self.byte_lengths, 0)
        if not lengths.any():
            return np.zeros_like(lengths), np.zeros_like(lengths)
        data = np.frombuffer(b"".join(one or b"" for one in self.token_bytes), np.uint8)
        begins = np.append(data & 0xC0 != 0x80, True)
        counts = np.cumsum(np.append(False, begins), dtype=np.int32)
        starts = np.cumsum(lengths) - lengths
        inside = (lengths > 0) & ~begins[starts]
        return counts[starts + lengths] - counts[starts], inside.astype(np.int32)

    # -- chat ----------------------------------------------------------------------------------

    def chat(self, messages: tuple[Message, ...] | list[Message], reply: str = "") -> list[int]:
        """Ids of a conversation, up to the assistant's turn, which starts with `reply`."""
        return [one for _, ids in self.turns(messages, reply) for one in ids]

    def turns(self, messages: tuple[Message, ...] | list[Message], reply: str = "") -> list[Turn]:
        """A conversation in parts, each encoded by itself."""
        if self.template is None:
            turns = "".join(f"{one['role']}: {one['content']}\n\n" for one in messages)
            text = f"{turns}assistant: {reply}"
            return [(text, self.encode(text))]
        slots = [{"role": one["role"], "content": SLOT.format(n)} for n, one in enumerate(messages)]
        rendered = render(self.template, slots, self.settings)
        found: list[Turn] = []
        for n, part in enumerate(re.split("\ue000([0-9]+)\ue001", rendered)):
            text = messages[int(part)]["content"] if n % 2 else ""
            found.append((text, self.encode(text) if n % 2 else self._template(part)))
        return [*found, (reply, self.encode(reply))]

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
        turns = tokenizer.turns(request.messages)
        ids = [one for _, part in turns for one in part]
        room = CHAT_TOKENS if request.max_tokens is None else request.max_tokens
        told = places(request.documents, turns, tokenizer)
        return Prompt(ids, predictions, request.stop, room, documents=told)
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
    around = [tokenizer.encode(text) for text in surroundings(request.text, first, last)]
    return Prompt(
        ids,
        [expected, *predictions, *around],
        (f"\n{fence}", *request.stop),
        room,
        whole=not around,
        span=spans(request, first, last, expected, tokenizer),
    )


def surroundings(text: str, first: int, last: int) -> list[str]:
    """What stands before and after the place that is edited, within bounds: it may be copied.
    Nothing around a whole file, whatever blank lines it begins or ends with."""
    near = text[max(0, first - AROUND) : first], text[last : last + AROUND]
    return [plain(part) for part in near if part.strip()]


def spans(
    request: Request, first: int, last: int, expected: list[int], tokenizer: Tokenizer
) -> Callable[[int, int], Span | None] | None:
    """Where the tokens of the edited text stand in the file: (0, token) -> its Span."""
    if not request.path or plain(request.text[first:last]) != request.text[first:last]:
        return None  # other line ends: no position is the same

    @cache
    def places() -> tuple[list[int], list[int]]:
        starts, stops = tokenizer.places(np.array(expected, np.int32))
        return starts.tolist(), stops.tolist()

    def span(prediction: int, token: int) -> Span | None:
        starts, stops = places()
        if prediction != 0 or token >= len(starts) or first + stops[token] > last:
            return None
        return Span(request.path, first + starts[token], first + stops[token], request.version)

    return span


def longest_run(text: str, mark: str) -> int:
    """Length of the longest run of one character."""
    return max((len(run) for run in re.findall(f"{re.escape(mark)}+", text)), default=0)
