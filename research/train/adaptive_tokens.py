"""Training of SDSAT's adaptive tokens: embeddings from which a frozen model predicts later tokens.

Block-mask training. Blocks of slots follow a text, each attached to a token r: slot i has position
r + i, attends to the text up to r and to the earlier slots of its block, and learns to predict
token r + 1 + i. The text attends to no block and only these embeddings are trained, so the model's
own outputs stay bit-identical. The objective is a reconstruction of Liu et al. (2024, arXiv
2403.18647): the authors' training code is not published, and theirs changes the model.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.model.torch.hf_model import transformers_model
from research.methods import sdsat
from research.methods.head_checkpoint import CheckpointError
from research.train.loop import TrainingPlan, fit, generator, shuffled_order, write_report
from research.train.sample_file import Report, SampleError
from research.train.self_distill import TrainingText

if TYPE_CHECKING:
    from engine.model.torch.torch_target import TorchTarget

PLAN = TrainingPlan(epochs=4, batch=2, rate=1e-2, warmup=0.1)
BLOCKS_PER_TEXT = 16  # blocks, drawn at each step
MAX_TEXT_TOKENS = 1024
HELD_OUT_SHARE = 0.1


@dataclass(slots=True)
class SlotBlocks:
    """Inputs and labels of the slots that follow a text."""

    positions: Tensor  # [blocks, slots]
    labels: Tensor  # [blocks, slots], -100 beyond the end of the text
    mask: Tensor  # bool [blocks * slots, text + blocks * slots]


def slot_blocks(count: int, cuts: list[int], slots: int, tokens: list[int]) -> SlotBlocks:
    """Make blocks for a text of `count` tokens; `cuts`: index of the last token each block sees."""
    positions = torch.tensor(cuts)[:, None] + torch.arange(1, slots + 1)
    ids = torch.tensor([*tokens, -100])
    labels = ids[(positions + 1).clamp(max=count)]
    text = torch.arange(count)[None] <= torch.tensor(cuts)[:, None]
    causal = torch.ones(slots, slots, dtype=torch.bool).tril()
    blocks = torch.block_diag(*[causal] * len(cuts))  # type: ignore[no-untyped-call]
    return SlotBlocks(positions, labels, torch.cat([text.repeat_interleave(slots, 0), blocks], 1))


class SlotEmbeddings(nn.Module):
    """The trained embeddings [tokens, width].

    If there are fewer than slots, the last one is repeated and these slots differ only in their
    positions.
    """

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.embedding = nn.Parameter(start.clone())

    def rows(self, count: int) -> Tensor:
        """Return the embeddings of the first `count` slots."""
        return self.embedding[torch.arange(count).clamp(max=len(self.embedding) - 1)]


class FrozenTransformer:
    """The frozen model run by transformers, through which gradients pass."""

    def __init__(self, folder: Path) -> None:
        from transformers.utils import logging

        logging.disable_progress_bar()
        model = transformers_model(folder, dtype=torch.float32, attn_implementation="sdpa")
        self.model = model.eval().requires_grad_(False)
        self.width: int = model.config.hidden_size

    def start(self, count: int, seed: int) -> Tensor:
        """Initialise embeddings: the mean of the vocabulary, plus noise to make them differ."""
        embeddings: Tensor = self.model.get_input_embeddings().weight
        noise = torch.randn(count, self.width, generator=generator(seed, 0))
        return embeddings.mean(0) + 0.1 * embeddings.std() * noise

    def logits(self, tokens: list[int], blocks: SlotBlocks, slots: Tensor) -> Tensor:
        """Compute logits [blocks * slots, vocabulary] of slots.

        `slots` [slots, width]: their embeddings.
        """
        from transformers import DynamicCache

        cache = DynamicCache()
        with torch.no_grad():
            self.model.model(input_ids=torch.tensor([tokens]), past_key_values=cache)
        rows = slots.repeat(len(blocks.positions), 1)
        mask = torch.zeros(blocks.mask.shape).masked_fill(~blocks.mask, torch.finfo().min)
        out = self.model.model(
            inputs_embeds=rows[None],
            attention_mask=mask[None, None],
            position_ids=blocks.positions.reshape(1, -1),
            past_key_values=cache,
        )
        logits: Tensor = self.model.lm_head(out.last_hidden_state[0])
        return logits


def draw_cuts(text: TrainingText, count: int, noise: torch.Generator) -> list[int]:
    """Draw `count` cuts, each followed by at least two tokens of the answer."""
    first, last = len(text.prefix) - 1, len(text.prefix) + len(text.tokens) - 3
    if last < first:
        return []
    drawn = torch.randperm(last - first + 1, generator=noise)[:count] + first
    return sorted(drawn.tolist())


def loss_of(
    model: FrozenTransformer, text: TrainingText, slots: SlotEmbeddings, count: int, cuts: list[int]
) -> Tensor:
    """Compute the mean cross entropy of all labelled slots."""
    tokens = [*text.prefix, *text.tokens]
    blocks = slot_blocks(len(tokens), cuts, count, tokens)
    logits = model.logits(tokens, blocks, slots.rows(count))
    return F.cross_entropy(logits, blocks.labels.flatten())


@torch.no_grad()
def accuracy(
    model: FrozenTransformer, texts: list[TrainingText], slots: SlotEmbeddings, count: int
) -> list[float]:
    """Measure the top-1 accuracy of each slot."""
    hits, total = torch.zeros(count), torch.zeros(count)
    for text in texts:
        cuts = draw_cuts(text, BLOCKS_PER_TEXT, generator(0, 0))
        if cuts:
            tokens = [*text.prefix, *text.tokens]
            blocks = slot_blocks(len(tokens), cuts, count, tokens)
            predicted = model.logits(tokens, blocks, slots.rows(count)).argmax(-1).view(-1, count)
            hits += (predicted == blocks.labels).sum(0)
            total += (blocks.labels >= 0).sum(0)
    return (hits / total.clamp(min=1)).tolist()


def train(
    texts: list[TrainingText],
    target: TorchTarget,
    folder: Path,
    plan: TrainingPlan = PLAN,
    slots: int = sdsat.SLOTS,
    tokens: int = sdsat.SLOTS,
    report: Report = lambda line: None,
) -> Tensor:
    """Train `tokens` adaptive tokens for drafts of `slots`.

    They are saved to `folder` with report.json and loss.svg. An interrupted training resumes; equal
    texts, plan and seed give equal embeddings.
    """
    if not hasattr(target.model, "embedding"):
        raise CheckpointError(
            f"{target.folder.name}: adaptive tokens support the Llama family only: choose such "
            "a model"
        )
    limit = min(MAX_TEXT_TOKENS, target.context) - slots
    texts = [TrainingText(text.prefix, text.tokens[: limit - len(text.prefix)]) for text in texts]
    texts = [text for text in texts if draw_cuts(text, 1, generator(0, 0))]
    if len(texts) < 2:
        raise SampleError(f"{len(texts)} answers: at least two are needed: give more questions")
    highest = max(max(*text.prefix, *text.tokens) for text in texts)
    if highest >= target.vocab:
        raise SampleError(f"token {highest}: made with another tokenizer: make the samples again")
    model = FrozenTransformer(target.folder)
    held_out = max(1, round(len(texts) * HELD_OUT_SHARE))
    shuffled = [texts[n] for n in shuffled_order(len(texts), plan.seed, 0)]
    validation, training = shuffled[:held_out], shuffled[held_out:]
    embeddings = SlotEmbeddings(model.start(tokens, plan.seed))
    before = accuracy(model, validation, embeddings, slots)

    def score() -> float:
        with torch.no_grad():
            cuts = [draw_cuts(text, BLOCKS_PER_TEXT, generator(0, 0)) for text in validation]
            losses = [
                float(loss_of(model, text, embeddings, slots, drawn))
                for text, drawn in zip(validation, cuts, strict=True)
            ]
            return sum(losses) / len(losses)

    untrained = score()

    def loss(samples: list[int], noise: torch.Generator) -> Tensor:
        texts = [training[n] for n in samples]
        losses = [
            loss_of(model, text, embeddings, slots, draw_cuts(text, BLOCKS_PER_TEXT, noise))
            for text in texts
        ]
        return torch.stack(losses).mean()

    about = sha256(json.dumps([asdict(text) for text in training]).encode()).hexdigest()
    curve = fit(embeddings, len(training), loss, score, plan, folder / "work", about, report)
    after = accuracy(model, validation, embeddings, slots)
    trained = embeddings.embedding.detach()
    sdsat.save(folder, trained, target.folder)
    record = {
        "loss": score(), "loss_untrained": untrained,
        "accuracy": after, "accuracy_untrained": before,
    }  # fmt: skip
    write_report(folder, plan, curve, record)
    shares = " ".join(f"{share:.1%}" for share in after)
    report(f"held out: accuracy by slot {shares} (untrained, first slot: {before[0]:.1%})")
    return trained
