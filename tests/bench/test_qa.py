"""`python -m bench qa`: what counts as a hit, generated questions, and the last line."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.qa import qa
from bench.qa.own import load_questions
from bench.qa.retrieval import generated, holds, load
from index.documents.documents import Chunk
from tests.bench.conftest import RunBench
from tests.support.questions import make_model
from tests.support.sample_documents import prose

ROOT = Path(__file__).resolve().parents[2]

KEYS = ["hit@1", "hit@3", "hit@10"]
KEYS += ["answer_containment", "citation_precision", "citations", "ratio_to_plain"]
PLACES = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda pair: (min(pair), max(pair)))


def records(folder: Path) -> Path:
    """Two documents, three questions."""
    texts = [prose(random.Random(seed), 40) for seed in (1, 2)]
    lines = []
    for number, which in enumerate((0, 0, 1)):
        text = texts[which]
        answer = text.split("\n\n")[number * 2]
        record = {"id": f"q{number}", "doc_id": f"d{which}", "source_path": f"d{which}.rst"}
        record |= {"document": text, "question": answer[:60], "answer": answer}
        lines.append(json.dumps(record | {"answer_start": text.index(answer)}))
    path = folder / "questions.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def few_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of our own questions only: all of them take seconds."""
    few = load_questions()[::10]
    monkeypatch.setattr(qa, "load_questions", lambda: few)


@given(st.text(" ab", min_size=30, max_size=30), PLACES, st.lists(PLACES, max_size=4))
def test_a_hit_contains_every_character_of_the_passage(
    text: str, place: tuple[int, int], places: list[tuple[int, int]]
) -> None:
    chunks = [Chunk("d", 0, text[a:b], a, b, None, "") for a, b in places]
    missing = [
        at for at in range(*place) if text[at] != " " and not any(a <= at < b for a, b in places)
    ]
    assert holds(chunks, "d", text, *place) == (not missing)
    assert not holds(chunks, "other", text, *place) or not text[slice(*place)].strip()


def test_generated_questions_are_a_fixed_sample_of_sentences(tmp_path: Path) -> None:
    documents, asked = load(records(tmp_path))
    assert len(documents) == 2 and len(asked) == 3
    made = generated(documents, 20)
    assert made == generated(documents, 20) and len({one.name for one in made}) == 20
    for one in made:
        text = documents[one.document][1][one.start : one.stop]
        assert text.endswith(".") and text.count(".") == 1
        assert set(one.question.split()) <= set(text.rstrip(".").split())


@pytest.mark.parametrize(
    ("line", "message"),
    [("{}", "a record has id"), ("no", "a record has id"), ("[]", "a record has id")],
)
def test_a_malformed_file_is_one_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(line)
    with pytest.raises(ValueError, match=rf"a\.jsonl, line 1: .*{message}"):
        load(path)


def test_an_answer_elsewhere_is_refused(tmp_path: Path) -> None:
    path = records(tmp_path)
    path.write_text(path.read_text().replace('"answer_start": 0', '"answer_start": 5'))
    with pytest.raises(ValueError, match="line 1: the answer is not at answer_start"):
        load(path)


def test_it_ends_with_one_json_line(
    tmp_path: Path, run_bench: RunBench, few_questions: None
) -> None:
    ran = run_bench(qa.main, records(tmp_path), "--generated", "9")
    assert ran.code == 0, ran.err
    last = json.loads(ran.out.splitlines()[-1])
    assert [*last][: len(KEYS)] == KEYS and last["ratio_to_plain"] is None
    assert last["bench"] == "qa" and last["questions"] == 3
    assert last["generated"]["questions"] == 9
    refusals = last["refusals"]
    assert refusals["unanswerable"] == 40 >= refusals["not_refused"]
    assert refusals["answerable"] > 20 and refusals["refused_wrongly"] <= refusals["answerable"]
    for shares in (last, last["generated"]):
        assert 0 < shares["hit@1"] <= shares["hit@3"] <= shares["hit@10"] <= 1


def test_without_a_file_it_asks_our_own_questions(tmp_path: Path, run_bench: RunBench) -> None:
    ran = run_bench(qa.main)
    assert ran.code == 0, ran.err
    last = json.loads(ran.out.splitlines()[-1])
    assert [*last][: len(KEYS)] == KEYS and last["hit@1"] is None and "generated" not in last
    own = last["own"]
    for shares in (own, *own["groups"].values()):
        assert 0 < shares["hit@1"] <= shares["hit@3"] <= shares["hit@10"] <= 1
    languages = [figures for name, figures in own["groups"].items() if name != "tables"]
    for key in ("questions", "unanswerable"):
        assert own[key] == sum(figures[key] for figures in languages)
    assert {*own["refused_wrongly"]}.isdisjoint(own["not_refused"])


@pytest.mark.full
def test_with_a_model_it_answers_and_leaves_a_file(tmp_path: Path, run_bench: RunBench) -> None:
    model = make_model(tmp_path / "model")
    out = tmp_path / "out" / "qa.json"
    ran = run_bench(
        qa.main, records(tmp_path), "--generated", "1", "--model", model, "--repeats", "1",
        "--summaries", "1", "--out", out,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    last = json.loads(ran.out.splitlines()[-1])
    assert [*last][: len(KEYS)] == KEYS
    assert (last["answer_containment"], last["citations"], last["model"]) == (0, 0, "model")
    assert last["ratio_to_plain"] > 0 and last["summaries"]["summaries"] == 1
    assert last["own_summaries"]["summaries"] == 1
    assert last["own_answers"]["questions"] == last["own"]["questions"]
    assert [one["question"] for one in last["each"]] == ["q0", "q1", "q2"]
    written = json.loads(out.read_text())
    assert written.keys() == last.keys() and written["each"] == last["each"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--summaries", "1"], "needs a model"),
        (["--repeats", "0"], "--repeats 0: must be 1 or more"),
        (["--model", "./none", "--generated", "1"], "none"),
    ],
)
def test_errors_are_one_line(
    tmp_path: Path, run_bench: RunBench, few_questions: None, options: list[str], message: str
) -> None:
    ran = run_bench(qa.main, records(tmp_path), *options)
    last = ran.err.splitlines()[-1]
    assert ran.code in (1, 2) and message in last and "Traceback" not in ran.err


def test_a_missing_file_is_one_line(tmp_path: Path, run_bench: RunBench) -> None:
    ran = run_bench(qa.main, tmp_path / "none.jsonl")
    assert ran.code == 2 and "none.jsonl" in ran.err.splitlines()[-1]
