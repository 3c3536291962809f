"""The training loop: the same seed gives the same weights, killed or not; it stops in time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save
from torch import Tensor, nn

from engine.research.train.loop import (
    STATE,
    Curve,
    Plan,
    Report,
    StateError,
    fit,
    generator,
    is_stale,
    rate_factor,
    shuffled_order,
)
from tests.support.heads import Killed, kill_at, killed_at

PLAN = Plan(epochs=4, batch=8, rate=0.2, every=3)
SLOPE = torch.tensor([2.0, -1.0, 0.5])


def points(count: int = 50) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 3, generator=generator(0, 0))
    return x, x @ SLOPE


def trained(
    folder: Path | None, plan: Plan = PLAN, report: Report = lambda line: None
) -> tuple[nn.Linear, Curve]:
    """A line fitted to points, with noise in each batch."""
    x, y = points()
    held_x, held_y = points(20)
    with torch.random.fork_rng():
        torch.manual_seed(plan.seed)
        line = nn.Linear(3, 1)

    def loss(rows: list[int], noise: torch.Generator) -> Tensor:
        spread = 0.01 * torch.randn(len(rows), generator=noise)
        return (line(x[rows])[:, 0] - y[rows] + spread).pow(2).mean()

    def score() -> float:
        with torch.no_grad():
            return float((line(held_x)[:, 0] - held_y).pow(2).mean())

    return line, fit(line, len(x), loss, score, plan, folder, "points", report)


def test_it_learns_and_the_same_seed_gives_the_same_weights() -> None:
    one, curve = trained(None)
    other, _ = trained(None)
    assert torch.equal(one.weight, other.weight)
    assert curve.scores[-1] < 0.5 * curve.scores[0] and curve.losses[-1] < curve.losses[0]
    unlike, _ = trained(None, replace(PLAN, seed=1))
    assert not torch.equal(one.weight, unlike.weight)


def check_resumed(folder: Path) -> None:
    """An interrupted training continues to the weights of an uninterrupted one."""
    straight, curve = trained(None)
    lines: list[str] = []
    again, other = trained(folder, report=lines.append)
    assert torch.equal(straight.weight, again.weight) and torch.equal(straight.bias, again.bias)
    assert other == curve
    assert lines[0].startswith("resuming at step ")
    lines.clear()
    done, _ = trained(folder, report=lines.append)  # nothing is left to do
    assert torch.equal(straight.weight, done.weight) and len(lines) == 1


@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_an_interrupted_training_ends_with_the_same_weights(tmp_path: Path, epoch: int) -> None:
    with pytest.raises(Killed):
        trained(tmp_path / "w", report=kill_at(f"epoch {epoch} of"))
    check_resumed(tmp_path / "w")


def test_a_killed_process_ends_with_the_same_weights(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from tests.research.test_loop import trained; "
        "trained(Path('w'), report=print)"
    )
    killed_at(code, "epoch 2 of", tmp_path)
    check_resumed(tmp_path / "w")


def test_another_training_in_the_folder_is_one_line(tmp_path: Path) -> None:
    trained(tmp_path)
    with pytest.raises(StateError, match="other data or settings: remove it, or choose another"):
        trained(tmp_path, replace(PLAN, batch=9))
    assert (tmp_path / STATE).is_file()


@pytest.mark.parametrize("harm", ["cut", "other"])
def test_a_damaged_state_is_one_line(tmp_path: Path, harm: str) -> None:
    trained(tmp_path)
    whole = (tmp_path / STATE).read_bytes()
    (tmp_path / STATE).write_bytes(whole[:-7] if harm == "cut" else save({"x": torch.zeros(1)}))
    with pytest.raises(StateError, match=r"damaged .*: remove it to start again"):
        trained(tmp_path)


def test_it_ends_when_nothing_gets_better_and_keeps_the_best() -> None:
    scores = iter([3.0, 1.0, 2.0, 1.5, 0.5])
    line, seen = nn.Linear(1, 1), []

    def score() -> float:
        seen.append(line.weight.detach().clone())
        return next(scores)

    def loss(rows: list[int], noise: torch.Generator) -> Tensor:
        return line(torch.ones(1, 1)).sum()

    curve = fit(line, 4, loss, score, Plan(epochs=9, batch=2, patience=2, rate=0.1))
    assert curve.scores == [3.0, 1.0, 2.0, 1.5] and curve.best == 1
    assert torch.equal(line.weight, seen[1]) and not torch.equal(seen[1], seen[3])
    assert not is_stale(Curve([], []), 1) and is_stale(Curve([], [1, 2, 3], 0), 2)


def test_every_epoch_has_every_sample_once_in_another_order() -> None:
    found = [shuffled_order(40, 0, epoch) for epoch in range(3)]
    assert all(sorted(one) == list(range(40)) for one in found)
    assert found[0] != found[1] != found[2] and found == [
        shuffled_order(40, 0, n) for n in range(3)
    ]


def test_the_rate_rises_and_falls() -> None:
    rates = [rate_factor(step, 100, 0.1) for step in range(100)]
    assert rates[0] == 0.1 and max(rates) == rates[9] == 1.0 and rates[-1] < 0.001
    assert rates[:10] == sorted(rates[:10]) and rates[9:] == sorted(rates[9:], reverse=True)
