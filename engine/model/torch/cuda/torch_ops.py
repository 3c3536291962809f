"""Norms, rotation, attention and activation of a static pass in plain torch.

This is the reference for `engine.model.torch.cuda.triton_ops`, used on a CPU and until Triton's
kernels are compiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.model.torch.cuda.static_pass import TOP
from engine.model.torch.ops import Rows, fused_attention
from engine.model.torch.ops import attend as attend_here

LAST_ID = (1 << 31) - 1
NO_KEY = -0x7F800001 << 32  # a key below all others: the order of minus infinity, and no id

if TYPE_CHECKING:
    from engine.model.torch.cuda.static_pass import AttentionShape, StaticPass


def add_norm(x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Compute x + delta and its RMS norm, both [rows, width]."""
    x = x if delta is None else x + delta
    return x, F.rms_norm(x.float(), (x.shape[-1],), weight, eps).to(x.dtype)


def gate(both: Tensor) -> Tensor:
    """Compute silu(first half) * second half of [rows, 2 * inner]."""
    first, second = both.chunk(2, -1)
    return F.silu(first) * second


def rotate(
    model: AttentionShape, n: int, norms: Tensor | None, qkv: Tensor, now: StaticPass
) -> Tensor:
    """Rotate q, [rows, heads, head dim], and write k and v to the cache."""
    rows, heads, both = len(qkv), model.heads, model.heads + model.kv_heads
    split = qkv.float().view(rows, both + model.kv_heads, model.head_dim)
    qk = split[:, :both]
    if norms is not None:
        parts = zip((qk[:, :heads], qk[:, heads:]), norms, strict=True)
        d = (model.head_dim,)
        qk = torch.cat([F.rms_norm(part, d, weight, model.eps) for part, weight in parts], 1)
    if model.rotary[n]:
        pairs = torch.view_as_complex(qk.reshape(rows, both, -1, 2))
        qk = torch.view_as_real(pairs * model.turning(now.positions)).flatten(-2)
    real = slice(now.base, now.base + now.count)
    now.keys[n, :, real] = qk[: now.count, heads:].transpose(0, 1)
    now.values[n, :, real] = split[: now.count, both:].transpose(0, 1)
    return qk[:, :heads].to(now.keys.dtype)


def attend(model: AttentionShape, n: int, q: Tensor, now: StaticPass) -> Tensor:
    """Attend over the committed and new rows of the cache: [rows, heads * head dim].

    Padding rows are zeros on a CPU.
    """
    keys, values = now.keys[n], now.values[n]
    if q.device.type == "cpu":
        rows = Rows(now.base, now.parents, now.positions[: now.count])
        mixed = torch.zeros(len(q), q.shape[1] * q.shape[2])
        mixed[: now.count] = attend_here(q[: now.count], keys, values, rows, model.scale)
        return mixed.to(model.dtype)
    stop = now.base + now.count
    return fused_attention(q, keys[:, :stop], values[:, :stop], now.mask(q.device), model.scale)


def top(logits: Tensor) -> Tensor:
    """Compute `PassOutput.top` of logits [rows, vocabulary]."""
    rows, count = logits.shape[0], min(TOP, logits.shape[1])
    wide = logits.float()
    wide = torch.where(wide.isnan(), torch.inf, wide) + 0.0  # 0 and -0 are equal
    ids = torch.arange(logits.shape[1], device=logits.device)
    keys = (ordered(wide.view(torch.int32)).long() << 32) | (LAST_ID - ids)
    found = torch.full((rows, TOP), NO_KEY, device=logits.device)
    found[:, :count] = keys.topk(count).values
    bits = ordered((found >> 32).int())
    chosen = torch.where(found == NO_KEY, -1, LAST_ID - (found & LAST_ID)).int()
    best = torch.where(bits[:, 0].view(torch.float32).isfinite(), chosen[:, 0], -1)
    return torch.cat([best, chosen.flatten(), bits.flatten()])


def ordered(bits: Tensor) -> Tensor:
    """Map the bits (int32) of f32 numbers to integers of the same order, and back."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)
