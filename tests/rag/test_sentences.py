"""Sentences of a streamed text: stable under more text, no repeats, no headings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.rag.sentences import find_sentences, normalize, own_sentences, words

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


def sentences(text: str) -> list[str]:
    spans = find_sentences(text, 99, True).spans
    return [" ".join(text[start:stop].split()) for start, stop in spans]


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


@given(TEXTS, st.booleans())
def test_own_sentences_are_the_texts_own_words_and_differ(text: str, code: bool) -> None:
    found = own_sentences(text, code=code)
    assert len({normalize(one) for one in found}) == len(found)
    for one in found:
        assert "".join(words(one)) in "".join(words(text))


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
    assert own_sentences(both, ["a title of some words"]) == ["This one is a sentence."]


def test_a_title_before_a_sentence_is_dropped() -> None:
    text = "Setting up\nThe pump must be primed first."
    assert own_sentences(text, ["setting up"]) == ["The pump must be primed first."]
    assert own_sentences(f"2.1 {text}", ["setting up"]) == ["The pump must be primed first."]


def test_numbers_of_pages_are_left_out() -> None:
    assert own_sentences("The pump is primed now.\n\n14\n\nThe seal runs dry then.") == [
        "The pump is primed now.",
        "The seal runs dry then.",
    ]


@pytest.mark.parametrize(
    "sentence",
    [
        "Das Mietverh\u00e4ltnis beginnt am 1. M\u00e4rz 2025 und endet nie.",
        "Die Wohnung ist im Haus Gerberstra\u00dfe 7, 3. Obergeschoss links.",
        "Der Keller Nr. 11 geh\u00f6rt bzw. z\u00e4hlt zur Wohnung.",
    ],
)
def test_german_ordinals_and_abbreviations_end_no_sentence(sentence: str) -> None:
    assert own_sentences(f"{sentence} Und noch ein Satz folgt ihm.")[0] == sentence


def test_a_text_without_sentences_has_its_rows() -> None:
    table = "| Size | Price |\n|---|---|\n| 60 cm | 120 EUR |\n"
    assert own_sentences(table) == ["Size | Price", "60 cm | 120 EUR"]
    assert own_sentences(f"{table}\nIt needs a strong wall.") == ["It needs a strong wall."]
    assert own_sentences(table, code=True) == []


def test_code_has_the_sentences_of_its_comments() -> None:
    code = 'def add(left, right):\n    """The sum of two numbers."""\n    return left or right\n'
    assert own_sentences(code, code=True) == ["The sum of two numbers."]
    assert own_sentences("// It adds two\n// numbers at once.\nadd()", code=True) == [
        "It adds two numbers at once."
    ]
    assert own_sentences("```\nsome code that runs here.\n```\nThe text around it counts.") == [
        "The text around it counts."
    ]


def test_everything_after_a_repetition_is_left_out() -> None:
    text = "The pump is primed first. The seal runs dry then. The pump is primed first. And on."
    found = find_sentences(text, 9, False)
    assert found.complete and len(found.spans) == 2
