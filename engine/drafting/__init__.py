"""Drafting: guessing what the model will write next, from text that exists.

A *drafter* proposes one tree a step and is told what became of it; `next_token` is the one in use.
Nothing a drafter does can change the answer: verification sees to that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.config import Verification
from engine.records import Draft, Request
from index.records import Span


@dataclass(slots=True)
class DraftContext:
    """What a drafter may look at: the prompt, the output so far, and what is expected to recur."""

    prompt: list[int]
    predictions: list[list[int]] = field(default_factory=list)
    output: list[int] = field(default_factory=list)
    room: int = 0  # nodes that this step may draft at most
    path: str = ""  # of the text that is edited or completed, if it has one
    whole: bool = False  # the answer repeats all of predictions[0], a file
    start: int = 0  # in predictions[0], where the answer starts to repeat it
    span: Callable[[int, int], Span | None] | None = None  # (prediction, token) -> its place
    documents: Callable[[int], Span | None] | None = None  # token of the prompt -> its place
    history: list[list[int]] = field(default_factory=list)  # what was written before, newest last
    request: Request = field(default_factory=lambda: Request("complete"))  # how it is sampled
    verification: Verification = "match"  # how drafts are judged: drafters that draw must know
    eos_ids: frozenset[int] = frozenset()  # ids that end the answer: nothing is drafted behind one

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

    needs_prompt_states: bool  # whether it is to be told how the prompt is read

    def observe_prompt(self, target: Any, tokens: list[int], states: Any) -> None:
        """Before `begin`, of each chunk of the prompt that is not in the cache yet: its tokens and
        hidden states, whose logits `target.logits` computes. Only where `needs_prompt_states` is set."""

    def begin(self, context: DraftContext) -> None:
        """Once, after the prompt was read."""

    def propose(self, context: DraftContext, target: Any) -> Draft:
        """At most `context.room` nodes that may follow the committed tokens; may be empty."""
        ...

    def observe(
        self, draft: Draft, path: list[int], committed: list[int], scores: Any, seconds: float
    ) -> None:
        """After every verification: the accepted path, the tokens committed (the path's and the
        model's own, cut where the answer ends), the pass's Scores, and the whole step's time."""


class NullDrafter:
    """The drafter that drafts nothing: plain decoding."""

    needs_prompt_states = False

    def observe_prompt(self, target: Any, tokens: list[int], states: Any) -> None:
        pass

    def begin(self, context: DraftContext) -> None:
        pass

    def propose(self, context: DraftContext, target: Any) -> Draft:
        return Draft()

    def observe(
        self, draft: Draft, path: list[int], committed: list[int], scores: Any, seconds: float
    ) -> None:
        pass


def chain(tokens: list[int], source: str) -> Draft:
    """A draft without branches, each token as good as certain."""
    count = len(tokens)
    return Draft(tokens, list(range(-1, count - 1)), [1.0] * count, [source] * count)
