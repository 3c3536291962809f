"""What the model would have written: choosing tokens, and walking a draft as far as it agrees.

Sampling is sample-and-match with keyed noise: the token at absolute position i is the argmax of
warped log-probability plus Gumbel noise of (seed, i, token id), so with one seed the text is the
same with any draft or none. Pure functions; the only state is the Request's own fields.
`engine.sampling.rejection_sampling` is the other way to verify.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.records import Draft, Request

if TYPE_CHECKING:
    from torch import Tensor

# (draft, logits [1 + nodes, vocabulary], the first's position) -> accepted path, the token after it
Verdict = Callable[[Draft, "Tensor", int], tuple[list[int], int]]
NEGLIGIBLE = 30.0  # logits this far below the best (e^-30) neither count for top-p nor can win
NO_NUMBERS = "the model gave logits that are not numbers: try another dtype"
_MIX1, _MIX2, GOLDEN = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x9E3779B97F4A7C15


def signed(value: int) -> int:
    """A 64-bit pattern as the signed integer that torch's int64 holds."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def mix(x: int) -> int:
    """SplitMix64's finalizer on one Python integer: the key of (seed, position)."""
    x &= (1 << 64) - 1
    x = ((x ^ (x >> 30)) * _MIX1) & ((1 << 64) - 1)
    x = ((x ^ (x >> 27)) * _MIX2) & ((1 << 64) - 1)
    return x ^ (x >> 31)


def mixed(x: Tensor) -> Tensor:
    """The same on int64 tensors, whose shifts are arithmetic: the sign's copies are masked off."""
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * signed(_MIX1)
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * signed(_MIX2)
    return x ^ ((x >> 31) & ((1 << 33) - 1))


def gumbel(seed: int, position: int, ids: Tensor) -> Tensor:
    """Gumbel noise (f64) of each token id at one position: a counter-based integer hash turned
    into a uniform of 53 bits, the same on every device."""
    import torch

    key = mix(mix(seed + GOLDEN) + position * GOLDEN)
    hashed = mixed(ids.to(torch.int64) * signed(GOLDEN) + signed(key))
    uniform = (((hashed >> 11) & ((1 << 53) - 1)).to(torch.float64) + 0.5) * 2.0**-53
    return -(-uniform.log()).log()


def warp(logits: Tensor, request: Request) -> tuple[Tensor, Tensor]:
    """(ids, log-weights) of the tokens of one row [vocabulary] that survive temperature, top-k
    and top-p, in this order, in f32. Ties at top-k are kept; top-p drops a token when the
    probability before it is already above p; the best token always stays."""

    scaled = logits.float() / request.temperature
    best = scaled.max()
    alive = scaled >= best - NEGLIGIBLE
    if 0 < request.top_k < len(scaled):
        alive &= scaled >= scaled.topk(request.top_k).values[-1]
    ids = alive.nonzero()[:, 0]
    weights = scaled[ids] - best
    if request.top_p < 1:
        weights, order = weights.sort(descending=True, stable=True)
        probs = weights.softmax(0)
        before = probs.cumsum(0) - probs
        keep = before <= request.top_p
        keep[0] = True
        ids, weights = ids[order[keep]], weights[keep]
        ids, order = ids.sort()
        weights = weights[order]
    return ids, weights


def choose(logits: Tensor, position: int, request: Request) -> int:
    """The model's own token at absolute `position`, from its logits [vocabulary] there.

    Greedy: the largest logit, the lowest id on ties."""
    best = int(logits.argmax())
    if not bool(logits[best].isfinite()):
        raise ValueError(NO_NUMBERS)
    if request.temperature == 0:
        return best
    ids, weights = warp(logits, request)
    return int(ids[(weights.double() + gumbel(request.seed, position, ids)).argmax()])


def accept(draft: Draft, choice: Callable[[int, int], int]) -> tuple[list[int], int]:
    """Walk `draft` from its root as far as the model agrees.

    choice(row, depth) is the model's token after that row (0: the last committed token, node + 1
    otherwise), asked only along the path. Returns the path (node indices) and the token after it,
    which the draft did not have."""
    children: dict[tuple[int, int], int] = {}
    for node, (token, parent) in enumerate(zip(draft.tokens, draft.parents, strict=True)):
        children.setdefault((parent, token), node)
    path: list[int] = []
    at = -1
    while True:
        token = choice(at + 1, len(path))
        child = children.get((at, token))
        if child is None:
            return path, token
        path.append(child)
        at = child


def agreed(draft: Draft, rows: list[int]) -> tuple[list[int], int]:
    """The same, where the model's token after every row was chosen already; -1: its logits were no
    numbers, which is an error on the path alone."""

    def choice(row: int, depth: int) -> int:
        if rows[row] < 0:
            raise ValueError(NO_NUMBERS)
        return rows[row]

    return accept(draft, choice)


def matching(request: Request) -> Verdict:
    """The verdict by the model's own tokens: what it would have written is accepted."""

    def judge(draft: Draft, logits: Tensor, position: int) -> tuple[list[int], int]:
        return accept(draft, lambda row, depth: choose(logits[row], position + depth, request))

    return judge


def cut(tokens: list[int], eos: frozenset[int], room: int) -> tuple[list[int], str | None]:
    """Newly committed tokens up to the first end token (which is left out) and at most `room` of
    them; and why they end: "eos", "length", or None when nothing ends here."""
    for count, token in enumerate(tokens):
        if count == room:
            return tokens[:count], "length"
        if token in eos:
            return tokens[:count], "eos"
    return tokens, "length" if len(tokens) == room else None
