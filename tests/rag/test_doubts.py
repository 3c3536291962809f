"""Reasons to check an answer: numbers and names without a place, and words that are not shared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.rag.citations import Source, cite
from engine.rag.doubts import OFF_TOPIC, Judgement, judge, values_of
from engine.rag.evidence import find_evidence, on_topic

HARVEST = """# Harvest

| Year | Tonnes | Orchard |
|---|---|---|
| 2022 | 75 | North |
| 2024 | 90 | South |
"""
MINUTES = (
    "The mayor is elected every five years by the council.\n"
    "The minutes are published a week later.\n\n"
    "The meeting begins at seven in the old school."
)


def judged(question: str, answer: str, text: str) -> Judgement:
    sources = [Source("d", "a.md", text, kind="md")]
    citations = on_topic(question, cite(answer, sources, question), sources)
    evidence = find_evidence(question, answer, sources, citations)
    return judge([question], answer, citations, evidence, sources)


def test_a_copy_that_shares_no_word_with_the_question_says_so() -> None:
    found = judged("Who is the mayor?", "The meeting begins at seven in the old school.", MINUTES)
    assert found == Judgement((OFF_TOPIC,), (), ("mayor",))
    answer = "The mayor is elected every five years by the council."
    found = judged("Who elects the mayor?", answer, MINUTES)
    assert found == Judgement((), ("elects", "mayor"), ())


@pytest.mark.parametrize(
    ("answer", "year", "doubt"),
    [
        ("90 tonnes", 2024, ""),
        ("In 2024, 90 tonnes were harvested.", 2024, ""),
        ("90 tonnes", 2022, "The passages say this, but not about 2022"),
        ("90 tonnes", 2023, "2023 is in none of the passages"),
        ("In 2023, 90 tonnes were harvested.", 2023, "2023 is in none of the passages"),
        ("In 2022, 90 tonnes were harvested.", 2022, "2022 and 90 stand in different places"),
        ("In the West, 90 tonnes were harvested.", 2024, "West is in none of the passages"),
    ],
)
def test_numbers_and_names_without_a_place_are_named(answer: str, year: int, doubt: str) -> None:
    found = judged(f"How many tonnes were harvested in {year}?", answer, HARVEST).doubts
    assert [one.startswith(doubt) for one in found] == [True] * bool(doubt)


def test_numbers_of_neighboring_sentences_belong_together() -> None:
    text = "The house was built by Hester Lockwood. That was in 1962."
    question, answer = "Who built the house?", "It was built by Hester Lockwood in 1962."
    assert not judged(question, answer, text).doubts
    apart = text.replace(". ", ". The roof has been mended twice. Nobody lived there. ")
    assert "1962 and Hester" in judged(question, answer, apart).doubts[0]


words = st.sampled_from(["apple", "rents", "water", "garden", "cellar", "bicycle", "window"])
sentences = st.lists(words, min_size=3, max_size=6, unique=True).map(" ".join)


@given(st.lists(sentences, min_size=1, max_size=5), st.data())
def test_a_copy_with_all_words_of_the_question_is_not_doubted(
    found: list[str], data: st.DataObject
) -> None:
    answer = data.draw(st.sampled_from(found))
    text = "\n\n".join(f"{one.capitalize()}." for one in found)
    assert judged(f"What about {answer}?", f"{answer.capitalize()}.", text).doubts == ()


@given(st.integers(100, 10**6), sentences)
def test_a_number_without_a_place_is_always_named(number: int, text: str) -> None:
    doubts = judged(f"What about {text}?", f"{text}: {number}", f"{text}: {number + 1}").doubts
    assert f"{number} is in none of the passages: check it." in doubts


@given(st.integers(0, 10**9), st.sampled_from(",.'\u2019\u00a0\u202f"))
def test_separators_of_thousands_and_zeros_change_no_value(number: int, sign: str) -> None:
    grouped = f"{number:,}".replace(",", sign)
    assert str(number) in values_of(grouped) and str(number) in values_of(f"{number}.00")
    assert values_of(f"{number}.5") == values_of(f"{number},50")


def test_full_hours() -> None:
    assert "22" in values_of("22:00") and "22" not in values_of("22:30")
    assert values_of("08:30") == values_of("8:30")
