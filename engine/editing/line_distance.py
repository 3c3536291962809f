"""Edit distances between runs of lines: how many lines to insert, delete or replace, 1 each.

Bit vectors as Python's integers: Myers, A Fast Bit-Vector Algorithm for Approximate String Matching
Based on Dynamic Programming, 1999; Hyyrö, A Bit-Vector Algorithm for Computing Levenshtein and
Damerau Edit Distances, 2003. A step takes time by the pattern's length over the width of a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

Column = tuple[int, int]  # bits of the pattern's lines: the distance grows by 1 there; it falls


def distances(pattern: Sequence[str], text: Iterable[str], anywhere: bool) -> Iterator[int]:
    """Yield the distance between `pattern` and the text up to each of its lines, from none on.

    `anywhere`: the distance to the nearest run of lines that ends there; else to all lines from the
    first.
    """
    distance = len(pattern)
    yield distance
    last = 1 << len(pattern) >> 1
    for _, rises, falls in _steps(pattern, text, anywhere):
        distance += bool(rises & last) - bool(falls & last)
        yield distance


def matches(pattern: Sequence[str], text: Sequence[str]) -> list[tuple[int, int]]:
    """Return the pairs of equal lines of an alignment of all lines that has the least distance.

    Where both lead there, a line is deleted rather than replaced, which leaves more equal ones.
    Memory grows with the product of both lengths.
    """
    columns = [(*column, rises) for column, rises, _ in _steps(pattern, text, False)]
    found = []
    row, column = len(pattern), len(text)
    while row and column:
        bit = 1 << row >> 1
        if columns[column - 1][0] & bit:
            row -= 1
            continue
        column -= 1
        if column and columns[column - 1][1] & bit:
            continue
        if pattern[row - 1] == text[column]:
            found.append((row - 1, column))
        elif columns[column][2] & bit:
            continue
        row -= 1
    return found[::-1]


def _steps(
    pattern: Sequence[str], text: Iterable[str], anywhere: bool
) -> Iterator[tuple[Column, int, int]]:
    """Yield, for each line of the text, its column and where the distance rises and falls.

    It rises and falls from the line before to this one.
    """
    bits: dict[str, int] = {}
    for row, line in enumerate(pattern):
        bits[line] = bits.get(line, 0) | 1 << row
    every = (1 << len(pattern)) - 1
    up, down = every, 0
    for line in text:
        equal = bits.get(line, 0)
        same = (((equal & up) + up) ^ up) | equal | down
        rises, falls = down | (every & ~(same | up)), same & up
        shifted = (rises << 1 | (not anywhere)) & every
        up = (falls << 1 & every) | (every & ~(same | shifted))
        down = shifted & same
        yield (up, down), rises, falls
