"""Training of EAGLE's draft head on a frozen model (Li et al., 2024, arXiv 2401.15077).

Row i reads the model's hidden state at token i, with noise, and token i + 1. It learns the state at
token i + 1 (smooth L1 loss) and, through the model's own LM head, the distribution there (cross
entropy, weight 0.1). Only rows of the assistant's tokens count. Hidden states are computed once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.model.torch.gguf_weights import weights_of
from research.methods.eagle import embed
from research.methods.eagle_head import EagleHead, shape_of, untrained_head
from research.methods.head_checkpoint import CheckpointError
from research.train.loop import TrainingPlan, fit, shuffled_order, write_report
from research.train.sample_file import SampleError
from research.train.self_distill import TrainingText
from research.train.teacher_forcing import hidden_states

if TYPE_CHECKING:
    from engine.model.torch.torch_target import TorchTarget

# Published: rate 3e-5, batch 4, 20 epochs of 68,000 dialogues, 2000 warmup steps.
PLAN = TrainingPlan(epochs=8, batch=4, rate=5e-4, warmup=0.1, betas=(0.9, 0.95), clip=0.5)
STATE_WEIGHT, TOKEN_WEIGHT = 1.0, 0.1
NOISE, NOISE_TOKENS = 0.2, 512  # width of uniform noise at this text length; inverse to the length
MAX_TEXT_TOKENS = 2048
REPORT_DEPTH = 5  # tokens drafted in sequence for the report, as published
HELD_OUT_SHARE = 0.1
Report = Callable[[str], None]


@dataclass(slots=True)
class EagleLesson:
    """One text: rows 0 .. n - 2 are the inputs, rows 1 .. n - 1 the targets."""

    tokens: list[int]
    states: Tensor  # [n, width]: the model's hidden states
    counts: Tensor  # bool [n - 1]: rows of the assistant's tokens


def lesson(text: TrainingText, model: TorchTarget) -> EagleLesson:
    """Prepare one text. Raises SampleError if it was made with another tokenizer."""
    tokens = [*text.prefix, *text.tokens][: min(MAX_TEXT_TOKENS, model.context)]
    if max(tokens) >= model.vocab:
        raise SampleError(
            f"token {max(tokens)}: made with another tokenizer: make the samples again"
        )
    counts = torch.arange(len(tokens) - 1) >= len(text.prefix)
    return EagleLesson(tokens, hidden_states(model, tokens), counts)


class FrozenEnds:
    """The parts of the model that are used: its embedding, and its LM head as a matrix."""

    def __init__(self, model: TorchTarget) -> None:
        """Load the LM head.

        Raises CheckpointError unless the model is of the Llama family.
        """
        if not hasattr(model.model, "embedding"):
            raise CheckpointError(
                f"{model.folder.name}: EAGLE heads support the Llama family only: choose such "
                "a model"
            )
        self.model = model
        weights = weights_of(model.folder)
        tied = model.settings.get("tie_word_embeddings") or "lm_head.weight" not in weights
        name = "model.embed_tokens.weight" if tied else "lm_head.weight"
        self.head = weights[name].float()

    def logits(self, states: Tensor) -> Tensor:
        return F.linear(states, self.head)


def predict_states(
    head: EagleHead, text: EagleLesson, frozen: FrozenEnds, noise: Tensor | None = None
) -> Tensor:
    """Predict the hidden states [n - 1, width] of a text with the head."""
    return _forward(head, text, frozen, noise)[0]


def _forward(
    head: EagleHead, text: EagleLesson, frozen: FrozenEnds, noise: Tensor | None = None
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Predict as `predict_states` does, and return the head's cache of all rows, too."""
    count = len(text.tokens) - 1
    states = text.states[:-1] if noise is None else text.states[:-1] + noise
    mask = torch.ones(count, count, dtype=torch.bool).tril()
    embeddings = embed(frozen.model, text.tokens[1:])
    out: tuple[Tensor, Any] = head(embeddings, states, torch.arange(count), head.empty(), mask)
    return out


def losses(predicted: Tensor, true: Tensor, frozen: FrozenEnds) -> Tensor:
    """Compute the loss per row of predicted and true states [rows, width]."""
    state_loss = F.smooth_l1_loss(predicted, true, reduction="none").mean(-1)
    with torch.no_grad():
        probs = frozen.logits(true).softmax(-1)
    log_probs = frozen.logits(predicted).log_softmax(-1)
    return STATE_WEIGHT * state_loss - TOKEN_WEIGHT * (probs * log_probs).sum(-1)


def loss_of(
    head: EagleHead,
    texts: list[EagleLesson],
    frozen: FrozenEnds,
    noise: torch.Generator | None = None,
) -> Tensor:
    """Compute the mean loss over all rows that count."""
    total, rows = torch.zeros(()), 0
    for text in texts:
        state_noise = None
        if noise is not None:
            width = NOISE * NOISE_TOKENS / len(text.tokens)
            state_noise = (torch.rand(text.states[:-1].shape, generator=noise) - 0.5) * width
        predicted = predict_states(head, text, frozen, state_noise)[text.counts]
        total = total + losses(predicted, text.states[1:][text.counts], frozen).sum()
        rows += len(predicted)
    return total / max(rows, 1)


@torch.no_grad()
def accuracy(
    head: EagleHead, texts: list[EagleLesson], frozen: FrozenEnds, top: int = 3
) -> list[float]:
    """Measure top-1 to top-`top` accuracy.

    It is how often the head's most likely tokens include the model's.
    """
    hits, rows = torch.zeros(top), 0
    for text in texts:
        predicted = frozen.logits(predict_states(head, text, frozen)[text.counts]).topk(top).indices
        true = frozen.logits(text.states[1:][text.counts]).argmax(-1)
        hits += (predicted == true[:, None]).float().cumsum(1).sum(0)
        rows += len(predicted)
    return (hits / max(rows, 1)).tolist()


@torch.no_grad()
def chain_accuracy(
    head: EagleHead, texts: list[EagleLesson], frozen: FrozenEnds, depth: int = REPORT_DEPTH
) -> list[float]:
    """Measure how often a greedy draft's first 1, 2 ... `depth` tokens all equal the model's own.

    The head reads its own predicted states. A position counts only as far as the text itself
    continues with the model's tokens.
    """
    hits, tried = torch.zeros(depth), torch.zeros(depth)
    for text in texts:
        out, past = _forward(head, text, frozen)
        ids, true = torch.tensor(text.tokens), frozen.logits(text.states).argmax(-1)
        rows = text.counts.nonzero()[:, 0]  # rows to continue
        states, owners = out[rows], rows[:0]  # owners: the row that each drafted one continues
        for step in range(depth):
            at = rows + step + 1  # row of the true state to compare with
            comparable = at < len(ids)
            if step:
                comparable &= ids[at.clamp(max=len(ids) - 1)] == true[at - 1]
            rows, states, at = rows[comparable], states[comparable], at[comparable]
            if not len(rows):
                break
            drafted = frozen.logits(states).argmax(-1)
            correct = drafted == true[at]
            hits[step] += correct.sum()
            tried[step] += correct.sum()
            tried[step:] += (~correct).sum()
            if not correct.any():
                break
            rows, states = rows[correct], states[correct]
            owners = torch.cat([owners, rows])
            prefix = torch.arange(len(out))[None] <= rows[:, None]
            mask = torch.cat([prefix, owners[None] == rows[:, None]], 1)
            embeddings = embed(frozen.model, drafted[correct].tolist())
            states, past = head(embeddings, states, rows + step + 1, past, mask)
    return (hits / tried.clamp(min=1)).tolist()


def train(
    texts: list[TrainingText],
    model: TorchTarget,
    folder: Path,
    plan: TrainingPlan = PLAN,
    report: Report = lambda line: None,
) -> EagleHead:
    """Train a head and save it to `folder` with report.json and loss.svg.

    An interrupted training resumes; equal texts, plan and seed give equal weights.
    """
    if len(texts) < 2:
        raise SampleError(f"{len(texts)} answers: at least two are needed: give more questions")
    frozen = FrozenEnds(model)
    lessons = []
    for number, text in enumerate(texts, 1):
        lessons.append(lesson(text, model))
        if number % 20 == 0 or number == len(texts):
            report(f"read {number} of {len(texts)} answers")
    held_out = max(1, round(len(lessons) * HELD_OUT_SHARE))
    shuffled = [lessons[n] for n in shuffled_order(len(lessons), plan.seed, 0)]
    validation, training = shuffled[:held_out], shuffled[held_out:]
    head = untrained_head(shape_of(model.settings), plan.seed)
    before = accuracy(head, validation, frozen)
    chain_before = chain_accuracy(head, validation, frozen)

    def loss(samples: list[int], noise: torch.Generator) -> Tensor:
        return loss_of(head, [training[n] for n in samples], frozen, noise)

    def score() -> float:
        with torch.no_grad():
            return float(loss_of(head, validation, frozen))

    data = json.dumps([[text.tokens, int(text.counts.sum())] for text in training])
    about = sha256(data.encode()).hexdigest()
    curve = fit(head, len(training), loss, score, plan, folder / "work", about, report)
    after, chain = accuracy(head, validation, frozen), chain_accuracy(head, validation, frozen)
    head.save(folder, model.folder)
    record = {
        "tokens": sum(int(text.counts.sum()) for text in training),
        "accuracy": after, "accuracy_untrained": before,
        "accuracy_in_a_row": chain, "accuracy_in_a_row_untrained": chain_before,
    }  # fmt: skip
    write_report(folder, plan, curve, record)
    report(
        f"held out: top-1 accuracy {after[0]:.1%} (untrained {before[0]:.1%}), "
        f"top-{len(after)} {after[-1]:.1%}; {REPORT_DEPTH} tokens in a row "
        f"are right in {chain[-1]:.1%}"
    )
    return head
