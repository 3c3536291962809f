"""A text that grows, and where its end stood before: what lookup and SAM-Decoding draft from.

The longest match comes from the index's automaton, its first place from a search in the tokens'
bytes. An automaton that keeps first places in its states says the same (SPEC.md 1.1), but one for
every request, in Python, would be slower and much larger. It drafts nothing itself.
"""

from __future__ import annotations

from array import array

import numpy as np

from index._core import Automaton

BORDER = -1  # between two texts
TOKEN_BYTES = 4  # bytes of a token
INITIAL_TAIL_TOKENS = (
    64  # tokens of the end that are looked up first; more, where all of them match
)


class SuffixLookup:
    """One text behind others, which are expected to recur. Nothing crosses a border."""

    def __init__(self, others: list[list[int]], text: list[int]) -> None:
        self.tokens: list[int] = []
        self.bytes = bytearray()
        self.automaton = Automaton()
        for other in others:
            self.automaton.add(other)
            self._append([*other, BORDER])
        self.start = len(self.tokens)  # of the text itself
        self.automaton.open()
        self.extend(text)

    def extend(self, tokens: list[int]) -> None:
        """The text goes on."""
        self.automaton.extend(tokens)
        self._append(tokens)

    def longest(self) -> int:
        """How many tokens at the end stood somewhere before, where another token follows them."""
        size, limit = len(self.tokens) - self.start, INITIAL_TAIL_TOKENS
        while True:
            tail = np.array(self.tokens[self.start + max(size - limit, 0) :], np.int32)
            length = self.automaton.match(tail, 1, limit, followed=True).length
            if length < limit or limit >= size:
                return length
            limit *= 4

    def first(self, length: int, stop: int | None = None) -> int:
        """What place follows the first occurrence of the last `length` tokens that a token follows
        and that starts before `stop`; -1: there is none. The text itself is as long or longer."""
        size = len(self.tokens)
        run = array("i", self.tokens[size - length :]).tobytes()
        last = min((size if stop is None else stop) + length - 1, size - 1)
        at = self.bytes.find(run, 0, last * TOKEN_BYTES)
        while at >= 0 and (at % TOKEN_BYTES or self.tokens[at // TOKEN_BYTES + length] == BORDER):
            at = self.bytes.find(run, at + 1, last * TOKEN_BYTES)
        return at // TOKEN_BYTES + length if at >= 0 else -1

    def first_before(self, length: int, count: int) -> int:
        """The same for the longest end, of `length` tokens at most, whose first occurrence has
        `count` tokens behind it; where none has, for the last token (SPEC.md 1.2, to_anc)."""
        low, high = 1, length  # shorter ends occur earlier, or at the same place
        while low < high:
            middle = (low + high + 1) // 2
            if len(self.tokens) - self.first(middle) >= count:
                low = middle
            else:
                high = middle - 1
        return self.first(low)

    def after(self, place: int, count: int) -> list[int]:
        """So many tokens from `place` on, up to the text's border."""
        found = self.tokens[place : place + count]
        return found[: found.index(BORDER)] if BORDER in found else found

    def _append(self, tokens: list[int]) -> None:
        self.tokens += tokens
        self.bytes += array("i", tokens).tobytes()
