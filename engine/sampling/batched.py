"""Sampling the model's token after every row of a pass at once, on the device.

Equal to `engine.sampling.verify.choose` row by row, without synchronising with the device. Sums of
probabilities are in f64, so that they do not depend on the number of rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.records import Request
from engine.sampling.verify import GOLDEN, NEGLIGIBLE, mix, mixed, signed

MAX_ROWS = 16  # at a time: intermediate results take 40 bytes per row and token id


def drawn(logits: Tensor, positions: Tensor, request: Request, max_rows: int = MAX_ROWS) -> Tensor:
    """The sampled token of each row [rows, vocabulary] at its absolute position. `max_rows`: rows
    computed at a time."""
    starts = range(0, len(logits), max_rows)
    parts = [(logits[n : n + max_rows], positions[n : n + max_rows]) for n in starts]
    return torch.cat([_drawn(some.float(), at, request) for some, at in parts])


def _drawn(logits: Tensor, positions: Tensor, request: Request) -> Tensor:
    scaled = logits / request.temperature
    top = scaled.amax(-1, keepdim=True)
    alive = scaled >= top - NEGLIGIBLE
    if 0 < request.top_k < scaled.shape[-1]:
        alive &= scaled >= scaled.topk(request.top_k).values[:, -1:]
    weights = (scaled - top).masked_fill(~alive, float("-inf"))
    if request.top_p < 1:
        ordered, order = weights.sort(dim=-1, descending=True, stable=True)
        chances = ordered.double().softmax(-1)
        keep = chances.cumsum(-1) - chances <= request.top_p
        keep[:, 0] = True
        kept = torch.zeros_like(keep).scatter_(-1, order, keep)
        weights = weights.masked_fill(~kept, float("-inf"))
    ids = torch.arange(weights.shape[-1], device=weights.device)
    token = (weights.double() + noise(request.seed, positions, ids)).argmax(-1)
    return token.masked_fill(~top[:, 0].isfinite(), -1)


def noise(seed: int, positions: Tensor, ids: Tensor) -> Tensor:
    """`engine.sampling.verify.gumbel` of every token id at every position: f64 [positions, ids]."""
    key = mixed(positions * signed(GOLDEN) + signed(mix(seed + GOLDEN)))
    hashed = mixed(ids * signed(GOLDEN) + key[:, None])
    uniform = (((hashed >> 11) & ((1 << 53) - 1)).to(torch.float64) + 0.5) * 2.0**-53
    return -(-uniform.log()).log()
