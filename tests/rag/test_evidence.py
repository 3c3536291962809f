"""Evidence: passages of the documents, with the answer's words marked in them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.rag.citations import Source, cite, page_at
from engine.rag.doubts import judge
from engine.rag.evidence import (
    MAX_PASSAGE_CHARS,
    MAX_PASSAGES,
    Evidence,
    find_evidence,
    on_topic,
    split_passages,
)
from index.documents.full_text import query_terms

LEASE = (
    "Lease of a flat\n\nThe rent is due on the 3rd day of each month.\n"
    "The tenant pays a deposit of two monthly net rents.\n\n"
    "Keys\n\nThe tenant receives 3 keys to the flat and 1 key to the cellar.\n"
    "Lost keys are replaced at the tenant's cost.\n"
)
LEASE_ZH = (
    "\u79df\u671f\u4e3a\u4e09\u5e74\u3002\u62bc\u91d1\u4e3a\u4e24\u4e2a\u6708\u79df\u91d1\u3002"
)
words = st.sampled_from(
    ["the", "lease", "ends", "3", "31", "March", "caf\u00e9", "\u62bc", ".", ","]
)
texts = st.lists(st.tuples(words, st.sampled_from([" ", "\n", "\n\n"])), max_size=300).map(
    lambda found: "".join(word + gap for word, gap in found)
)


def evidence_of(question: str, answer: str, text: str) -> tuple[tuple[Evidence, ...], bool]:
    sources = [Source("d", "lease.txt", text)]
    citations = on_topic(question, cite(answer, sources, question), sources)
    found = find_evidence(question, answer, sources, citations)
    return found, not judge([question], answer, citations, found, sources).doubts


def marked(text: str, found: tuple[Evidence, ...]) -> list[str]:
    return [text[start:stop] for one in found for start, stop in one.marks]


@pytest.mark.parametrize(("answer", "number"), [("8", "eight"), ("eight people", "8")])
def test_a_number_is_found_as_a_word_and_where_the_question_is_answered(
    answer: str, number: str
) -> None:
    """Not in a table that has the same number by chance."""
    other = Source("a", "prices.md", f"Child | {answer[:5]} | before {number}")
    text = f"No more than {number} people may stand on the floor."
    sources = [other, Source("d", "rules.md", text)]
    question = "How many people may stand on the floor?"
    citations = cite(answer, sources, question)
    found = find_evidence(question, answer, sources, citations)
    assert (found[0].name, found[1].marks) == ("rules.md", ())
    assert number in marked(text, found[:1])[0]
    assert not judge([question], answer, citations, found, sources).doubts


@pytest.mark.parametrize("answer", ["There are 12.", "The garden has 12 apple trees."])
def test_a_passage_with_few_of_the_questions_words_supports_nothing(answer: str) -> None:
    """It says nothing about horses, however much is copied from it."""
    text = "The garden has 12 apple trees."
    assert not evidence_of("How many brown horses graze in the garden?", answer, text)[1]
    assert evidence_of("How many trees are in the garden?", answer, text)[1]


def test_stop_words_beside_a_copy_are_not_marked() -> None:
    text = "After a stop only the duty astronomer may release the drives, beside the pier."
    answer = "The duty astronomer may release the drives."
    found, supported = evidence_of("Who may release the drives?", answer, text)
    assert marked(text, found) == ["duty astronomer may release the drives"] and supported


@pytest.mark.parametrize("word", ["after", "before", "until", "while", "without"])
def test_marks_and_search_leave_out_the_same_words(word: str) -> None:
    text = f"Press the key {word} the drives stop."
    found, supported = evidence_of("When do I press the key?", f"The drives stop {word}.", text)
    assert marked(text, found) == ["drives stop"] and supported
    terms = query_terms(f"Do the drives stop {word} noon?")
    assert [term.word for term in terms] == ["drives", "stop", "noon"]


@settings(max_examples=60)
@given(texts, texts, st.booleans())
def test_marks_are_in_their_passages_and_these_in_the_document(
    text: str, answer: str, pages: bool
) -> None:
    borders = ((0, len(text) // 2), (len(text) // 2, len(text))) if pages else ()
    cut = len(text) // 3
    sources = [Source("d", "n", text[cut:], cut, borders, 1 + text.count("\n", 0, cut))]
    found = find_evidence("When does it end?", answer, sources, cite(answer, sources))
    assert bool(found) == bool(text[cut:].strip()) and len(found) <= MAX_PASSAGES
    for one in found:
        assert cut <= one.start < one.stop <= len(text) and 0 <= one.fit <= 1
        flat = [one.start, *(at for mark in one.marks for at in mark), one.stop]
        assert flat == sorted(flat)
        assert all(before[1] < after[0] for before, after in pairwise(one.marks))
        page = page_at(borders, one.start)
        line = None if pages else 1 + text[: one.start].count("\n")
        assert (one.page, one.line) == (page, line)


@given(st.text("ab \n", max_size=5 * MAX_PASSAGE_CHARS) | st.just("x" * 3000))
def test_passages_have_all_of_a_text_but_blanks(text: str) -> None:
    found = [*split_passages(text)]
    assert "".join("".join(text[a:b].split()) for a, b in found) == "".join(text.split())
    assert all(0 < b - a <= MAX_PASSAGE_CHARS for a, b in found)


@pytest.mark.parametrize(
    ("question", "answer", "text", "marks"),
    [
        ("How many keys to the flat does the tenant get?", "3", LEASE, ["3"]),
        ("How high is the deposit?", "2 monthly net rents", LEASE, ["two monthly net rents"]),
        ("When is the rent due?", "on the 3rd day", LEASE, ["on the 3rd day"]),
        (
            "\u62bc\u91d1\u662f\u591a\u5c11?",
            "\u4e24\u4e2a\u6708\u79df\u91d1",
            LEASE_ZH,
            ["\u4e24\u4e2a\u6708\u79df\u91d1"],
        ),
    ],
)
def test_short_answers_are_marked_in_the_sentence_that_fits_the_question(
    question: str, answer: str, text: str, marks: list[str]
) -> None:
    found, supported = evidence_of(question, answer, text)
    assert marked(text, found) == marks and supported
    if answer == "3":
        assert text[found[0].marks[0][0] :].startswith("3 keys")


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("How many moons does Jupiter have?", "The tenant receives 3 keys to the flat"),  # copied
        ("How many keys does the tenant get?", "Seventeen moons"),
        ("How many keys does the tenant get?", ""),
        ("How many keys does the tenant get?", "The text does not mention it."),
    ],
)
def test_an_answer_without_support_is_not_called_supported(question: str, answer: str) -> None:
    found, supported = evidence_of(question, answer, LEASE)
    assert found and not supported


COPY = "The tenant receives 3 keys to the flat and 1 key to the cellar."


def test_a_copy_of_what_was_not_asked_about_is_not_shown_as_support() -> None:
    found, supported = evidence_of("How many moons does Jupiter have?", COPY, LEASE)
    assert found and not supported and marked(LEASE, found) == []
    found, supported = evidence_of("Which keys are there?", COPY, LEASE)
    assert supported and marked(LEASE, found) == [COPY]


@pytest.mark.parametrize(
    ("above", "is_cited"),
    [
        ({"heading": "Moons"}, True),
        ({"heading": "Rent", "headings": ((6, "Moons"),)}, True),
        ({"heading": "Moons", "headings": ((6, "Rent"),)}, False),
        ({"table_head": "| planet | moons |"}, True),
        ({}, False),
    ],
)
def test_a_heading_tells_what_a_copy_is_about(above: Any, is_cited: bool) -> None:
    sources = [Source("d", "lease.txt", f"\n\n\n\n{LEASE}", 5, **above)]
    question = "How many moons does Jupiter have?"
    citations = cite(COPY, sources, question)
    assert len(citations) == 1
    assert on_topic(question, citations, sources) == (citations if is_cited else [])


def test_cited_passages_come_first() -> None:
    sources = [Source("a", "a", "Nothing about it.\n"), Source("b", "b", LEASE)]
    answer = "The tenant pays a deposit of two monthly net rents."
    (first, *_) = find_evidence("Who pays?", answer, sources, cite(answer, sources))
    assert first.document == "b" and marked(LEASE, (first,)) == [answer]
