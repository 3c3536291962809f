"""SDSAT: the model itself predicts several tokens at once behind adaptive tokens.

Liu et al., "SDSAT: Accelerating LLM Inference through Speculative Decoding with Semantic Adaptive
Tokens" (2024, arXiv 2403.18647). A round takes two passes of the model: one over the last token and
k adaptive tokens, whose rows predict the tokens to come, and the verification. The first row is the
model's own, so the first drafted token is certain.

Adaptive tokens are extra rows of the embedding, trained with all else frozen
(`research.train.adaptive_tokens`), so the model itself stays bit-identical; or unused ids of
a model that was fine-tuned for them. The published acceptance of sampled trees was not exact (it
draws afresh for every cell) and is replaced by `engine.sampling`'s rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from engine.drafting import DraftContext, NullDrafter
from engine.records import Draft
from engine.sampling.rejection_sampling import DRAFTING, Dice, probabilities
from engine.sampling.verify import choose, gumbel, warp
from research.methods.head_checkpoint import CheckpointError, load_head, save_head

if TYPE_CHECKING:
    from engine.model.torch.torch_target import TorchTarget
    from engine.prompts.tokenizer import Tokenizer

KIND = "adaptive tokens"
SLOTS = 5  # slots (k), as published for the small model
TEMPLATES = {  # k -> nodes per level behind the certain token, as published
    5: (4, 8, 8, 5, 3),
    7: (4, 8, 8, 6, 5, 3, 2),
    9: (4, 8, 8, 6, 6, 5, 4, 3, 2),
    11: (4, 8, 8, 8, 6, 6, 6, 5, 4, 3, 2),
    13: (4, 8, 8, 8, 8, 8, 6, 6, 6, 5, 4, 3, 2),
}


class SdsatDrafter(NullDrafter):
    """A drafter of chains, or of trees of a published shape, for one answer."""

    def __init__(self, ids: Sequence[int], slots: int = SLOTS, tree: bool = False) -> None:
        """Check the shape of drafts.

        `ids`: the adaptive tokens; the last one is repeated to fill the slots.
        """
        if slots < 0 or not ids:
            raise ValueError(f"SDSAT with {slots} slots and {len(ids)} adaptive tokens: give 0 or "
                             "more slots, and a token")  # fmt: skip
        if tree and slots not in TEMPLATES:
            known = ", ".join(map(str, TEMPLATES))
            raise ValueError(f"SDSAT trees of {slots} slots: there are templates for {known}")
        self.ids, self.slots, self.tree = list(ids), slots, tree

    def begin(self, context: DraftContext) -> None:
        self.dice = Dice(context.request.seed, DRAFTING)

    def propose(self, context: DraftContext, target: TorchTarget) -> Draft:
        """Run one pass of the model, and draft the tokens that its rows predict."""
        slots = min(self.slots, context.capacity - 1)
        if slots <= 0:
            return Draft()
        places = [self.ids[min(n, len(self.ids) - 1)] for n in range(slots)]
        blank = Draft(places, list(range(-1, slots - 1)), [0.0] * slots, [""] * slots)
        logits = target.forward(context.last, blank).logits  # not committed to the cache
        draft = Draft(passes=1)
        token = self._certain(draft, logits[0], context)
        if token in context.eos_ids:
            return draft
        widths = TEMPLATES[self.slots][:slots] if self.tree else (1,) * slots
        levels = [self._best(row, n, context) for n, row in enumerate(logits[1:])]
        grow_levels(draft, levels, widths, context.eos_ids)
        return draft

    def _certain(self, draft: Draft, logits: Tensor, context: DraftContext) -> int:
        """Add the model's own next token to the draft and return it."""
        request, position = context.request, len(context.prompt) + len(context.output)
        if context.verification == "rejection" and request.temperature > 0:
            drawn = probabilities(logits, request)
            token = self.dice.pick(drawn)
            draft.drawn[0] = drawn
        else:
            token = choose(logits, position, request)
        draft.add(token, -1, 1.0, "sdsat")
        return token

    def _best(self, logits: Tensor, slot: int, context: DraftContext) -> list[tuple[int, float]]:
        """Find tokens for one level and their probabilities, best first.

        When sampling, they are drawn without replacement with the noise that verification will use.
        """
        count = min(max(TEMPLATES[self.slots]) if self.tree else 1, logits.shape[-1])
        request = context.request
        if request.temperature == 0:
            found = logits.topk(count)
            shares = (found.values - logits.logsumexp(-1)).exp()
            return list(zip(found.indices.tolist(), shares.tolist(), strict=True))
        position = len(context.prompt) + len(context.output) + 1 + slot
        ids, weights = warp(logits, request)
        noisy = weights + gumbel(request.seed, position, ids)
        order = np.argsort(-noisy, kind="stable")[:count]
        shares = np.exp(weights) / np.exp(weights).sum()
        return list(zip(ids[order].tolist(), shares[order].tolist(), strict=True))


def grow_levels(
    draft: Draft, levels: list[list[tuple[int, float]]], widths: Sequence[int], ends: frozenset[int]
) -> None:
    """Add levels below the draft's first node.

    A level consists of the (parent, token) pairs with the smallest sum of ranks, so likelier
    parents get more children.
    """
    parents = [0]
    for best, width in zip(levels, widths, strict=True):
        pairs = sorted(
            (above + below, above, below)
            for above in range(len(parents))
            for below in range(len(best))
        )[:width]
        level = []
        for _, above, below in pairs:
            token, prob = best[below]
            node = draft.add(token, parents[above], prob, "sdsat")
            if token not in ends:
                level.append(node)
        parents = level


def install_embeddings(target: TorchTarget, embeddings: Tensor) -> list[int]:
    """Append adaptive tokens [tokens, width] to the model's embedding, and return their ids.

    The model's own outputs do not change. Raises CheckpointError for unsupported models.
    """
    model: Any = target.model
    if not hasattr(model, "embedding"):
        raise CheckpointError(
            f"{target.folder.name}: adaptive tokens support the Llama family only: choose such a "
            "model, or another drafter"
        )
    first = len(model.embedding)
    model.extend(embeddings)
    return list(range(first, first + len(embeddings)))


def check_reserved(ids: Sequence[int], tokenizer: Tokenizer, target: TorchTarget) -> list[int]:
    """Check ids of a fine-tuned model that are to serve as adaptive tokens.

    Raises ValueError for an id that is a word, or outside the vocabulary.
    """
    words = {number: word for word, number in tokenizer.words.items()}
    for token in ids:
        if token in words:
            raise ValueError(
                f"adaptive token {token} is {words[token]!r} in {target.folder.name}: "
                "choose unused ids"
            )
        if not 0 <= token < target.vocab:
            raise ValueError(
                f"adaptive token {token}: {target.folder.name} has {target.vocab} ids: "
                "choose others"
            )
    return list(ids)


def save(folder: Path, embeddings: Tensor, model: Path) -> None:
    """Save adaptive tokens [tokens, width] for the model in the folder `model`."""
    count, width = embeddings.shape
    about = {"hidden_size": width, "tokens": count}
    save_head(folder, KIND, about, {"embedding": embeddings}, model)


def load(folder: Path, model: Path, width: int) -> Tensor:
    """Load adaptive tokens [tokens, width]. Raises CheckpointError unless they are for `model`."""
    config, weights = load_head(folder, KIND, model, ("hidden_size", "tokens"))
    found = weights.get("embedding", torch.empty(0))
    if found.shape != (config["tokens"], width) or not len(found):
        raise CheckpointError(
            f"{folder}: not adaptive tokens of hidden size {width}, as {model.name} needs: "
            "train them again"
        )
    return found
