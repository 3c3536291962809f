"""A brute-force implementation of `index._core`, the oracle of its tests.

It looks at every position of every document. The API is that of `index._core` without `nbytes` and
the arrays; one class covers both kinds of segments.
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
    """Continuations of a tail, best first; parents precede children, -1 is the tail."""

    length: int
    tokens: Ids
    parents: Ids
    probs: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.tokens)


class Automaton:
    """Documents as lists."""

    def __init__(self) -> None:
        self._documents: list[list[int]] = []
        self._alive: list[bool] = []
        self.labels: list[tuple[int, int, int]] = []  # changed, path, folder

    @property
    def documents(self) -> int:
        return len(self._documents)

    @property
    def size(self) -> int:
        return sum(map(len, self._documents))

    @property
    def living(self) -> int:
        return sum(len(self._documents[doc]) for doc in self._numbers())

    @property
    def states(self) -> int:
        """The number of distinct sets of end positions of all substrings, and of the empty one."""
        ends: dict[tuple[int, ...], set[tuple[int, int]]] = {}
        for number, document in enumerate(self._documents):
            for start in range(len(document)):
                for end in range(start + 1, len(document) + 1):
                    ends.setdefault(tuple(document[start:end]), set()).add((number, end))
        return len({frozenset(places) for places in ends.values()}) + 1

    def add(self, tokens: Tokens, changed: int = 0, path: int = -1, folder: int = -1) -> int:
        _require_ids(tokens)
        document = self.open(changed, path, folder)
        self.extend(tokens)
        return document

    def open(self, changed: int = 0, path: int = -1, folder: int = -1) -> int:
        self._documents.append([])
        self._alive.append(True)
        self.labels.append((changed, path, folder))
        return len(self._documents) - 1

    def extend(self, tokens: Tokens) -> None:
        _require_ids(tokens)
        if not self._documents:
            raise ValueError("no document to extend; open one first")
        if not self._alive[-1]:
            raise ValueError("the last document was deleted; open a new one")
        self._documents[-1].extend(map(int, tokens))

    def kill(self, doc: int) -> None:
        self.tokens(doc)
        self._alive[doc] = False

    def label(self, doc: int, changed: int, path: int, folder: int) -> None:
        self.tokens(doc)
        self.labels[doc] = (changed, path, folder)

    def match(self, tail: Tokens, k: int = 8, limit: int = 64, *, followed: bool = False) -> Match:
        length, places = self.occurrences(tail, limit, followed)
        _require_not_negative("k", k)
        newest = np.array(places[:k], np.int32).reshape(-1, 2)
        return Match(length, len(places), newest[:, 0], newest[:, 1])

    def tree(
        self, tail: Tokens, nodes: int = 64, width: int = 8, limit: int = 64, *, most: int = 1024
    ) -> Tree:
        _require_not_negative("most", most)
        length, places = self.occurrences(tail, limit, followed=True)
        return _tree(
            length, [self._documents[doc][end:] for doc, end in places[:most]], nodes, width
        )

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

    def occurrences(
        self, tail: Tokens, limit: int, followed: bool
    ) -> tuple[int, list[tuple[int, int]]]:
        """The length of the longest suffix of the last `limit` tokens of `tail` that occurs in live
        documents, and (document, end) of its occurrences, newest first."""
        _require_ids(tail)
        _require_not_negative("limit", limit)
        suffix = [int(token) for token in tail][-limit:] if limit else []
        found = {
            (number, end): _common_suffix(document[:end][-len(suffix) :], suffix)
            for number in self._numbers()
            for document in [self._documents[number]]
            for end in range(1, len(document) + (not followed))
        }
        length = max(found.values(), default=0)
        places = [place for place in found if found[place] >= length] if length else []
        return length, sorted(places, reverse=True)

    def _numbers(self) -> list[int]:
        """Numbers of the live documents."""
        return [number for number, alive in enumerate(self._alive) if alive]


class Segments:
    """Several segments queried as one."""

    def __init__(self, parts: list[Automaton]) -> None:
        self._parts = parts

    def match(
        self, tail: Tokens, k: int = 8, limit: int = 64, path: int = -1, folder: int = -1
    ) -> tuple[int, int, list[tuple[int, int, int, float]]]:
        """Length, number of occurrences, and the k best as (part, document, end, probability); the
        probability is the share of the 64 newest occurrences with the same next token."""
        _require_not_negative("k", k)
        length, places = self._places(tail, limit)
        follows = [self._parts[part].tokens(doc)[end] for part, doc, end in places]
        sample = follows[:64]
        probs = [sample.count(token) / len(sample) for token in follows]

        def nearness(at: int) -> int:
            part, doc, _ = places[at]
            _, its_path, its_folder = self._parts[part].labels[doc]
            return 2 if path >= 0 and its_path == path else folder >= 0 and its_folder == folder

        best = sorted(range(len(places)), key=nearness, reverse=True)[:k]
        return length, len(places), [(*places[at], probs[at]) for at in best]

    def tree(
        self, tail: Tokens, nodes: int = 64, width: int = 8, limit: int = 64, *, most: int = 1024
    ) -> Tree:
        _require_not_negative("most", most)
        length, places = self._places(tail, limit)
        following = [self._parts[part].tokens(doc)[end:].tolist() for part, doc, end in places]
        return _tree(length, following[:most], nodes, width)

    def _places(self, tail: Tokens, limit: int) -> tuple[int, list[tuple[int, int, int]]]:
        """The longest match, and (part, document, end) of its occurrences, newest first."""
        found = [part.occurrences(tail, limit, followed=True) for part in self._parts]
        length = max((length for length, _ in found), default=0)
        places = [
            (part, doc, end)
            for part, (its_length, its_places) in enumerate(found)
            if its_length == length
            for doc, end in its_places
        ]
        changed = {(part, doc): self._parts[part].labels[doc][0] for part, doc, _ in places}
        return length, sorted(places, key=lambda place: (changed[place[:2]], *place), reverse=True)


def _tree(length: int, following: list[list[int]], nodes: int, width: int) -> Tree:
    """The best-first tree of some continuations, newest first."""
    _require_not_negative("nodes", nodes)
    _require_not_negative("width", width)
    tokens: list[int] = []
    parents: list[int] = []
    probs: list[float] = []
    open_nodes: list[tuple[int, float, int, list[list[int]]]] = []

    def expand(parent: int, following: list[list[int]]) -> None:
        branches: dict[int, list[list[int]]] = {}
        for rest in following:
            for token in rest[:1]:
                branches.setdefault(token, []).append(rest[1:])
        best = sorted(branches, key=lambda token: (-len(branches[token]), token))
        for token in best[:width]:
            after = branches[token]
            open_nodes.append((token, len(after) / len(following), parent, after))

    expand(-1, following)
    while open_nodes and len(tokens) < nodes:
        node = max(open_nodes, key=lambda node: len(node[3]))  # ties: the oldest
        open_nodes.remove(node)
        tokens.append(node[0])
        probs.append(node[1])
        parents.append(node[2])
        expand(len(tokens) - 1, node[3])
    return Tree(length, np.array(tokens, np.int32), np.array(parents, np.int32), np.array(probs))


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
