"""Points of a text: what is known of its beginning stays so, nothing twice, no headings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.rag.sentences import count, distinct, on_one_line, points, said_as
from engine.records import Piece

SENTENCES = [
    "One sentence has words.",
    "Another one follows it, e.g. here.",
    "# Heading\n\n",
    "- an item of a list\n",
    "1. first come first served\n",
    "| a | row | of | a table |\n",
    "Is it so? ",
    "\u6211\u4eec\u662f\u4e2d\u56fd\u4eba\u6c11\u5927\u5b66\u751f\u3002",
    "Dr. Who lives here.",
    "a line\nthat is wrapped. ",
    ".. note::\n  of some kind\n",
    " ",
    "\n\n",
]
TEXTS = st.lists(
    st.sampled_from(SENTENCES)
    | st.text(st.sampled_from("aB .!?\n-#1)\u2026\u3002\"'*|"), max_size=9)
).map("".join)


def said(text: str, most: int = 99, ended: bool = True, titles: tuple[str, ...] = ()) -> list[str]:
    found = points(text, most, ended, titles)
    return [" ".join(text[start:stop].split()) for start, stop in found.places]


@given(TEXTS, st.integers(1, 5), st.integers(0, 200))
def test_what_follows_changes_nothing_that_is_known(text: str, most: int, at: int) -> None:
    before, whole = points(text[:at], most, False), points(text, most, True)
    assert whole.full
    assert whole.places[: len(before.places)] == before.places
    if before.full:
        assert before.places == whole.places


@given(TEXTS, st.integers(1, 5))
def test_points_are_apart_in_order_and_said_once(text: str, most: int) -> None:
    found = points(text, most, True).places
    assert len(found) <= most
    ends = [0, *(place for one in found for place in one), len(text)]
    assert ends == sorted(ends)
    words = [said_as(text[start:stop]) for start, stop in found]
    assert len(set(words)) == len(words) and all(words)


@given(st.lists(st.tuples(TEXTS, st.sampled_from("xyz"))), st.data())
def test_a_place_on_one_line_has_the_words_of_the_text(
    given: list[tuple[str, str]], data: st.DataObject
) -> None:
    pieces = [Piece(*one) for one in given]
    text = "".join(piece.text for piece in pieces)
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, len(text)))
    made = on_one_line(pieces, start, stop)
    assert "".join(piece.text for piece in made) == " ".join(text[start:stop].split())
    for piece in made:
        assert any(piece.source == one.source and piece.text.strip() for one in pieces)


def test_sentences_and_items_are_points() -> None:
    text = (
        "It does one thing. See e.g. the docs of it!\n\n- keep the lid on\n2. shut the door now\n"
    )
    assert said(text) == [
        "It does one thing.",
        "See e.g. the docs of it!",
        "keep the lid on",
        "shut the door now",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "## A heading of some words",
        "| a | row of | a table |",
        "![an image of it all](x.png)",
        ".. note:: this is a directive",
        "Too short.",
        "What follows is a list:",
        "A title of some words",
        "a " * 300 + "b word that is long",
    ],
)
def test_what_is_no_sentence_is_left_out(text: str) -> None:
    both = f"{text}\n\nThis one is a sentence."
    assert said(both, titles=("a title of some words",)) == ["This one is a sentence."]
    assert count("This one is a sentence.") == 1


def test_a_title_before_a_sentence_is_cut_off() -> None:
    text = "Setting up\nThe pump must be primed first."
    assert said(text, titles=("setting up",)) == ["The pump must be primed first."]


def test_all_behind_a_repetition_is_left_out() -> None:
    text = "The pump is primed first. The seal runs dry then. The pump is primed first. And on."
    found = points(text, 9, False)
    assert found.full and len(found.places) == 2


def test_points_stand_in_the_first_group_that_has_them() -> None:
    assert distinct([["It is.", "So."], ["it is", "No."]]) == [["It is.", "So."], ["No."]]
