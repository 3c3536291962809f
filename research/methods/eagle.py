"""EAGLE-2: a draft tree from the model's own hidden states, expanded where the head is confident.

Li et al., "EAGLE-2: Faster Inference of Language Models with Dynamic Draft Trees" (2024, arXiv
2406.16858). Each round the head first reads the newly committed tokens with the model's true hidden
states; its cache holds committed text only. It then expands, `depth` times, the `width` most likely
nodes by `width` successors each, and the `total - 1` best nodes are verified. The tree is built
from top-k tokens without sampling, so any verification rule stays exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from engine.drafting import DraftContext, NullDrafter
from engine.records import Draft
from research.methods.eagle_head import EagleHead
from research.methods.head_checkpoint import CheckpointError

if TYPE_CHECKING:
    from engine.model.torch.torch_target import TorchTarget

TOTAL, DEPTH, WIDTH = 60, 7, 10  # nodes with the root, levels, nodes expanded in each; as published
PREFILL_CHUNK_TOKENS = 256
TREE_SIZES = {
    40: 1.0,
    48: 1.05,
    50: 1.07,
    56: 1.1,
    60: 1.13,
}  # total -> relative value, as published
MIN_LOGIT = -1e30  # replaces non-finite logits, which a bad head may produce


class Eagle(NullDrafter):
    """A drafter for one answer."""

    def __init__(
        self, head: EagleHead, total: int = TOTAL, depth: int = DEPTH, width: int = WIDTH
    ) -> None:
        if total < 2 or depth < 1 or width < 1:
            raise ValueError(f"EAGLE-2 with total {total}, depth {depth}, width {width}: give 2, "
                             "1, 1 or more")  # fmt: skip
        self.head, self.total, self.depth, self.width = head, total, depth, width

    def begin(self, context: DraftContext) -> None:
        self.past = self.head.empty()
        self.state: Any = None  # [1, width]: predicted hidden state at the last token

    @torch.inference_mode()
    def propose(self, context: DraftContext, target: TorchTarget) -> Draft:
        """Expand a tree and return its best nodes."""
        capacity = min(self.total - 1, context.capacity)
        if capacity <= 0:
            return Draft()
        self._read([*context.prompt, *context.output], target)
        if self.state is None:  # a one-token prompt has no state to continue
            return Draft()
        return self._expanded(target, context.eos_ids).reranked(capacity)

    def _read(self, text: list[int], target: TorchTarget) -> None:
        """Feed the head with the pairs (state of a token, next token) that it has not read yet."""
        states = target.sequence.states
        assert states is not None, "eagle() makes the target keep its states"
        start = self.past[0].shape[1]
        while start < len(text) - 1:
            stop = min(start + PREFILL_CHUNK_TOKENS, len(text) - 1)
            rows = torch.arange(start, stop, device=states.device)
            mask = torch.arange(stop, device=states.device)[None] <= rows[:, None]
            out, self.past = self.head(
                embed(target, text[start + 1 : stop + 1]), states[start:stop].float(), rows,
                self.past, mask,
            )  # fmt: skip
            self.state = out[-1:]
            start = stop

    def _expanded(self, target: TorchTarget, ends: frozenset[int]) -> EagleTree:
        """Expand a tree and return every node that was considered.

        A node is read with the state predicted at its parent. Rows of drafted nodes go into a copy
        of the cache that is discarded.
        """
        tree, base, past = EagleTree(), self.past[0].shape[1], self.past
        frontier = tree.grow([-1], self._best(target, self.state))
        after = {-1: self.state[0]}
        seen: list[int] = []  # nodes in the cache, in order
        for level in range(self.depth):
            frontier = [node for node in frontier if tree.tokens[node] not in ends]
            if not frontier:
                break
            seen += frontier
            states = torch.stack([after[tree.parents[node]] for node in frontier])
            positions = torch.full((len(frontier),), base + level, device=states.device)
            tokens = embed(target, [tree.tokens[node] for node in frontier])
            mask = tree.mask(frontier, seen, base).to(states.device)
            out, past = self.head(tokens, states, positions, past, mask)
            after.update(zip(frontier, out, strict=True))
            grown = tree.grow(frontier, self._best(target, out))
            frontier = sorted(sorted(grown, key=lambda node: -tree.scores[node])[: self.width])
        return tree

    def _best(self, target: TorchTarget, states: Tensor) -> list[list[tuple[int, float]]]:
        """Find the most likely tokens after `states` [rows, width], with log probabilities."""
        logits = target.model.head(states.to(target.model.dtype)).float()
        scores = logits.nan_to_num(MIN_LOGIT, -MIN_LOGIT, MIN_LOGIT).log_softmax(-1)
        found = scores.topk(min(self.width, scores.shape[-1]))
        return [
            [(token, min(0.0, value)) for token, value in zip(ids, values, strict=True)]
            for ids, values in zip(found.indices.tolist(), found.values.tolist(), strict=True)
        ]


class EagleTree:
    """Nodes in order of creation: parents precede children and never score less."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.chances: list[float] = []  # log probability given the parent
        self.scores: list[float] = []  # log probability of the path

    def grow(self, parents: list[int], best: list[list[tuple[int, float]]]) -> list[int]:
        """Add successors to each parent, and return the new nodes."""
        first = len(self.tokens)
        for parent, successors in zip(parents, best, strict=True):
            above = self.scores[parent] if parent >= 0 else 0.0
            for token, chance in successors:
                self.tokens.append(token)
                self.parents.append(parent)
                self.chances.append(chance)
                self.scores.append(above + chance)
        return list(range(first, len(self.tokens)))

    def mask(self, nodes: list[int], seen: list[int], base: int) -> Tensor:
        """Make the attention mask [nodes, base + seen] of `nodes`.

        Committed rows, ancestors and the node itself are True.
        """
        place = {node: base + n for n, node in enumerate(seen)}
        found = torch.zeros(len(nodes), base + len(seen), dtype=torch.bool)
        found[:, :base] = True
        for row, node in enumerate(nodes):
            while node >= 0:
                found[row, place[node]] = True
                node = self.parents[node]
        return found

    def reranked(self, count: int) -> Draft:
        """Take the `count` best nodes.

        Ties go to the earlier node, so parents are always included.
        """
        best = sorted(range(len(self.tokens)), key=lambda node: -self.scores[node])[:count]
        draft, place = Draft(), {-1: -1}
        for node in sorted(best):
            prob = math.exp(self.chances[node])
            parent = place[self.parents[node]]
            place[node] = draft.add(self.tokens[node], parent, prob, "eagle")
        return draft


def embed(target: TorchTarget, tokens: list[int]) -> Tensor:
    """Look up the model's embeddings of tokens: float32 [tokens, width]."""
    model: Any = target.model
    ids = torch.tensor(tokens, dtype=torch.int64, device=target.device)
    found: Tensor = model.embedding[ids.to(model.embedding.device)].float()
    return found.to(target.device)


def auto_total(seconds: Callable[[int], float]) -> int:
    """Choose the tree size as published.

    It has the least time of a pass over `total` rows relative to the value of such a tree.
    """
    return min(TREE_SIZES, key=lambda total: seconds(total) / TREE_SIZES[total])


def eagle(
    target: TorchTarget, head: EagleHead, total: int = TOTAL, depth: int = DEPTH, width: int = WIDTH
) -> Eagle:
    """Make a drafter for one answer of `target`, which keeps its hidden states from now on.

    Raises CheckpointError for unsupported models.
    """
    if not hasattr(target.model, "embedding"):
        raise CheckpointError(
            f"{target.folder.name}: EAGLE heads support the Llama family only: choose such a "
            "model, or another drafter"
        )
    target.keeps_states = True
    return Eagle(head.to(target.device), total, depth, width)
