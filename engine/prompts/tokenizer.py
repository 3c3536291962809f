"""A model folder's tokenizer and chat template: text to token ids and back.

User text never becomes a control token: the tokenizer here has none, and control tokens are added
by hand where the model's own template writes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from hashlib import sha256
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any

import numpy as np

from engine.memory import give_back_memory
from engine.prompts.call_formats import MARKS, format_of
from engine.prompts.call_formats.call_format import CallFormat
from engine.prompts.chat_template import (
    SLOT,
    SLOTS,
    TemplateRefusal,
    chat_template,
    end_tokens,
)
from engine.prompts.prompt_spans import Turn
from engine.prompts.reasoning import OPENING, ReasoningMarks, reasoning_marks
from engine.prompts.text_pieces import CUT_PROBE, PIECE_CHARS, may_cut, pieces
from engine.prompts.token_bounds import Shares, byte_shares, fewest_tokens, steps_of
from engine.prompts.token_bytes import is_byte_level, words_bytes
from engine.prompts.tokenizer_file import (
    build_tokenizer,
    first_tokens,
    panics_as_errors,
    read_tokenizer,
)
from engine.prompts.tools import Tool, tool_use, with_tools_in_words
from engine.records import Message
from engine.weights.gguf.end_tokens import turn_ends

SPEC_PARTS = ("normalizer", "pre_tokenizer", "model", "decoder")
SHORT_CHARS = 1 << 12  # characters; tokenized in two milliseconds, in which no other thread runs
BEFORE = "\ue000"  # no token of any vocabulary has this character with others
SOURCE_FOLDERS = 3  # folders that name a model: models--OWNER--NAME/snapshots/REVISION
PROMPT_END_TOKENS = 16  # tokens in which a template that begins to reason says so
PIECES_AT_ONCE = 8  # pieces of a long text, tokenized on all cores
NO_REASONING = "You are a helpful assistant. Answer at once."  # where a template requests reasoning
Encode = Callable[[str], list[int]]


class Tokenizer:
    """A model folder's tokenizer, chat template and end tokens.

    `control` has the control tokens by name; texts never produce one. `begin` are the ids before a
    text that no template writes. `source` is where the model comes from, in lower case, as far as
    its folder tells.
    """

    def __init__(self, folder: Path) -> None:
        file = folder / "tokenizer.json"
        spec = read_tokenizer(file)
        self.source = "/".join(folder.parts[-SOURCE_FOLDERS:]).lower()
        self.fingerprint = sha256(file.read_bytes()).hexdigest()
        self.control = {token["content"]: token["id"] for token in spec["added_tokens"]}
        vocabulary = spec["model"]["vocab"]
        self.control |= {
            name: vocabulary[name] for name in self.control if isinstance(vocabulary, dict)
            and name in vocabulary
        }  # fmt: skip
        self.begin = [token for token in first_tokens(spec) if token in self.control.values()]
        self._spec: dict[str, Any] = {key: spec.get(key) for key in SPEC_PARTS}
        spec |= {"added_tokens": [], "post_processor": None, "truncation": None, "padding": None}
        self.backend = build_tokenizer(file, spec)
        self._spec["model"].pop("merges", None)  # only the library needs them, and has its own
        give_back_memory()  # reading the file took twice its size, in small blocks
        self.template = chat_template(folder)
        self.eos = end_tokens(folder).union(turn_ends(self.control))
        names = sorted(map(re.escape, self.control), key=len, reverse=True)
        self._marks = re.compile(f"({'|'.join(names)})") if names else None

    def encode(self, text: str) -> list[int]:
        """Ids of plain text. Other threads run meanwhile."""
        return list(chain.from_iterable(self.encode_in_pieces(text)))

    def encode_inside(self, text: str, encode: Encode | None = None) -> list[int]:
        """Return the ids of a text that follows another one.

        They lack the blank that SentencePiece puts before a text. `encode` replaces the tokenizer's
        own, to bound the text.
        """
        encode = encode or self.encode
        if not self._puts_blank:
            return encode(text)
        before, ids = self.before, encode(BEFORE + text)
        return ids[len(before) :] if ids[: len(before)] == before else self.encode(text)

    @cached_property
    def before(self) -> list[int]:
        """Ids that `encode_inside` puts before a text and drops again; [] where it need not."""
        return self.encode(BEFORE) if self._puts_blank else []

    @cached_property
    def lead(self) -> list[int]:
        """The ids of some text to decode before tokens that follow a text.

        Their first blank would be dropped without it; [] where none would be.
        """
        return self.encode("a") if self._puts_blank else []

    @cached_property
    def _puts_blank(self) -> bool:
        """Return whether a blank is put before a text, and dropped when ids are decoded."""
        steps = [*steps_of(self._spec["normalizer"]), *steps_of(self._spec["pre_tokenizer"])]
        return any(
            step["type"] == "Prepend"
            or (step["type"] == "Metaspace" and step.get("prepend_scheme", "always") != "never")
            for step in steps
        )

    def encode_in_pieces(self, text: str) -> Iterator[list[int]]:
        """Yield the ids of a text piece by piece, so that the caller can stop."""
        if len(text) <= SHORT_CHARS:  # not on the threads that long texts share
            with panics_as_errors():
                ids: list[int] = self.backend.encode(text, add_special_tokens=False).ids
            yield ids
            return
        parts = pieces(text) if len(text) > PIECE_CHARS and self._may_cut else iter([text])
        while batch := [*islice(parts, PIECES_AT_ONCE)]:
            with panics_as_errors():
                encoded = self.backend.encode_batch_fast(batch, add_special_tokens=False)
            for encoding in encoded:
                yield encoding.ids

    def fewest_tokens(self, text: str) -> int:
        """Count the tokens that a text has at least, without tokenizing it.

        0 if the kind of tokenizer tells nothing.
        """
        return fewest_tokens(text, self._byte_shares)

    def decode(self, ids: list[int]) -> str:
        with panics_as_errors():
            text: str = self.backend.decode(ids, skip_special_tokens=True)
        return text

    def own_text(self, token: int) -> str | None:
        """Return the text of a token that is the same wherever it is.

        None where that depends on its neighbours, and for control tokens.
        """
        if token not in self._own_texts:
            known = self.token_bytes if self._byte_level else []
            data = known[token] if token < len(known) else None
            text = "\ufffd" if data is None else data.decode("utf-8", "replace")
            self._own_texts[token] = None if "\ufffd" in text else text or None
        return self._own_texts[token]

    @cached_property
    def _own_texts(self) -> dict[int, str | None]:
        return {}

    @cached_property
    def words(self) -> dict[str, int]:
        """Return every token as tokenizer.json writes it, control tokens included, and its id."""
        known = self._spec["model"]["vocab"]
        if not isinstance(known, dict):  # Unigram: pairs of a word and its score
            known = {pair[0]: number for number, pair in enumerate(known)}
        return known | self.control

    @cached_property
    def call_marks(self) -> dict[int, str]:
        """The control tokens around calls of tools, which are text in answers that may call."""
        return {self.control[mark]: mark for mark in MARKS if mark in self.control}

    @cached_property
    def call_format(self) -> CallFormat:
        """The format in which the model writes calls of tools."""
        return format_of(self.template.text if self.template else "")

    # -- for the index -------------------------------------------------------------------------

    def encode_batch(self, texts: list[str]) -> list[np.ndarray[Any, Any]]:
        """Ids (int32) of many texts, on all cores."""
        with panics_as_errors():
            batch = self.backend.encode_batch_fast(texts, add_special_tokens=False)
        return [np.asarray(encoding.ids, np.int32) for encoding in batch]

    def encode_with_offsets(self, text: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Ids, and the code point of `text` where each starts."""
        with panics_as_errors():
            (one,) = self.backend.encode_batch([text], add_special_tokens=False)  # without the GIL
        return np.asarray(one.ids, np.int32), np.asarray([a for a, _ in one.offsets], np.int64)

    @cached_property
    def byte_lengths(self) -> np.ndarray[Any, Any]:
        """UTF-8 bytes of each id's text (int32); -1 where it depends on its neighbours."""
        if not self._byte_level:
            return np.full(len(self.token_bytes), -1, np.int32)
        return np.array([-1 if data is None else len(data) for data in self.token_bytes], np.int32)

    @cached_property
    def token_bytes(self) -> list[bytes | None]:
        """The UTF-8 bytes of each id's text.

        None for control tokens, unused ids and tokens without a text of their own. SentencePiece
        drops the first blank of a text, which is included here.
        """
        control = set(self.control.values())
        return [None if n in control else one for n, one in enumerate(self._vocabulary_bytes)]

    def bytes_of(self, token: int) -> bytes:
        """Return the bytes of a token's text, or of a control token's name."""
        known = self._vocabulary_bytes
        return self._names.get(token) or (known[token] if token < len(known) else None) or b""

    @cached_property
    def _names(self) -> dict[int, bytes]:
        return {number: name.encode() for name, number in self.control.items()}

    @cached_property
    def _vocabulary_bytes(self) -> list[bytes | None]:
        """The same with control tokens."""
        return words_bytes(self._spec["model"]["vocab"], self._spec["decoder"] or {}, self.backend)

    @cached_property
    def _byte_shares(self) -> Shares:
        return byte_shares(self._spec, self._byte_level, self._vocabulary_bytes)

    @cached_property
    def _may_cut(self) -> bool:
        """Return whether the ids of a text's pieces, joined, are the text's ids."""
        if not self._byte_level or not may_cut(self._spec, self._vocabulary_bytes):
            return False
        *parts, whole = self.encode_batch([*CUT_PROBE, "".join(CUT_PROBE)])
        return np.array_equal(np.concatenate(parts), whole)

    @property
    def _byte_level(self) -> bool:
        """Return whether a token's characters stand for one byte each."""
        return is_byte_level(self._spec["model"]["vocab"], self._spec["decoder"] or {})

    def places(
        self, ids: np.ndarray[Any, Any]
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return the starts and stops of the code points (int64) that each token covers.

        They count from 0; a code point covered in part counts. The ids' bytes must add up to a
        text.
        """
        begun, inside = self._code_points
        begun = begun[ids]
        stops = np.cumsum(begun, dtype=np.int64)
        return stops - begun - inside[ids], stops

    @cached_property
    def _code_points(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Count the code points that begin in the bytes of each id (int32).

        The second array has 1 where its first byte is a continuation byte. 0 where the bytes depend
        on neighbours.
        """
        lengths = np.maximum(self.byte_lengths, 0)
        if not lengths.any():
            return np.zeros_like(lengths), np.zeros_like(lengths)
        data = np.frombuffer(b"".join(known or b"" for known in self.token_bytes), np.uint8)
        begins = np.append(data & 0xC0 != 0x80, True)
        counts = np.cumsum(np.append(False, begins), dtype=np.int32)
        starts = np.cumsum(lengths) - lengths
        inside = (lengths > 0) & ~begins[starts]
        return counts[starts + lengths] - counts[starts], inside.astype(np.int32)

    # -- chat ----------------------------------------------------------------------------------

    @cached_property
    def reasoning(self) -> ReasoningMarks | None:
        """The marks around reasoning; None for a model without any."""
        return reasoning_marks(self.control, self.template.text if self.template else "")

    def ends_in_reasoning(self, ids: list[int]) -> bool:
        """Return whether reasoning follows a prompt, since its template has begun it."""
        if self.reasoning is None:
            return False
        control = set(self.control.values())
        last = next((token for token in reversed(ids) if token in control), -1)
        if self.reasoning.tokens.get(last) in OPENING:
            return True
        end = self.decode(ids[-PROMPT_END_TOKENS:]).rstrip()
        return any(end.endswith(opening) for opening, _ in self.reasoning.texts)

    def chat(self, messages: Sequence[Message], reply: str = "") -> list[int]:
        """Ids of a conversation up to the assistant's turn, which starts with `reply`."""
        return [token for _, ids in self.turns(messages, reply) for token in ids]

    def turns(
        self,
        messages: Sequence[Message],
        reply: str = "",
        encode: Encode | None = None,
        thinking: bool = True,
        tools: Sequence[Tool] = (),
    ) -> list[Turn]:
        """Return a conversation in parts that are each encoded separately.

        `encode` replaces the tokenizer's own, to bound the conversation. `thinking=False`: the
        answer follows at once, without reasoning. `tools` may be called in it.
        """
        encode = encode or self.encode
        template = "" if self.template is None else self.template.text
        if (tools or any("tool_calls" in item for item in messages)) and "tools" not in template:
            messages, tools = with_tools_in_words(messages, tools), ()
        if self.template is None:
            turns = "".join(f"{message['role']}: {message['content']}\n\n" for message in messages)
            text = f"{turns}assistant: {reply}"
            return [("", self.begin), (text, encode(text))]
        texts, rendered = self._rendered(messages, thinking, tools)
        parts = SLOTS.split(rendered)
        if self._puts_blank:
            return self._runs(parts, texts, reply, encode)
        found: list[Turn] = []
        for n, part in enumerate(parts):
            text = texts[int(part)] if n % 2 else ""
            found.append((text, encode(text) if n % 2 else self._template(part, encode)))
        return [*found, (reply, encode(reply))]

    def _runs(
        self, parts: list[str], texts: Sequence[str], reply: str, encode: Encode
    ) -> list[Turn]:
        """Return a conversation's turns where a blank is put before a text.

        SentencePiece does so only after control tokens, so that the text between two of them is
        one.
        """
        found: list[str | int] = []
        for n, part in enumerate(parts):
            found += [texts[int(part)]] if n % 2 else self._with_marks(part)
        turns: list[Turn] = []
        for is_text, group in groupby([*found, reply], lambda part: isinstance(part, str)):
            run = [*group]
            text = "".join(map(str, run)) if is_text else ""
            turns.append((text, encode(text) if is_text else [int(token) for token in run]))
        return turns

    def _rendered(
        self, messages: Sequence[Message], thinking: bool, tools: Sequence[Tool]
    ) -> tuple[Sequence[str], str]:
        """Return the conversation as the template writes it, and the texts of its slots.

        Where the template requests reasoning or begins to reason all the same, its system message
        is replaced, and the reasoning ended at once.
        """
        texts, text = self._fitting(messages, thinking, tools)
        if thinking or self.reasoning is None:
            return texts, text
        instructed = any(message["role"] == "system" for message in messages)
        if not instructed and self.reasoning.asks(SLOTS.split(text, maxsplit=1)[0]):
            plain: Message = {"role": "system", "content": NO_REASONING}
            texts, text = self._fitting([plain, *messages], thinking, tools)
        return texts, text + self.reasoning.closing(text, calls=bool(tools))

    def _fitting(
        self, messages: Sequence[Message], thinking: bool, tools: Sequence[Tool]
    ) -> tuple[Sequence[str], str]:
        """Return the conversation as the template writes it.

        For one that refuses or drops system messages the first one becomes a part of the user's.
        """
        assert self.template is not None
        if [message["role"] for message in messages[:2]] != ["system", "user"]:
            return self._written(messages, thinking, tools)
        refusal = None
        try:
            texts, text = self._written(messages, thinking, tools)
            if SLOT.format(0) in text:
                return texts, text
        except TemplateRefusal as error:
            refusal = error
        system, user, *rest = messages
        content = f"{system['content']}\n\n{user['content']}"
        try:
            return self._written([{"role": "user", "content": content}, *rest], thinking, tools)
        except TemplateRefusal as error:
            raise refusal or error from None

    def _written(
        self, messages: Sequence[Message], thinking: bool, tools: Sequence[Tool]
    ) -> tuple[Sequence[str], str]:
        """Return the conversation as the template writes it, and the texts of its slots."""
        assert self.template is not None
        use = tool_use(messages, tools, self._marks, self.call_format.raw_texts)
        text = self.template.render([message["role"] for message in messages], thinking, use)
        return [*(message["content"] for message in messages), *use.texts], text

    def _template(self, text: str, encode: Encode) -> list[int]:
        """Ids of the template's own text, in which control tokens count as such."""
        ids: list[int] = []
        for part in self._with_marks(text):
            ids += encode(part) if isinstance(part, str) else [part]
        return ids

    def _with_marks(self, text: str) -> list[str | int]:
        """Return the template's own text, with the ids of control tokens in their place."""
        parts = self._marks.split(text) if self._marks else [text]
        found = [self.control[part] if n % 2 else part for n, part in enumerate(parts)]
        return [part for part in found if part != ""]
