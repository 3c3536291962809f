"""Trains SpecDec++'s acceptance head on a frozen draft model.

A sample's tokens are mixed from what the model wrote (a share `mixing`) and what the draft model
drew, once; the draft model reads the mixture, and the head learns from its hidden state at each
drawn token how likely that token is accepted. Refusals are rarer, so they weigh `weight` times as
much, and the head then says less than it knows (the stop rule takes it as it is); for the report
that weight is undone. All hidden states are computed before, since the draft model does not change.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from engine.drafting.methods.head_checkpoint import write_atomically
from engine.drafting.methods.specdec import LAYERS, AcceptanceHead
from engine.research.train import plot
from engine.research.train.acceptance_data import Sample
from engine.research.train.loop import Curve, Plan, fit, generator, shuffled_order
from engine.research.train.sample_file import SampleError
from engine.research.train.teacher_forcing import hidden_states

if TYPE_CHECKING:
    from engine.model.torch_target import TorchTarget

PLAN = Plan(epochs=10, batch=64, rate=1e-4, warmup=0.03)  # small data: faster than as published
MIXING, WEIGHT = 0.15, 6.0  # as published
BINS = 10
HELD_OUT = 0.1  # of the samples, each for choosing weights and for the report
Report = Callable[[str], None]


@dataclass(slots=True)
class AcceptanceLessons:
    """Hidden states [rows, width] and how likely the tokens at their places are accepted."""

    states: Tensor
    labels: Tensor


@dataclass(frozen=True, slots=True)
class Calibration:
    """How good beliefs are: mean KL from the truth (nats), expected calibration error, and bins of
    (from, mean belief, mean truth, tokens)."""

    kl: float
    ece: float
    bins: tuple[tuple[float, float, float, int], ...]


def mix_tokens(
    sample: Sample, mixing: float, noise: torch.Generator
) -> tuple[list[int], list[bool]]:
    """The tokens to read behind the prefix, and which of them the draft model drew."""
    keep = (torch.rand(len(sample.tokens), generator=noise) < mixing).tolist()
    pairs = zip(sample.tokens, sample.draft, keep, strict=True)
    return [written if kept else drawn for written, drawn, kept in pairs], [not k for k in keep]


def lessons(
    samples: list[Sample],
    draft: TorchTarget,
    mixing: float = MIXING,
    seed: int = 0,
    report: Report = lambda line: None,
) -> AcceptanceLessons:
    """All places of drawn tokens."""
    states, labels = [torch.empty(0, draft.model.width)], [torch.empty(0)]
    for number, sample in enumerate(samples):
        tokens, drawn = mix_tokens(sample, mixing, generator(seed, number))
        ids = [*sample.prefix, *tokens][: draft.context]
        if max(ids) >= draft.vocab:
            raise SampleError(f"sample {number + 1}: token {max(ids)}: made with another tokenizer")
        found = hidden_states(draft, ids, len(sample.prefix))
        chosen = torch.tensor(drawn)[: len(found)]
        states.append(found[chosen])
        labels.append(torch.tensor(sample.p_acc)[: len(found)][chosen])
        if (number + 1) % 20 == 0 or number + 1 == len(samples):
            report(f"read {number + 1} of {len(samples)} answers")
    return AcceptanceLessons(torch.cat(states), torch.cat(labels))


def weighted_loss(logits: Tensor, labels: Tensor, weight: float) -> Tensor:
    """Cross entropy of (refused, accepted) logits [rows, 2] beside soft labels [rows], in which
    refusals count `weight` times."""
    said = logits.log_softmax(-1)
    refused, accepted = weight * (1 - labels), labels
    total = -(refused * said[:, 0] + accepted * said[:, 1]).sum()
    return total / (refused.sum() + accepted.sum())


def calibration(beliefs: Tensor, labels: Tensor) -> Calibration:
    """Of probabilities [rows] beside soft labels [rows]."""
    said = beliefs.double().clamp(1e-12, 1 - 1e-12)
    true = labels.double()
    cross = -(true * said.log() + (1 - true) * (1 - said).log())
    entropy = -(torch.xlogy(true, true) + torch.xlogy(1 - true, 1 - true))
    places = (said * BINS).long().clamp(max=BINS - 1)
    bins, error = [], 0.0
    for n in range(BINS):
        here = places == n
        count = int(here.sum())
        if count:
            believed, found = float(said[here].mean()), float(true[here].mean())
            bins.append((n / BINS, believed, found, count))
            error += abs(believed - found) * count
    return Calibration(float((cross - entropy).mean()), error / max(len(true), 1), tuple(bins))


def undo_weight(beliefs: Tensor, weight: float) -> Tensor:
    """What a head would say that was trained with weight 1."""
    said = beliefs.double()
    return weight * said / (weight * said + 1 - said)


def split(samples: list[Sample], seed: int) -> tuple[list[Sample], list[Sample], list[Sample]]:
    """To train on, to choose the weights by, to report on. BadSamples where there are too few."""
    if len(samples) < 3:
        raise SampleError(f"{len(samples)} answers: three or more are needed: give more questions")
    out = max(1, round(len(samples) * HELD_OUT))
    shuffled = [samples[n] for n in shuffled_order(len(samples), seed, 0)]
    return shuffled[2 * out :], shuffled[:out], shuffled[out : 2 * out]


def train(
    samples: list[Sample],
    draft: TorchTarget,
    folder: Path,
    plan: Plan,
    layers: int = LAYERS,
    tied: bool = False,
    mixing: float = MIXING,
    weight: float = WEIGHT,
    report: Report = lambda line: None,
) -> AcceptanceHead:
    """A head in `folder`, with report.json, loss.svg and reliability.svg. A killed training goes
    on; the same samples, settings and seed give the same weights."""
    parts = [lessons(part, draft, mixing, plan.seed, report) for part in split(samples, plan.seed)]
    for part, name in zip(parts, ("training", "choosing", "testing"), strict=True):
        if not len(part.labels):
            raise SampleError(f"no drafted tokens for {name}: give more answers, or mix in less")
    taught, choosing, testing = parts
    head = untrained_head(draft.model.width, layers, tied, plan.seed)
    untrained = calibration(head.accepted(testing.states), testing.labels)
    before = weighted_loss(head(testing.states), testing.labels, weight)
    start_at_the_mean(head, taught.labels, weight)

    def loss(rows: list[int], noise: torch.Generator) -> Tensor:
        return weighted_loss(head(taught.states[rows]), taught.labels[rows], weight)

    def score() -> float:
        with torch.no_grad():
            return float(weighted_loss(head(choosing.states), choosing.labels, weight))

    about = sha256(taught.states.numpy().tobytes() + taught.labels.numpy().tobytes()).hexdigest()
    work = folder / "work"
    curve = fit(head, len(taught.labels), loss, score, plan, work, f"{about} {weight}", report)
    found = calibration(undo_weight(head.accepted(testing.states), weight), testing.labels)
    mean = calibration(torch.full_like(testing.labels, float(taught.labels.mean())), testing.labels)
    head.save(folder, draft.folder)
    after = weighted_loss(head(testing.states), testing.labels, weight)
    record = {
        "tokens": [len(part.labels) for part in parts],
        "accepted": float(taught.labels.mean()),
        "loss": float(after.detach()),
        "loss_untrained": float(before.detach()),
        "kl": found.kl,
        "kl_with_weight": calibration(head.accepted(testing.states), testing.labels).kl,
        "kl_untrained": untrained.kl,
        "kl_always_the_mean": mean.kl,
        "ece": found.ece,
        "bins": found.bins,
    }
    write_report(folder, curve, plan, record)
    report(
        f"held out: KL {found.kl:.4f} (untrained {untrained.kl:.4f}, always the mean "
        f"{mean.kl:.4f}), calibration error {found.ece:.3f}"
    )
    return head


def untrained_head(width: int, layers: int, tied: bool, seed: int) -> AcceptanceHead:
    """An untrained head, the same one for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AcceptanceHead(width, layers, tied).eval()


@torch.no_grad()
def start_at_the_mean(head: AcceptanceHead, labels: Tensor, weight: float) -> None:
    """Let it say of every state what is best without looking: a few thousand tokens cannot make up
    for what chance says of large states (KL 0.71 where this ends at 0.28 and the mean has 0.32)."""
    mean = labels.mean().clamp(0.01, 0.99)
    head.out.weight.zero_()
    head.out.bias.copy_(torch.stack((weight * (1 - mean), mean)).log())


def write_report(folder: Path, curve: Curve, plan: Plan, record: dict[str, Any]) -> None:
    """report.json and two plots beside the head."""
    record = {
        "plan": asdict(plan), "losses": curve.losses, "held_out": curve.scores,
        "kept_epoch": curve.best + 1, **record,
    }  # fmt: skip
    write_atomically(folder / "report.json", (json.dumps(record, indent=2) + "\n").encode())
    write_atomically(folder / "loss.svg", plot.losses(curve).encode())
    diagram = {"perfect": [(0.0, 0.0), (1.0, 1.0)],
               "the head": [(said, true) for _, said, true, _ in record["bins"]]}  # fmt: skip
    title = "share accepted, by what the head says (weight undone)"
    write_atomically(folder / "reliability.svg", plot.draw(title, diagram).encode())
