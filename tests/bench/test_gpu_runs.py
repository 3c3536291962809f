"""Runs of `python -m bench gpu`: a short one, errors, and whole runs on a CPU and a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.gpu import gpu
from tests.bench.conftest import RunBench

BUCKETS = (1, 2, 4, 8, 16, 32, 64)  # of the usual --nodes
ROOT = Path(__file__).resolve().parents[2]

KEYS = {
    "results": {"shape", "bucket", "context", "ms", "floor_ratio"},
    "edits": {"shape", "method", "tokens_per_s", "ratio_to_plain"},
}


@pytest.mark.full
def test_a_whole_run_of_a_tiny_shape(tmp_path: Path, run_bench: RunBench) -> None:
    out = tmp_path / "gpu-cpu.json"
    ran = run_bench(gpu.main, "--device", "cpu", "--shapes", "tiny", "--repeats", "1",
                    "--slow-edits", "1",
              "--threads", "2", "--fast", "--only", "all", "--budget-s", "100000",
                    "--out", out)  # fmt: skip
    assert ran.code == 0, ran.err + ran.out
    record = json.loads(ran.out.splitlines()[-1])
    assert record == json.loads(out.read_text("utf-8"))
    assert list(record)[:4] == ["card", "copy_gb_s", "results", "edits"]
    for name, keys in KEYS.items():
        assert all(set(line) == keys for line in record[name])
    places = {(one["bucket"], one["context"]) for one in record["results"]}
    assert places == {(b, c) for b in BUCKETS for c in (512, 2048)}
    assert all(one["ms"] > 0 and one["floor_ratio"] > 0 for one in record["results"])
    methods = {one["method"]: one for one in record["edits"]}
    ours, hunks = {"plain", "draftline"}, {"plain-hunk", "draftline-hunk"}
    assert set(methods) == ours | hunks | {"hf", "hf-lookup"}
    assert methods["plain"]["ratio_to_plain"] == 1.0
    assert record["copy_gb_s"] > 0 and record["read_gb_s"] > 0
    assert {one["bucket"] for one in record["parts"]} == {1, 16}
    assert {one["bucket"] for one in record["exact"]} == set(BUCKETS)
    assert {one["mode"] for one in record["law"]} == {"fast", "exact"}
    assert record["loop"][0]["tokens_per_step"] > 3 and record["experts"] and record["sampled"]
    assert {one["read"] for one in record["prompts"]} >= {32, 2048, 1, 8, 40}
    assert any("8192" in one and "positions" in one for one in record["left_out"])
    for shown in ("context_2048", "waiting_share", "tokens/pass", "exact_ms", "hf-lookup"):
        assert shown in ran.out


def run_here(capsys: pytest.CaptureFixture[str], *options: str | Path) -> tuple[int, Any, str]:
    """What a run returns, its last line, what it says beside."""
    code = gpu.main([str(one) for one in options])
    shown = capsys.readouterr()
    last = shown.out.splitlines()[-1] if shown.out else "null"
    return code, json.loads(last), shown.err


def test_a_short_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "gpu-cpu.json"
    code, record, _ = run_here(
        capsys, "--device", "cpu", "--shapes", "tiny", "--only", "steps", "--contexts", "256,8k",
        "--buckets", "1,8", "--threads", "2", "--out", out,
    )  # fmt: skip
    assert code == 0
    assert record == json.loads(out.read_text("utf-8"))
    assert list(record)[:4] == ["card", "copy_gb_s", "results", "edits"]
    assert [(one["bucket"], one["context"]) for one in record["results"]] == [(1, 256), (8, 256)]
    assert all(set(one) == KEYS["results"] for one in record["results"])
    assert record["left_out"] == ["tiny, context 8192: positions and memory allow 4096"]


def test_a_run_of_products(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing else is measured, and no model is loaded."""
    out = tmp_path / "gpu-cpu.json"
    code = gpu.main(
        ["--device", "cpu", "--shapes", "tiny", "--only", "products", "--out", str(out)]
    )
    shown = capsys.readouterr().out
    record = json.loads(shown.splitlines()[-1])
    assert code == 0 and record == json.loads(out.read_text("utf-8"))
    places = {(one["matrix"], one["rows"]) for one in record["products"]}
    assert places == {(m, r) for m in ("qkv", "out", "gate_up", "down") for r in (1, 16, 64)}
    assert {one["product"] for one in record["products"]} == {"bf16"}
    assert not record["results"] and not record["edits"] and not record["left_out"]
    assert "Products: microseconds" in shown and "gate_up" in shown


@pytest.mark.full
def test_a_run_of_the_sections_of_a_first_hour(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, sections = tmp_path / "gpu-cpu.json", ("law", "peer")
    code = gpu.main(["--device", "cpu", "--shapes", "tiny", "--only", ",".join(sections),
                     "--budget-s", "100000", "--out", str(out)])  # fmt: skip
    shown = capsys.readouterr().out
    record = json.loads(shown.splitlines()[-1])
    assert code == 0 and not record["left_out"] and not record["results"]
    assert all(record[name] for name in (*sections, "logits"))
    assert {one["differs_at"] for one in record["law"]} == {None}
    for title in ("The law: texts", "Logits beside", "gpt-fast"):
        assert title in shown


@pytest.mark.full
def test_a_run_without_time_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, record, _ = run_here(capsys, "--device", "cpu", "--shapes", "tiny,tiny", "--budget-s",
                               "1", "--out", tmp_path / "gpu-cpu.json")  # fmt: skip
    assert code == 0
    assert any("no time was left" in one for one in record["left_out"])


def test_a_missing_gpu_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a card here")
    code, record, said = run_here(capsys, "--shapes", "tiny")
    assert code == 2 and record is None
    assert said.count("\n") == 1 and "use --device cpu" in said


@pytest.mark.gpu
def test_a_whole_run_on_a_gpu(tmp_path: Path, run_bench: RunBench) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    out = tmp_path / "gpu.json"
    ran = run_bench(gpu.main, "--shapes", "qwen2.5-coder-0.5b", "--repeats", "1", "--fast",
                    "--out", out,
              "--contexts", "512,2k", "--budget-s", "120")  # fmt: skip
    assert ran.code == 0, ran.err + ran.out
    record = json.loads(ran.out.splitlines()[-1])
    assert {one["method"] for one in record["edits"]} >= {"plain", "draftline", "hf", "hf-lookup"}
    for one in record["exact"]:
        assert one["exact"]["same_bits"] == one["exact"]["positions"], "the law holds bit for bit"
