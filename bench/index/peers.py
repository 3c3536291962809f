"""The indexes that `python -m bench index` compares, behind one protocol.

Every index keeps documents apart: no match crosses a border. Nothing is timed here; files and
tokenizers belong to bench/index/folder.py.
"""

from __future__ import annotations

import importlib
from bisect import bisect_left
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from index._core import Automaton, Documents, Frozen, Segments

Ids = NDArray[np.int32]
TAIL = 64  # tokens


class ComparedIndex(Protocol):
    """An index over documents. `build` is called first, and once."""

    def build(self, documents: list[Ids]) -> None: ...

    def update(self, number: int, tokens: Ids) -> None:
        """Replace a document's tokens; `match` must not find the old ones any more."""
        ...

    def match(self, tail: Ids) -> int:
        """Return the length of the longest suffix of `tail` that occurs."""
        ...

    def nbytes(self) -> int | None:
        """Return the index's own count of its memory, if it has one."""
        ...

    def save(self, folder: Path) -> None:
        """Save the index. Raises NotImplementedError if it cannot be saved and loaded."""
        ...

    def load(self, folder: Path) -> None: ...


class DraftlineIndex:
    """draftline without files: a frozen segment, and a young one for changed documents."""

    def build(self, documents: list[Ids]) -> None:
        self._ask([Frozen(documents)], Automaton())

    def shape(self, documents: list[Ids], frozen: int, young: int) -> None:
        """Split into `frozen` segments, each twice as large as the next.

        Compaction leaves them so, and a young one with the last documents, of at least `young`
        tokens.
        """
        automaton = Automaton()
        first = len(documents)
        while first > 1 and automaton.size < young:
            first -= 1
            automaton.add(documents[first])
        left, parts = documents[:first], []
        for _ in range(frozen - 1):
            half = int(np.searchsorted(np.cumsum([len(one) for one in left]), _size(left) / 2)) + 1
            parts.append(Frozen(left[:half]))
            left = left[half:]
        self._ask([*parts, Frozen(left)], automaton)

    def update(self, number: int, tokens: Ids) -> None:
        segment, place = self.places.get(number, (self.parts[0], number))
        segment.kill(place)
        self.places[number] = (self.young, self.young.add(tokens))
        self.segments = Segments([*self.parts, self.young])

    def match(self, tail: Ids) -> int:
        return self.segments.match(tail)[0]

    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts) + self.young.nbytes

    def save(self, folder: Path) -> None:
        raise NotImplementedError  # the workspace persists: see bench/index/folder.py

    def load(self, folder: Path) -> None:
        raise NotImplementedError

    def _ask(self, parts: list[Frozen], young: Automaton) -> None:
        self.parts, self.young = parts, young
        self.places: dict[int, tuple[Documents, int]] = {}  # places of changed documents
        self.segments = Segments([*parts, young] if young.size else list(parts))


class RebuiltIndex:
    """Base of indexes that cannot remove a document: each change rebuilds them."""

    documents: list[Ids]

    def build(self, documents: list[Ids]) -> None:
        raise NotImplementedError

    def update(self, number: int, tokens: Ids) -> None:
        self.documents[number] = tokens
        self.build(self.documents)

    def save(self, folder: Path) -> None:
        raise NotImplementedError

    def load(self, folder: Path) -> None:
        raise NotImplementedError


class ArcticIndex:
    """arctic-inference's suffix tree, with a sequence per document.

    It holds strings of at most TAIL tokens, and its matches are at most TAIL - 1 long.
    """

    def __init__(self) -> None:
        self.tree = importlib.import_module("arctic_inference.suffix_decoding._C").SuffixTree(TAIL)

    def build(self, documents: list[Ids]) -> None:
        for number, tokens in enumerate(documents):
            self.tree.extend_ndarray(number, tokens)

    def update(self, number: int, tokens: Ids) -> None:
        self.tree.remove(number)
        self.tree.extend_ndarray(number, tokens)

    def match(self, tail: Ids) -> int:
        # With 0 tokens it finds the longest match and drafts nothing.
        return int(self.tree.speculate_ndarray(tail, 0, 1.0, 0.0, 0.1, False).match_len)

    def nbytes(self) -> int:
        return int(self.tree.estimate_memory())

    def save(self, folder: Path) -> None:
        raise NotImplementedError

    def load(self, folder: Path) -> None:
        raise NotImplementedError


class PythonAutomaton(RebuiltIndex):
    """A suffix automaton with a dict of edges per state, as in SAM-Decoding (arXiv 2411.10666)."""

    def build(self, documents: list[Ids]) -> None:
        self.documents = documents
        self.next: list[dict[int, int]] = [{}]
        self.link, self.length, self.end = [-1], [0], [0]  # end: of the first occurrence
        position = 0
        for document in documents:
            last = 0
            for token in document.tolist():
                position += 1
                last = self._extend(last, token, position)

    def _extend(self, last: int, token: int, position: int) -> int:
        """Return the state of a document's text so far, including `token`."""
        known = self.next[last].get(token)
        if known is not None:  # an earlier document began in the same way
            return self._split(last, token, known)
        state = self._state({}, 0, self.length[last] + 1, position)
        parent = last
        while parent >= 0 and token not in self.next[parent]:
            self.next[parent][token] = state
            parent = self.link[parent]
        if parent >= 0:
            self.link[state] = self._split(parent, token, self.next[parent][token])
        return state

    def _split(self, parent: int, token: int, state: int) -> int:
        """Return the state of `parent`'s longest string plus `token`.

        It is split off `state` if that also has longer strings.
        """
        if self.length[parent] + 1 == self.length[state]:
            return state
        edges, length = self.next[state].copy(), self.length[parent] + 1
        clone = self._state(edges, self.link[state], length, self.end[state])
        while parent >= 0 and self.next[parent].get(token) == state:
            self.next[parent][token] = clone
            parent = self.link[parent]
        self.link[state] = clone
        return clone

    def _state(self, edges: dict[int, int], link: int, length: int, end: int) -> int:
        self.next.append(edges)
        self.link.append(link)
        self.length.append(length)
        self.end.append(end)
        return len(self.next) - 1

    def match(self, tail: Ids) -> int:
        state = length = 0
        for token in tail.tolist():
            while state and token not in self.next[state]:
                state = self.link[state]
                length = self.length[state]
            if token in self.next[state]:
                state = self.next[state][token]
                length += 1
        return length

    def nbytes(self) -> None:
        return None


class SuffixArrayIndex(RebuiltIndex):
    """pydivsufsort's suffix array of the reversed text, with binary search.

    The library sorts bytes, so positions inside tokens are dropped; ids below 2^16 take two bytes,
    others four.
    """

    def build(self, documents: list[Ids]) -> None:
        sort = importlib.import_module("pydivsufsort").divsufsort
        self.documents = documents
        border = np.zeros(1, np.int32)
        parts = [part for document in documents for part in (border, document + 1)]
        text = np.concatenate(parts or [border])[::-1]
        width = 2 if int(text.max()) < 1 << 16 else 4
        self._hold(text.astype(f">u{width}").tobytes(), width)
        self.places = memoryview(sort(text.astype(f"u{width}"))).cast("B").cast("i")

    def _hold(self, text: bytes, width: int) -> None:
        self.text, self.width = text, width

    def match(self, tail: Ids) -> int:
        width, text = self.width, self.text
        question = (tail[::-1] + 1).astype(f">u{width}").tobytes()
        size = len(question)

        def start(place: int) -> bytes:
            return text[place * width : place * width + size]

        at = bisect_left(self.places, question, key=start)
        near = self.places[max(at - 1, 0) : at + 1]
        return max(_common(start(place), question) // width for place in near)

    def nbytes(self) -> int:
        return len(self.text) + self.places.nbytes

    def save(self, folder: Path) -> None:
        np.save(folder / "places.npy", np.asarray(self.places))
        np.save(folder / "text.npy", np.frombuffer(self.text, f">u{self.width}"))

    def load(self, folder: Path) -> None:
        text = np.load(folder / "text.npy")
        self._hold(text.tobytes(), text.dtype.itemsize)
        self.places = memoryview(np.load(folder / "places.npy"))


def _common(a: bytes, b: bytes) -> int:
    """Return the length of the common prefix of two strings."""
    for n, (one, other) in enumerate(zip(a, b, strict=False)):
        if one != other:
            return n
    return min(len(a), len(b))


def _size(documents: list[Ids]) -> int:
    return sum(map(len, documents))


PEERS: dict[str, type[ComparedIndex]] = {
    "draftline": DraftlineIndex,
    "arctic": ArcticIndex,
    "python": PythonAutomaton,
    "suffix-array": SuffixArrayIndex,
}
