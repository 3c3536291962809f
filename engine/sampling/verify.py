"""Choosing tokens, and accepting a draft as far as the model agrees with it.

Sampling uses the Gumbel-max trick with keyed noise: the token at absolute position i is the argmax
of the warped log-probability plus Gumbel noise of (seed, i, token id). So with one seed the text is
the same with any draft or none. `engine.sampling.rejection_sampling` is the alternative that only
keeps the distribution. All functions are pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from engine.records import Draft, Request

Array = np.ndarray[Any, Any]
# (draft, logits [1 + nodes, vocabulary], position of row 0) -> (accepted path, token after it)
Verdict = Callable[[Draft, Any, int], tuple[list[int], int]]
NEGLIGIBLE = 30.0  # logits; those this far below the best (e^-30) are dropped
CANDIDATES = 1024  # tokens of a row that are considered first
MASS_UNITS = float(1 << 40)  # units of the best token's mass; four million such masses fit an int64
NO_NUMBERS = "the model gave logits that are not numbers: try another dtype"
MIX1, MIX2, GOLDEN = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x9E3779B97F4A7C15


def mix(x: int) -> int:
    """SplitMix64's finalizer on one Python integer."""
    x &= (1 << 64) - 1
    x = ((x ^ (x >> 30)) * MIX1) & ((1 << 64) - 1)
    x = ((x ^ (x >> 27)) * MIX2) & ((1 << 64) - 1)
    return x ^ (x >> 31)


def mixed(x: Array) -> Array:
    """`mix` on an array of uint64, whose products wrap around."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(MIX1)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(MIX2)
    found: Array = x ^ (x >> np.uint64(31))
    return found


def gumbel(seed: int, position: int, ids: Array) -> Array:
    """Return Gumbel noise (f64) of each token id [ids] at one position.

    It comes from a counter-based integer hash: `engine.sampling.batched.noise` is the same on a
    card.
    """
    key = np.uint64(mix(mix(seed + GOLDEN) + position * GOLDEN))
    hashed = mixed(np.asarray(ids).astype(np.uint64) * np.uint64(GOLDEN) + key)
    uniform = ((hashed >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    found: Array = -np.log(-np.log(uniform))
    return found


def masses(weights: Array) -> Array:
    """Return exp(weights), of weights that are 0 at most, in units of 2^-40 (int64).

    Their sums are the same in any order, over any part of a row.
    """
    found: Array = np.rint(np.exp(weights.astype(np.float64)) * MASS_UNITS).astype(np.int64)
    return found


def values_of(row: Any) -> Array:
    """Return one row of logits, an array or a tensor on any device, as an array of f32."""
    if isinstance(row, np.ndarray):
        return row.astype(np.float32, copy=False)
    found: Array = row.detach().float().cpu().numpy()
    return found


def warp(logits: Any, request: Request) -> tuple[Array, Array]:
    """Apply temperature, min-p, top-k and top-p, in this order, in f32, to one row [vocabulary].

    Returns ids and log-weights of the surviving tokens. Ties at top-k survive; top-p drops a token
    when the tokens before it already have more than p; the best token always survives.
    """
    scaled = values_of(logits) / np.float32(request.temperature)
    best = scaled.max()
    least = min(-math.log(request.min_p), NEGLIGIBLE) if request.min_p else NEGLIGIBLE
    alive = scaled >= best - np.float32(least)
    if 0 < request.top_k < len(scaled):
        alive &= scaled >= largest_values(scaled, request.top_k)
    ids = np.flatnonzero(alive)
    weights = scaled[ids] - best
    if request.top_p < 1:
        likely = nucleus(weights, request.top_p)
        ids, weights = ids[likely], weights[likely]
    return ids, weights


def largest_values(values: Array, count: int) -> Any:
    """Return the `count`-th largest of the values, of which there are at least as many."""
    return np.partition(values, len(values) - count)[len(values) - count]


def nucleus(weights: Array, top_p: float) -> Array:
    """Return the places, ascending, of those log-weights that top-p keeps.

    Where the likeliest ones have more than `top_p` already, the others are not sorted.
    """
    mass = masses(weights)
    limit = top_p * float(mass.sum())
    some = np.arange(len(mass))
    if len(weights) > CANDIDATES:
        likelier = weights > largest_values(weights, CANDIDATES)
        if float(mass[likelier].sum()) > limit:
            some = some[likelier]
    order = some[np.argsort(-weights[some], kind="stable")]
    before = np.cumsum(mass[order]) - mass[order]
    return np.sort(order[before <= limit])


def choose(logits: Any, position: int, request: Request) -> int:
    """Return the model's own token at absolute `position`, given its logits [vocabulary].

    They are an array or a tensor. Greedy: the largest logit, the lowest id on ties. ValueError
    where the logits are not finite.
    """
    row = values_of(logits)
    best = int(row.argmax())  # a NaN's where there is one
    if not np.isfinite(row[best]):
        raise ValueError(NO_NUMBERS)
    if request.temperature == 0:
        return best
    ids, weights = warp(row, request)
    return int(ids[(weights + gumbel(request.seed, position, ids)).argmax()])


def accept(draft: Draft, choice: Callable[[int, int], int]) -> tuple[list[int], int]:
    """Walk `draft` from its root as far as the model agrees.

    Returns the accepted path (node indices) and the model's token after it.

    `choice(row, depth)` is the model's token after a row (0: the last committed token, otherwise
    node + 1); it is called along the path only.
    """
    path: list[int] = []
    at, token = -1, choice(0, 0)
    for node, parent in enumerate(draft.parents):  # children come after their parents
        if parent == at and draft.tokens[node] == token:
            path.append(node)
            at, token = node, choice(node + 1, len(path))
    return path, token


def agreed(draft: Draft, rows: list[int]) -> tuple[list[int], int]:
    """Accept where the model's token after every row is known already.

    -1 means that the logits were not finite: an error only on the path (ValueError).
    """

    path: list[int] = []
    at, token = -1, rows[0]
    tokens = draft.tokens
    for node, parent in enumerate(draft.parents):
        if parent == at and tokens[node] == token:
            path.append(node)
            at, token = node, rows[node + 1]
    if token < 0:  # no node has it, so the path ends there
        raise ValueError(NO_NUMBERS)
    return path, token


def matching(request: Request) -> Verdict:
    """Return the rule that accepts exactly the tokens that the model would have written."""

    def judge(draft: Draft, logits: Any, position: int) -> tuple[list[int], int]:
        return accept(draft, lambda row, depth: choose(logits[row], position + depth, request))

    return judge


def cut(tokens: list[int], eos: frozenset[int], capacity: int) -> tuple[list[int], str | None]:
    """Cut the new tokens at the first end token (excluded), and after at most `capacity`.

    Returns them and the reason to end: "eos", "length", or None to go on.
    """
    if len(tokens) < capacity and eos.isdisjoint(tokens):
        return tokens, None
    for count, token in enumerate(tokens):
        if count == capacity:
            return tokens[:count], "length"
        if token in eos:
            return tokens[:count], "eos"
    return tokens, "length" if len(tokens) == capacity else None
