"""REST: what followed the last tokens in a datastore, its 64 most frequent beginnings as a tree.

He et al., "REST: Retrieval-Based Speculative Decoding" (arXiv 2311.08252). The longest end of 16 to
2 tokens that is found counts, at 5000 places at most, 10 tokens each; prompt and answer are not
searched. Where nothing is found nothing is drafted (the original drafts one dummy token).
"""

from __future__ import annotations

from typing import Any

from engine.drafting import DraftContext, NullDrafter
from engine.drafting.methods.datastore import Datastore, TreeShape, best_first_tree
from engine.records import Draft

NODES, DEEP, LONGEST, LEAST, PLACES = 64, 10, 16, 2, 5000


class RestDrafter(NullDrafter):
    """A tree a step. Serves one request."""

    def __init__(
        self,
        static: Datastore,
        nodes: int = NODES,
        deep: int = DEEP,
        longest: int = LONGEST,
        least: int = LEAST,
    ) -> None:
        self.static, self.nodes = static, nodes
        self.shape = TreeShape(nodes, deep=deep, limit=longest, least=least, most=PLACES)

    def propose(self, context: DraftContext, target: Any) -> Draft:
        return best_first_tree(self.static, context.tail(self.shape.limit), self.nodes, self.shape)[
            1
        ]
