"""Which questions refer back to earlier ones, and how they are rewritten."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.rag.follow_up import refers_back, rewrite

FOLLOW_UPS = [
    *("And on Sundays?", "What about children?", "How much does it cost?", "Who signed it?"),
    *("What are its dimensions?", "Where are they kept?", "Why not?", "For how long?"),
    *("In winter?", "Is that mandatory?", "What happens after that?", "Which colour has it?"),
    *("Und ab 2031?", "Was kostet das?", "Wie lange gilt sie?", "Reicht daf\u00fcr eine E-Mail?"),
    *("Warum?", "Im Winter?", "Was ist mit Haustieren?", "Wo finde ich es?"),
    *("Et le samedi ?", "Combien co\u00fbte-t-il ?", "O\u00f9 se trouve-t-elle ?", "Pourquoi ?"),
    *("\u90a3\u5468\u672b\u5462\uff1f", "\u5b83\u591a\u5c11\u94b1\uff1f"),
    *("\u4e3a\u4ec0\u4e48\uff1f", "\u5176\u4ed6\u57ce\u5e02\u5462\uff1f"),
]
INDEPENDENT = [
    *("What is this document about?", "What happens if the tenant loses his key?"),
    *("How does the pump work and how do I clean it?", "What is OPT_7?", "Can I cancel?"),
    *("Is it allowed to smoke in the flat?", "How long does it take to charge the battery?"),
    *("Who are the parties and what are their addresses?", "Is there a lift?"),
    *("Gibt es eine Kaution?", "Wie erreichen Sie den Notdienst?", "Was gilt, wenn es regnet?"),
    *("Wann bekommt der Mieter seine Kaution zur\u00fcck?", "Wann endet dieser Vertrag?"),
    *("Y a-t-il une caution ?", "Quand le locataire doit-il payer ?"),
    *("Est-il possible de r\u00e9silier le bail ?", "Comment s'appelle la directrice ?"),
    *("\u5408\u540c\u4ec0\u4e48\u65f6\u5019\u7ed3\u675f\uff1f",),
    *("\u90a3\u4e9b\u6761\u6b3e\u9002\u7528\u4e8e\u8c01\uff1f",),
]


@pytest.mark.parametrize("question", FOLLOW_UPS)
def test_follow_ups_refer_back(question: str) -> None:
    assert refers_back(question) and refers_back(f"  {question}\n")
    first = "When is the library open?"
    assert rewrite(question, [first]) == f"{question} ({first})"
    assert rewrite(question, []) == rewrite(question, [question]) == ""


@pytest.mark.parametrize("question", INDEPENDENT)
def test_other_questions_do_not(question: str) -> None:
    assert not refers_back(question)
    assert rewrite(question, ["When is the library open?"]) == ""


def test_a_follow_up_to_a_follow_up_is_about_the_same() -> None:
    asked = ["How warm is it?", "When does the library open?", "And on Sundays?"]
    assert rewrite("And on holidays?", asked) == f"And on holidays? ({asked[1]})"


def test_the_questions_of_the_bench_are_told_apart() -> None:
    path = Path(__file__).resolve().parents[2] / "bench/qa/questions.jsonl"
    asked = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    wrong = [one["question"] for one in asked if refers_back(one["question"]) != ("follows" in one)]
    assert wrong == []
