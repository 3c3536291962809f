"""REST: the most frequent continuations of the last tokens in a datastore, as a tree.

He et al., "REST: Retrieval-Based Speculative Decoding" (2023, arXiv 2311.08252). The longest suffix
of 16 to 2 tokens that occurs in the datastore is used, at 5000 occurrences at most, with 10 tokens
each; prompt and answer are not searched. Without a match nothing is drafted, where the original
drafts one dummy token.
"""

from __future__ import annotations

from typing import Any

from engine.drafting import DraftContext, NullDrafter
from engine.records import Draft
from research.methods.datastore import Datastore, TreeShape, best_first_tree

NODES, MAX_DEPTH, MAX_SUFFIX, MIN_SUFFIX = 64, 10, 16, 2
MAX_OCCURRENCES = 5000


class RestDrafter(NullDrafter):
    """A drafter of one tree per step, for one request."""

    def __init__(
        self,
        datastore: Datastore,
        nodes: int = NODES,
        deep: int = MAX_DEPTH,
        longest: int = MAX_SUFFIX,
        least: int = MIN_SUFFIX,
    ) -> None:
        """Set the limits of trees and suffixes.

        `longest`, `least`: tokens of the suffix that is looked up.
        """
        self.datastore, self.nodes = datastore, nodes
        self.shape = TreeShape(nodes, deep=deep, limit=longest, least=least, most=MAX_OCCURRENCES)

    def propose(self, context: DraftContext, target: Any) -> Draft:
        tail = context.tail(self.shape.limit)
        return best_first_tree(self.datastore, tail, self.nodes, self.shape)[1]
