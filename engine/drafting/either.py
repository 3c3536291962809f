"""What exists is copied where that pays more; elsewhere a smaller model writes ahead.

Both are asked for what a round brings in its time: the copied tree by its path probabilities and
by what passes cost on this machine, the smaller model by what it brought so far.
"""

from __future__ import annotations

from typing import Any

from engine.cost import Cost
from engine.drafting import Context, Nothing
from engine.drafting.draft_model import DraftModel
from engine.drafting.lengths import Adaptive
from engine.drafting.next_token import NextToken
from engine.records import Draft

GUESS = (
    1.5  # times as fast as plain decoding: what a smaller model is held for until it is measured
)


class Either(Nothing):
    """Drafts one answer."""

    def __init__(
        self, copied: NextToken, written: DraftModel, lengths: Adaptive, cost: Cost
    ) -> None:
        """`lengths`: those of `written`."""
        self.copied, self.written, self.lengths, self.cost = copied, written, lengths, cost
        self.writes = False  # this round's draft is the smaller model's
        self.drafting = 0.0  # seconds that the smaller model took of this round

    def begin(self, context: Context) -> None:
        self.copied.begin(context)
        self.written.begin(context)

    def propose(self, context: Context, target: Any) -> Draft:
        """One of the two. While the smaller model still reads, what is copied."""
        copied = self.copied.propose(context, target)
        self.writes, self.drafting = False, 0.0
        if self._pace(copied, context) <= self._pace_of_model(context):
            return copied
        written = self.written.propose(context, target)
        self.writes, self.drafting = len(written) > 0, self.written.drafting
        return written if self.writes else copied

    def observe(
        self, draft: Draft, path: list[int], committed: list[int], scores: Any, seconds: float
    ) -> None:
        self.copied.observe(draft, path, committed, scores, seconds - self.drafting)
        if self.writes:
            self.written.observe(draft, path, committed, scores, seconds)

    def _pace(self, draft: Draft, context: Context) -> float:
        """Seconds that a token takes with this draft."""
        cached = len(context.prompt) + len(context.output)
        return self.cost(1 + len(draft), cached) * self.cost.pace / (1 + expected(draft))

    def _pace_of_model(self, context: Context) -> float:
        return self.lengths.pace or self._pace(Draft(), context) / GUESS


def expected(draft: Draft) -> float:
    """Tokens that are accepted of a tree, on average: the sum of its path probabilities."""
    reached: list[float] = []
    for parent, prob in zip(draft.parents, draft.probs, strict=True):
        reached.append(prob * (reached[parent] if parent >= 0 else 1.0))
    return sum(reached)
