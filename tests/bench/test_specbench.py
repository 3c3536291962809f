"""Whole runs of `python -m bench specbench`: resuming after kill -9, equality, errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.common import questions
from bench.decode.methods import truncate_answer
from bench.specbench import run, specbench
from bench.specbench.run import parse_methods
from engine.model.torch.torch_target import TorchTarget
from engine.prompts.builder import prompt_of
from engine.prompts.tokenizer import Tokenizer
from engine.records import Draft
from research.methods import sdsat
from tests.conftest import tiny_model
from tests.model.test_target import load
from tests.support.heads import killed_at

ROOT = Path(__file__).resolve().parents[2]

METHODS = "plain,sam,recycling,auto"
FIELDS = {"method", "category", "tokens_per_s", "speedup", "mean_accepted", "equal", "questions"}


def write(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


def some(path: Path) -> Path:
    """Four questions of three categories, two of which are MT-bench's; two of two turns."""
    return write(
        path,
        [
            {"question_id": 81, "category": "writing", "turns": ["add(left)", "add(right)"]},
            {"question_id": 121, "category": "coding", "turns": ["class Point", "def add"]},
            {"question_id": 322, "category": "qa", "turns": ["return left?"], "reference": ["x"]},
            {"question_id": 321, "category": "qa", "turns": ["self.x, self.y?"]},
        ],
    )


def test_methods_are_named_with_their_options() -> None:
    assert parse_methods("hf,auto") == {"plain": "plain", "hf": "hf", "auto": "auto"}
    found = parse_methods(
        "sam:bias=0,factor=2,eagle2:head=/some/where/head,total=40,sam,hf-lookup,plain"
    )
    assert found == {
        "plain": "plain",
        "sam:bias=0,factor=2": "sam:bias=0,factor=2",
        "eagle2": "eagle2:head=/some/where/head,total=40",
        "sam": "sam",
        "hf-lookup": "hf-lookup",
    }
    assert run.short_name("eagle2:head=/some/where/head,total=40") == "eagle2:head=head,total=40"
    with pytest.raises(ValueError, match=r"--methods guess: .*choose from plain, hf, hf-lookup"):
        parse_methods("auto,guess")
    with pytest.raises(ValueError, match="no option 'speed'"):
        parse_methods("sam:speed=2")


def test_an_answer_of_transformers_ends_at_its_end_token(tmp_path: Path) -> None:
    """Tokens after it are not counted, wherever in a pass it is."""
    tokenizer = Tokenizer(tiny_model(tmp_path / "tiny"))
    (end,), words = tokenizer.eos, tokenizer.encode("left right")
    assert truncate_answer([*words, end, *words], (), tokenizer) == (words, "left right")
    assert truncate_answer(words, ("right",), tokenizer)[1] == "left "


# -- runs ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("bench") / "tiny", context=2048)


@pytest.fixture
def options(model: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(run, "MAX_MEASURE_S", 0.0)
    path = some(tmp_path / "questions.jsonl")
    return ["--questions", str(path), "--model", str(model), "--max-tokens", "12",
            "--threads", "1", "--dtype", "f32", "--no-library", "--methods", METHODS]  # fmt: skip


def lines_of(out: Path) -> list[dict[str, Any]]:
    text = out.with_suffix(".runs.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()][1:]


def untimed(line: dict[str, Any]) -> tuple[Any, ...]:
    """The fields of an answer that do not depend on time."""
    choice = line["choices"][0]
    key = line["run"], line["method"], line["question_id"]
    return (*key, choice["turns"], choice["ids"], choice["new_tokens"], choice["recounted"])


def test_a_run_ends_with_one_json_line(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, answers = tmp_path / "out.json", tmp_path / "answers"
    more = ["--out", str(out), "--answers", str(answers), "--runs", "2", "--best", "1"]
    options[-1] += ",hf,hf-lookup"
    assert specbench.main([*options, *more]) == 0
    record = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert record == json.loads(out.read_text("utf-8")) and record["errors"] == []
    assert str(tmp_path) not in out.read_text("utf-8"), "no path of this machine"
    found = {(one["method"], one["category"]): one for one in record["results"]}
    names = [*METHODS.split(","), "hf", "hf-lookup"]
    assert set(found) == {(m, c) for m in names for c in ("mt_bench", "qa", "overall")}
    for (method, category), one in found.items():
        assert set(one) >= FIELDS and one["speedup"] > 0 and one["tokens_per_s"] > 0
        assert one["questions"] == {"mt_bench": 2, "qa": 2, "overall": 4}[category]
        assert one["mean_accepted_low"] <= one["mean_accepted"] <= one["mean_accepted_high"]
        if method == "plain":
            assert one["mean_accepted"] == one["tokens_per_pass"] == one["speedup"] == 1.0
        if method in METHODS.split(","):
            assert one["equal"] is True and one["equal_to"] == "plain"
    assert found["auto", "qa"]["mean_accepted"] > 1.0, "a tiny model repeats itself"
    assert found["hf", "qa"]["equal_to"] == "plain" and found["hf-lookup", "qa"]["equal_to"] == "hf"
    runs = {method: found[method, "qa"]["runs"] for method in names}
    assert runs["plain"] == 2 and sorted(runs.values()) == [1] * 4 + [2] * 2, "plain and one best"
    firsts = [one["method"] for one in lines_of(out) if one["run"] == 0][:: len(names)]
    assert firsts == names[:4], "another method comes first at each question"
    assert [one["category"] for one in record["auto"]] == ["mt_bench", "qa", "overall"]
    for name in ("speedup", "mean-accepted"):
        picture = (tmp_path / f"out-{name}.svg").read_text("utf-8")
        assert all(name in picture for name in (*names, "mt_bench"))
    spec_bench = [json.loads(line) for line in (answers / "sam-0.jsonl").read_text().splitlines()]
    assert [one["question_id"] for one in spec_bench] == [81, 121, 321, 322], "in order"
    for one in spec_bench:
        choice = one["choices"][0]
        assert {"answer_id", "model_id", "tstamp", "category"} <= set(one)
        turns = len(choice["turns"])
        for name in ("decoding_steps", "new_tokens", "wall_time"):
            assert len(choice[name]) == turns == (2 if one["category"] != "qa" else 1)
        assert sum(choice["new_tokens"]) == sum(choice["accept_lengths"])
        assert sum(choice["decoding_steps"]) == len(choice["accept_lengths"])


@pytest.mark.full
def test_a_killed_run_resumes(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """kill -9 midway, and a line cut in the middle: the same answers, none of them twice."""
    out, whole = tmp_path / "out.json", tmp_path / "whole.json"
    given = [*options, "--out", str(out)]
    code = (
        f"import sys; sys.stderr = sys.stdout; sys.path.insert(0, {str(ROOT)!r})\n"
        "from bench.specbench import run, specbench\n"
        "run.MAX_MEASURE_S = 0.0\n"
        f"specbench.main({given!r})"
    )
    killed_at(code, "3/4 ", tmp_path)
    assert not out.exists()
    half = lines_of(out)
    assert 0 < len(half) < 16
    with out.with_suffix(".runs.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"run": 0, "method": "au')
    assert specbench.main(given) == 2, "nothing is thrown away unasked"
    assert "--resume" in capsys.readouterr().err.splitlines()[-1]
    assert specbench.main([*given, "--resume"]) == 0
    assert specbench.main([*options, "--out", str(whole)]) == 0
    assert lines_of(out)[: len(half)] == half, "what was done is not done again"
    assert sorted(map(untimed, lines_of(out))) == sorted(map(untimed, lines_of(whole)))
    capsys.readouterr()
    assert specbench.main([*given, "--resume", "--max-tokens", "9"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "made with max_tokens 12, not 9" in said


def test_a_changed_text_ends_with_exit_code_1(
    options: list[str], model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named, with the gap that the model has there."""
    out = tmp_path / "out.json"
    given = [*options, "--out", str(out)]
    assert specbench.main(given) == 0
    notes = out.with_suffix(".runs.jsonl")
    head, *rest = notes.read_text("utf-8").splitlines()
    lines = [json.loads(line) for line in rest]
    (changed,) = [one for one in lines if (one["method"], one["question_id"]) == ("sam", 321)]
    choice = changed["choices"][0]
    ids, same = choice["ids"][0], 5
    choice["ids"] = [[*ids[:same], ids[same] ^ 1, *ids[same + 1 :]]]
    choice["turns"] = [choice["turns"][0] + "!"]
    notes.write_text("\n".join([head, *map(json.dumps, lines)]) + "\n", "utf-8")
    capsys.readouterr()
    assert specbench.main([*given, "--resume", "--tie", "0"]) == 1
    record = json.loads(capsys.readouterr().out.splitlines()[-1])
    (found,) = record["different"]
    assert (found["method"], found["question_id"]) == ("sam", 321)
    target = load(model, threads=1)
    prompt = prompt_of(questions.Question(321, "qa", ("self.x, self.y?",)).request_after((), 1),
                       Tokenizer(model)).ids  # fmt: skip
    assert found["gap"] == pytest.approx(lead(target, [*prompt, *ids[:same]]), rel=1e-4)
    equal = {one["method"]: one["equal"] for one in record["results"] if one["category"] == "qa"}
    assert equal == {"plain": True, "sam": False, "recycling": True, "auto": True}
    assert specbench.main([*given, "--resume", "--tie", "99"]) == 0, "all gaps are ties then"


def lead(target: TorchTarget, text: list[int]) -> float:
    """By one plain pass."""
    target.begin(text, 8)
    for _ in target.prefill(text, 8):
        pass
    best = target.forward(text[-1], Draft()).logits[0].sort(descending=True).values
    return float(best[0] - best[1])


def test_questions_teach_later_ones_only_with_hot(options: list[str], tmp_path: Path) -> None:
    records = [{"question_id": n, "category": "qa", "turns": ["self.x?"]} for n in (1, 2)]
    options[1] = str(write(tmp_path / "twice.jsonl", records))
    options[5], options[-1] = "60", "recycling,sam+recycling"
    for mode in ([], ["--hot"]):
        out = tmp_path / f"out{len(mode)}.json"
        assert specbench.main([*options, *mode, "--out", str(out)]) == 0
        steps = {(one["method"], one["question_id"]): one["choices"][0]["accept_lengths"]
                 for one in lines_of(out)}  # fmt: skip
        first, second = steps["recycling", 1], steps["recycling", 2]
        assert len(second) < len(first) if mode else second == first


def test_drafters_that_are_models_are_measured_without_naming_folders(
    options: list[str], model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sdsat.save(tmp_path / "tokens", torch.randn(2, 32), model)
    draft = f"draft-model:model={model},lengths=constant,most=4"
    options[-1] = f"{draft},sdsat:tokens={tmp_path / 'tokens'},slots=3"
    out = tmp_path / "out.json"
    assert specbench.main([*options, "--sample", "1", "--out", str(out)]) == 0
    record = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert record["methods"] == {
        "plain": "plain",
        "draft-model": "draft-model:model=tiny,lengths=constant,most=4",
        "sdsat": "sdsat:tokens=tokens,slots=3",
    }
    found = {one["method"]: one for one in record["results"] if one["category"] == "overall"}
    assert all(one["equal"] and one["questions"] == 2 for one in found.values())
    assert found["draft-model"]["mean_accepted"] > 2, "the model itself writes ahead"
    two_passes = found["sdsat"]["tokens_per_pass"]
    assert two_passes < found["sdsat"]["mean_accepted"], "a round of two passes is one step"
    assert str(tmp_path) not in json.dumps(record)


def test_unanswerable_questions_are_named_and_the_rest_continues(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = some(tmp_path / "long.jsonl")
    with path.open("a", encoding="utf-8") as file:
        long = {"question_id": 5, "category": "qa", "turns": ["left " * 2048]}
        file.write(json.dumps(long) + "\n")
    options[1] = str(path)
    options[-1] = "sam"
    assert specbench.main([*options, "--out", str(tmp_path / "out.json")]) == 0
    record = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {(one["method"], one["question_id"]) for one in record["errors"]} == {
        ("plain", 5), ("sam", 5)
    }  # fmt: skip
    assert all("context" in one["error"] for one in record["errors"])
    assert {one["questions"] for one in record["results"] if one["category"] == "qa"} == {2}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--runs", "0"], "--runs 0: must be 1 or more"),
        (["--max-tokens", "4096"], "--max-tokens 4096: must be 2048 or less"),
        (["--methods", "plain,guess"], "--methods guess: unknown"),
        (["--questions", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--hot", "--resume"], "--hot with --resume"),
    ],
)
def test_bad_options_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: list[str], says: str
) -> None:
    path = some(tmp_path / "questions.jsonl")
    with pytest.raises(SystemExit) as ended:
        specbench.main(["--questions", str(path), *given])
    assert ended.value.code == 2 and says in capsys.readouterr().err.splitlines()[-1]
    with pytest.raises(SystemExit):
        specbench.main([])
    assert "no prompts" in capsys.readouterr().err.splitlines()[-1]


def test_an_incomplete_method_is_refused_before_anything_runs(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options[-1] = "auto,draft-model"
    assert specbench.main([*options, "--out", str(tmp_path / "out.json")]) == 2
    said = capsys.readouterr()
    assert "drafter draft-model: option model is required" in said.err.splitlines()[-1]
    assert said.out == "" and not list(tmp_path.glob("out*"))
