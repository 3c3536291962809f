"""Accept/resample: the other way to verify, after Leviathan et al. ("Fast Inference from
Transformers via Speculative Decoding") and Chen et al. ("Accelerating Large Language Model Decoding
with Speculative Sampling"), whose rules are the same.

A node drawn from q is accepted with probability min(1, p/q); after a refusal what is left of p is
max(0, p - q), made to sum to 1. Siblings are tried one after another (SpecInfer's rule for trees);
a node that was chosen, not drawn, is a q with all its weight on it. Text is distributed as without
speculation, but with one seed it is not the same text: `engine.sampling.verify` has the rule for that, and
greedy text is always the same. No randomness is used twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from engine.records import Draft, Request
from engine.sampling.verify import Verdict, matching, warp

if TYPE_CHECKING:
    from torch import Tensor

Array = np.ndarray[Any, Any]
VERIFYING, DRAFTING = 1, 2  # streams of one seed, which must know nothing of each other
ROUNDING = 1e-9  # of a distribution; where less than this of p is left, p and q are the same


class Chance(Protocol):
    """Where random decisions come from; tests enumerate them instead."""

    def happens(self, probability: Any) -> bool:
        """True with this probability."""
        ...

    def pick(self, weights: Array) -> int:
        """An index, with a probability that is proportional to its weight."""
        ...


class Dice:
    """Random decisions of one request, the same for one seed."""

    def __init__(self, seed: int, stream: int) -> None:
        self.generator = np.random.default_rng([seed & ((1 << 64) - 1), stream])

    def happens(self, probability: Any) -> bool:
        return bool(self.generator.random() < probability)

    def pick(self, weights: Array) -> int:
        sums = np.cumsum(weights)
        at = int(np.searchsorted(sums, self.generator.random() * sums[-1], side="right"))
        return min(at, int(np.flatnonzero(weights)[-1]))  # rounding may reach the very end


def rejecting(request: Request, dice: Chance | None = None) -> Verdict:
    """The verdict on the drafts of one answer; where it is greedy, that of `engine.sampling.verify`."""
    if request.temperature == 0:
        return matching(request)
    chance = dice or Dice(request.seed, VERIFYING)

    def judge(draft: Draft, logits: Tensor, position: int) -> tuple[list[int], int]:
        return walk(draft, lambda row: probabilities(logits[row], request), chance)

    return judge


def probabilities(logits: Tensor, request: Request) -> Array:
    """One row of logits as f64 probabilities [vocabulary], warped as `request` asks; above
    temperature 0. Models and their drafts are warped alike."""
    if not bool(logits.max().isfinite()):
        raise ValueError("the model gave logits that are not numbers: try another dtype")
    ids, weights = warp(logits, request)
    found = np.zeros(len(logits))
    found[ids.cpu().numpy()] = weights.double().softmax(0).cpu().numpy()
    return found


def walk(draft: Draft, after: Callable[[int], Array], chance: Chance) -> tuple[list[int], int]:
    """The path of accepted nodes, and the token after it.

    after(row) are the model's probabilities behind that row (0: the last committed token, node + 1
    otherwise). `draft.drawn` has of each node the distribution that it was drawn from, given its
    earlier siblings; none: it was chosen without chance."""
    children: dict[int, list[int]] = defaultdict(list)
    for node, parent in enumerate(draft.parents):
        children[parent].append(node)
    path: list[int] = []
    at = -1
    while True:
        left, before = after(at + 1), at
        for node in children[at]:
            token, drawn = draft.tokens[node], draft.drawn.get(node)
            if chance.happens(acceptance(left, token, drawn)):
                path.append(node)
                at = node
                break
            left = refused(left, token, drawn)
        if at == before:
            return path, chance.pick(left)


def acceptance(p: Array, token: int, q: Array | None) -> Any:
    """Probability that `token`, drawn from q (None: chosen), is accepted where p is wanted."""
    if not 0 <= token < len(p):
        return 0
    if q is None:
        return p[token]
    return min(1, p[token] / q[token])


def refused(p: Array, token: int, q: Array | None) -> Array:
    """What is wanted after `token`, drawn from q (None: chosen), was refused where p was. A q of
    another width is of a model with fewer or more ids at the end."""
    left = p.copy()
    if q is not None:
        width = min(len(p), len(q))
        left[:width] = np.maximum(p[:width] - q[:width], 0)
    elif 0 <= token < len(p):
        left[token] = 0
    total = left.sum()
    return p if total <= ROUNDING else left / total
