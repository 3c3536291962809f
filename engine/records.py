"""The nouns of the engine: plain values that travel. No behaviour, no torch, no tokenizer.

Token ids stay inside `engine`; what leaves it is text (`Step`, `Done`). A `Request` holds
everything an answer depends on, so it can be replayed; how the answer is drafted is not part of
it, because that never changes the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from index.records import Span

Kind = Literal["edit", "complete", "chat"]
Reason = Literal["stop", "length", "cancelled", "failed"]
Message = dict[str, str]  # {"role": "system" | "user" | "assistant", "content": text}
COLDEST = 1e-6  # temperature that is not greedy: below it numbers would overflow


class RequestError(ValueError):
    """A request that cannot be answered; the message is one line: what is wrong and the remedy."""


class Passage(NamedTuple):
    """A part of a document that a message shows, in plain form and on lines of its own."""

    document: str  # its id
    start: int  # code point of the document
    text: str  # as it stands there


@dataclass(frozen=True, slots=True)
class Request:
    """Everything an answer depends on.

    `edit`: rewrite `text` (or `text[selection]`, code points) of `path` by `instruction`.
    `complete`: continue `text`, as it stands; with a `suffix`, write what stands between the two,
    where the model can. `chat`: answer `messages`.
    """

    kind: Kind
    text: str = ""
    path: str = ""
    version: int = 0
    selection: tuple[int, int] | None = None
    instruction: str = ""
    suffix: str | None = None
    suffix_first: bool = False  # it is shown before `text` (SPM; else PSM, which models know best)
    snippets: tuple[tuple[str, str], ...] = ()  # (path, text) of other files, to be shown as well
    messages: tuple[Message, ...] = ()
    documents: tuple[Passage, ...] = ()  # in the messages' order; only to tell what is copied
    predictions: tuple[str, ...] = ()  # texts expected to be repeated, beside what `kind` implies
    max_tokens: int | None = None  # None: the kind's own limit, within the model's context
    temperature: float = 0.0  # 0: greedy
    top_k: int = 0  # 0: all
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.temperature != 0 and not COLDEST <= self.temperature < math.inf:
            raise RequestError(
                f"temperature {self.temperature}: must be 0 (greedy), or {COLDEST} and more"
            )
        if self.top_k < 0:
            raise RequestError(f"top_k {self.top_k}: must be 0 (all tokens) or more")
        if not 0 < self.top_p <= 1:
            raise RequestError(f"top_p {self.top_p}: must be above 0 and at most 1")
        if self.max_tokens is not None and self.max_tokens < 0:
            raise RequestError(f"max_tokens {self.max_tokens}: must be 0 or more")


@dataclass(slots=True)
class Draft:
    """A tree of proposed tokens, flattened. Parents precede children; -1 is the last committed
    token, which is never part of the draft. Lists are parallel, one entry a node."""

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    probs: list[float] = field(default_factory=list)  # P(accepted | parent accepted)
    sources: list[str] = field(default_factory=list)
    span: Callable[[int], Span | None] = lambda node: None  # of a node that was accepted
    # node -> probabilities (f64 [vocabulary]) that it was drawn from, given its earlier siblings;
    # not there: chosen without chance. Only `engine.sampling.rejection_sampling` asks
    drawn: dict[int, Any] = field(default_factory=dict)
    passes: int = 0  # of the model itself that drafting took

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, token: int, parent: int, prob: float, source: str) -> int:
        """Append a node and return its index."""
        self.tokens.append(token)
        self.parents.append(parent)
        self.probs.append(prob)
        self.sources.append(source)
        return len(self.tokens) - 1

    def first(self, count: int) -> Draft:
        """The tree of the first `count` nodes; parents precede children, so it is one."""
        if count >= len(self):
            return self
        n = max(count, 0)
        lists = (self.tokens[:n], self.parents[:n], self.probs[:n], self.sources[:n])
        return Draft(*lists, self.span, self.drawn, self.passes)


@dataclass(slots=True)
class Scores:
    """What the model said: row 0 follows the last committed token, row i + 1 follows node i."""

    logits: Any  # torch.Tensor [1 + nodes that were run, vocabulary], f32
    hidden: Any = None  # torch.Tensor [1 + nodes, width], where asked for
    # (request, absolute position behind row 0) -> the model's own token after every row, -1 where
    # its logits are no numbers; None: `engine.sampling.verify` chooses. To be asked before the next pass
    chosen: Callable[[Request, int], list[int]] | None = None
    # width -> (ids, logits) of so many likeliest words of every row, as arrays [rows, width] that
    # are good until the next pass: for who asks behind every pass they come with `chosen`
    likely: Callable[[int], tuple[Any, Any]] | None = None


class Piece(NamedTuple):
    """Text of one step and where its tokens were drafted from ("model": not drafted;
    "documents": `span.path` is the document's id)."""

    text: str
    source: str
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One forward pass. While the prompt is read `prefill` is (tokens read, tokens in all)."""

    pieces: tuple[Piece, ...] = ()
    drafted: int = 0
    accepted: int = 0
    seconds: float = 0.0
    prefill: tuple[int, int] | None = None

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Usage:
    """Counts in tokens, times in seconds. Tokens after a stop are never counted."""

    prompt_tokens: int = 0
    cached_tokens: int = 0  # of the prompt's, taken from an earlier request's cache
    completion_tokens: int = 0
    forwards: int = 0  # passes that produced the completion; the prompt's own are not among them
    drafted: int = 0
    accepted: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    draft_seconds: float = 0.0  # of them: drafting, and learning from what became of it


@dataclass(frozen=True, slots=True)
class Done:
    """The end of every stream, exactly once. `text` is the whole answer, without the stop string
    that ended it; `matched` is that string, None where the model's own end token did."""

    reason: Reason
    text: str = ""
    matched: str | None = None
    usage: Usage = Usage()
    error: str | None = None


Event = Step | Done
