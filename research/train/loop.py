"""The training loop of all heads: seeded batches, AdamW, checkpoints, early stopping, a report.

The order of batches depends only on the seed, and a checkpoint holds everything the next step
needs, so that an interrupted training ends with the same weights as an uninterrupted one.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engine.atomic_write import write_atomically
from research.train import plot

Report = Callable[[str], None]
STATE = "training.safetensors"


class StateError(ValueError):
    """A checkpoint of another training, or a damaged one. The message is one line."""


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """The hyperparameters of a training.

    The learning rate warms up over the share `warmup` of the steps, then decays as a cosine.
    """

    epochs: int = 3
    batch: int = 32
    rate: float = 1e-3
    warmup: float = 0.03
    decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    clip: float = 0.0  # limit of gradient values; 0: none
    patience: int = 2  # epochs without improvement before stopping
    every: int = 100  # steps between checkpoints, in addition to each epoch's end
    seed: int = 0


@dataclass(slots=True)
class Curve:
    """The course of a training.

    It consists of the mean loss and the held-out score (lower is better) of each epoch, and of the
    epoch whose weights were kept.
    """

    losses: list[float]
    scores: list[float]
    best: int = -1


def fit(
    module: nn.Module,
    count: int,
    loss: Callable[[list[int], torch.Generator], Tensor],
    score: Callable[[], float],
    plan: TrainingPlan,
    folder: Path | None = None,
    about: str = "",
    report: Report = lambda line: None,
) -> Curve:
    """Train `module` in place on `count` samples; it ends with the best epoch's weights.

    loss(samples, noise): the loss of a batch of sample numbers; `noise` is seeded by the step.
    score(): the held-out score. With `folder`, an interrupted training of the same plan and data
    (described by `about`) is resumed; raises StateError if the checkpoint is from another one.
    """
    with all_threads():
        return _fit(module, count, loss, score, plan, folder, about, report)


def _fit(
    module: nn.Module,
    count: int,
    loss: Callable[[list[int], torch.Generator], Tensor],
    score: Callable[[], float],
    plan: TrainingPlan,
    folder: Path | None,
    about: str,
    report: Report,
) -> Curve:
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, plan.rate, plan.betas, weight_decay=plan.decay)
    steps_per_epoch = -(-count // plan.batch)
    steps = steps_per_epoch * plan.epochs
    state = TrainingState(folder, digest(plan, count, about, weights), weights, optimizer)
    step, curve, total = state.load()
    if step:
        report(f"resuming at step {step} of {steps}")
    while step < steps and not is_stale(curve, plan.patience):
        epoch, number = divmod(step, steps_per_epoch)
        samples = shuffled_order(count, plan.seed, epoch)[
            number * plan.batch : (number + 1) * plan.batch
        ]
        for group in optimizer.param_groups:
            group["lr"] = plan.rate * rate_factor(step, steps, plan.warmup)
        optimizer.zero_grad()
        module.train()
        value = loss(samples, generator(plan.seed, step + 1))
        value.backward()  # type: ignore[no-untyped-call]
        if plan.clip:
            nn.utils.clip_grad_value_(weights, plan.clip)
        optimizer.step()
        step, total = step + 1, total + float(value.detach()) * len(samples)
        if number + 1 == steps_per_epoch:
            module.eval()
            curve.losses.append(total / count)
            curve.scores.append(score())
            total = 0.0
            if curve.scores[-1] == min(curve.scores):
                curve.best = epoch
                state.keep_best()
        if number + 1 == steps_per_epoch or step % plan.every == 0:
            state.save(step, curve, total)
        if number + 1 == steps_per_epoch:  # after saving, so that reported epochs are never lost
            report(
                f"epoch {epoch + 1} of {plan.epochs}: loss {curve.losses[-1]:.4f}, "
                f"held out {curve.scores[-1]:.4f}"
            )
    module.eval()
    state.restore_best()
    return curve


@contextmanager
def all_threads() -> Iterator[None]:
    """Let torch use all CPU cores, then restore the previous number of threads.

    That number is 1 where a q8 model is loaded.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def is_stale(curve: Curve, patience: int) -> bool:
    """Return whether the score has not improved for `patience` epochs."""
    return bool(curve.scores) and len(curve.scores) - 1 - curve.best >= patience


def shuffled_order(count: int, seed: int, epoch: int) -> list[int]:
    """Shuffle the numbers of `count` samples for an epoch."""
    order: list[int] = torch.randperm(count, generator=generator(seed, -1 - epoch)).tolist()
    return order


def generator(seed: int, number: int) -> torch.Generator:
    """Make a random generator derived from (seed, number)."""
    key = sha256(f"{seed} {number}".encode()).digest()[:7]
    return torch.Generator().manual_seed(int.from_bytes(key, "big"))


def rate_factor(step: int, steps: int, warmup: float) -> float:
    """Compute the factor of the learning rate: linear warmup, then cosine decay."""
    warmup_steps = max(1, round(steps * warmup))
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    progress = (step - warmup_steps) / max(1, steps - warmup_steps)
    return 0.5 * (1 + math.cos(math.pi * progress))


def digest(plan: TrainingPlan, count: int, about: str, weights: Sequence[Tensor]) -> str:
    """Identify a training by its plan, data and initial weights."""
    shapes = [list(weight.shape) for weight in weights]
    values = sha256(b"".join(weight.detach().float().cpu().numpy().tobytes() for weight in weights))
    parts = [asdict(plan), count, about, shapes, values.hexdigest()]
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def write_report(folder: Path, plan: TrainingPlan, curve: Curve, record: dict[str, Any]) -> None:
    """Write report.json and loss.svg."""
    report = {
        "plan": asdict(plan), "losses": curve.losses, "held_out": curve.scores,
        "kept_epoch": curve.best + 1, **record,
    }  # fmt: skip
    write_atomically(folder / "report.json", (json.dumps(report, indent=2) + "\n").encode())
    write_atomically(folder / "loss.svg", plot.losses(curve.losses, curve.scores).encode())


class TrainingState:
    """The checkpoint of a training, and the best weights so far."""

    def __init__(
        self,
        folder: Path | None,
        digest: str,
        weights: list[nn.Parameter],
        optimizer: torch.optim.Optimizer,
    ) -> None:
        self.file = folder / STATE if folder else None
        self.digest, self.weights, self.optimizer = digest, weights, optimizer
        self.best: list[Tensor] = []

    def keep_best(self) -> None:
        """Remember the current weights as the best."""
        self.best = [weight.detach().clone() for weight in self.weights]

    def restore_best(self) -> None:
        """Load the best weights."""
        with torch.no_grad():
            for weight, best in zip(self.weights, self.best, strict=bool(self.best)):
                weight.copy_(best)

    def save(self, step: int, curve: Curve, total: float) -> None:
        if self.file is None:
            return
        from safetensors.torch import save

        tensors = {f"weight.{n}": weight.detach() for n, weight in enumerate(self.weights)}
        tensors |= {f"best.{n}": best for n, best in enumerate(self.best)}
        for n, weight in enumerate(self.weights):
            moments = self.optimizer.state[weight]
            tensors |= {f"first.{n}": moments["exp_avg"], f"second.{n}": moments["exp_avg_sq"]}
        note = {"digest": self.digest, "step": step, "curve": asdict(curve), "total": total}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.file, save(tensors, {"draftline": json.dumps(note)}))

    def load(self) -> tuple[int, Curve, float]:
        """Load step, curve and the current epoch's loss so far; zeros if nothing was saved.

        Raises StateError for another training's checkpoint, or a damaged one.
        """
        if self.file is None or not self.file.is_file():
            return 0, Curve([], []), 0.0
        from safetensors import SafetensorError

        try:
            return self._load(self.file)
        except (SafetensorError, KeyError, TypeError) as error:
            why = " ".join(str(error).split())
            raise StateError(f"{self.file}: damaged ({why}): remove it to start again") from error

    def _load(self, path: Path) -> tuple[int, Curve, float]:
        from safetensors import safe_open

        with safe_open(path, framework="pt") as file:
            note: dict[str, Any] = json.loads((file.metadata() or {})["draftline"])
            if note["digest"] != self.digest:
                raise StateError(
                    f"{path}: from a training with other data or settings: remove it, or choose "
                    "another folder"
                )
            with torch.no_grad():
                for n, weight in enumerate(self.weights):
                    weight.copy_(file.get_tensor(f"weight.{n}"))
                    self.optimizer.state[weight] = {
                        "step": torch.tensor(float(note["step"])),
                        "exp_avg": file.get_tensor(f"first.{n}"),
                        "exp_avg_sq": file.get_tensor(f"second.{n}"),
                    }
            if "best.0" in file.keys():  # noqa: SIM118 - not a dict
                self.best = [file.get_tensor(f"best.{n}") for n in range(len(self.weights))]
        return note["step"], Curve(**note["curve"]), note["total"]
