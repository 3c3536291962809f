"""`python -m bench serving`: figures, and that its clients notice wrong answers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.serving import serving
from bench.serving.load import ExpectedAnswer, alone, load, plan
from bench.serving.serving import medians, memory_by_tenth, tenths
from bench.serving.sharing import Answer, figures, share
from tests.bench.conftest import RunBench
from tests.conftest import tiny_model
from tests.support.server import serve_model

ROOT = Path(__file__).resolve().parents[2]


@given(st.lists(st.integers(), min_size=1, max_size=99))
def test_tenths_are_the_second_and_the_last(samples: list[int]) -> None:
    early, late = tenths(samples)
    size = max(1, len(samples) // 10)
    assert late == samples[-size:] and early
    if len(samples) >= 20:
        assert early == samples[size : 2 * size] and len(early) == len(late)


def test_medians() -> None:
    assert medians([(1.0, 5, 9), (2.06, 6, 8), (9.0, 7, 7)]) == (2.1, 6, 8)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=99))
def test_the_course_is_a_median_of_each_tenth(memory: list[int]) -> None:
    found = memory_by_tenth([(one, 1, 1) for one in memory])
    size = max(1, len(memory) // 10)
    assert len(found) == min(10, len(memory))
    for number, one in enumerate(found):
        part = sorted(memory[number * size : (number + 1) * size])
        assert part[(len(part) - 1) // 2] <= one <= part[len(part) // 2]


def test_all_requests_of_the_plan_differ() -> None:
    asked = plan(5)
    assert len({json.dumps(one.body) for one in asked}) == len(asked) == 8
    assert {one.body["max_tokens"] for one in asked} == {5}


def test_clients_notice_a_different_text(tiny: Any, home: Any) -> None:
    """The bench itself must be able to fail: one expected text is changed."""
    with serve_model(tiny("llama")) as served:
        asked = alone(served.url, plan(6))
        assert all(one.text for one in asked)
        wrong = [ExpectedAnswer(one.route, one.body, one.text + "x") for one in asked]
        for texts, right in ((asked, True), (wrong, False)):
            tally = asyncio.run(load(served.url, texts, 4, 0.5))
            assert sum(tally.whole.values()) > 0
            assert (not tally.wrong) == right, tally.wrong[:3]


@given(st.lists(st.builds(Answer, st.floats(0, 9), st.floats(9, 99), st.integers(0, 99)),
                min_size=1, max_size=50), st.integers(1, 16))  # fmt: skip
def test_the_tokens_are_shared_among_the_clients(answers: list[Answer], clients: int) -> None:
    found = figures(answers, clients, 10.0)
    assert found["tokens_per_s"] == round(sum(one.tokens for one in answers) / 10, 1)
    assert found["tokens_per_s_each"] == round(sum(one.tokens for one in answers) / 10 / clients, 1)
    assert found["first_s_p50"] <= found["first_s_p95"] <= found["answer_s_p95"] + 0.001
    assert found["answers"] == len(answers)


def test_clients_share_one_engine(tiny: Any, home: Any) -> None:
    with serve_model(tiny("llama")) as served:
        for clients in (1, 3):
            found = asyncio.run(share(served.url, plan(6), clients, 0.2))
            assert found["answers"] >= clients and found["tokens_per_s"] > 0
            assert 0 < found["first_s_p50"] <= found["answer_s_p50"]


@pytest.mark.parametrize("numbers", ["many", "0", "4,-1"])
def test_bad_numbers_of_clients_are_named(run_bench: RunBench, numbers: str) -> None:
    ran = run_bench(serving.main, "--sharing", numbers)
    assert ran.code == 2 and "--sharing" in ran.err.splitlines()[-1]


@pytest.mark.full
def test_it_runs_and_ends_with_its_figures(tmp_path: Path, run_bench: RunBench) -> None:
    """A real server process, twelve clients, six seconds."""
    model, out = tiny_model(tmp_path / "tiny"), tmp_path / "out.json"
    result = run_bench(
        serving.main, "--model", model, "--clients", "12", "--seconds", "6", "--queue", "8",
        "--tokens", "24", "--out", out,
    )  # fmt: skip
    assert result.code == 0, result.err
    record = json.loads(result.out.splitlines()[-1])
    assert json.loads(out.read_text("utf-8")) == record
    figures = record["figures"]
    assert figures["wrong"] == 0 < figures["answers"] and figures["hung_up"] > 0
    assert figures["late_steps_writing_max"] <= 2
