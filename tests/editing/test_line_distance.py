"""Edit distances of lines, and the alignments that have them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from engine.editing.line_distance import distances, matches

LINES = st.lists(st.sampled_from("abcd"), max_size=8)


def oracle(pattern: list[str], text: list[str]) -> list[int]:
    """The least distance of a pattern to every beginning of a text."""
    last = [*range(len(text) + 1)]
    for row, line in enumerate(pattern, 1):
        now = [row]
        for column, other in enumerate(text):
            now.append(min(last[column] + (line != other), now[-1] + 1, last[column + 1] + 1))
        last = now
    return last


@given(LINES.filter(bool), LINES)
def test_distances_are_those_of_every_beginning(pattern: list[str], text: list[str]) -> None:
    assert [*distances(pattern, text, False)] == oracle(pattern, text)


@given(LINES, LINES)
def test_pairs_are_the_equal_lines_of_an_alignment_with_the_least_distance(
    pattern: list[str], text: list[str]
) -> None:
    pairs = matches(pattern, text)
    assert all(pattern[row] == text[column] for row, column in pairs)
    distance = 0
    for (row, column), (row2, column2) in pairwise([(-1, -1), *pairs, (len(pattern), len(text))]):
        assert row < row2 and column < column2
        distance += max(row2 - row, column2 - column) - 1
    assert distance == oracle(pattern, text)[-1]


def test_a_line_is_deleted_rather_than_replaced() -> None:
    assert matches(["new", "head"], ["head", "old"]) == [(1, 0)]
