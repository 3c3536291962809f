"""The sentence that fits a question best."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.rag.citations import Source
from engine.rag.extraction import MAX_CHARS, best_sentence
from engine.rag.query_terms import content_words, missing_words

LEASE = """The lease starts on 1 May. The rent is due on the
third day of each month.

The keys that the tenant receives:

- 3 keys to the flat
- 1 key to the cellar

| room    | size  |
|---------|-------|
| kitchen | 12 m2 |
"""
words = st.sampled_from(["rent", "keys", "the", "due", "cellar", "size", ".", ":", "\n", "\n\n"])
texts = st.lists(words, max_size=40).map(" ".join)


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ("When is the rent due?", "The rent is due on the\nthird day of each month."),
        ("How large is the kitchen?", "room: kitchen; size: 12 m2"),
        ("How many moons does Jupiter have?", ""),
        ("What is it about?", ""),
    ],
)
def test_examples(question: str, sentence: str) -> None:
    assert best_sentence(question, [Source("d", "lease.md", LEASE, kind="md")]) == sentence


def test_the_question_that_a_follow_up_refers_to_decides_between_equal_sentences() -> None:
    tutors = "A tutor has ten paid days of training."
    leave = "The holiday is 33 days a year, and 35 of them to those with ten years of service."
    sources = [Source("d", "handbook.md", f"{tutors}\n\n{leave}")]
    for refers_to, sentence in (("How long is the holiday?", leave), ("", tutors)):
        assert best_sentence("And after ten?", sources, refers_to) == sentence


def test_what_a_colon_announces_comes_with_it() -> None:
    found = best_sentence("Which keys does the tenant receive?", [Source("d", "n", LEASE)])
    assert found.startswith("The keys") and found.endswith("1 key to the cellar")


def test_a_list_with_blank_lines_and_a_term_come_whole() -> None:
    listed = "These are tracked:\n\n* requests\n\n* responses\n\nNothing else is."
    found = best_sentence("What is tracked?", [Source("d", "n", listed)])
    assert found == "These are tracked:\n\n* requests\n\n* responses"
    term = (
        ".. data:: LIFETIME\n\n   How long a session lasts.\n\n   Default: 31 days\n\n.. data:: X"
    )
    found = best_sentence("What is the default of LIFETIME?", [Source("d", "n", term)])
    assert found.startswith("data:: LIFETIME") and found.endswith("31 days")


@pytest.mark.parametrize("title", ["# The rent", "The rent\n========", ".. _the-rent:\n"])
def test_a_title_is_no_sentence(title: str) -> None:
    text = f"{title}\n\nThe rent is 700 euros, and it is due on the third day."
    found = best_sentence("How high is the rent?", [Source("d", "n", text)])
    assert found.startswith("The rent is 700")


@given(st.lists(texts, max_size=3), texts)
def test_it_is_in_a_source_and_has_a_word_of_the_question(parts: list[str], question: str) -> None:
    found = best_sentence(question, [Source(str(n), "n", text) for n, text in enumerate(parts)])
    assert len(found) <= MAX_CHARS
    if found:
        wanted = content_words(question)
        assert any(found in text for text in parts)
        assert len(missing_words(wanted, [found])) < len(wanted)
