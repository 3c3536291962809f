"""`python -m bench qa --model`: what counts as an answer and as a citation, and the figures."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.qa.answers import (
    AnswerRow,
    answers,
    contains,
    count_precise,
    figures,
    own_figures,
    summaries,
)
from bench.qa.own import Checklist, OwnQuestion
from bench.qa.retrieval import PassageQuestion, add_texts
from engine import Config, Engine
from engine.rag.answer import CitedAnswer
from engine.rag.citations import Citation, Source, cite
from engine.rag.evidence import Evidence
from engine.rag.summary_plan import SummaryOptions
from index.documents.documents import Documents
from tests.support.questions import GUIDE, WORD, make_model

ROOT = Path(__file__).resolve().parents[2]


def test_blanks_and_markup_do_not_matter_in_an_answer() -> None:
    assert contains("It is `500 kB` by default.", "500\n  kB")
    assert contains("Be sure", "*be* sure")
    assert not contains("It is 500 MB", "500 kB")
    assert not contains("500kB", "500 kB")


@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=40))
def test_a_passage_inside_an_answer_is_found(before: str, passage: str, after: str) -> None:
    assert contains(f"{before} {passage} {after}", passage)


def test_only_citations_with_the_quoted_words_are_precise() -> None:
    text = "one two three four five six"
    citations = cite(f"so: {text}", [Source("d", "n", text)])
    assert count_precise(citations, f"so: {text}", {"d": text}) == len(citations) == 1
    wrong = [Citation(0, 3, "d", "n", None, 4, 7), Citation(3, 4, "d", "n", None, 3, 4)]
    assert count_precise(wrong, text, {"d": text}) == 0


def test_figures_of_some_answers() -> None:
    text = "one two three four five six"
    answer = CitedAnswer(text, tuple(cite(text, [Source("d", "n", text)])), 1.0)
    rows = [
        AnswerRow("a", answer, True, [2.0, 8.0, 4.0], [3.0, 2.0, 1.0], 6, 1.0, 0.5),
        AnswerRow("b", CitedAnswer("no", (), 0.0), False, [1.0], [0.5], 1, 3.0, 1.5),
        AnswerRow("c", None, False, [], [], 0, 2.0, 0.0),
    ]
    got = figures(rows, {"d": text})
    assert got["answer_containment"] == pytest.approx(1 / 3, abs=1e-4)
    assert (got["citations"], got["citation_precision"], got["cited_answers"]) == (1, 1.0, 1)
    assert (got["ratio_to_plain"], got["ratio_where_quoted"], got["lowest_ratio"]) == (2, 4, 1)
    assert (got["ratio_whole"], got["lowest_whole"]) == (1.0, 0.5)
    assert (got["not_answered"], got["covered"], got["prepare_ms"]) == (["c"], 0.5, 2.0)
    assert (got["first_token_s"], got["longest_first_token_s"]) == (1.0, 1.5)


def test_figures_of_own_answers_count_answerable_questions() -> None:
    cells = ("Sunday", "10:00–18:30")
    asked = [
        OwnQuestion("a", "en", "d", "?", cells, ("18:30", "6:30"), "", True),
        OwnQuestion("b", "en", "d", "?", cells, ("18:30",), "", True),
        OwnQuestion("c", "en", "d", "?", (), (), "", True),
    ]
    evidence = Evidence("d", "d", None, 1, 0, 9, ())
    given = {
        "a": CitedAnswer("| Sunday | 10:00–18:30 |", (), 1.0, (evidence,)),
        "b": None,
        "c": CitedAnswer("18:30", (), 0.0, (evidence,), ("doubt",)),
    }
    assert own_figures(asked, given) == {
        "questions": 2, "short_answer": 0.5, "passage": 0.5, "evidence": 1.0,
        "right_doubted": 0.0, "wrong_doubted": 1.0,
        "refused_wrongly": 1, "unanswerable_refused": 1.0,
    }  # fmt: skip


@pytest.mark.usefixtures("home")
def test_a_run(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model")
    start = GUIDE.index(WORD)
    asked = [
        PassageQuestion(
            "a", "Which variable turns the debugger on?", "guide", start, start + len(WORD)
        ),
        PassageQuestion("b", "How many moons has Jupiter?", "guide", 0, 5),
    ]
    with Engine(Config(model=str(model), threads=2, library=False)) as engine, Documents() as texts:
        documents = add_texts({"guide": ("guide.md", GUIDE)}, texts)
        got = answers(documents, asked, texts, engine, 2, typed=True)
        assert (got["answer_containment"], got["citations"]) == (0.5, 1)
        assert (got["citation_precision"], got["not_answered"]) == (1.0, ["b"])
        assert got["ratio_to_plain"] > 0
        checklist = Checklist("guide.md", ((WORD,), ("nowhere",)), (("Guide", WORD), ("Other",)))
        got = summaries(texts.list(), engine, SummaryOptions("short"), [checklist])
        assert (got["summaries"], got["citations"], got["citation_precision"]) == (1, 2, 1.0)
        assert (got["facts_found"], got["chapters_covered"]) == (0.5, 1.0)
        assert [one["document"] for one in got["each"]] == ["guide.md"]
