"""The small steps of a pass on a CUDA card, each in one kernel (Triton).

Where a cache lies, how long it is and how many rows are real is read from device memory
(`StaticPass.meta`), so one captured graph serves every sequence. With `exact`, a row's sums run
over the places of its own text, whatever rows stand next to it: a row gets the same bits in every
pass. The same functions in plain torch, which say what is meant, are in
`engine.model.torch.cuda.torch_ops`; here is nothing that they do not have. Matrix products are in
`engine.model.torch.cuda.products`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.model.torch.cuda.launching import overlap, wait_for_inputs
from engine.model.torch.cuda.static_pass import TOP
from engine.model.torch.cuda.triton_attention import TYPES
from engine.model.torch.cuda.triton_attention import attend as attend  # a step, too

if TYPE_CHECKING:
    from engine.model.torch.cuda.static_pass import AttentionShape, HeadSizes, StaticPass

LOGITS = 4096  # logits at a time


@triton.jit
def _add_norm(
    x, delta, weight, kept, out, eps,
    ADD: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, OVERLAP: tl.constexpr = False,
):  # fmt: skip
    wait_for_inputs(OVERLAP)
    row = tl.program_id(0).to(tl.int64) * WIDTH
    at = tl.arange(0, BLOCK)
    live = at < WIDTH
    value = tl.load(x + row + at, mask=live, other=0.0)
    if ADD:
        added = value.to(tl.float32) + tl.load(delta + row + at, mask=live, other=0.0)
        value = added.to(value.dtype)
        tl.store(kept + row + at, value, mask=live)
    wide = value.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(wide * wide, 0) / WIDTH + eps)
    normed = wide * scale * tl.load(weight + at, mask=live, other=0.0)
    tl.store(out + row + at, normed.to(value.dtype), mask=live)


@triton.jit
def _gate(
    both, out, INNER: tl.constexpr, BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr = False,
):  # fmt: skip
    wait_for_inputs(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    live = at < INNER
    gate = tl.load(both + row * 2 * INNER + at, mask=live, other=0.0)
    up = tl.load(both + row * 2 * INNER + INNER + at, mask=live, other=0.0)
    wide = gate.to(tl.float32)
    opened = (wide / (1.0 + tl.exp(-wide))).to(gate.dtype)  # rounded where plain torch rounds
    tl.store(out + row * INNER + at, opened * up, mask=live)


@triton.jit(do_not_specialize=["layer"])
def _turn(
    qkv, phases, norms, positions, meta, q, layer, eps,
    NORM: tl.constexpr, HEADS: tl.constexpr, KV: tl.constexpr, D: tl.constexpr,
    HALF: tl.constexpr, TYPE: tl.constexpr, PAIRS: tl.constexpr, ADDRESSES: tl.constexpr,
    OVERLAP: tl.constexpr = False,
):  # fmt: skip
    """Turn one head of one row: q to its output, k, turned too, and v into the cache."""
    wait_for_inputs(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    pair = tl.arange(0, HALF)
    live = pair < D // 2
    start = qkv + (row * (HEADS + 2 * KV) + head) * D + 2 * pair
    a = tl.load(start, mask=live, other=0.0).to(tl.float32)
    b = tl.load(start + 1, mask=live, other=0.0).to(tl.float32)
    if head < HEADS + KV:
        if NORM:
            scale = 1.0 / tl.sqrt((tl.sum(a * a, 0) + tl.sum(b * b, 0)) / D + eps)
            weight = norms + (head >= HEADS).to(tl.int32) * D + 2 * pair
            a = a * scale * tl.load(weight, mask=live, other=0.0)
            b = b * scale * tl.load(weight + 1, mask=live, other=0.0)
        phase = phases + tl.load(positions + row) * (2 * PAIRS) + 2 * pair
        real = tl.load(phase, mask=pair < PAIRS, other=1.0)
        imaginary = tl.load(phase + 1, mask=pair < PAIRS, other=0.0)
        turned = a * real - b * imaginary
        b = a * imaginary + b * real
        a = turned
    if head < HEADS:
        to = q + (row * HEADS + head) * D + 2 * pair
        tl.store(to, a.to(TYPE), mask=live)
        tl.store(to + 1, b.to(TYPE), mask=live)
    else:
        real_row = pair < tl.where(row < tl.load(meta + 4), D // 2, 0)
        cache = tl.load(meta + ADDRESSES + (head - HEADS) // KV).to(tl.pointer_type(TYPE))
        place = (layer.to(tl.int64) * KV + (head - HEADS) % KV) * tl.load(meta + 2)
        to = cache + (place + tl.load(meta + 3) + row) * D + 2 * pair
        tl.store(to, a.to(TYPE), mask=real_row)
        tl.store(to + 1, b.to(TYPE), mask=real_row)


@triton.jit
def _top_parts(
    logits, parts, N, BLOCK: tl.constexpr, TOP: tl.constexpr, PARTS: tl.constexpr,
    OVERLAP: tl.constexpr = False,
):  # fmt: skip
    """Find the TOP largest keys of BLOCK logits of a row: a logit's order above, its id below."""
    wait_for_inputs(OVERLAP)
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(logits + row * N + at, mask=at < N, other=0.0).to(tl.float32)
    value = tl.where(value != value, float("inf"), tl.where(value == 0.0, 0.0, value))
    bits = value.to(tl.int32, bitcast=True)
    order = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64)
    keys = tl.where(at < N, (order << 32) | (0x7FFFFFFF - at), -0x7F80000100000000)
    for n in range(TOP):
        best = tl.max(keys, 0)
        tl.store(parts + (row * PARTS + part) * TOP + n, best)
        keys = tl.where(keys == best, -0x7F80000100000000, keys)


@triton.jit
def _top_merged(
    parts, out, rows, BLOCK: tl.constexpr, TOP: tl.constexpr, PARTS: tl.constexpr,
    OVERLAP: tl.constexpr = False,
):  # fmt: skip
    """Write the TOP largest keys of a row as tokens and bits of logits."""
    wait_for_inputs(OVERLAP)
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    keys = tl.load(
        parts + row.to(tl.int64) * PARTS * TOP + at, mask=at < PARTS * TOP,
        other=-0x7F80000100000000,
    )  # fmt: skip
    for n in range(TOP):
        best = tl.max(keys, 0)
        none = best == -0x7F80000100000000
        order = (best >> 32).to(tl.int32)
        bits = order ^ ((order >> 31) & 0x7FFFFFFF)
        token = tl.where(none, -1, 0x7FFFFFFF - (best & 0x7FFFFFFF)).to(tl.int32)
        tl.store(out + rows + row * TOP + n, token)
        tl.store(out + rows * (1 + TOP) + row * TOP + n, bits)
        if n == 0:
            finite = (bits & 0x7F800000) != 0x7F800000
            tl.store(out + row, tl.where(finite, token, -1))
        keys = tl.where(keys == best, -0x7F80000100000000, keys)


# -- what a pass calls -----------------------------------------------------------------------------


def add_norm(x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Compute x + delta, and the same normed by root mean square: [rows, width]."""
    rows, width = x.shape
    kept, out = x if delta is None else torch.empty_like(x), torch.empty_like(x)
    block = triton.next_power_of_2(width)
    _add_norm[(rows,)](
        x, x if delta is None else delta, weight, kept, out, eps,
        ADD=delta is not None, WIDTH=width, BLOCK=block, num_warps=8 if block > 1024 else 4,
        **overlap(),
    )  # fmt: skip
    return kept, out


def gate(both: Tensor) -> Tensor:
    """Compute silu(first half) * second half of [rows, 2 * inner]."""
    rows, inner = both.shape[0], both.shape[1] // 2
    out = torch.empty(rows, inner, dtype=both.dtype, device=both.device)
    _gate[(rows, triton.cdiv(inner, 1024))](both, out, INNER=inner, BLOCK=1024, **overlap())
    return out


def rotate(
    model: AttentionShape, n: int, norms: Tensor | None, qkv: Tensor, now: StaticPass
) -> Tensor:
    """Turn q [rows, heads, d] by position, and write k and v to the cache."""
    phases, positions = model.phases, now.positions
    if not model.rotary[n]:
        phases, positions = torch.ones_like(phases[:1]), torch.zeros_like(positions)
    q = turned(model, n, norms, qkv, phases, positions, now.meta)
    if model.query_scales is not None and model.rotary[n]:
        q *= model.query_scales[now.positions, None, None]
    return q


def turned(
    heads: HeadSizes,
    n: int,
    norms: Tensor | None,
    qkv: Tensor,
    phases: Tensor,
    places: Tensor,
    meta: Tensor,
    addresses: int = 0,
) -> Tensor:
    """Turn q [rows, heads, d] and write k and v to layer `n` of the cache.

    `phases`: complex [places, pairs]; pairs of a head behind these are not turned. `places`: those
    of the rows, int64 [rows]. `addresses`: the place in `meta` of the cache's addresses.
    """
    rows, d = len(qkv), heads.head_dim
    q = torch.empty(rows, heads.heads, d, dtype=qkv.dtype, device=qkv.device)
    turns = torch.view_as_real(phases)
    _turn[(rows, heads.heads + 2 * heads.kv_heads)](
        qkv, turns, turns if norms is None else norms, places, meta, q, n, heads.eps,
        NORM=norms is not None, HEADS=heads.heads, KV=heads.kv_heads, D=d,
        HALF=triton.next_power_of_2(d // 2), TYPE=TYPES[qkv.dtype], PAIRS=phases.shape[1],
        ADDRESSES=addresses, num_warps=1, **overlap(),
    )  # fmt: skip
    return q


def top(logits: Tensor) -> Tensor:
    """Compute `PassOutput.top` of logits [rows, vocabulary]."""
    rows, count = logits.shape
    parts = triton.cdiv(count, LOGITS)
    keys = torch.empty(rows, parts, TOP, dtype=torch.int64, device=logits.device)
    _top_parts[(rows, parts)](
        logits, keys, count, BLOCK=LOGITS, TOP=TOP, PARTS=parts, num_warps=8, **overlap()
    )
    out = torch.empty(rows * (1 + 2 * TOP), dtype=torch.int32, device=logits.device)
    block = triton.next_power_of_2(parts * TOP)
    _top_merged[(rows,)](
        keys, out, rows, BLOCK=block, TOP=TOP, PARTS=parts, num_warps=2, **overlap()
    )
    return out
