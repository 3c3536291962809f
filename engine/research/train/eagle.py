"""Trains EAGLE's head on a frozen model: to continue its hidden states, and so its tokens.

Row i reads the model's state at token i, with some noise, and token i + 1; it shall give the state
at token i + 1 (smooth L1) and, through the model's own head, the distribution there (cross
entropy, a tenth). Rows count where token i is the assistant's. States are computed once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.drafting.methods.eagle import embed
from engine.drafting.methods.eagle_head import EagleHead, shape_of, untrained_head
from engine.drafting.methods.head_checkpoint import CheckpointError, write_atomically
from engine.model.llama import Weights
from engine.research.train import plot
from engine.research.train.loop import Plan, fit, shuffled_order
from engine.research.train.sample_file import SampleError
from engine.research.train.self_distill import TrainingText
from engine.research.train.teacher_forcing import hidden_states

if TYPE_CHECKING:
    from engine.model.torch_target import TorchTarget

# Published: rate 3e-5, batch 4, 20 epochs of 68,000 dialogues, 2000 steps to warm up
PLAN = Plan(epochs=8, batch=4, rate=5e-4, warmup=0.1, betas=(0.9, 0.95), clip=0.5)
STATE_WEIGHT, TOKEN_WEIGHT = 1.0, 0.1
NOISE, NOISE_TOKENS = 0.2, 512  # uniform, of this width at this many tokens, less for longer texts
MAX_TEXT_TOKENS = 2048
REPORT_DEPTH = 5  # tokens in a row that the report follows a head's own guesses, as published
HELD_OUT_SHARE = 0.1
Report = Callable[[str], None]


@dataclass(slots=True)
class EagleLesson:
    """One text: rows 0 .. n - 2 are read, rows 1 .. n - 1 are what they shall give."""

    tokens: list[int]
    states: Tensor  # [n, width], of the model
    counts: Tensor  # bool [n - 1]: rows whose own token is the assistant's


def lesson(text: TrainingText, model: TorchTarget) -> EagleLesson:
    """BadSamples where it is of another tokenizer."""
    tokens = [*text.prefix, *text.tokens][: min(MAX_TEXT_TOKENS, model.context)]
    if max(tokens) >= model.vocab:
        raise SampleError(f"token {max(tokens)}: made with another tokenizer: make them again")
    counts = torch.arange(len(tokens) - 1) >= len(text.prefix)
    return EagleLesson(tokens, hidden_states(model, tokens), counts)


class FrozenModel:
    """What is used of the model: its embedding, and its head as a plain matrix."""

    def __init__(self, model: TorchTarget) -> None:
        """CheckpointError for a model of another kind than Llama's family."""
        if not hasattr(model.model, "embedding"):
            raise CheckpointError(
                f"{model.folder.name}: EAGLE heads continue models of Llama's family only: "
                "choose such a model"
            )
        self.model = model
        weights = Weights(model.folder)
        tied = model.settings.get("tie_word_embeddings") or "lm_head.weight" not in weights
        name = "model.embed_tokens.weight" if tied else "lm_head.weight"
        self.head = weights[name].float()

    def logits(self, states: Tensor) -> Tensor:
        return F.linear(states, self.head)


def predict_states(
    head: EagleHead, one: EagleLesson, frozen: FrozenModel, noise: Tensor | None = None
) -> Tensor:
    """The states that the head gives behind every row: [n - 1, width]."""
    return _read(head, one, frozen, noise)[0]


def _read(
    head: EagleHead, one: EagleLesson, frozen: FrozenModel, noise: Tensor | None = None
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """The same, and the cache with all rows."""
    count = len(one.tokens) - 1
    states = one.states[:-1] if noise is None else one.states[:-1] + noise
    mask = torch.ones(count, count, dtype=torch.bool).tril()
    read = embed(frozen.model, one.tokens[1:])
    found: tuple[Tensor, Any] = head(read, states, torch.arange(count), head.empty(), mask)
    return found


def losses(found: Tensor, truth: Tensor, frozen: FrozenModel) -> Tensor:
    """Of each row: found and truth are states [rows, width]."""
    apart = F.smooth_l1_loss(found, truth, reduction="none").mean(-1)
    with torch.no_grad():
        wanted = frozen.logits(truth).softmax(-1)
    said = frozen.logits(found).log_softmax(-1)
    return STATE_WEIGHT * apart - TOKEN_WEIGHT * (wanted * said).sum(-1)


def loss_of(
    head: EagleHead,
    part: list[EagleLesson],
    frozen: FrozenModel,
    noise: torch.Generator | None = None,
) -> Tensor:
    """The mean over all rows that count."""
    total, rows = torch.zeros(()), 0
    for one in part:
        spread = None
        if noise is not None:
            width = NOISE * NOISE_TOKENS / len(one.tokens)
            spread = (torch.rand(one.states[:-1].shape, generator=noise) - 0.5) * width
        found = predict_states(head, one, frozen, spread)[one.counts]
        total = total + losses(found, one.states[1:][one.counts], frozen).sum()
        rows += len(found)
    return total / max(rows, 1)


@torch.no_grad()
def accuracy(
    head: EagleHead, part: list[EagleLesson], frozen: FrozenModel, most: int = 3
) -> list[float]:
    """Share of rows where the model's likeliest token is among the head's 1, 2 ... `most` first."""
    hits, rows = torch.zeros(most), 0
    for one in part:
        found = frozen.logits(predict_states(head, one, frozen)[one.counts]).topk(most).indices
        truth = frozen.logits(one.states[1:][one.counts]).argmax(-1)
        hits += (found == truth[:, None]).float().cumsum(1).sum(0)
        rows += len(found)
    return (hits / max(rows, 1)).tolist()


@torch.no_grad()
def chain_accuracy(
    head: EagleHead, part: list[EagleLesson], frozen: FrozenModel, most: int = REPORT_DEPTH
) -> list[float]:
    """Share of places where the head's own first 1, 2 ... `most` tokens, each read behind the state
    that it gave itself, are all the model's likeliest. A place counts as long as the text goes on
    with those, too."""
    hits, tried = torch.zeros(most), torch.zeros(most)
    for one in part:
        out, past = _read(head, one, frozen)
        ids, wanted = torch.tensor(one.tokens), frozen.logits(one.states).argmax(-1)
        places = one.counts.nonzero()[:, 0]  # rows that are continued
        states, owners = out[places], places[:0]  # owners: whose the rows behind the text's are
        for step in range(most):
            at = places + step + 1  # of the true state whose token is guessed
            known = at < len(ids)
            if step:
                known &= ids[at.clamp(max=len(ids) - 1)] == wanted[at - 1]
            places, states, at = places[known], states[known], at[known]
            if not len(places):
                break
            guessed = frozen.logits(states).argmax(-1)
            right = guessed == wanted[at]
            hits[step] += right.sum()
            tried[step] += right.sum()
            tried[step:] += (~right).sum()
            if not right.any():
                break
            places, states = places[right], states[right]
            owners = torch.cat([owners, places])
            text = torch.arange(len(out))[None] <= places[:, None]
            mask = torch.cat([text, owners[None] == places[:, None]], 1)
            read = embed(frozen.model, guessed[right].tolist())
            states, past = head(read, states, places + step + 1, past, mask)
    return (hits / tried.clamp(min=1)).tolist()


def train(
    texts: list[TrainingText],
    model: TorchTarget,
    folder: Path,
    plan: Plan = PLAN,
    report: Report = lambda line: None,
) -> EagleHead:
    """A head in `folder`, with report.json and loss.svg. A killed training goes on; the same texts,
    plan and seed give the same weights."""
    if len(texts) < 2:
        raise SampleError(f"{len(texts)} answers: two or more are needed: give more questions")
    frozen = FrozenModel(model)
    lessons = []
    for number, text in enumerate(texts, 1):
        lessons.append(lesson(text, model))
        if number % 20 == 0 or number == len(texts):
            report(f"read {number} of {len(texts)} answers")
    out = max(1, round(len(lessons) * HELD_OUT_SHARE))
    shuffled = [lessons[n] for n in shuffled_order(len(lessons), plan.seed, 0)]
    held, taught = shuffled[:out], shuffled[out:]
    head = untrained_head(shape_of(model.settings), plan.seed)
    before, row_before = accuracy(head, held, frozen), chain_accuracy(head, held, frozen)

    def loss(samples: list[int], noise: torch.Generator) -> Tensor:
        return loss_of(head, [taught[n] for n in samples], frozen, noise)

    def score() -> float:
        with torch.no_grad():
            return float(loss_of(head, held, frozen))

    about = sha256(json.dumps([[one.tokens, int(one.counts.sum())] for one in taught]).encode())
    curve = fit(head, len(taught), loss, score, plan, folder / "work", about.hexdigest(), report)
    after, row = accuracy(head, held, frozen), chain_accuracy(head, held, frozen)
    head.save(folder, model.folder)
    record: dict[str, Any] = {
        "plan": asdict(plan), "losses": curve.losses, "held_out": curve.scores,
        "kept_epoch": curve.best + 1, "tokens": sum(int(one.counts.sum()) for one in taught),
        "accuracy": after, "accuracy_untrained": before,
        "accuracy_in_a_row": row, "accuracy_in_a_row_untrained": row_before,
    }  # fmt: skip
    write_atomically(folder / "report.json", (json.dumps(record, indent=2) + "\n").encode())
    write_atomically(folder / "loss.svg", plot.losses(curve).encode())
    report(
        f"held out: the model's first token is the head's first in {after[0]:.1%} "
        f"(untrained {before[0]:.1%}), among its first three in {after[-1]:.1%}; {REPORT_DEPTH} in a row "
        f"are right in {row[-1]:.1%}"
    )
    return head
