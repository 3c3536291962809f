"""Hybrid drafting: copy existing text where that pays more, else let a smaller model draft.

Each round compares the expected seconds per token of both. For the copied tree they follow from its
path probabilities, corrected by how often they came true in this answer, and from the cost model;
for the smaller model they are its measured average (`AdaptiveLength`).
"""

from __future__ import annotations

from typing import Any

from engine.drafting import DraftContext, NullDrafter
from engine.drafting.draft_length import AdaptiveLength
from engine.drafting.draft_model import DraftModel
from engine.drafting.next_token import NextTokenDrafter
from engine.model.cost_model import CostModel
from engine.records import Draft

ASSUMED_SPEEDUP = 1.5  # times plain decoding's speed; for a smaller model that was not measured yet
PRIOR_TOKENS = 20.0  # tokens for which the path probabilities of copied trees are trusted


class HybridDrafter(NullDrafter):
    """Drafts one answer."""

    def __init__(
        self,
        copier: NextTokenDrafter,
        model: DraftModel,
        lengths: AdaptiveLength,
        cost: CostModel,
    ) -> None:
        """Combine a copier and a model. `lengths`: the schedule of `model`."""
        self.copier, self.model, self.lengths, self.cost = copier, model, lengths, cost
        self.uses_model = False  # whether this round's draft is the smaller model's
        self.drafting = 0.0  # seconds that the smaller model took this round
        self.expected = 0.0  # expected accepted tokens of this round's copied tree
        self.accepted = self.claimed = PRIOR_TOKENS  # tokens of copied trees: actual, expected
        self.needs_prompt_states = self.needs_states = model.needs_states

    def observe_prompt(self, target: Any, tokens: list[int], states: Any) -> None:
        self.model.observe_prompt(target, tokens, states)

    def begin(self, context: DraftContext) -> None:
        self.copier.begin(context)
        self.model.begin(context)

    def propose(self, context: DraftContext, target: Any) -> Draft:
        """Propose the draft of one of the two.

        It is the copied tree while the smaller model still prefills.
        """
        copied = self.copier.propose(context, target)
        self.uses_model, self.drafting = False, 0.0
        self.expected = expected_accepted(copied)
        plain, seconds = self._seconds(1, context), self._seconds(1 + len(copied), context)
        per_token = seconds / (1 + self.expected * self.accepted / self.claimed)
        if per_token <= self.lengths.expected_seconds_per_token(plain / ASSUMED_SPEEDUP):
            self.lengths.skip_round()
            return copied
        draft = self.model.propose(context, target)
        self.uses_model, self.drafting = len(draft) > 0, self.model.drafting
        return draft if self.uses_model else copied

    def observe(
        self, draft: Draft, path: list[int], committed: list[int], scores: Any, seconds: float
    ) -> None:
        self.copier.observe(draft, path, committed, scores, seconds - self.drafting)
        if self.uses_model:
            self.model.observe(draft, path, committed, scores, seconds)
        else:
            self.model.source.observe(path, scores)
            self.accepted += len(path)
            self.claimed += self.expected

    def meanwhile(self) -> None:
        self.copier.meanwhile()
        self.model.meanwhile()

    def _seconds(self, rows: int, context: DraftContext) -> float:
        """Estimate the seconds of a pass over `rows` tokens at the machine's current speed."""
        return self.cost(rows, len(context.prompt) + len(context.output)) * self.cost.pace


def expected_accepted(draft: Draft) -> float:
    """Sum the tree's path probabilities: the expected number of accepted tokens."""
    reach: list[float] = []
    for parent, prob in zip(draft.parents, draft.probs, strict=True):
        reach.append(prob * (reach[parent] if parent >= 0 else 1.0))
    return sum(reach)
