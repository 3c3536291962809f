"""SAM-Decoding: the longest suffix of the text that occurred before, and what followed it.

Hu et al., "SAM Decoding: Speculative Decoding via Suffix Automaton" (2024, arXiv 2411.10666), in
both published variants. `SamDrafter` drafts in proportion to the match length: a chain from the
text itself, or a tree from a static corpus. `SamHybridDrafter` drafts long chains and leaves steps
without a long match to another drafter. Predictions count as text before the prompt.

Unlike the original, drafts are not padded, a chain never crosses the end of a document, and one
verification rule serves greedy decoding and sampling.
"""

from __future__ import annotations

from typing import Any

from engine.drafting import DraftContext, Drafter, NullDrafter, chain
from engine.records import Draft
from research.methods.datastore import (
    MAX_MATCH_TOKENS,
    Datastore,
    TreeShape,
    best_first_tree,
)
from research.methods.suffix_lookup import SuffixLookup

BIAS = 5  # tokens by which a corpus match must be longer than one in the text
MAX_NODES, FACTOR, MAX_NODES_PER_DEPTH = 60, 4.0, 8  # SamDrafter: nodes, the root among MAX_NODES
RUN_TOKENS, THRESHOLD = 40, 5  # SamHybridDrafter: tokens of a chain with its root, of a match
SOURCE = "context"


class SamDrafter(NullDrafter):
    """A drafter for one request: FACTOR nodes per matched token, nothing without a match."""

    def __init__(
        self,
        datastore: Datastore | None = None,
        most: int = MAX_NODES,
        factor: float = FACTOR,
        across: int = MAX_NODES_PER_DEPTH,
        bias: int = BIAS,
    ) -> None:
        self.datastore, self.most, self.factor, self.bias = datastore, max(most, 1), factor, bias
        self.shape = TreeShape(width=across, across=across)

    def begin(self, context: DraftContext) -> None:
        self.text = SuffixLookup(context.predictions, context.prompt)

    def propose(self, context: DraftContext, target: Any) -> Draft:
        length, tail = self.text.longest(), context.tail(MAX_MATCH_TOKENS)
        if self.datastore is not None:
            matched, tree = best_first_tree(self.datastore, tail, self.most - 1, self.shape)
            if matched - self.bias > length:
                return tree.first(self.budget(matched - self.bias))
        return self.copy(length) if length else Draft()

    def copy(self, length: int) -> Draft:
        """Draft from the text itself, after a match of `length` tokens."""
        return chain(self.text.after(self.text.first(length), self.budget(length)), SOURCE)

    def budget(self, length: int) -> int:
        """Count the nodes of a draft after a match of `length`.

        The published budget counts the root, too.
        """
        return min(self.most, 1 + int(self.factor * length)) - 1

    def observe(
        self, draft: Draft, path: list[int], committed: list[int], scores: Any, seconds: float
    ) -> None:
        self.text.extend(committed)


class SamHybridDrafter(NullDrafter):
    """A drafter for one request: a chain after a long match, else whatever `other` proposes."""

    def __init__(
        self,
        other: Drafter,
        datastore: Datastore | None = None,
        run: int = RUN_TOKENS,
        threshold: int = THRESHOLD,
        bias: int = BIAS,
    ) -> None:
        self.other, self.datastore = other, datastore
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
        if self.datastore is not None:
            matched, found = self.datastore.after(context.tail(MAX_MATCH_TOKENS), self.run - 1)
        if max(length, matched - self.bias) < self.threshold:
            return self.other.propose(context, target)
        if length >= matched - self.bias:
            place = self.text.first_before(length, self.run)
            return chain(self.text.after(place, self.run - 1), SOURCE)
        return chain(found, self.datastore.name if self.datastore else SOURCE)

    def observe(
        self, draft: Draft, path: list[int], committed: list[int], scores: Any, seconds: float
    ) -> None:
        self.text.extend(committed)
        self.other.observe(draft, path, committed, scores, seconds)

    def meanwhile(self) -> None:
        self.other.meanwhile()
