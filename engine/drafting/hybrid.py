"""What exists is copied where that pays more; elsewhere a smaller model writes ahead.

Both are asked for what a round brings in its time: the copied tree by its path probabilities, as
far as they come true in this answer, and by what passes cost on this machine; the smaller model by
what it brought so far.
"""

from __future__ import annotations

from typing import Any

from engine.drafting import DraftContext, NullDrafter
from engine.drafting.draft_length import AdaptiveLength
from engine.drafting.draft_model import DraftModel
from engine.drafting.next_token import NextTokenDrafter
from engine.model.cost_model import Cost
from engine.records import Draft

ASSUMED_SPEEDUP = 1.5  # times as fast as plain decoding: a smaller model that was not measured yet
PRIOR_TOKENS = 20.0  # tokens for which a copied tree is believed before anything is seen


class HybridDrafter(NullDrafter):
    """Drafts one answer."""

    def __init__(
        self, copied: NextTokenDrafter, written: DraftModel, lengths: AdaptiveLength, cost: Cost
    ) -> None:
        """`lengths`: those of `written`."""
        self.copied, self.written, self.lengths, self.cost = copied, written, lengths, cost
        self.writes = False  # this round's draft is the smaller model's
        self.drafting = 0.0  # seconds that the smaller model took of this round
        self.expected = 0.0  # tokens of this round's copied tree
        self.came = self.claimed = PRIOR_TOKENS  # tokens of copied trees: accepted, and expected

    def begin(self, context: DraftContext) -> None:
        self.copied.begin(context)
        self.written.begin(context)

    def propose(self, context: DraftContext, target: Any) -> Draft:
        """One of the two. While the smaller model still reads, what is copied."""
        copied = self.copied.propose(context, target)
        self.writes, self.drafting, self.expected = False, 0.0, expected_accepted(copied)
        plain, pace = self._seconds(1, context), self._seconds(1 + len(copied), context)
        pace /= 1 + self.expected * self.came / self.claimed
        if pace <= self.lengths.expected_pace(plain / ASSUMED_SPEEDUP):
            self.lengths.skip_round()
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
        else:
            self.came, self.claimed = self.came + len(path), self.claimed + self.expected

    def _seconds(self, rows: int, context: DraftContext) -> float:
        """A pass over so many tokens, as fast as the machine is now."""
        return self.cost(rows, len(context.prompt) + len(context.output)) * self.cost.pace


def expected_accepted(draft: Draft) -> float:
    """Tokens that are accepted of a tree, on average: the sum of its path probabilities."""
    reached: list[float] = []
    for parent, prob in zip(draft.parents, draft.probs, strict=True):
        reached.append(prob * (reached[parent] if parent >= 0 else 1.0))
    return sum(reached)
