"""The cost model of forward passes: interpolation, corrections by observed passes, and storage.
No test reads a clock."""

from __future__ import annotations

import json
import logging
import random
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import Config
from engine.model import _kernels, cost_model
from engine.model.cost_model import (
    CONTEXT_BUCKET,
    GRID,
    MAX_BEND,
    MAX_STEP,
    NEAR_TOKENS,
    POINTS,
    CostModel,
    grid_of,
    growth_per_token,
    guess,
    measure,
    processor_key,
    remember,
    remembered,
    scratch,
    timed,
)
from engine.model.torch.torch_target import TorchTarget
from engine.records import Scores

RISING = (10.0, 10.5, 11.0, 13.0, 17.0, 26.0, 45.0)
TIMES = st.floats(1e-3, 10.0)
COSTS = st.builds(
    CostModel,
    st.lists(TIMES, min_size=len(GRID), max_size=len(GRID)),
    growth=st.tuples(st.floats(0, 1e-4), st.floats(0, 1e-4)),
)
SEEN = st.lists(st.tuples(st.integers(1, 300), st.integers(0, 9000), TIMES), max_size=60)


def shape(cost: CostModel) -> np.ndarray[Any, Any]:
    """Log of each point's time relative to the first."""
    times = cost.seconds * np.exp(cost.bend)
    return np.asarray(np.log(times / times[0]))


# -- tables ----------------------------------------------------------------------------------------


@given(COSTS, SEEN, st.integers(0, 9000), st.integers(1, 400))
def test_a_table_never_falls_whatever_was_observed(
    cost: CostModel, seen: list[tuple[int, int, float]], context: int, most: int
) -> None:
    for one in seen:
        cost.observe(*one)
    table = cost.table(context, most)
    assert table.shape == (most,) and table.dtype == np.float64
    assert (table > 0).all() and (np.diff(table) >= 0).all()
    assert [cost(n + 1, context) for n in range(most)] == table.tolist()
    assert (cost.table(context + CONTEXT_BUCKET, most) >= table).all(), (
        "more in the cache costs more"
    )


def test_costs_are_linear_between_and_beyond_the_points() -> None:
    cost = CostModel(RISING)
    table = cost.table(0, 300)
    for place, rows in enumerate(GRID):
        assert table[rows - 1] == pytest.approx(RISING[place])
    assert table[12 - 1] == pytest.approx((13 + 17) / 2)
    assert table[192 - 1] == pytest.approx(3 * 45) and table[300 - 1] == pytest.approx(
        45 * 300 / 64
    )


def test_the_times_of_wide_passes_may_be_known() -> None:
    """A pass of 256 rows that costs twice one of 64 is worth a larger draft."""
    cost = CostModel([*RISING, 60.0, 80.0, 90.0])
    table = cost.table(0, 512)
    assert [table[rows - 1] for rows in POINTS] == pytest.approx([*RISING, 60, 80, 90])
    assert table[160 - 1] == pytest.approx(70) and table[512 - 1] == pytest.approx(180)


def test_costs_grow_with_the_cache_per_pass_and_per_row() -> None:
    cost = CostModel(RISING, growth=(0.01, 0.002))
    near, far = cost.table(100, 200), cost.table(100 + 8 * CONTEXT_BUCKET, 200)
    assert far - near == pytest.approx(8 * CONTEXT_BUCKET * (0.01 + 0.002 * np.arange(1, 201)))


def test_a_table_cannot_be_changed() -> None:
    cost = CostModel(RISING)
    with pytest.raises(ValueError, match="read-only"):
        cost.table(0, 64)[:] = 0.0
    assert cost(1) == RISING[0]


def test_a_time_above_that_of_a_longer_pass_is_corrected() -> None:
    cost = CostModel([14.0, 9.0, 12.0, 12.0, 90.0, 30.0, 60.0])
    assert [cost(n) for n in GRID] == [9, 9, 12, 12, 30, 30, 60]


# -- observed passes ------------------------------------------------------------------------------


@settings(max_examples=60)
@given(COSTS, SEEN, st.floats(0.01, 100.0))
def test_the_speed_of_the_machine_does_not_matter(
    cost: CostModel, seen: list[tuple[int, int, float]], factor: float
) -> None:
    """The same passes, slower by a constant factor, give the same shape."""
    other = CostModel(cost.seconds[: len(GRID)].tolist(), growth=cost.growth)
    for rows, context, seconds in seen:
        cost.observe(rows, context, seconds)
        other.observe(rows, context, seconds * factor)
    assert other.bend == pytest.approx(cost.bend, abs=1e-6)
    if seen:
        assert other.pace == pytest.approx(cost.pace * factor)


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from([1, 5, 16, 48, 192]), min_size=40, max_size=120),
    st.dictionaries(st.integers(0, 16), st.floats(2.0, 1e6), max_size=16),
)
def test_outliers_hardly_move_the_shape(rows: list[int], slow: dict[int, float]) -> None:
    """Every seventh pass may be slower by any factor: each moves the shape by MAX_STEP at most."""
    cost = CostModel(RISING)
    before = shape(cost)
    for place, count in enumerate(rows):
        factor = slow.get(place // 7, 1.0) if place % 7 == 6 else 1.0
        cost.observe(count, 500, CostModel(RISING)(count, 500) * factor)
    outliers = sum(place % 7 == 6 and place // 7 in slow for place in range(len(rows)))
    moved = np.abs(shape(cost) - before).max()
    assert moved <= 2 * MAX_STEP * outliers + 1e-9  # a point and the first one
    assert moved < 0.12


def test_a_busy_minute_does_not_distort_the_shape() -> None:
    """All passes are noisy; for a while they take three times as long, and some even more.
    Afterwards the shape is the old one."""
    chance = random.Random(3)
    cost, true = CostModel(RISING), CostModel(RISING)

    def run(passes: int, busy: bool) -> None:
        for _ in range(passes):
            rows = chance.choice([1, 4, 9, 30, 64])
            noise = chance.lognormvariate(0, 0.1) * (3.0 if busy else 1.0)
            if busy and chance.random() < 0.3:
                noise *= 4
            cost.observe(rows, 500, true(rows, 500) * noise)

    run(200, busy=False)
    run(600, busy=True)
    assert np.abs(shape(cost) - shape(true))[: len(GRID)].max() < 0.2
    run(300, busy=False)
    assert np.abs(shape(cost) - shape(true))[: len(GRID)].max() < 0.1


def test_a_wrong_shape_is_corrected() -> None:
    cost, true = CostModel([10.0] * 7), CostModel([10, 10, 10, 10, 12, 14, 16])
    ratio = true(64) / true(1)
    for _ in range(100):
        for rows in (1, 64, 1, 1, 40):
            cost.observe(rows, 0, 3 * true(rows))
    assert cost(64) / cost(1) == pytest.approx(ratio, rel=0.1)
    assert cost.pace == pytest.approx(3 * true(1) / cost(1), rel=0.1)


@settings(max_examples=30)
@given(SEEN.filter(bool))
def test_corrections_are_limited(seen: list[tuple[int, int, float]]) -> None:
    cost = CostModel(RISING)
    for one in seen * 10:
        cost.observe(*one)
    assert max(map(abs, cost.bend)) <= MAX_BEND


SHAPE = [1.0, 1.02, 1.08, 1.25, 1.6, 2.6, 4.8]  # of passes over GRID rows
# Tokens that 20 requests read: whole prompts at first, what a key has changed then.
READS = [(128, 128, 60), *[(48,), (20, 48), (4,)] * 6, (128, 128)]


@pytest.mark.parametrize("factor", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("busy", [False, True])
def test_the_speed_of_prefill_is_right_after_20_requests_whatever_it_was(
    factor: float, busy: bool
) -> None:
    """Also where two of three passes take three times as long."""
    true = CostModel(SHAPE)
    cost = CostModel(SHAPE, factor * true.prefill)
    for number, request in enumerate(READS):
        for tokens in request:
            seconds = true(min(tokens, 64)) * max(tokens / 64, 1.0)
            cost.observe_prefill(tokens, seconds * (3 if busy and number % 3 else 1))
    assert cost.prefill == pytest.approx(true.prefill, rel=0.05)


def test_a_busy_moment_is_no_slow_machine_and_a_slow_one_is_seen() -> None:
    cost = CostModel(SHAPE, 0.1)
    for _ in range(20):
        cost.observe_prefill(128, 128 * 0.1)
    for _ in range(9):
        cost.observe_prefill(128, 128 * 0.4)
    assert cost.prefill == pytest.approx(0.1)
    for _ in range(9):
        cost.observe_prefill(128, 128 * 0.4)
    assert cost.prefill == pytest.approx(0.4)
    cost.observe_prefill(128, 128 * 0.1)
    cost.observe_prefill(512, 512 * 0.1)
    assert cost.prefill == pytest.approx(0.1), "it is fast as soon as a quarter is"


@pytest.mark.parametrize("factor", [0.1, 10.0])
@pytest.mark.parametrize("point", [None, *range(len(GRID))])
def test_costs_are_right_after_a_measurement_whatever_they_were(
    factor: float, point: int | None, target: TorchTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them, or one point, is ten times or a tenth of the truth; and all are bent."""
    true = CostModel(SHAPE)
    wrong = [s * (factor if point in (None, n) else 1.0) for n, s in enumerate(SHAPE)]
    cost = CostModel(wrong)
    cost.correct([MAX_BEND if factor > 1 else -MAX_BEND] * len(POINTS))
    monkeypatch.setattr(cost_model, "timed", lambda probe, cached, rows: true(rows))
    for _ in measure(target, cost):
        pass
    assert cost.measured
    assert cost.seconds[: len(GRID)].tolist() == pytest.approx(SHAPE, rel=0.15)
    assert set(cost.bend) == {0.0}


# -- measuring -------------------------------------------------------------------------------------


@given(st.floats(0, 1e-3), st.floats(0, 1e-3), st.integers(1, 4000))
def test_growth_is_found_again(once: float, row: float, tokens: int) -> None:
    near = {1: 0.5, 32: 0.9}
    far = {n: time + tokens * (once + row * n) for n, time in near.items()}
    assert growth_per_token(near, far, tokens) == pytest.approx((once, row), abs=1e-9)


@given(TIMES, TIMES, TIMES, TIMES, st.integers(0, 4000))
def test_growth_is_never_negative(a: float, b: float, c: float, d: float, tokens: int) -> None:
    assert min(growth_per_token({1: a, 32: b}, {1: c, 32: d}, tokens)) >= 0


@pytest.fixture(scope="module")
def target(tiny: Any) -> TorchTarget:
    return TorchTarget(tiny("llama"), Config(threads=2))


def test_measuring_does_not_change_the_target(target: TorchTarget) -> None:
    prompt = list(range(2, 60))
    target.begin(prompt, 8)
    for _ in target.prefill(prompt, 8):
        pass
    rows = len(prompt) - 1  # rows behind them were never written
    kept, cache = target.sequence, target.sequence.cache[0][..., :rows, :].clone()
    cost = guess(target)
    assert not cost.measured and cost.prefill > 0
    first = cost.seconds.copy()
    turns = 0
    for _ in measure(target, cost):
        turns += 1
        assert target.pool.sequences == [kept] and kept.tokens == prompt[:-1]
        if not cost.measured and turns <= 2 * len(GRID):
            assert (cost.seconds == first).all(), "an incomplete measurement is not used"
    assert turns > len(GRID), "every point is measured"
    assert target.sequence.cache[0][..., :rows, :].equal(cache)
    assert (cost.seconds != first).any() and cost.prefill == cost.seconds[6] / GRID[-1]
    assert (np.diff(cost.table(400, 192)) >= 0).all()


@pytest.mark.parametrize(
    ("budget", "context", "most"), [(48, 0, 64), (100, 0, 128), (255, 0, 256), (255, 256, 192)]
)
def test_wide_passes_are_measured_where_the_target_runs_them(
    tiny: Any, budget: int, context: int, most: int
) -> None:
    config = Config(device="cpu", threads=1, graphs="static", budget=budget, max_context=context)
    wide = TorchTarget(tiny("llama"), config)
    cost = guess(wide)
    assert grid_of(wide, min(NEAR_TOKENS, wide.context // 4)) == [n for n in POINTS if n <= most]
    for _ in measure(wide, cost):
        pass
    assert (np.diff(cost.table(400, 256)) >= 0).all() and (cost.seconds > 0).all()


def test_a_timed_pass_chooses_as_a_step_does(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of all logits, which no step makes, would make wide passes look dear."""
    config = Config(device="cpu", threads=1, graphs="static")
    target, made = TorchTarget(tiny("llama"), config), list[Scores]()
    forward = TorchTarget.forward

    def watched(*given: Any) -> Scores:
        made.append(forward(*given))
        return made[-1]

    monkeypatch.setattr(TorchTarget, "forward", watched)
    assert timed(scratch(target, 40), 40, 7) > 0
    (scores,) = made
    assert scores.rows == 7 and not scores.has_logits


def test_a_model_with_a_very_short_context_is_not_measured(
    tiny: Any, caplog: pytest.LogCaptureFixture
) -> None:
    short = TorchTarget(tiny("llama"), Config(max_context=100))
    cost = guess(short)
    with caplog.at_level(logging.WARNING):
        assert list(measure(short, cost)) == [] and not cost.measured
    assert len(caplog.messages) == 1 and "100" in caplog.messages[0]


# -- storage ---------------------------------------------------------------------------------------


def test_a_stored_cost_model_is_loaded_again(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "costs.json"
    cost = CostModel(RISING, 0.2, (0.01, 0.002))
    for n in range(50):
        cost.observe(1 + n, 100, 12.0 + n % 7)
    remember(file, "this", cost)
    remember(file, "that", CostModel(RISING[::-1]))
    again = remembered(file, "this")
    assert again is not None and not again.measured and again.prefill == 0.2
    assert (
        again.table(3000, 250).tolist() == CostModel.table(cost, 3000, 250).tolist()
        or max(abs(again.table(3000, 250) / cost.table(3000, 250) - 1)) < MAX_STEP * 16
    )
    assert again.bend == cost.bend
    that = remembered(file, "that")
    assert that is not None
    assert remembered(file, "other") is None
    assert [path.name for path in file.parent.iterdir()] == ["costs.json"]


GOOD = {
    "seconds": [*RISING, 90.0, 135.0, 180.0],
    "growth": [0.0, 0.0],
    "bend": [0.0] * len(POINTS),
    "prefill": 0.1,
}


@pytest.mark.parametrize(
    "known",
    [
        [1.0] * 8,  # an older format
        None,
        {},
        GOOD | {"seconds": [1.0] * 3},
        GOOD | {"seconds": [*RISING, 90.0, 135.0, float("nan")]},
        GOOD | {"seconds": [*RISING, 90.0, 135.0], "bend": [0.0] * 9},  # an older format
        GOOD | {"seconds": [-1.0, *GOOD["seconds"][1:]]},  # type: ignore[index]
        GOOD | {"growth": [-1.0, 0.0]},
        GOOD | {"growth": "no"},
        GOOD | {"bend": [float("nan")] * len(POINTS)},
        GOOD | {"bend": [99.0] * len(POINTS)},
        GOOD | {"prefill": 0},
        GOOD | {"prefill": float("inf")},
    ],
)
def test_invalid_stored_costs_are_ignored(tmp_path: Path, known: Any) -> None:
    file = tmp_path / "costs.json"
    file.write_text(json.dumps({"this": known, "good": GOOD}), "utf-8")
    assert remembered(file, "this") is None
    good = remembered(file, "good")
    assert good is not None and good(64) == 45.0


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b"7", b'"x"'])
def test_a_damaged_file_is_replaced(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "costs.json"
    file.write_bytes(content)
    assert remembered(file, "this") is None
    remember(file, "this", CostModel(RISING))
    assert remembered(file, "this") is not None


def test_an_unwritable_folder_is_logged_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    with caplog.at_level(logging.WARNING):
        remember(tmp_path / "file" / "costs.json", "this", CostModel(RISING))
    assert len(caplog.messages) == 1 and "costs.json" in caplog.messages[0]


def test_the_pace_is_the_median_of_the_last_passes() -> None:
    cost = CostModel(RISING)
    assert cost.pace == 1.0
    for factor in (1.0, 2.0, 50.0):
        cost.observe(1, 0, RISING[0] * factor)
    assert cost.pace == pytest.approx(median([1.0, 2.0, 50.0]), rel=0.02)


def test_costs_of_a_processor_are_kept_per_instruction_set() -> None:
    best = _kernels.isa()
    keys = []
    try:
        for isa in ("plain", best):
            _kernels.set_isa(isa)
            keys.append(processor_key("model", "stored", 2))
    finally:
        _kernels.set_isa(best)
    assert keys[0] != keys[1] and all(key.startswith("model, stored, ") for key in keys)
