"""The content_words words of a question, and which of them some texts lack."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.rag.query_terms import content_words, missing_words


@given(st.text())
def test_no_word_of_a_text_is_missing_in_it(text: str) -> None:
    assert missing_words(content_words(text), ["", text]) == []


@given(st.lists(st.sampled_from(["flask", "debug", "cache", "the", "of", "tables"])), st.text())
def test_missing_words_are_not_in_the_text(words: list[str], text: str) -> None:
    wanted = content_words(" ".join(words))
    for word in missing_words(wanted, [text]):
        assert word in wanted and word not in text.split()
    assert missing_words(wanted, []) == wanted


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("What is the default value of MAX_SIZE?", ["default", "value", "max", "size"]),
        ("How do I use maxFormSize?", ["max", "form", "size"]),
        ("What is this document about?", []),
        ("Summarize the text.", []),
        ("Why doesn't the pump's motor run after a stop?", ["pump", "motor", "run", "stop"]),
        ("\u8bbe\u7f6e\u7f13\u5b58", ["\u8bbe\u7f6e", "\u7f6e\u7f13", "\u7f13\u5b58"]),
        ("cafe\u0301", ["caf\u00e9"]),
    ],
)
def test_content_words(question: str, words: list[str]) -> None:
    assert content_words(question) == words


def test_words_may_differ_in_their_suffixes_only() -> None:
    wanted = ["tables", "configure", "limited", "cat"]
    assert missing_words(wanted, ["a table, configured; its limits. category"]) == ["cat"]
    assert missing_words(["treaty"], ["treat"]) == ["treaty"]
