"""SAM-Decoding: the longest end of the text that stood somewhere before, and what followed it.

Hu et al., "SAM Decoding: Speculative Decoding via Suffix Automaton" (arXiv 2411.10666), both
variants as published (SPEC.md 1.2 and 1.3): `Sam` drafts by the length of the match, a run from the
text itself or a tree from a static corpus; `SamAnd` drafts long runs, and where no match is long
enough it lets another drafter. Texts that are expected to be repeated stand before the prompt.
Unlike the original nothing is padded, no run crosses the end of a document, and what is drafted is
judged by one rule, sampled or not.
"""

from __future__ import annotations

from typing import Any

from engine.drafting import DraftContext, Drafter, NullDrafter, chain
from engine.drafting.methods.datastore import (
    MAX_MATCH_TOKENS,
    Datastore,
    TreeShape,
    best_first_tree,
)
from engine.drafting.methods.suffix_lookup import SuffixLookup
from engine.records import Draft

BIAS = 5  # tokens that a match in the corpus counts less
MOST, FACTOR, ACROSS = 60, 4.0, 8  # Sam: nodes with the root, nodes a matched token, nodes a depth
RUN, THRESHOLD = 40, 5  # SamAnd: tokens of a run with its root, tokens that must match
SOURCE = "context"


class SamDrafter(NullDrafter):
    """Drafts in proportion to the match; none, no draft. Serves one request."""

    def __init__(
        self,
        static: Datastore | None = None,
        most: int = MOST,
        factor: float = FACTOR,
        across: int = ACROSS,
        bias: int = BIAS,
    ) -> None:
        self.static, self.most, self.factor, self.bias = static, max(most, 1), factor, bias
        self.shape = TreeShape(width=across, across=across)

    def begin(self, context: DraftContext) -> None:
        self.text = SuffixLookup(context.predictions, context.prompt)

    def propose(self, context: DraftContext, target: Any) -> Draft:
        length, tail = self.text.longest(), context.tail(MAX_MATCH_TOKENS)
        if self.static is not None:
            matched, tree = best_first_tree(self.static, tail, self.most - 1, self.shape)
            if matched - self.bias > length:
                return tree.first(self.reach(matched - self.bias))
        if not length:
            return Draft()
        return chain(self.text.after(self.text.first(length), self.reach(length)), SOURCE)

    def reach(self, length: int) -> int:
        """Nodes of a draft after so long a match; the root is one of the published budget."""
        return min(self.most, 1 + int(self.factor * length)) - 1

    def observe(
        self, draft: Draft, path: list[int], committed: list[int], scores: Any, seconds: float
    ) -> None:
        self.text.extend(committed)


class SamHybridDrafter(NullDrafter):
    """Drafts a run where a match is long, and what `other` proposes where none is. `other` is told
    of every verification. Serves one request."""

    def __init__(
        self,
        other: Drafter,
        static: Datastore | None = None,
        run: int = RUN,
        threshold: int = THRESHOLD,
        bias: int = BIAS,
    ) -> None:
        self.other, self.static = other, static
        self.needs_prompt_states = other.needs_prompt_states
        self.run, self.threshold, self.bias = max(run, 1), max(threshold, 1), bias

    def begin(self, context: DraftContext) -> None:
        self.text = SuffixLookup(context.predictions, context.prompt)
        self.other.begin(context)

    def observe_prompt(self, target: Any, tokens: list[int], states: Any) -> None:
        self.other.observe_prompt(target, tokens, states)

    def propose(self, context: DraftContext, target: Any) -> Draft:
        length = self.text.longest()
        matched, found = 0, list[int]()
        if self.static is not None:
            matched, found = self.static.after(context.tail(MAX_MATCH_TOKENS), self.run - 1)
        if max(length, matched - self.bias) < self.threshold:
            return self.other.propose(context, target)
        if length >= matched - self.bias:
            place = self.text.first_before(length, self.run)
            return chain(self.text.after(place, self.run - 1), SOURCE)
        return chain(found, self.static.name if self.static else SOURCE)

    def observe(
        self, draft: Draft, path: list[int], committed: list[int], scores: Any, seconds: float
    ) -> None:
        self.text.extend(committed)
        self.other.observe(draft, path, committed, scores, seconds)
