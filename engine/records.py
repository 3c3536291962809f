"""The engine's data types: Info, Request, Draft, Scores, Step, Done. No torch, no tokenizer.

Token ids stay inside `engine`; what leaves it is text (`Step`, `Done`). A `Request` holds
everything that an answer depends on, so it can be replayed. How the answer is drafted is not part
of it, because that never changes the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from index.records import Span

Kind = Literal["edit", "complete", "chat"]
Reason = Literal["stop", "length", "cancelled", "failed"]
# {"role": "system" | "user" | "assistant" | "tool", "content": text}. An assistant's may have
# "tool_calls", JSON of a list of {"id", "name", "arguments": {...}} (a text where a client sent no
# object), and "reasoning_content"; a tool: "tool_call_id"
Message = dict[str, str]
MIN_TEMPERATURE = 1e-6  # temperature of sampling; smaller ones would overflow
NO_LOGPROB = -9999.0  # stands for the logarithm of 0, which JSON cannot write
MAX_STOP_CHARS = 4096  # characters of a stop string that a client sends
MAX_PREDICTIONS = 4096  # texts of a request that are used
MAX_PREDICTION_CHARS = 512 << 10  # characters of predictions that are used: some 150,000 tokens


class RequestError(ValueError):
    """A request that cannot be answered. The message is one line with the problem and a remedy."""


class Info(NamedTuple):
    """The model and the machine it runs on."""

    model: str  # as the configuration names it
    device: str  # as a person would name it
    dtype: str
    context: int  # tokens
    fills_middle: bool  # the tokenizer has fill-in-the-middle marks
    prefill_tokens_per_s: float


class Passage(NamedTuple):
    """A part of a document that a message quotes on lines of its own, with LF line ends."""

    document: str  # the document's id
    start: int  # code point in the document
    text: str  # exactly as in the document


@dataclass(frozen=True, slots=True)
class Request:
    """Everything that an answer depends on.

    `edit`: rewrite `text` (or `text[selection]`, in code points) of `path` by `instruction`; with
    an `update`, merge that snippet into `text` (engine/editing/apply_snippet.py).
    `complete`: continue `text`; with a `suffix`, fill in the middle where the model can. With
    `parse_special`, `text` is a whole prompt whose fill-in-the-middle, file and region marks count.
    `chat`: answer `messages`.
    """

    kind: Kind
    text: str = ""
    path: str = ""
    version: int = 0
    selection: tuple[int, int] | None = None
    instruction: str = ""
    update: str = ""  # changed lines of an `edit`, with marks for the others
    suffix: str | None = None
    suffix_first: bool = False  # suffix before prefix (SPM); models know PSM best
    snippets: tuple[tuple[str, str], ...] = ()  # (path, text) of other files to show
    parse_special: bool = False
    messages: tuple[Message, ...] = ()
    documents: tuple[Passage, ...] = ()  # quoted by the messages, in order; for citations only
    # Texts expected to recur, in addition to what `kind` implies; at most MAX_PREDICTIONS and
    # MAX_PREDICTION_CHARS of them are used.
    predictions: tuple[str, ...] = ()
    # None: for a chat the rest of the context, 256 for a completion; an edit follows its text
    max_tokens: int | None = None
    temperature: float = 0.0  # 0: greedy
    top_k: int = 0  # 0: all
    top_p: float = 1.0
    min_p: float = 0.0  # least share of the likeliest token's probability, at the temperature
    seed: int = 0
    stop: tuple[str, ...] = ()
    stop_tokens: tuple[int, ...] = ()  # end tokens next to the model's own
    min_tokens: int = 0  # tokens that the answer has before an end token may come
    ignore_end: bool = False  # the model's own end tokens never come
    # What is added to logits: (token id, number); numbers for each token that the answer has
    # already, once and for each time; and the number by which the logits of tokens that the prompt
    # or the answer have are divided, or multiplied where they are negative.
    logit_bias: tuple[tuple[int, float], ...] = ()
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logprobs: int | None = None  # likeliest tokens that each Step tells next to each of its own
    prompt_logprobs: bool = False  # Steps tell them of the prompt's tokens, too, which is read anew
    # Functions that the model may call in a `chat`, each a JSON object with its name, description
    # and parameters, a JSON schema
    tools: tuple[str, ...] = ()
    must_call: tuple[str, ...] = ()  # names of tools; the model must call one of them
    grammar: str = ""  # grammar that the answer follows (engine.sampling.grammar); "": none
    thinking: bool = True  # a model that reasons before it answers a `chat` may do so
    continues: bool = False  # the answer goes on with the last message, the assistant's

    def __post_init__(self) -> None:
        if self.temperature != 0 and not MIN_TEMPERATURE <= self.temperature < math.inf:
            raise RequestError(
                f"temperature {self.temperature}: must be 0 (greedy), or {MIN_TEMPERATURE} and more"
            )
        if self.top_k < 0:
            raise RequestError(f"top_k {self.top_k}: must be 0 (all tokens) or more")
        if not 0 < self.top_p <= 1:
            raise RequestError(f"top_p {self.top_p}: must be above 0 and at most 1")
        if not 0 <= self.min_p <= 1:
            raise RequestError(f"min_p {self.min_p}: must be 0 to 1")
        if self.repetition_penalty <= 0:
            raise RequestError(f"repetition_penalty {self.repetition_penalty}: must be above 0")
        if self.max_tokens is not None and self.max_tokens < 0:
            raise RequestError(f"max_tokens {self.max_tokens}: must be 0 or more")

    @property
    def changes_logits(self) -> bool:
        """Whether tokens are chosen from other logits than the model's own."""
        return bool(
            self.logit_bias
            or self.presence_penalty
            or self.frequency_penalty
            or self.repetition_penalty != 1
            or self.min_tokens
            or self.ignore_end
        )


@dataclass(slots=True)
class Draft:
    """A tree of proposed tokens, flattened: parallel lists with one entry per node.

    Parents precede children; the parent -1 is the last committed token, which is not part of the
    draft.
    """

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    probs: list[float] = field(default_factory=list)  # P(accepted | parent accepted)
    sources: list[str] = field(default_factory=list)
    span: Callable[[int], Span | None] = lambda node: None  # origin of an accepted node
    # node -> distribution (f64 [vocabulary]) that it was drawn from, given its earlier siblings;
    # missing: chosen deterministically. For rejection sampling only.
    drawn: dict[int, Any] = field(default_factory=dict)
    passes: int = 0  # passes of the target model that drafting took

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
        """Return the tree of the first `count` nodes."""
        if count >= len(self):
            return self
        n = max(count, 0)
        lists = (self.tokens[:n], self.parents[:n], self.probs[:n], self.sources[:n])
        return Draft(*lists, self.span, self.drawn, self.passes)

    def only(self, nodes: list[int]) -> Draft:
        """Return the tree of some nodes, in order; the parent of each must be among them."""
        new = {node: number for number, node in enumerate(nodes)} | {-1: -1}
        return Draft(
            [self.tokens[node] for node in nodes],
            [new[self.parents[node]] for node in nodes],
            [self.probs[node] for node in nodes],
            [self.sources[node] for node in nodes],
            lambda node: self.span(nodes[node]),
            {new[node]: drawn for node, drawn in self.drawn.items() if node in new},
            self.passes,
        )


class Scores:
    """The model's output: row 0 follows the last committed token, row i + 1 follows node i."""

    __slots__ = ("_logits", "_make", "chosen", "hidden", "launched", "likely", "rows")

    def __init__(
        self,
        logits: Any,
        hidden: Any = None,
        chosen: Callable[[Request, int], list[int]] | None = None,
        likely: Callable[[int], tuple[Any, Any]] | None = None,
        rows: int | None = None,
        launched: bool = False,
    ) -> None:
        """Hold the output of one forward pass.

        `logits`: torch.Tensor [1 + nodes run, vocabulary], f32; or, where `rows` gives their
        number, a function that makes them on first use, which must be before the next pass.
        `hidden`: torch.Tensor [1 + nodes, width], if requested.
        `chosen`: (request, absolute position after row 0) -> the model's token after every row, -1
        where logits are not finite; valid until the next pass. None: `engine.sampling.verify`
        chooses.
        `likely`: width -> (ids, logits) of the most likely tokens of every row, arrays [rows,
        width]; to be called before the next pass.
        `launched`: the model may still compute; whoever uses the output waits for it.
        """
        self._make = logits if rows is not None else None
        self._logits = None if rows is not None else logits
        self.hidden, self.chosen, self.likely, self.launched = hidden, chosen, likely, launched
        self.rows: int = rows if rows is not None else 0 if logits is None else len(logits)

    @property
    def logits(self) -> Any:
        """The logits: torch.Tensor [rows, vocabulary], f32."""
        if self._make is not None:
            self._logits, self._make = self._make(), None
        return self._logits

    @property
    def has_logits(self) -> bool:
        """Whether the logits were made, and may have been changed."""
        return self._make is None


class TokenChance(NamedTuple):
    """A token's text in bytes, and the logarithm of the probability that the model gave it.

    Before the first token of a prompt there is none.
    """

    data: tuple[int, ...]
    logprob: float | None


class Piece(NamedTuple):
    """Text of one step, and the source that its tokens were drafted from.

    The source "model" means that they were not drafted; with "documents", `span.path` is the
    document's id.
    """

    text: str
    source: str
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One forward pass. During prefill, `prefill` is (tokens read, prompt tokens)."""

    pieces: tuple[Piece, ...] = ()
    drafted: int = 0
    accepted: int = 0
    seconds: float = 0.0
    prefill: tuple[int, int] | None = None
    reasoning: str = ""  # text that is not the answer's; `pieces` have none of it
    # Where the request asks for them: of each token, the likeliest ones in its place behind it
    logprobs: tuple[tuple[TokenChance, ...], ...] = ()

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Usage:
    """Counts in tokens, times in seconds. Tokens after a stop are not counted."""

    prompt_tokens: int = 0
    cached_tokens: int = 0  # prompt tokens found in the KV cache
    completion_tokens: int = 0
    forwards: int = 0  # passes that produced the completion, without prefill
    drafted: int = 0
    accepted: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    draft_seconds: float = 0.0  # part of decode_seconds: proposing drafts and learning from them

    def __str__(self) -> str:
        speed = self.completion_tokens / self.decode_seconds if self.decode_seconds else 0.0
        return (
            f"{self.completion_tokens} tokens in {self.forwards} passes, {speed:.1f} tokens/s, "
            f"{self.accepted} of {self.drafted} drafted tokens accepted; "
            f"{self.prompt_tokens} tokens of prompt, {self.cached_tokens} of them cached"
        )


@dataclass(frozen=True, slots=True)
class Done:
    """The last event of every stream.

    `text` is the whole answer without the stop string that ended it; `matched` is that string, None
    if the model ended the answer itself.
    """

    reason: Reason
    text: str = ""
    matched: str | None = None
    usage: Usage = Usage()
    error: str | None = None
    reasoning: str = ""  # reasoning that preceded the text

    def __str__(self) -> str:
        """Return the text, and a line of figures."""
        ended = f"{self.reason} ({self.error})" if self.error else self.reason
        return f"{self.text}\n[{ended}: {self.usage}]"


Event = Step | Done
