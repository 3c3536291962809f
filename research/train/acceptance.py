"""Training of SpecDec++'s acceptance head on a frozen draft model (Huang et al., arXiv 2405.19715).

A sample's tokens are mixed once from the target's answer (a share `mixing`) and the draft model's
own tokens. The draft model reads the mixture, and the head learns to predict from the hidden state
at each draft token how likely that token is to be accepted. Rejections are rarer, so they weigh
`weight` times as much; the head then underestimates acceptance, which the stopping rule expects and
the report corrects. Hidden states are computed only once, since the draft model is frozen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.atomic_write import write_atomically
from research.methods.specdec import LAYERS, AcceptanceHead
from research.train import plot
from research.train.acceptance_data import Sample
from research.train.loop import TrainingPlan, fit, generator, shuffled_order, write_report
from research.train.sample_file import SampleError
from research.train.teacher_forcing import hidden_states

if TYPE_CHECKING:
    from engine.model.torch.torch_target import TorchTarget

PLAN = TrainingPlan(
    epochs=10, batch=64, rate=1e-4, warmup=0.03
)  # a higher rate than published: less data
MIXING, WEIGHT = 0.15, 6.0  # share of the answer's tokens; weight of a rejection; as published
BINS = 10
HELD_OUT_SHARE = 0.1  # share of the samples, for validation and for testing each
Report = Callable[[str], None]


@dataclass(slots=True)
class AcceptanceLessons:
    """Hidden states [rows, width], and P(accepted) of their tokens [rows]."""

    states: Tensor
    labels: Tensor


@dataclass(frozen=True, slots=True)
class Calibration:
    """The quality of predicted probabilities.

    It consists of the mean KL divergence from the truth in nats, the expected calibration error,
    and bins of (lower bound, mean prediction, mean truth, tokens).
    """

    kl: float
    ece: float
    bins: tuple[tuple[float, float, float, int], ...]


def mix_tokens(
    sample: Sample, mixing: float, noise: torch.Generator
) -> tuple[list[int], list[bool]]:
    """Mix the tokens to read after the prefix, and tell which of them are the draft model's."""
    keep = (torch.rand(len(sample.tokens), generator=noise) < mixing).tolist()
    pairs = zip(sample.tokens, sample.draft, keep, strict=True)
    tokens = [answered if kept else drawn for answered, drawn, kept in pairs]
    return tokens, [not kept for kept in keep]


def lessons(
    samples: list[Sample],
    draft: TorchTarget,
    mixing: float = MIXING,
    seed: int = 0,
    report: Report = lambda line: None,
) -> AcceptanceLessons:
    """Collect the states and labels of all draft tokens."""
    states, labels = [torch.empty(0, draft.model.width)], [torch.empty(0)]
    for number, sample in enumerate(samples):
        tokens, drawn = mix_tokens(sample, mixing, generator(seed, number))
        ids = [*sample.prefix, *tokens][: draft.context]
        if max(ids) >= draft.vocab:
            raise SampleError(f"sample {number + 1}: token {max(ids)}: made with another tokenizer")
        hidden = hidden_states(draft, ids, len(sample.prefix))
        mask = torch.tensor(drawn)[: len(hidden)]
        states.append(hidden[mask])
        labels.append(torch.tensor(sample.p_acc)[: len(hidden)][mask])
        if (number + 1) % 20 == 0 or number + 1 == len(samples):
            report(f"read {number + 1} of {len(samples)} answers")
    return AcceptanceLessons(torch.cat(states), torch.cat(labels))


def weighted_loss(logits: Tensor, labels: Tensor, weight: float) -> Tensor:
    """Compute the cross entropy of (rejected, accepted) logits [rows, 2] with soft labels [rows].

    Rejections count `weight` times.
    """
    log_probs = logits.log_softmax(-1)
    rejected, accepted = weight * (1 - labels), labels
    total = -(rejected * log_probs[:, 0] + accepted * log_probs[:, 1]).sum()
    return total / (rejected.sum() + accepted.sum())


def calibration(predictions: Tensor, labels: Tensor) -> Calibration:
    """Compare probabilities [rows] with soft labels [rows]."""
    probs = predictions.double().clamp(1e-12, 1 - 1e-12)
    true = labels.double()
    cross_entropy = -(true * probs.log() + (1 - true) * (1 - probs).log())
    entropy = -(torch.xlogy(true, true) + torch.xlogy(1 - true, 1 - true))
    indices = (probs * BINS).long().clamp(max=BINS - 1)
    bins, error = [], 0.0
    for n in range(BINS):
        members = indices == n
        count = int(members.sum())
        if count:
            predicted, actual = float(probs[members].mean()), float(true[members].mean())
            bins.append((n / BINS, predicted, actual, count))
            error += abs(predicted - actual) * count
    kl = float((cross_entropy - entropy).mean())
    return Calibration(kl, error / max(len(true), 1), tuple(bins))


def undo_weight(predictions: Tensor, weight: float) -> Tensor:
    """Convert predictions to those of a head trained with weight 1."""
    probs = predictions.double()
    return weight * probs / (weight * probs + 1 - probs)


def split(samples: list[Sample], seed: int) -> tuple[list[Sample], list[Sample], list[Sample]]:
    """Split samples into those for training, for validation and for testing.

    Raises SampleError if there are too few.
    """
    if len(samples) < 3:
        raise SampleError(f"{len(samples)} answers: at least three are needed: give more questions")
    held_out = max(1, round(len(samples) * HELD_OUT_SHARE))
    shuffled = [samples[n] for n in shuffled_order(len(samples), seed, 0)]
    return shuffled[2 * held_out :], shuffled[:held_out], shuffled[held_out : 2 * held_out]


def train(
    samples: list[Sample],
    draft: TorchTarget,
    folder: Path,
    plan: TrainingPlan,
    layers: int = LAYERS,
    tied: bool = False,
    mixing: float = MIXING,
    weight: float = WEIGHT,
    report: Report = lambda line: None,
) -> AcceptanceHead:
    """Train a head and save it to `folder` with report.json, loss.svg and reliability.svg.

    An interrupted training resumes; equal samples, settings and seed give equal weights.
    """
    parts = [lessons(part, draft, mixing, plan.seed, report) for part in split(samples, plan.seed)]
    for part, name in zip(parts, ("training", "validation", "testing"), strict=True):
        if not len(part.labels):
            raise SampleError(f"no drafted tokens for {name}: give more answers, or lower --mixing")
    training, validation, testing = parts
    head = untrained_head(draft.model.width, layers, tied, plan.seed)
    untrained = calibration(head.accepted(testing.states), testing.labels)
    before = weighted_loss(head(testing.states), testing.labels, weight)
    start_at_the_mean(head, training.labels, weight)

    def loss(rows: list[int], noise: torch.Generator) -> Tensor:
        return weighted_loss(head(training.states[rows]), training.labels[rows], weight)

    def score() -> float:
        with torch.no_grad():
            return float(weighted_loss(head(validation.states), validation.labels, weight))

    about = sha256(
        training.states.numpy().tobytes() + training.labels.numpy().tobytes()
    ).hexdigest()
    work = folder / "work"
    curve = fit(head, len(training.labels), loss, score, plan, work, f"{about} {weight}", report)
    found = calibration(undo_weight(head.accepted(testing.states), weight), testing.labels)
    mean = calibration(
        torch.full_like(testing.labels, float(training.labels.mean())), testing.labels
    )
    head.save(folder, draft.folder)
    after = weighted_loss(head(testing.states), testing.labels, weight)
    record = {
        "tokens": [len(part.labels) for part in parts],
        "accepted": float(training.labels.mean()),
        "loss": float(after.detach()),
        "loss_untrained": float(before.detach()),
        "kl": found.kl,
        "kl_with_weight": calibration(head.accepted(testing.states), testing.labels).kl,
        "kl_untrained": untrained.kl,
        "kl_always_the_mean": mean.kl,
        "ece": found.ece,
        "bins": found.bins,
    }
    write_report(folder, plan, curve, record)
    write_reliability(folder, found.bins)
    report(
        f"held out: KL {found.kl:.4f} (untrained {untrained.kl:.4f}, always the mean "
        f"{mean.kl:.4f}), calibration error {found.ece:.3f}"
    )
    return head


def untrained_head(width: int, layers: int, tied: bool, seed: int) -> AcceptanceHead:
    """Make a randomly initialised head; equal seeds give equal heads."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AcceptanceHead(width, layers, tied).eval()


@torch.no_grad()
def start_at_the_mean(head: AcceptanceHead, labels: Tensor, weight: float) -> None:
    """Initialise the output layer to predict the mean for every state.

    A few thousand tokens cannot correct a random initialisation (KL 0.71, against 0.28 this way and
    0.32 for the mean alone).
    """
    mean = labels.mean().clamp(0.01, 0.99)
    head.out.weight.zero_()
    head.out.bias.copy_(torch.stack((weight * (1 - mean), mean)).log())


def write_reliability(folder: Path, bins: tuple[tuple[float, float, float, int], ...]) -> None:
    """Write reliability.svg."""
    diagram = {
        "perfect": [(0.0, 0.0), (1.0, 1.0)],
        "the head": [(predicted, true) for _, predicted, true, _ in bins],
    }
    title = "share accepted, by predicted probability (weight corrected)"
    write_atomically(folder / "reliability.svg", plot.draw(title, diagram).encode())
