"""A model's own answers in `python -m bench replay`, and what it finds likely along them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.common.engine_thread import in_engine_thread
from bench.common.tasks import EDITS, Task, every_task
from bench.replay import answers, replay
from bench.replay.answers import LIKELY, answered, likely_tokens
from engine import Config, Engine, Request
from engine.drafting.recycling import WIDTH
from engine.prompts.tokenizer import Tokenizer
from research.train import teacher_forcing
from research.train.edit_records import EditError
from tests.bench.conftest import RunBench
from tests.conftest import tiny_model
from tests.support.training import make_place


def first_task(kind: str) -> Task:
    return min((task for task in every_task() if task.kind == kind), key=lambda t: len(t.before))


def write_answers(file: Path, **more: Any) -> list[Task]:
    """Write the texts of a whole file and of a selection as the answers to their edits."""
    chosen = [first_task(kind) for kind in EDITS]
    found = [{"task": t.name, "method": "plain", "text": t.before} | more for t in chosen]
    others = [{"task": "question-x", "method": "plain", "text": "x"}]
    others += [{"task": chosen[0].name, "method": "hf", "text": "other"}]
    file.write_text(json.dumps({"answers": [*found, *others]}))
    return chosen


def test_an_answer_replaces_the_file_or_the_selection(tmp_path: Path, tiny: Any) -> None:
    tokenizer = Tokenizer(tiny("llama"))
    for task, whole in zip(write_answers(tmp_path / "a.json"), (True, False), strict=True):
        (one,) = answered(tmp_path / "a.json", whole, tokenizer)
        assert one.id == task.name and one.whole == whole and one.before == task.request.text
        assert tokenizer.decode(one.prediction) == task.request.text
        assert tokenizer.decode(one.output) == task.before
        assert tokenizer.decode(one.prediction[one.start :]).startswith(task.before.lstrip("\n"))


@pytest.mark.parametrize("likely", [[[1] * LIKELY], [[1]] * 3])
def test_likely_tokens_of_another_model_are_refused(
    tmp_path: Path, tiny: Any, likely: list[list[int]]
) -> None:
    write_answers(tmp_path / "a.json", likely=likely)
    with pytest.raises(EditError, match="recorded with another model"):
        answered(tmp_path / "a.json", True, Tokenizer(tiny("llama")))


def test_an_answer_is_recorded_and_replayed_next_to_edits_of_people(
    tmp_path: Path, run_bench: RunBench
) -> None:
    place, model = make_place(tmp_path), tiny_model(tmp_path / "tiny", context=8192)
    write_answers(tmp_path / "a.json")
    done = run_bench(answers.main, tmp_path / "a.json", tmp_path / "b.json", "--model", model)
    assert done.code == 0, done.err
    found = json.loads((tmp_path / "b.json").read_text())["answers"]
    assert len(found) == 2 and LIKELY >= WIDTH
    assert all(len(set(row)) == LIKELY for one in found for row in one["likely"])
    shown = {}
    for name in ("a", "b"):
        done = run_bench(
            replay.main, place / "edits.jsonl", "--answers", tmp_path / f"{name}.json", "--model",
            model, "--library", place / "sources", "--budget", "8", "--json",
            "--drafter", "draftline", "untrained", "token-recycling", "logitspec",
        )  # fmt: skip
        assert done.code == 0, done.err
        rows = [json.loads(line) for line in done.out.splitlines()]
        shown[name] = {(row["source"], row["drafter"]) for row in rows}
        assert "no likely tokens are recorded: token-recycling, logitspec" in done.err
    assert {source for source, _ in shown["a"]} == {"people", "the model"}
    needing = {("the model", f"best {name}") for name in ("token-recycling", "logitspec")}
    assert needing <= shown["b"] and not needing & shown["a"]


def test_likely_tokens_are_those_of_passes_over_one_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, request = tiny_model(tmp_path / "model"), Request("edit", "a = 1\n", instruction="Go.")
    found = []
    for rows in (64, 1):
        monkeypatch.setattr(teacher_forcing, "CHUNK_ROWS", rows)
        with Engine(Config(model=str(model), library=False)) as engine:
            work = partial(likely_tokens, engine, Task("t", "file", request), "a = 2\nb = a\n")
            found.append([row[0] for row in in_engine_thread(engine, work)])
            assert len(found[0]) == len(engine.encode("a = 2\nb = a\n"))
    assert found[0] == found[1]
