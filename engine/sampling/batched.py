"""Choosing the model's token after every row of a pass at once, on the device.

Equal to `engine.sampling.verify.choose` row by row, without synchronising with the device. Sums of
probabilities are of integers, so that they depend neither on the number of rows nor on how much of
a row is looked at.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from engine.records import Request
from engine.sampling.verify import (
    CANDIDATES,
    GOLDEN,
    MASS_UNITS,
    MIX1,
    MIX2,
    NEGLIGIBLE,
    NO_NUMBERS,
    mix,
)

MAX_ROWS = 16  # rows at a time; intermediate results take 40 bytes per row and token id
UNSURE = -2  # stands for a token; others than the candidates might be drawn


def best(logits: Tensor) -> Tensor:
    """Return the largest logit of every row, the lowest id on ties; -1 if it is not finite."""
    ids = logits.argmax(-1, keepdim=True)
    return ids.masked_fill(~logits.gather(-1, ids).isfinite(), -1)[:, 0]


def drawn(logits: Tensor, positions: Tensor, request: Request, max_rows: int = MAX_ROWS) -> Tensor:
    """Draw the sampled token of each row [rows, vocabulary] at its absolute position.

    -1 where logits are not finite. `max_rows`: rows computed at a time.
    """
    return _in_parts(_drawn, logits, positions, request, max_rows)


def has_candidates(request: Request) -> bool:
    """Return whether `drawn_early` may know the token: top-p or a small top-k leave few tokens."""
    return request.top_k < CANDIDATES and (request.top_k > 0 or request.top_p < 1)


def drawn_early(logits: Tensor, positions: Tensor, request: Request) -> Tensor:
    """Draw as `drawn` does, without sorting the vocabulary.

    For a request that `has_candidates`. UNSURE where tokens beyond the CANDIDATES likeliest might
    be drawn.
    """
    return _in_parts(_drawn_early, logits, positions, request, MAX_ROWS)


def choose_on_device(logits: Tensor, position: int, request: Request) -> tuple[int, float]:
    """Choose the token after one row [vocabulary], and return it with its probability.

    The same as `engine.sampling.verify.choose`. Both come from the device in one transfer.
    ValueError where the logits are not finite.
    """
    token, chance = _with_chance(logits[None], position, request, has_candidates(request))
    if token == UNSURE:
        token, chance = _with_chance(logits[None], position, request, early=False)
    if token < 0:
        raise ValueError(NO_NUMBERS)
    return int(token), chance


def _with_chance(row: Tensor, position: int, request: Request, early: bool) -> list[float]:
    """Return the token after a row [1, vocabulary], and its probability."""
    if request.temperature == 0:
        token = best(row)
    else:
        at = torch.full((1,), position, dtype=torch.int64, device=row.device)
        token = (drawn_early if early else drawn)(row, at, request)
    logit = row.gather(-1, token.clamp(min=0)[:, None])[:, 0]
    chance = (logit - row.logsumexp(-1)).exp()
    found: list[float] = torch.cat([token.double(), chance.double()]).tolist()
    return found


def _in_parts(
    draw: Callable[[Tensor, Tensor, Request], Tensor],
    logits: Tensor,
    positions: Tensor,
    request: Request,
    max_rows: int,
) -> Tensor:
    starts = range(0, len(logits), max_rows)
    parts = [(logits[n : n + max_rows], positions[n : n + max_rows]) for n in starts]
    return torch.cat([draw(some.float(), at, request) for some, at in parts])


def _drawn(logits: Tensor, positions: Tensor, request: Request) -> Tensor:
    scaled = _scaled(logits, request)
    top = scaled.amax(-1, keepdim=True)
    alive = scaled >= top - NEGLIGIBLE
    if 0 < request.top_k < scaled.shape[-1]:
        alive &= scaled >= scaled.topk(request.top_k).values[:, -1:]
    weights = (scaled - top).masked_fill(~alive, float("-inf"))
    if request.top_p < 1:
        ordered, order = weights.sort(dim=-1, descending=True, stable=True)
        mass = masses(ordered)
        keep = _before(mass) <= request.top_p * mass.sum(-1, keepdim=True).double()
        likely = torch.zeros_like(keep).scatter_(-1, order, keep)
        weights = weights.masked_fill(~likely, float("-inf"))
    ids = torch.arange(weights.shape[-1], device=weights.device)
    token = (weights.double() + noise(request.seed, positions, ids)).argmax(-1)
    return token.masked_fill(~top[:, 0].isfinite(), -1)


def _drawn_early(logits: Tensor, positions: Tensor, request: Request) -> Tensor:
    """Draw among the candidates, or return UNSURE.

    They are all tokens that are likelier than the last candidate, and some of those as likely:
    whoever survives must be among the former.
    """
    scaled = _scaled(logits, request)
    top = scaled.amax(-1, keepdim=True)
    count = min(CANDIDATES, scaled.shape[-1])
    ids = scaled.topk(count, sorted=False).indices.sort(-1).values
    ordered, order = scaled.gather(-1, ids).sort(dim=-1, descending=True, stable=True)
    ids = ids.gather(-1, order)
    least = top - NEGLIGIBLE
    if 0 < request.top_k <= count:
        least = torch.maximum(least, ordered[:, request.top_k - 1 : request.top_k])
    last = ordered[:, -1:]
    sure = last < least
    likely = ordered >= least
    if request.top_p < 1:
        mass = masses((ordered - top).masked_fill(~likely, float("-inf")))
        every = masses((scaled - top).masked_fill(scaled < least, float("-inf")))
        limit = request.top_p * every.sum(-1, keepdim=True).double()
        likelier = mass.masked_fill(ordered <= last, 0).sum(-1, keepdim=True)
        sure |= likelier.double() > limit
        likely &= _before(mass) <= limit
    if count == scaled.shape[-1]:
        sure = torch.ones_like(sure)
    weights = (ordered - top).masked_fill(~likely, float("-inf"))
    scores = weights.double() + noise(request.seed, positions, ids)
    equal = scores == scores.amax(-1, keepdim=True)
    token = ids.masked_fill(~equal, scaled.shape[-1]).amin(-1)
    token = token.masked_fill(~sure[:, 0], UNSURE)
    return token.masked_fill(~top[:, 0].isfinite(), -1)


def _scaled(logits: Tensor, request: Request) -> Tensor:
    """Divide by the temperature: by a tensor, as a card multiplies by a number's reciprocal."""
    return logits / torch.full((1,), request.temperature, device=logits.device)


def masses(weights: Tensor) -> Tensor:
    """`engine.sampling.verify.masses`."""
    return (weights.double().exp() * MASS_UNITS).round().long()


def _before(mass: Tensor) -> Tensor:
    """Return the mass before each token of an ordered row, f64."""
    return (mass.cumsum(-1) - mass).double()


def noise(seed: int, positions: Tensor, ids: Tensor) -> Tensor:
    """Return `engine.sampling.verify.gumbel` of token ids at every position: f64 [positions, ids].

    `ids`: the same for all positions [ids], or of each [positions, ids].
    """
    key = mixed(positions * signed(GOLDEN) + signed(mix(seed + GOLDEN)))
    hashed = mixed(ids * signed(GOLDEN) + key[:, None])
    uniform = (((hashed >> 11) & ((1 << 53) - 1)).to(torch.float64) + 0.5) * 2.0**-53
    return -(-uniform.log()).log()


def mixed(x: Tensor) -> Tensor:
    """Mix int64 bits as `engine.sampling.verify.mixed` does.

    Shifts of int64 are arithmetic: the copies of the sign are masked.
    """
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * signed(MIX1)
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * signed(MIX2)
    return x ^ ((x >> 31) & ((1 << 33) - 1))


def signed(value: int) -> int:
    """Return a 64-bit pattern as the signed integer of torch's int64."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value
