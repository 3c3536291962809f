"""The training loop: reproducible weights, resumption after interruptions, early stopping."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save
from torch import Tensor, nn

from research.train.loop import (
    STATE,
    Curve,
    Report,
    StateError,
    TrainingPlan,
    fit,
    generator,
    is_stale,
    rate_factor,
    shuffled_order,
)
from tests.support.heads import Killed, kill_at, killed_at

PLAN = TrainingPlan(epochs=4, batch=8, rate=0.2, every=3)
SLOPE = torch.tensor([2.0, -1.0, 0.5])


def points(count: int = 50) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 3, generator=generator(0, 0))
    return x, x @ SLOPE


def trained(
    folder: Path | None, plan: TrainingPlan = PLAN, report: Report = lambda line: None
) -> tuple[nn.Linear, Curve]:
    """A linear layer fitted to points, with noise in each batch."""
    x, y = points()
    held_x, held_y = points(20)
    with torch.random.fork_rng():
        torch.manual_seed(plan.seed)
        layer = nn.Linear(3, 1)

    def loss(rows: list[int], noise: torch.Generator) -> Tensor:
        error = 0.01 * torch.randn(len(rows), generator=noise)
        return (layer(x[rows])[:, 0] - y[rows] + error).pow(2).mean()

    def score() -> float:
        with torch.no_grad():
            return float((layer(held_x)[:, 0] - held_y).pow(2).mean())

    return layer, fit(layer, len(x), loss, score, plan, folder, "points", report)


def test_training_learns_and_is_reproducible() -> None:
    first, curve = trained(None)
    again, _ = trained(None)
    assert torch.equal(first.weight, again.weight)
    assert curve.scores[-1] < 0.5 * curve.scores[0] and curve.losses[-1] < curve.losses[0]
    reseeded, _ = trained(None, replace(PLAN, seed=1))
    assert not torch.equal(first.weight, reseeded.weight)


def check_resumed(folder: Path) -> None:
    """An interrupted training continues to the weights of an uninterrupted one."""
    expected, curve = trained(None)
    lines: list[str] = []
    resumed, resumed_curve = trained(folder, report=lines.append)
    assert torch.equal(expected.weight, resumed.weight)
    assert torch.equal(expected.bias, resumed.bias)
    assert resumed_curve == curve
    assert lines[0].startswith("resuming at step ")
    lines.clear()
    done, _ = trained(folder, report=lines.append)  # nothing is left to do
    assert torch.equal(expected.weight, done.weight) and len(lines) == 1


@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_interrupted_training_resumes_to_the_same_weights(tmp_path: Path, epoch: int) -> None:
    with pytest.raises(Killed):
        trained(tmp_path / "w", report=kill_at(f"epoch {epoch} of"))
    check_resumed(tmp_path / "w")


def test_a_killed_process_resumes_to_the_same_weights(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from tests.research.test_loop import trained; "
        "trained(Path('w'), report=print)"
    )
    killed_at(code, "epoch 2 of", tmp_path)
    check_resumed(tmp_path / "w")


def test_another_trainings_checkpoint_is_rejected(tmp_path: Path) -> None:
    trained(tmp_path)
    with pytest.raises(StateError, match="other data or settings: remove it, or choose another"):
        trained(tmp_path, replace(PLAN, batch=9))
    assert (tmp_path / STATE).is_file()


@pytest.mark.parametrize("damage", ["truncated", "other"])
def test_a_damaged_checkpoint_is_rejected(tmp_path: Path, damage: str) -> None:
    trained(tmp_path)
    whole = (tmp_path / STATE).read_bytes()
    damaged = whole[:-7] if damage == "truncated" else save({"x": torch.zeros(1)})
    (tmp_path / STATE).write_bytes(damaged)
    with pytest.raises(StateError, match=r"damaged .*: remove it to start again"):
        trained(tmp_path)


def test_early_stopping_keeps_the_best_weights() -> None:
    scores = iter([3.0, 1.0, 2.0, 1.5, 0.5])
    layer, seen = nn.Linear(1, 1), []

    def score() -> float:
        seen.append(layer.weight.detach().clone())
        return next(scores)

    def loss(rows: list[int], noise: torch.Generator) -> Tensor:
        return layer(torch.ones(1, 1)).sum()

    curve = fit(layer, 4, loss, score, TrainingPlan(epochs=9, batch=2, patience=2, rate=0.1))
    assert curve.scores == [3.0, 1.0, 2.0, 1.5] and curve.best == 1
    assert torch.equal(layer.weight, seen[1]) and not torch.equal(seen[1], seen[3])
    assert not is_stale(Curve([], []), 1) and is_stale(Curve([], [1, 2, 3], 0), 2)


def test_each_epoch_is_another_permutation_of_the_samples() -> None:
    orders = [shuffled_order(40, 0, epoch) for epoch in range(3)]
    assert all(sorted(order) == list(range(40)) for order in orders)
    assert orders[0] != orders[1] != orders[2]
    assert orders == [shuffled_order(40, 0, epoch) for epoch in range(3)]


def test_the_learning_rate_warms_up_and_decays() -> None:
    rates = [rate_factor(step, 100, 0.1) for step in range(100)]
    assert rates[0] == 0.1 and max(rates) == rates[9] == 1.0 and rates[-1] < 0.001
    assert rates[:10] == sorted(rates[:10]) and rates[9:] == sorted(rates[9:], reverse=True)


@pytest.mark.parametrize("fails", [False, True])
def test_training_restores_the_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """It uses all cores and then returns to the previous number of threads, also after an error."""
    threads, during = 3, set[int]()

    def set_threads(count: int) -> None:
        nonlocal threads
        threads = count

    def loss(rows: list[int], noise: torch.Generator) -> Tensor:
        during.add(threads)
        if fails:
            raise Killed
        return layer(torch.ones(1, 1)).sum()

    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(torch, "set_num_threads", set_threads)
    layer = nn.Linear(1, 1)
    with pytest.raises(Killed) if fails else nullcontext():
        fit(layer, 4, loss, lambda: 0.0, TrainingPlan(epochs=1, batch=2))
    assert (during, threads) == ({8}, 3)
