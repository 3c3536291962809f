"""Texts that all requests of a host may copy from: a shared index, and what was written before.

The index is mapped and read-only. Answers are kept in two automata: when the younger one is full,
the older one is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.drafting.next_token import WORKSPACE_QUERY
from index._core import Automaton, Documents, Segments, Tree

Ids = NDArray[np.int32]

RECENT_TOKENS = 1 << 16  # tokens of answers that stay in memory


class SharedText:
    """The text of an index and of earlier answers. One thread at a time."""

    def __init__(self, index: Sequence[Documents] = (), recent_tokens: int = RECENT_TOKENS) -> None:
        """Join the index. `recent_tokens`: the size of the earlier answers to keep; 0 for none."""
        self._index, self._most = list(index), recent_tokens // 2
        self._older, self._younger = Automaton(), Automaton()
        self._segments = self._joined()

    @property
    def recent_tokens(self) -> int:
        """Tokens of the earlier answers that are held."""
        return self._older.size + self._younger.size

    def add(self, answer: Ids) -> None:
        """Keep an answer, or the end of a long one."""
        answer = answer[max(0, len(answer) - self._most) :]
        if not len(answer):
            return
        if self._younger.size + len(answer) > self._most:
            self._older, self._younger = self._younger, Automaton()
            self._segments = self._joined()
        self._younger.add(np.ascontiguousarray(answer), self._younger.documents)

    def tree(self, tail: Ids) -> Tree | None:
        """Return the continuations of the tail; None for none."""
        query = WORKSPACE_QUERY
        tree = self._segments.tree(
            tail, query.nodes, query.width, limit=query.limit, most=query.most, least=query.least
        )
        return tree if tree.length else None

    def _joined(self) -> Segments:
        return Segments([*self._index, self._older, self._younger])
