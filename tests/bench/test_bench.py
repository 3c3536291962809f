"""`python -m bench decode`: statistics, tasks from a file, and the record of a run."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.common import tasks
from bench.common.report import formatted
from bench.common.stats import bootstrap, over_tasks, pairs, typical
from bench.decode import decode
from tests.bench.conftest import RunBench
from tests.conftest import tiny_model

ROOT = Path(__file__).resolve().parents[2]

SPEEDS = st.floats(0.1, 1000.0)
PROMPTS = st.lists(st.lists(SPEEDS, min_size=1, max_size=6), min_size=1, max_size=4)


# -- statistics --------------------------------------------------------------------------------


@settings(max_examples=20)
@given(PROMPTS, st.booleans())
def test_the_interval_contains_the_value_and_is_within_the_pairs(
    prompts: list[list[float]], sampled: bool
) -> None:
    ratio = bootstrap(prompts, sampled)
    every = [one for prompt in prompts for one in prompt]
    near = 1 + 1e-9
    assert min(every) / near <= ratio.low <= ratio.high <= max(every) * near
    if not sampled and all(len(prompt) == 1 for prompt in prompts):
        assert ratio.low == ratio.value == ratio.high  # nothing was left to chance


@settings(max_examples=20)
@given(PROMPTS, st.sampled_from([0.25, 2.0, 8.0]))
def test_twice_as_fast_is_twice_the_ratio(prompts: list[list[float]], factor: float) -> None:
    scaled = bootstrap([[one * factor for one in prompt] for prompt in prompts])
    for one, other in zip(bootstrap(prompts), scaled, strict=True):
        assert math.isclose(one * factor, other, rel_tol=1e-9)


def test_the_interval_is_the_same_every_time_and_wider_with_more_noise() -> None:
    quiet, loud = [[1.9, 2.0, 2.1, 2.0, 1.95]], [[1.0, 2.0, 4.0, 2.0, 1.5]]
    assert bootstrap(quiet) == bootstrap(quiet)
    assert bootstrap(loud).high - bootstrap(loud).low > bootstrap(quiet).high - bootstrap(quiet).low


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    chance = random.Random(1)
    covered = 0
    for _ in range(40):
        ratio = bootstrap([[chance.gauss(3.0, 0.3) for _ in range(15)]])
        covered += ratio.low <= 3.0 <= ratio.high
    assert covered >= 32


@settings(max_examples=20)
@given(st.lists(SPEEDS, min_size=1, max_size=8))
def test_the_ratio_over_tasks_is_their_median_between_two_of_them(ratios: list[float]) -> None:
    found = over_tasks(ratios)
    assert found.value == median(ratios)
    assert min(ratios) <= found.low <= found.value <= found.high <= max(ratios)
    assert over_tasks([3.0] * 9) == (3.0, 3.0, 3.0)


@given(st.lists(st.tuples(SPEEDS, SPEEDS), min_size=1))
def test_pairs_are_of_one_repeat(runs: list[tuple[float, float]]) -> None:
    assert pairs(*zip(*runs, strict=True)) == [one / other for one, other in runs]
    with pytest.raises(ValueError, match="every repeat needs one of each"):
        pairs([one for one, _ in runs], [])


@given(PROMPTS)
def test_typical_of_one_prompt_is_its_median(prompts: list[list[float]]) -> None:
    assert math.isclose(typical(prompts[:1]), median(prompts[0]), rel_tol=1e-9)


# -- tasks -------------------------------------------------------------------------------------


def test_the_sample_of_tasks_from_a_file_is_fixed(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    records = [
        {"id": f"t/{n}", "instruction": "Do.", "context": "a\n" * (n % 2), "before": f"x = {n}\n"}
        for n in range(9)
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    drawn = tasks.from_file(path, 4)
    assert drawn == tasks.from_file(path, 4) and len({task.name for task in drawn}) == 4
    assert len(tasks.from_file(path, 99)) == 9
    for task in drawn:
        assert task.kind == "tasks" and task.before == f"x = {task.name[2:]}\n"
    path.write_text('{"id": "t/0"}\n', "utf-8")
    with pytest.raises(ValueError, match=r"tasks\.jsonl, line 1: .*instruction"):
        tasks.from_file(path, 1)


# -- a run -------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_run_ends_with_one_json_line_that_is_also_the_file(
    tmp_path: Path, run_bench: RunBench
) -> None:
    model = tiny_model(tmp_path / "tiny", context=8192)
    path = tmp_path / "tasks.jsonl"
    record = {"id": "one", "instruction": "Rename x.", "context": "", "before": "x = 1\n"}
    path.write_text(json.dumps(record), "utf-8")
    out = tmp_path / "out.json"
    options = ["--model", model, "--repeats", "2", "--kinds", "", "--dtypes", "f32"]
    ran = run_bench(decode.main, *options, "--tasks", path, "--slow-prompts", "1", "--out", out)
    assert ran.code == 0, ran.err
    line = json.loads(ran.out.splitlines()[-1])
    assert line == json.loads(out.read_text("utf-8"))
    assert {"cpu", "cores", "memory_gb"} <= line["machine"].keys()
    assert {"python", "torch", "transformers", "xllamacpp"} <= line["versions"].keys()
    methods = {one["method"] for one in line["results"]}
    assert {"plain", "draftline"} <= methods
    assert any("llama.cpp" in why for why in line["left_out"]), "a folder has no GGUF"
    for one in line["results"]:
        assert one["prompt"] == "one" and one["kind"] == "tasks"
        assert one["tokens"] > 0 and one["tokens_per_s"] > 0 and one["ms_per_step"] > 0
        if one["method"] == "plain":
            # The pass that writes the end's token, which is not counted, may be one more.
            ended = round(one["tokens"] / (one["tokens"] + 1), 3)
            assert one["tokens_per_forward"] in (1.0, ended)
        if one["method"] == "draftline":
            assert one["equal"] is True
    assert line["floor"]["plain"]["weight_bytes"] > 0
    assert list(tmp_path.glob("out.json*")) == [out], "no half-written file is left"


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--methods", "plain,guess"], "guess"),
        (["--repeats", "0"], "--repeats 0"),
        (["--tasks", "nowhere.jsonl"], "nowhere.jsonl: no such file"),
        (["--model", "qwen-coder"], "unknown model 'qwen-coder'"),
    ],
)
def test_bad_options_are_named(run_bench: RunBench, arguments: list[str], names: str) -> None:
    ran = run_bench(decode.main, *arguments)
    assert ran.code == 2 and ran.out == ""
    assert names in ran.err.splitlines()[-1]


# -- results -----------------------------------------------------------------------------------


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_a_record_is_written_whole(value: Any) -> None:
    assert json.loads(formatted({"rows": value})) == {"rows": value}


def test_a_row_of_a_table_has_a_line() -> None:
    rows = [{"task": number, "seconds": [0.5] * 30} for number in range(9)]
    lines = formatted({"model": "m", "rows": rows, "none": []}).splitlines()
    assert [json.loads(line.strip().strip(",")) for line in lines[3:12]] == rows
    assert len(lines) == 15
