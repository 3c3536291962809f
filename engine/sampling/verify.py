"""Choosing tokens, and accepting a draft as far as the model agrees with it.

Sampling uses the Gumbel-max trick with keyed noise: the token at absolute position i is the argmax
of the warped log-probability plus Gumbel noise of (seed, i, token id). So with one seed the text is
the same with any draft or none. `engine.sampling.rejection_sampling` is the alternative that only
keeps the distribution. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.records import Draft, Request

if TYPE_CHECKING:
    from torch import Tensor

# (draft, logits [1 + nodes, vocabulary], position of row 0) -> (accepted path, token after it)
Verdict = Callable[[Draft, "Tensor", int], tuple[list[int], int]]
NEGLIGIBLE = 30.0  # logits this far below the best (e^-30) are dropped
CANDIDATES = 1024  # tokens of a row that are looked at first
MASS_UNITS = float(1 << 40)  # of the best token: four million such masses still fit an int64
NO_NUMBERS = "the model gave logits that are not numbers: try another dtype"
_MIX1, _MIX2, GOLDEN = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x9E3779B97F4A7C15


def signed(value: int) -> int:
    """A 64-bit pattern as the signed integer of torch's int64."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def mix(x: int) -> int:
    """SplitMix64's finalizer on one Python integer."""
    x &= (1 << 64) - 1
    x = ((x ^ (x >> 30)) * _MIX1) & ((1 << 64) - 1)
    x = ((x ^ (x >> 27)) * _MIX2) & ((1 << 64) - 1)
    return x ^ (x >> 31)


def mixed(x: Tensor) -> Tensor:
    """`mix` on int64 tensors; their shifts are arithmetic, so the copies of the sign are masked."""
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * signed(_MIX1)
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * signed(_MIX2)
    return x ^ ((x >> 31) & ((1 << 33) - 1))


def gumbel(seed: int, position: int, ids: Tensor) -> Tensor:
    """Gumbel noise (f64) of each token id at one position, from a counter-based integer hash: the
    same on every device."""
    import torch

    key = mix(mix(seed + GOLDEN) + position * GOLDEN)
    hashed = mixed(ids.to(torch.int64) * signed(GOLDEN) + signed(key))
    uniform = (((hashed >> 11) & ((1 << 53) - 1)).to(torch.float64) + 0.5) * 2.0**-53
    return -(-uniform.log()).log()


def masses(weights: Tensor) -> Tensor:
    """exp(weights), which are 0 at most, in units of 2^-40 (int64): their sums are the same in any
    order, over any part of a row."""
    return (weights.double().exp() * MASS_UNITS).round().long()


def warp(logits: Tensor, request: Request) -> tuple[Tensor, Tensor]:
    """Apply temperature, top-k and top-p, in this order, in f32, to one row [vocabulary]: ids and
    log-weights of the surviving tokens. Ties at top-k are kept; top-p drops a token when the
    tokens before it already have more than p; the best token always survives."""
    scaled = logits.float() / request.temperature
    best = scaled.max()
    alive = scaled >= best - NEGLIGIBLE
    if 0 < request.top_k < len(scaled):
        alive &= scaled >= scaled.topk(request.top_k).values[-1]
    ids = alive.nonzero()[:, 0]
    weights = scaled[ids] - best
    if request.top_p < 1:
        kept = nucleus(weights, request.top_p)
        ids, weights = ids[kept], weights[kept]
    return ids, weights


def nucleus(weights: Tensor, top_p: float) -> Tensor:
    """The places, ascending, of those log-weights that top-p keeps. Where the likeliest ones have
    more than `top_p` already, the others are not sorted."""
    import torch

    mass = masses(weights)
    limit = top_p * mass.sum().double()
    some = torch.arange(len(mass), device=mass.device)
    if len(weights) > CANDIDATES:
        likelier = weights > weights.topk(CANDIDATES).values[-1]
        if bool(mass[likelier].sum().double() > limit):
            some = some[likelier]
    order = some[weights[some].sort(descending=True, stable=True).indices]
    before = mass[order].cumsum(0) - mass[order]
    return order[before.double() <= limit].sort().values


def largest(logits: Tensor) -> int:
    """The index of the largest logit [vocabulary], the lowest on ties; of a NaN where there is one.
    On the CPU numpy finds it in a tenth of torch's time."""
    return int(logits.numpy().argmax() if logits.device.type == "cpu" else logits.argmax())


def choose(logits: Tensor, position: int, request: Request) -> int:
    """The model's own token at absolute `position`, given its logits [vocabulary]. Greedy: the
    largest logit, the lowest id on ties. ValueError where the logits are not finite."""
    best = largest(logits)
    if not bool(logits[best].isfinite()):
        raise ValueError(NO_NUMBERS)
    if request.temperature == 0:
        return best
    ids, weights = warp(logits, request)
    return int(ids[(weights.double() + gumbel(request.seed, position, ids)).argmax()])


def accept(draft: Draft, choice: Callable[[int, int], int]) -> tuple[list[int], int]:
    """Walk `draft` from its root as far as the model agrees: the accepted path (node indices) and
    the model's token after it.

    `choice(row, depth)` is the model's token after a row (0: the last committed token, otherwise
    node + 1); it is called along the path only."""
    path: list[int] = []
    at, token = -1, choice(0, 0)
    for node, parent in enumerate(draft.parents):  # children come after their parents
        if parent == at and draft.tokens[node] == token:
            path.append(node)
            at, token = node, choice(node + 1, len(path))
    return path, token


def agreed(draft: Draft, rows: list[int]) -> tuple[list[int], int]:
    """`accept` where the model's token after every row is known already. -1 means that the logits
    were not finite: an error only on the path (ValueError)."""

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
    """The rule that accepts exactly the tokens that the model would have written."""

    def judge(draft: Draft, logits: Tensor, position: int) -> tuple[list[int], int]:
        return accept(draft, lambda row, depth: choose(logits[row], position + depth, request))

    return judge


def cut(tokens: list[int], eos: frozenset[int], room: int) -> tuple[list[int], str | None]:
    """The new tokens up to the first end token (excluded), at most `room`; and the reason to end:
    "eos", "length", or None to go on."""
    if len(tokens) < room and eos.isdisjoint(tokens):
        return tokens, None
    for count, token in enumerate(tokens):
        if count == room:
            return tokens[:count], "length"
        if token in eos:
            return tokens[:count], "eos"
    return tokens, "length" if len(tokens) == room else None
