"""Drafting: guessing what the model will write next, from text that exists.

A *drafter* proposes one tree a step and is told what became of it; `blend` is the one in use, which
mixes several *sources* of chains by calibrated probability and cost. Nothing a drafter does can
change the answer: verification sees to that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from engine.records import Draft
from index.records import Span


@dataclass(slots=True)
class Context:
    """What a drafter may look at: the prompt, the output so far, and what is expected to recur."""

    prompt: list[int]
    predictions: list[list[int]] = field(default_factory=list)
    output: list[int] = field(default_factory=list)
    room: int = 0  # nodes that this step may draft at most
    path: str = ""  # of the text that is edited or completed, if it has one

    @property
    def last(self) -> int:
        """The last committed token."""
        return self.output[-1] if self.output else self.prompt[-1]

    def tail(self, count: int) -> list[int]:
        """The last `count` committed tokens."""
        if len(self.output) >= count:
            return self.output[-count:]
        missing = count - len(self.output)
        return self.prompt[-missing:] + self.output


class Drafter(Protocol):
    """Proposes trees and learns from their fate. One instance serves one request."""

    def begin(self, context: Context) -> None:
        """Once, after the prompt was read."""

    def propose(self, context: Context, target: Any) -> Draft:
        """At most `context.room` nodes that may follow the committed tokens; may be empty."""
        ...

    def observe(
        self, draft: Draft, path: list[int], committed: list[int], scores: Any, seconds: float
    ) -> None:
        """After every verification: the accepted path, the tokens committed (the path's and the
        model's own, cut where the answer ends), the pass's Scores, and the whole step's time."""


class Chain(NamedTuple):
    """One guess of a source: tokens that may come next, and how much speaks for them.

    `match` is how many tokens before the guess agree with the place it was copied from; the token
    at depth d has match + d, should those before it be right."""

    tokens: list[int]
    match: int
    source: str
    kind: str  # what to calibrate by: guesses of one kind and match are equally often right
    span: Callable[[int, int], Span | None] | None = None  # (start, stop) in tokens -> its place


class Source(Protocol):
    """A place that chains are copied from."""

    def begin(self, context: Context) -> None: ...

    def chains(self, context: Context, length: int) -> list[Chain]:
        """Guesses of at most `length` tokens each, best first."""
        ...

    def extend(self, tokens: list[int]) -> None:
        """Newly committed tokens."""


class Nothing:
    """The drafter that drafts nothing: plain decoding."""

    def begin(self, context: Context) -> None:
        pass

    def propose(self, context: Context, target: Any) -> Draft:
        return Draft()

    def observe(
        self, draft: Draft, path: list[int], committed: list[int], scores: Any, seconds: float
    ) -> None:
        pass
