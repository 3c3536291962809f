"""EAGLE-2: a tree from the model's own hidden states, grown where the head is confident.

Li et al., "EAGLE-2: Faster Inference of Language Models with Dynamic Draft Trees". Each round the
head reads the committed tokens that it has not read yet, with the model's true states (never with
its own guesses: its cache holds committed text only). Then it expands, `depth` times, the `width`
most likely nodes by `width` successors each, and of all these the `total - 1` best are verified.
What it takes is the model's own top tokens without chance, so any verification is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from engine.drafting import DraftContext, NullDrafter
from engine.drafting.methods.eagle_head import EagleHead
from engine.drafting.methods.head_checkpoint import CheckpointError
from engine.records import Draft

if TYPE_CHECKING:
    from engine.model.torch_target import TorchTarget

TOTAL, DEPTH, WIDTH = 60, 7, 10  # as published; `total` counts the last committed token
PREFILL_CHUNK_TOKENS = 256  # committed tokens that the head reads at once
TREE_SIZES = {40: 1.0, 48: 1.05, 50: 1.07, 56: 1.1, 60: 1.13}  # total -> what it must be worth
MIN_LOGIT = -1e30  # of a logit: heads may give anything


class Eagle(NullDrafter):
    """Drafts one answer."""

    def __init__(
        self, head: EagleHead, total: int = TOTAL, depth: int = DEPTH, width: int = WIDTH
    ) -> None:
        if total < 2 or depth < 1 or width < 1:
            raise ValueError(f"EAGLE-2 with total {total}, depth {depth}, width {width}: give 2, "
                             "1, 1 or more")  # fmt: skip
        self.head, self.total, self.depth, self.width = head, total, depth, width

    def begin(self, context: DraftContext) -> None:
        self.past = self.head.empty()
        self.state: Any = None  # [1, width]: what the head says stands at the last token

    @torch.inference_mode()
    def propose(self, context: DraftContext, target: TorchTarget) -> Draft:
        """The reranked tree."""
        room = min(self.total - 1, context.room)
        if room <= 0:
            return Draft()
        self._read([*context.prompt, *context.output], target)
        if self.state is None:  # a prompt of one token: there is no state to continue
            return Draft()
        return self._expanded(target, context.eos_ids).reranked(room)

    def _read(self, text: list[int], target: TorchTarget) -> None:
        """The pairs (state of a token, the next token) that were not read yet."""
        states = target.sequence.states
        assert states is not None, "eagle() tells the target to keep its states"
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
        """All nodes that were looked at. Their rows stand behind the committed ones in a cache
        that is thrown away; what a node follows is the state that the head gave at its parent."""
        tree, base, past = EagleTree(), self.past[0].shape[1], self.past
        frontier = tree.grow([-1], self._best(target, self.state))
        after = {-1: self.state[0]}
        seen: list[int] = []  # nodes whose rows are in the cache, in their order
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
        """The likeliest tokens behind each of `states` [rows, width], with their log
        probabilities."""
        logits = target.model.head(states.to(target.model.dtype)).float()
        said = logits.nan_to_num(MIN_LOGIT, -MIN_LOGIT, MIN_LOGIT).log_softmax(-1)
        found = said.topk(min(self.width, said.shape[-1]))
        return [
            [(token, min(0.0, value)) for token, value in zip(ids, values, strict=True)]
            for ids, values in zip(found.indices.tolist(), found.values.tolist(), strict=True)
        ]


class EagleTree:
    """Nodes in the order of their creation, so parents come first and never score less."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.chances: list[float] = []  # log probability behind the parent
        self.scores: list[float] = []  # and of the whole path

    def grow(self, parents: list[int], best: list[list[tuple[int, float]]]) -> list[int]:
        """Give each parent its successors; the new nodes."""
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
        """What the rows of `nodes` may look at: bool [nodes, base + seen]; everything committed,
        their ancestors and themselves."""
        place = {node: base + n for n, node in enumerate(seen)}
        found = torch.zeros(len(nodes), base + len(seen), dtype=torch.bool)
        found[:, :base] = True
        for row, node in enumerate(nodes):
            while node >= 0:
                found[row, place[node]] = True
                node = self.parents[node]
        return found

    def reranked(self, count: int) -> Draft:
        """The `count` best nodes; of equal ones the first, so none is without its parent."""
        best = sorted(range(len(self.tokens)), key=lambda node: -self.scores[node])[:count]
        draft, place = Draft(), {-1: -1}
        for node in sorted(best):
            prob = math.exp(self.chances[node])
            parent = place[self.parents[node]]
            place[node] = draft.add(self.tokens[node], parent, prob, "eagle")
        return draft


def embed(target: TorchTarget, tokens: list[int]) -> Tensor:
    """The model's own embeddings of tokens: f32 [tokens, width]."""
    model: Any = target.model
    ids = torch.tensor(tokens, dtype=torch.int64, device=target.device)
    found: Tensor = model.embedding[ids.to(model.embedding.device)].float()
    return found.to(target.device)


def auto_total(seconds: Callable[[int], float]) -> int:
    """The published choice of a tree's size: the time of a pass over so many rows, beside what so
    many are worth."""
    return min(TREE_SIZES, key=lambda total: seconds(total) / TREE_SIZES[total])


def eagle(
    target: TorchTarget, head: EagleHead, total: int = TOTAL, depth: int = DEPTH, width: int = WIDTH
) -> Eagle:
    """The drafter of one answer of `target`, which keeps its states from now on. CheckpointError
    for a model of another kind."""
    if not hasattr(target.model, "embedding"):
        raise CheckpointError(
            f"{target.folder.name}: EAGLE heads continue models of Llama's family only: choose "
            "such a model, or another drafter"
        )
    target.keeps_states = True
    return Eagle(head.to(target.device), total, depth, width)
