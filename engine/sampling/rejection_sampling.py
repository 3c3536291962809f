"""Speculative rejection sampling.

After Leviathan et al. ("Fast Inference from Transformers via Speculative Decoding") and Chen et al.
("Accelerating Large Language Model Decoding with Speculative Sampling"), whose rules are the same;
for trees after SpecInfer (Miao et al.).

A node drawn from q is accepted with probability min(1, p/q); after a rejection the next token is
drawn from max(0, p - q), normalised. Siblings are tried one after another. A node that was chosen
deterministically is a q with all its mass on that token. The text has the model's distribution, but
with one seed it is another text than without speculation (`engine.sampling.verify` has the rule
under which it is the same); greedy text is always the same. No random number is used twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from engine.records import Draft, Request
from engine.sampling.verify import NO_NUMBERS, Array, Verdict, matching, values_of, warp

VERIFYING, DRAFTING = 1, 2  # independent random streams of one seed
MIN_RESIDUAL = 1e-9  # probability; with less of p left, p and q are equal up to rounding


class Chance(Protocol):
    """A source of random decisions; tests enumerate all of them."""

    def happens(self, probability: Any) -> bool:
        """Return True with this probability."""
        ...

    def pick(self, weights: Array) -> int:
        """Pick an index, with probability proportional to its weight."""
        ...


class Dice:
    """Random decisions from a seed."""

    def __init__(self, seed: int, stream: int) -> None:
        self.generator = np.random.default_rng([seed & ((1 << 64) - 1), stream])

    def happens(self, probability: Any) -> bool:
        return bool(self.generator.random() < probability)

    def pick(self, weights: Array) -> int:
        sums = np.cumsum(weights)
        at = int(np.searchsorted(sums, self.generator.random() * sums[-1], side="right"))
        return min(at, int(np.flatnonzero(weights)[-1]))  # rounding may pass the end


def rejecting(request: Request) -> Verdict:
    """Return the rejection rule for one answer's drafts; exact matching for greedy requests."""
    if request.temperature == 0:
        return matching(request)
    dice = Dice(request.seed, VERIFYING)

    def judge(draft: Draft, logits: Any, position: int) -> tuple[list[int], int]:
        return walk(draft, lambda row: probabilities(logits[row], request), dice)

    return judge


def probabilities(logits: Any, request: Request) -> Array:
    """Return one row of logits as f64 probabilities [vocabulary], warped by `request`.

    The row is an array or a tensor; the temperature is above 0. Target and draft models are warped
    alike.
    """
    row = values_of(logits)
    if not np.isfinite(row.max()):
        raise ValueError(NO_NUMBERS)
    ids, weights = warp(row, request)
    shares = np.exp(weights.astype(np.float64))  # relative to the best token's
    found = np.zeros(len(row))
    found[ids] = shares / shares.sum()
    return found


def walk(draft: Draft, after: Callable[[int], Array], chance: Chance) -> tuple[list[int], int]:
    """Return the accepted path (node indices) and the token after it.

    `after(row)`: the model's probabilities after a row (0: the last committed token, otherwise
    node + 1). `draft.drawn`: the distribution each node was drawn from, given its earlier siblings;
    nodes without one were chosen deterministically.
    """
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
            left = residual(left, token, drawn)
        if at == before:
            return path, chance.pick(left)


def acceptance(p: Array, token: int, q: Array | None) -> Any:
    """Probability of accepting `token`, drawn from q (None: deterministic), under the target p."""
    if not 0 <= token < len(p):
        return 0
    if q is None:
        return p[token]
    return min(1, p[token] / q[token])


def residual(p: Array, token: int, q: Array | None) -> Array:
    """Return the residual distribution after `token` was rejected under p.

    The token was drawn from q (None: deterministic). q may have fewer or more ids at its end than
    p.
    """
    left = p.copy()
    if q is not None:
        width = min(len(p), len(q))
        left[:width] = np.maximum(p[:width] - q[:width], 0)
    elif 0 <= token < len(p):
        left[token] = 0
    total = left.sum()
    return p if total <= MIN_RESIDUAL else left / total
