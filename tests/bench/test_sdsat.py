"""`python -m bench sdsat`: figures, files, several processes, and equal texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.common import questions
from bench.research import sdsat as bench
from bench.research.sdsat_figures import SdsatAnswer, answers_of, by_k, results, write
from research.methods import sdsat
from tests.conftest import tiny_model

ROOT = Path(__file__).resolve().parents[2]


def one(name: str, tokens: int, time: float, rounds: int, k: int, accepted: int) -> SdsatAnswer:
    gained = tokens if k else rounds
    return SdsatAnswer(
        name, "text", 7, tokens, time, [time / rounds] * rounds, rounds * k, accepted, gained
    )


# By hand: prompt a has 12 tokens in 3 rounds of k = 5, 6 of 15 adaptive tokens accepted.
FOUND = {
    0: [one("a", 12, 4.0, 12, 0, 0), one("b", 10, 5.0, 10, 0, 0)],  # 3 and 2 tokens/s
    5: [one("a", 12, 2.0, 3, 5, 6), one("b", 10, 2.5, 5, 5, 0)],  # 6 and 4 tokens/s
}


def test_golden_figures(tmp_path: Path) -> None:
    plain, five = results(FOUND)
    assert (plain["k"], plain["tokens_per_s"], plain["speedup"]) == (0, 2.5, 1.0)
    assert plain["mean_accepted"] == 1.0 and plain["accept_rate"] == 0
    assert (five["tokens_per_s"], five["speedup"]) == (5.0, 2.0)
    assert five["accept_rate"] == 6 / 40, "sum of m by sum of k"
    assert five["mean_accepted"] == 22 / 8 and five["equal"] is True
    assert write(tmp_path, FOUND, 64) == 5
    head, first, second = (tmp_path / "meanvar.tsv").read_text("utf-8").splitlines()
    assert head.split() == ["k", "mean_time", "var_time", "mean_iters", "var_iters", "best_alg"]
    assert [float(part) for part in first.split()] == [0, 4.5, 0.5, 11, 2, 0]
    assert [float(part) for part in second.split()] == [5, 2.25, 0.125, 4, 2, 1]
    raw = json.loads((tmp_path / "raw_data.json").read_text("utf-8"))["5"]
    assert raw["accept_rates"] == [0.4, 0.0] and raw["iters"] == [3, 5] and raw["sat"] == 5
    assert (raw["tot_mean_time"], raw["tot_mean_iter"]) == (2.25, 4)
    assert (raw["total_input"], raw["total_output"], raw["max_new_tokens"]) == (14, 22, 64)
    assert answers_of(tmp_path) == FOUND
    rows = (tmp_path / "k5.tsv").read_text("utf-8").splitlines()
    assert [row.split("\t")[1:] for row in rows] == [
        ["iters", "outputs"], ["3", '"text"'], ["5", '"text"']
    ]  # fmt: skip


def test_intervals_are_196_standard_errors() -> None:
    means = by_k(FOUND, lambda one: one.time)
    assert means == {
        0: pytest.approx((4.5, 4.5 - 1.96 * 0.5, 4.5 + 1.96 * 0.5)),
        5: pytest.approx((2.25, 2.25 - 1.96 * 0.25, 2.25 + 1.96 * 0.25)),
    }


def test_a_changed_text_is_reported() -> None:
    other = SdsatAnswer(
        **{name: getattr(FOUND[5][0], name) for name in SdsatAnswer.__slots__} | {"text": "texts"}
    )
    assert [line["equal"] for line in results({0: FOUND[0], 5: [other, FOUND[5][1]]})] == [
        True, False
    ]  # fmt: skip


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("sdsat")
    model = tiny_model(folder / "model")
    sdsat.save(folder / "tokens", torch.randn(2, 32), model)
    asked = [
        {"name": f"m{n}", "prompt": f"def add{n}(left", "suffix": "return\n"} for n in range(4)
    ]
    path = folder / "middles.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in asked), "utf-8")
    return ["--tokens", str(folder / "tokens"), "--model", str(model), "--infilling", str(path),
            "--dtype", "f32", "--threads", "1", "--length", "16", "--share", "0.75"]  # fmt: skip


def ran(capsys: pytest.CaptureFixture[str], *given: str) -> dict[str, Any]:
    assert bench.main(list(given)) == 0
    record: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return record


@pytest.mark.parametrize("how", [[], ["--temperature", "1"], ["--trees"]])
def test_a_sweep_writes_the_published_files(
    given: list[str], how: list[str], home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = ran(capsys, *given, *how, "--ks", "5,7", "--out", str(tmp_path / "out"))
    assert [line["k"] for line in record["results"]] == [0, 5, 7] and record["best"] in (0, 5, 7)
    assert all(line["equal"] and line["questions"] == 3 for line in record["results"])
    assert record["results"][0]["mean_accepted"] == 1.0
    assert all(line["mean_accepted"] > 1.3 for line in record["results"][1:]), (
        "two a round, but where an answer ends"
    )
    names = {path.name for path in (tmp_path / "out").iterdir()}
    plots = {"time.svg", "tokens_per_s.svg", "accept_rate.svg", "loop_time.svg"}
    assert names == {"k0.tsv", "k5.tsv", "k7.tsv", "meanvar.tsv", "raw_data.json"} | plots


@pytest.mark.full
def test_several_processes_share_the_prompts(
    given: list[str], home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = ran(capsys, *given, "--ks", "3", "--out", str(tmp_path / "alone"))
    both = ran(capsys, *given, "--ks", "3", "--devices", "cpu,cpu", "--out", str(tmp_path / "both"))
    for one, other in zip(alone["results"], both["results"], strict=True):
        for name in ("k", "questions", "accept_rate", "mean_accepted", "equal"):
            assert one[name] == other[name]
    (one, _), (two, _) = (answers_of(tmp_path / name).values() for name in ("alone", "both"))
    assert sorted(each.text for each in one) == sorted(each.text for each in two)


def test_bad_options_are_named(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for more, says in (
        (["--ks", "14"], "--ks 14: choose from 0,1,2"),
        (["--trees", "--ks", "4"], "--ks 4: choose from 0,5,7,9,11,13"),
        (["--part", "one"], "--part one"),
    ):
        with pytest.raises(SystemExit):
            bench.main([*given, "--out", "nowhere", *more])
        assert says in capsys.readouterr().err.splitlines()[-1]


def test_middles_are_requested_with_their_suffix(tmp_path: Path) -> None:
    path = tmp_path / "middles.jsonl"
    path.write_text('{"name": "a", "prompt": "x = ", "suffix": "\\ny"}\n', "utf-8")
    (one,) = questions.infilling(path)
    request = one.request_after((), 5)
    assert (request.kind, request.text, request.suffix, request.max_tokens) == (
        "complete", "x = ", "\ny", 5
    )  # fmt: skip
    assert (
        not request.suffix_first and questions.suffix_first(one).request_after((), 5).suffix_first
    )


def test_middles_are_cut_from_local_sources(tmp_path: Path) -> None:
    """Put back, the line makes the file whole, as far as it is shown; the same lines every time."""
    lines = {f"p/{n}.py": [f"    left_{n}_{k} = {k}\n" for k in range(20 + n)] for n in range(5)}
    lines["p/5.py"] = [f"    left_{k} = {k}\n" for k in range(900)]
    (tmp_path / "p").mkdir()
    for name, each in lines.items():
        (tmp_path / name).write_text("".join(each))
    (tmp_path / "p" / "short.py").write_text("x = 1\n")
    (tmp_path / "p" / "marks.py").write_text("# no\n)\n" * 30)
    found = questions.infilling(tmp_path)
    assert [one.id for one in found] == [one.id for one in questions.infilling(tmp_path)]
    assert [str(one.id).partition(":")[0] for one in found] != sorted(lines) and len(found) == 6
    for one in found:
        name, _, number = str(one.id).partition(":")
        assert one.request is not None and 8 < int(number) <= len(lines[name]) - 8
        line = lines[name][int(number) - 1]
        assert one.request.text.endswith("\n    ") and one.request.suffix.startswith("\n")
        whole = one.request.text + line.strip() + one.request.suffix
        assert whole in "".join(lines[name]) and whole.count("\n") == min(len(lines[name]), 80)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty: no \*\.py file in it is long enough"):
        questions.infilling(tmp_path / "empty")
