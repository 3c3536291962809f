"""Ranking sentences: a subset in order, led by what only its chapter says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.rag.salience import Salience

WORDS = st.lists(
    st.sampled_from(["the", "pump", "must", "be", "12", "水泵"]), min_size=1, max_size=9
)
CHAPTERS = st.lists(st.lists(WORDS.map(" ".join), min_size=1, unique=True), min_size=1, max_size=4)


@given(CHAPTERS, st.integers(0, 5))
def test_the_best_are_some_of_the_sentences_in_order(chapters: list[list[str]], count: int) -> None:
    salience = Salience(chapters)
    for number, own in enumerate(chapters):
        best = salience.best(number, own, count)
        assert len(best) == min(count, len(own))
        assert best == [one for one in own if one in best]
        assert set(best) <= set(salience.best(number, own, count + 1))


def test_what_only_this_chapter_says_is_best() -> None:
    chapters = [
        ["This part is for all of us.", "The pump turns at 1,450 revolutions in a minute."],
        ["This part is for all of us.", "The valve opens below a pressure of 3 bar."],
    ]
    salience = Salience(chapters)
    assert [salience.best(n, own, 1) for n, own in enumerate(chapters)] == [
        [own[1]] for own in chapters
    ]
