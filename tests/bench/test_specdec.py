"""`python -m bench specdec`: figures, the Pareto front, files, and equal texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.research import specdec as bench
from engine import Config, Engine
from research.train.acceptance import untrained_head
from tests.conftest import tiny_model
from tests.model.test_target import load
from tests.support.heads import QUESTIONS, pair


def result(tokens: int, passes: int, refused: int, seconds: float = 1.0) -> bench.SpecdecAnswer:
    return bench.SpecdecAnswer(0, "", passes, refused, tokens, seconds, 2.0)


def test_golden_rates() -> None:
    """The published example: 180 tokens, 67 passes, 20 refused: 113 accepted of 133 drafted."""
    found = bench.rates([result(100, 40, 11), result(80, 27, 9)])
    assert found.discard == pytest.approx(0.111, abs=5e-4)
    assert found.verification == pytest.approx(0.372, abs=5e-4)
    assert found.tokens_a_round == pytest.approx(2.69, abs=5e-3)
    assert found.tokens_per_s == 90 and found.speedup == found.low == found.high == 2


def test_the_front_has_the_undominated_points() -> None:
    points = {"a": (0.1, 0.9), "b": (0.5, 0.5), "c": (0.6, 0.5), "d": (0.9, 0.1), "e": (0.95, 0.2)}
    assert bench.pareto(points) == ["a", "b", "d"]
    assert bench.pareto({"a": (1, 1), "b": (1, 1)}) == ["a", "b"]


def test_it_runs_and_writes_the_published_files(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    """Passes and refused tokens add up: what was written is what was accepted and one a pass."""
    _, draft = pair(tmp_path)
    untrained_head(32, 1, False, 0).save(tmp_path / "head", draft.folder)
    monkeypatch.setattr(bench, "CONSTANTS", (2, 5))
    monkeypatch.setattr(bench, "THRESHOLDS", (0.5,))
    questions = tmp_path / "questions.jsonl"
    questions.write_text("\n".join(json.dumps({"prompt": text}) for text in QUESTIONS[:2]))
    out = tmp_path / "out"
    given = ["--model", str(tmp_path / "model"), "--draft-model", str(tmp_path / "other"),
             "--head", str(tmp_path / "head"), "--length", "20", "--dtype", "f32"]  # fmt: skip
    more = ["--out", str(out), "--plot", str(tmp_path / "front.svg")]
    assert bench.main([str(questions), *given, *more]) == 0
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    names = {"constant 2", "constant 5", "heuristic", "confident 0.5", "specdec++ 0.5", "oracle"}
    assert "specdec++" in (tmp_path / "front.svg").read_text("utf-8")
    assert set(line["rates"]) == names and line["pareto"]
    assert set(line["pareto"]) <= names - {"oracle"}
    oracle = line["rates"]["oracle"]
    assert oracle["discard"] == 0
    assert all(oracle["verification"] <= one["verification"] for one in line["rates"].values())
    for name in names:
        file = out / name.replace(" ", "-") / "results_0to2.json"
        for one in json.loads(file.read_text()):
            assert one["num_LM_call"] <= one["generated_length"] + 1
            assert one["generated_length_target"] == one["generated_length"]
            assert 0 < one["generated_length_draft"] <= 20
            assert min(one["spec_time"], one["target_time"], one["draft_time"]) > 0
            assert set(one) >= {"prompt", "id", "spec_time", "target_time", "draft_time",
                                "num_mismatched_tokens"}  # fmt: skip


def test_a_draft_model_whose_context_is_too_short_is_not_timed(tmp_path: Path, home: Path) -> None:
    """Its prompt alone fills its context; all else goes on."""
    tiny_model(tmp_path / "model")
    draft = load(tiny_model(tmp_path / "short", seed=1), threads=1, max_context=16)
    config = Config(model=str(tmp_path / "model"), dtype="f32", library=False)
    with Engine(config) as engine:
        found = bench.compare(engine, draft, None, [QUESTIONS[0] * 9], 4, False)
    for results in found.values():
        assert [(one.draft_time, one.generated_length_draft) for one in results] == [(-1, -1)]


def test_errors_are_one_line(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_model(tmp_path / "model")
    (tmp_path / "ask.jsonl").write_text('{"prompt": "x"}\n')
    capsys.readouterr()  # what saving a model has drawn
    models = ["--model", str(tmp_path / "model"), "--draft-model", str(tmp_path / "model")]
    for file, more, why in (
        ("gone.jsonl", [], "gone.jsonl: unreadable: No such file or directory: "),
        ("ask.jsonl", ["--head", str(tmp_path / "gone")], "no config.json"),
        ("ask.jsonl", ["--draft-model", str(tmp_path / "gone")], "gone"),
    ):
        assert bench.main([str(tmp_path / file), *models, *more]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1 and why in err
