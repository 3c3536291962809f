"""Suffix lookup in a growing text, for prompt lookup and SAM-Decoding.

The longest match comes from the index's suffix automaton, its first occurrence from a byte search.
The published automaton stores first occurrences in its states; the results are the same, but one
automaton per request in Python would be slower and much larger.
"""

from __future__ import annotations

from array import array

import numpy as np

from index._core import Automaton

BORDER = -1  # a pseudo token between two texts
TOKEN_BYTES = 4
INITIAL_TAIL_TOKENS = 64  # tokens looked up first; more if all of them match


class SuffixLookup:
    """The text of a request, preceded by other texts.

    Matches never cross a border.
    """

    def __init__(self, others: list[list[int]], text: list[int]) -> None:
        self.tokens: list[int] = []
        self.bytes = bytearray()
        self.automaton = Automaton()
        for other in others:
            self.automaton.add(other)
            self._append([*other, BORDER])
        self.start = len(self.tokens)  # where the text itself starts
        self.automaton.open()
        self.extend(text)

    def extend(self, tokens: list[int]) -> None:
        """Append to the text."""
        self.automaton.extend(tokens)
        self._append(tokens)

    def longest(self) -> int:
        """Measure the longest suffix, in tokens, that also occurs earlier, followed by a token."""
        size, limit = len(self.tokens) - self.start, INITIAL_TAIL_TOKENS
        while True:
            tail = np.array(self.tokens[self.start + max(size - limit, 0) :], np.int32)
            length = self.automaton.match(tail, 1, limit, followed=True).length
            if length < limit or limit >= size:
                return length
            limit *= 4

    def first(self, length: int, stop: int | None = None) -> int:
        """Find the first occurrence of the last `length` tokens, and return the position after it.

        It is followed by a token and starts before `stop`; -1 if there is none. `length` is at most
        the length of the text.
        """
        size = len(self.tokens)
        run = array("i", self.tokens[size - length :]).tobytes()
        last = min((size if stop is None else stop) + length - 1, size - 1)
        at = self.bytes.find(run, 0, last * TOKEN_BYTES)
        while at >= 0 and (at % TOKEN_BYTES or self.tokens[at // TOKEN_BYTES + length] == BORDER):
            at = self.bytes.find(run, at + 1, last * TOKEN_BYTES)
        return at // TOKEN_BYTES + length if at >= 0 else -1

    def first_before(self, length: int, count: int) -> int:
        """Find the first occurrence, as `first` does, of a suffix of up to `length` tokens.

        It is the longest suffix whose first occurrence is followed by at least `count` tokens, or
        the last token if no suffix qualifies.
        """
        low, high = 1, length  # shorter suffixes occur earlier, or at the same position
        while low < high:
            middle = (low + high + 1) // 2
            if len(self.tokens) - self.first(middle) >= count:
                low = middle
            else:
                high = middle - 1
        return self.first(low)

    def after(self, place: int, count: int) -> list[int]:
        """Return up to `count` tokens from `place` on, to the next border."""
        found = self.tokens[place : place + count]
        return found[: found.index(BORDER)] if BORDER in found else found

    def _append(self, tokens: list[int]) -> None:
        self.tokens += tokens
        self.bytes += array("i", tokens).tobytes()
