"""Drafting: proposing the next tokens cheaply, for the model to verify in one pass.

A *drafter* proposes one tree of tokens per step and learns which of them were accepted.
`next_token` holds the default drafter; `registry` lists all of them. A drafter decides how fast an
answer comes, never what it says: that is the verification's job (`engine.sampling`).
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
    """The data that a drafter may read. One instance per request.

    `output` and `capacity` change per step.
    """

    prompt: list[int]
    predictions: list[list[int]] = field(default_factory=list)  # texts the answer may repeat
    output: list[int] = field(default_factory=list)  # committed tokens so far
    capacity: int = 0  # maximum number of nodes in this step's draft
    path: str = ""  # file being edited or completed, if any
    whole: bool = False  # the answer is a new version of all of predictions[0]
    start: int = 0  # token of predictions[0] at which the answer starts to repeat it
    span: Callable[[int, int], Span | None] | None = None  # (prediction, token) -> source location
    documents: Callable[[int], Span | None] | None = None  # prompt token -> source location
    history: list[list[int]] = field(default_factory=list)  # earlier answers, newest last
    request: Request = field(default_factory=lambda: Request("complete"))  # sampling parameters
    verification: Verification = "match"
    eos_ids: frozenset[int] = frozenset()  # tokens that end the answer; drafts stop at them

    @property
    def last(self) -> int:
        """The last committed token."""
        return self.output[-1] if self.output else self.prompt[-1]

    def tail(self, count: int) -> list[int]:
        """Return the last `count` tokens of prompt and output."""
        if len(self.output) >= count:
            return self.output[-count:]
        missing = count - len(self.output)
        return self.prompt[-missing:] + self.output


class Drafter(Protocol):
    """Proposes trees and learns from their verification. One instance serves one request."""

    needs_prompt_states: bool  # whether `observe_prompt` is called
    needs_states: bool  # whether the scores that `observe` receives need hidden states
    takes_forced: bool  # whether tokens may be committed that no pass was needed for

    def observe_prompt(self, target: Any, tokens: list[int], states: Any) -> None:
        """Receive each chunk of the prompt that is prefilled (not the cached part).

        It has the tokens and the hidden states, from which `target.logits` computes logits. Called
        before `begin`.
        """

    def begin(self, context: DraftContext) -> None:
        """Start a request, after prefill."""

    def propose(self, context: DraftContext, target: Any) -> Draft:
        """Propose a tree of at most `context.capacity` nodes that may follow the committed tokens.

        It may be empty.
        """
        ...

    def observe(
        self, draft: Draft, path: list[int], committed: list[int], scores: Any, seconds: float
    ) -> None:
        """Receive the result of a step.

        `path`: the accepted nodes. `committed`: their tokens and the model's own next token, cut
        where the answer ends. `scores`: the Scores of the pass; None where a grammar left no choice
        and there was none. `seconds`: duration of the step."""

    def meanwhile(self) -> None:
        """Prepare what the next draft does not need of the last `observe`.

        Called once a pass was launched, and after the last step: a card computes at the same time.
        """


class NullDrafter:
    """Drafts nothing: plain autoregressive decoding. Base class of the other drafters."""

    needs_prompt_states = needs_states = takes_forced = False

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

    def meanwhile(self) -> None:
        pass


def chain(tokens: list[int], source: str) -> Draft:
    """Make a draft without branches, every token with probability 1."""
    count = len(tokens)
    return Draft(tokens, list(range(-1, count - 1)), [1.0] * count, [source] * count)
