"""Sentences of a streamed text: stable under more text, no repeats, no headings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.rag.sentences import (
    count_sentences,
    find_sentences,
    join_lines,
    normalize,
    without_repeats,
)
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


def sentences(
    text: str, most: int = 99, ended: bool = True, titles: tuple[str, ...] = ()
) -> list[str]:
    found = find_sentences(text, most, ended, titles)
    return [" ".join(text[start:stop].split()) for start, stop in found.spans]


@given(TEXTS, st.integers(1, 5), st.integers(0, 200))
def test_more_text_changes_no_sentence(text: str, most: int, at: int) -> None:
    before, whole = find_sentences(text[:at], most, False), find_sentences(text, most, True)
    assert whole.complete
    assert whole.spans[: len(before.spans)] == before.spans
    if before.complete:
        assert before.spans == whole.spans


@given(TEXTS, st.integers(1, 5))
def test_sentences_are_disjoint_in_order_and_unique(text: str, most: int) -> None:
    found = find_sentences(text, most, True).spans
    assert len(found) <= most
    ends = [0, *(place for one in found for place in one), len(text)]
    assert ends == sorted(ends)
    words = [normalize(text[start:stop]) for start, stop in found]
    assert len(set(words)) == len(words) and all(words)


@given(st.lists(st.tuples(TEXTS, st.sampled_from("xyz"))), st.data())
def test_joined_lines_have_the_words_of_the_text(
    given: list[tuple[str, str]], data: st.DataObject
) -> None:
    pieces = [Piece(*one) for one in given]
    text = "".join(piece.text for piece in pieces)
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, len(text)))
    made = join_lines(pieces, start, stop)
    assert "".join(piece.text for piece in made) == " ".join(text[start:stop].split())
    for piece in made:
        assert any(piece.source == one.source and piece.text.strip() for one in pieces)


def test_sentences_and_list_items_are_found() -> None:
    text = (
        "It does one thing. See e.g. the docs of it!\n\n- keep the lid on\n2. shut the door now\n"
    )
    assert sentences(text) == [
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
def test_markup_and_fragments_are_left_out(text: str) -> None:
    both = f"{text}\n\nThis one is a sentence."
    assert sentences(both, titles=("a title of some words",)) == ["This one is a sentence."]
    assert count_sentences("This one is a sentence.") == 1


def test_a_title_before_a_sentence_is_dropped() -> None:
    text = "Setting up\nThe pump must be primed first."
    assert sentences(text, titles=("setting up",)) == ["The pump must be primed first."]


def test_everything_after_a_repetition_is_left_out() -> None:
    text = "The pump is primed first. The seal runs dry then. The pump is primed first. And on."
    found = find_sentences(text, 9, False)
    assert found.complete and len(found.spans) == 2


def test_repeats_stay_in_their_first_group() -> None:
    assert without_repeats([["It is.", "So."], ["it is", "No."]]) == [["It is.", "So."], ["No."]]
