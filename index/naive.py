"""The automaton in obvious Python: the oracle of its tests, and what its words mean.

Everything is found by looking at every position of every document. Same API as `index._core`, but
for `nbytes`. It is never used in place of the core.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]
Tokens = Ids | Sequence[int]


@dataclass(frozen=True, slots=True)
class Match:
    """The longest suffix of a tail that occurs, and its newest occurrences, newest first."""

    length: int
    count: int
    docs: Ids
    ends: Ids


@dataclass(frozen=True, slots=True)
class Tree:
    """What follows a tail, best first; parents precede children, -1 stands for the tail."""

    tokens: Ids
    parents: Ids
    probs: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.tokens)


class Automaton:
    """Documents as lists, searched by brute force."""

    def __init__(self) -> None:
        self._documents: list[list[int]] = []
        self.frozen = False

    @property
    def documents(self) -> int:
        return len(self._documents)

    @property
    def size(self) -> int:
        return sum(map(len, self._documents))

    @property
    def states(self) -> int:
        """Different sets of end positions among all substrings, and the empty one's."""
        ends: dict[tuple[int, ...], set[tuple[int, int]]] = {}
        for number, document in enumerate(self._documents):
            for start in range(len(document)):
                for end in range(start + 1, len(document) + 1):
                    ends.setdefault(tuple(document[start:end]), set()).add((number, end))
        return len({frozenset(places) for places in ends.values()}) + 1

    def add(self, tokens: Tokens) -> int:
        _require_ids(tokens)
        document = self.open()
        self.extend(tokens)
        return document

    def open(self) -> int:
        self._require_growing()
        self._documents.append([])
        return len(self._documents) - 1

    def extend(self, tokens: Tokens) -> None:
        _require_ids(tokens)
        self._require_growing()
        if not self._documents:
            raise ValueError("no document to extend: open one first")
        self._documents[-1].extend(map(int, tokens))

    def freeze(self) -> None:
        self._require_growing()
        self.frozen = True

    def match(self, tail: Tokens, k: int = 8, limit: int = 64, *, followed: bool = False) -> Match:
        length, places = self._occurrences(tail, limit, followed)
        _require_not_negative("k", k)
        newest = np.array(places[:k], np.int32).reshape(-1, 2)
        return Match(length, len(places), newest[:, 0], newest[:, 1])

    def tree(
        self, tail: Tokens, nodes: int = 64, width: int = 8, limit: int = 64, *, most: int = 1024
    ) -> Tree:
        for name, value in (("nodes", nodes), ("width", width), ("most", most)):
            _require_not_negative(name, value)
        _, places = self._occurrences(tail, limit, followed=True)
        tokens: list[int] = []
        parents: list[int] = []
        probs: list[float] = []
        open_nodes: list[tuple[int, float, int, list[tuple[int, int]]]] = []

        def expand(parent: int, places: list[tuple[int, int]]) -> None:
            following: dict[int, list[tuple[int, int]]] = {}
            for doc, end in places:
                for token in self._documents[doc][end : end + 1]:
                    following.setdefault(token, []).append((doc, end + 1))
            best = sorted(following, key=lambda token: (-len(following[token]), token))
            for token in best[:width]:
                after = following[token]
                open_nodes.append((token, len(after) / len(places), parent, after))

        expand(-1, places[:most])
        while open_nodes and len(tokens) < nodes:
            node = max(open_nodes, key=lambda node: len(node[3]))  # of equals the oldest
            open_nodes.remove(node)
            tokens.append(node[0])
            probs.append(node[1])
            parents.append(node[2])
            expand(len(tokens) - 1, node[3])
        return Tree(np.array(tokens, np.int32), np.array(parents, np.int32), np.array(probs))

    def continuation(self, doc: int, end: int, n: int) -> Ids:
        document = self.tokens(doc)
        _require_not_negative("n", n)
        if not 0 <= end <= len(document):
            raise ValueError(f"end {end}: document {doc} has {len(document)} tokens")
        return document[end : end + n]

    def tokens(self, doc: int) -> Ids:
        if not 0 <= doc < len(self._documents):
            raise ValueError(f"document {doc}: there are {len(self._documents)}")
        return np.array(self._documents[doc], np.int32)

    def check(self) -> str:
        return ""

    def _occurrences(
        self, tail: Tokens, limit: int, followed: bool
    ) -> tuple[int, list[tuple[int, int]]]:
        """The length of the longest suffix of the tail's last `limit` tokens that occurs, and
        (document, end) of each of its occurrences, newest first."""
        _require_ids(tail)
        _require_not_negative("limit", limit)
        suffix = [int(token) for token in tail][-limit:] if limit else []
        found = {
            (number, end): _common_suffix(document[:end][-len(suffix) :], suffix)
            for number, document in enumerate(self._documents)
            for end in range(1, len(document) + (not followed))
        }
        length = max(found.values(), default=0)
        places = [place for place in found if found[place] >= length] if length else []
        return length, sorted(places, reverse=True)

    def _require_growing(self) -> None:
        if self.frozen:
            raise ValueError("the automaton is frozen: build a new one to add text")


def _common_suffix(a: list[int], b: list[int]) -> int:
    """How many tokens two lists share at their ends."""
    length = 0
    while length < min(len(a), len(b)) and a[-1 - length] == b[-1 - length]:
        length += 1
    return length


def _require_ids(tokens: Tokens) -> None:
    for token in tokens:
        if not 0 <= token < 2**31:
            raise ValueError(f"token id {token}: ids must be 0 to 2147483647")


def _require_not_negative(name: str, value: int) -> None:
    if value < 0:
        raise ValueError(f"{name} {value}: must be 0 or more")
