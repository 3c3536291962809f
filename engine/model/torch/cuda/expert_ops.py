"""A mixture of experts on a CUDA card in five kernels (Triton), whatever the router chooses.

The chosen (row, expert) pairs are sorted by expert on the card, so that no pass waits for it and
each weight is read once. Tiles depend on the matrices alone, and a row adds up its experts in the
order of their logits: its bits do not depend on the rows next to it. What is computed is said in
plain torch by `engine.model.torch.cuda.feed_forward`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.model.model_config import CLAMPED_SWIGLU, GELU, Experts
from engine.model.torch.cuda.current_card import current
from engine.model.torch.cuda.launching import overlap, wait_for_inputs

if TYPE_CHECKING:
    from engine.model.torch.cuda.weights import ExpertWeights

PAIR_ROWS = 16  # pairs of an expert in a tile; more of them take further tiles
SORTED = 64  # pairs that a program finds the places of
COMPARED = 128  # pairs that they are compared with at a time
MIXED = 1024  # columns of a program that adds up a row's experts
# BLOCK_N, BLOCK_K and stages of a product, by the bytes of a number
GATED_TILES = {2: (32, 128, 3), 4: (32, 64, 2)}
DOWN_TILES = {2: (32, 128, 4), 4: (32, 64, 2)}


@triton.jit
def _route(
    logits, scales, meta, choice, shares,
    E: tl.constexpr, CHOSEN: tl.constexpr, NORMALISED: tl.constexpr, SCALED: tl.constexpr,
    BLOCK: tl.constexpr, SLOTS: tl.constexpr, OVERLAP: tl.constexpr = False,
):  # fmt: skip
    """Choose a row's experts, those of the largest logits; a padding row gets E, which is none."""
    wait_for_inputs(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    slot = tl.arange(0, SLOTS)
    value = tl.load(logits + row * E + at, mask=at < E, other=float("-inf")).to(tl.float32)
    value = tl.where(value != value, float("inf"), value)
    size = tl.exp(value - tl.max(value, 0))
    total = tl.sum(size, 0)
    experts = tl.zeros([SLOTS], tl.int32)
    sizes = tl.zeros([SLOTS], tl.float32)
    for n in range(CHOSEN):
        best = tl.min(tl.where(value == tl.max(value, 0), at, E - 1), 0)
        experts = tl.where(slot == n, best, experts)
        sizes = tl.where(slot == n, tl.sum(tl.where(at == best, size, 0.0), 0), sizes)
        value = tl.where(at == best, float("-inf"), value)
    if NORMALISED:
        total = tl.sum(sizes, 0)
    share = sizes / total
    if SCALED:
        share = share * tl.load(scales + experts)
    real = row < tl.load(meta + 4)
    to = row * CHOSEN + slot
    tl.store(choice + to, tl.where(real, experts, E), mask=slot < CHOSEN)
    tl.store(shares + to, share, mask=slot < CHOSEN)


@triton.jit(do_not_specialize=["pairs"])
def _sort(
    choice, starts, order, pairs,
    E: tl.constexpr, BLOCK: tl.constexpr, COMPARED: tl.constexpr, OVERLAP: tl.constexpr = False,
):  # fmt: skip
    """Sort pairs by expert, and find where each expert's begin: count what is before a place."""
    wait_for_inputs(OVERLAP)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # E + 2 starts, then the pairs
    pair = at - (E + 2)
    real = (pair >= 0) & (pair < pairs)
    expert = tl.where(pair < 0, at, tl.load(choice + pair, mask=real, other=0))
    key = expert * pairs + tl.maximum(pair, 0)
    before = tl.zeros([BLOCK], tl.int32)
    for first in range(0, pairs, COMPARED):
        other = first + tl.arange(0, COMPARED)
        keys = tl.load(choice + other, mask=other < pairs, other=E + 2) * pairs + other
        before += tl.sum((keys[None, :] < key[:, None]).to(tl.int32), 1)
    tl.store(starts + at, before, mask=pair < 0)
    tl.store(order + before, pair, mask=real)


@triton.jit
def _expert_product(
    x, weight, bias, choice, starts, order, out, alpha, limit,
    E: tl.constexpr, CHOSEN: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    GATED: tl.constexpr, ACTIVATION: tl.constexpr, BIAS: tl.constexpr, BY_EXPERT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
    OVERLAP: tl.constexpr = False,
):  # fmt: skip
    """Multiply one expert's rows with BLOCK_N columns of its matrix.

    GATED: with gates and ups, x by row, out sorted by expert and activated. Else x sorted and out
    by pair. BY_EXPERT: a program belongs to an expert, else to a place among the sorted pairs, and
    the first place of an expert does the work.
    """
    wait_for_inputs(OVERLAP)
    ROWS: tl.constexpr = 2 * N if GATED else N
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    there = column < N
    expert = tl.program_id(1)
    if BY_EXPERT:
        begin = tl.load(starts + expert)
        end = tl.load(starts + expert + 1)
    else:
        expert = tl.load(choice + tl.load(order + expert))
        begin = tl.load(starts + expert)
        end = tl.load(starts + expert + 1)
        end = tl.where((begin == tl.program_id(1)) & (expert < E), end, begin)
    matrix = weight + expert.to(tl.int64) * (ROWS * K)
    for first in range(begin, end, BLOCK_M):
        place = first + tl.arange(0, BLOCK_M)
        real = place < end
        pair = tl.load(order + place, mask=real, other=0)
        if GATED:
            row, to = pair // CHOSEN, place
        else:
            row, to = place, pair
        row, to = row.to(tl.int64), to.to(tl.int64)
        sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        ups = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for start in range(0, K, BLOCK_K):
            at = start + tl.arange(0, BLOCK_K)
            inside = at < K
            a = tl.load(
                x + row[:, None] * K + at[None, :], mask=real[:, None] & inside[None, :], other=0.0
            )
            columns = matrix + column[None, :] * K + at[:, None]
            b = tl.load(columns, mask=there[None, :] & inside[:, None], other=0.0)
            sums = tl.dot(a, b, sums, input_precision=PRECISION)
            if GATED:
                b = tl.load(columns + N * K, mask=there[None, :] & inside[:, None], other=0.0)
                ups = tl.dot(a, b, ups, input_precision=PRECISION)
        if BIAS:
            added = bias + expert * ROWS + column
            sums += tl.load(added, mask=there, other=0.0)[None, :].to(tl.float32)
            if GATED:
                ups += tl.load(added + N, mask=there, other=0.0)[None, :].to(tl.float32)
        if GATED:
            if ACTIVATION == "gelu":
                inner = 0.7978845608028654 * (sums + 0.044715 * sums * sums * sums)
                sums = sums * tl.sigmoid(2.0 * inner) * ups
            elif ACTIVATION == "clamped_swiglu":
                sums = tl.minimum(sums, limit)
                ups = tl.minimum(tl.maximum(ups, -limit), limit)
                sums = (ups + 1.0) * sums * tl.sigmoid(alpha * sums)
            else:
                sums = sums * tl.sigmoid(sums) * ups
        at_out = out + to[:, None] * N + column[None, :]
        tl.store(at_out, sums.to(out.dtype.element_ty), mask=real[:, None] & there[None, :])


@triton.jit
def _mix(
    y, shares, meta, out, WIDTH: tl.constexpr, CHOSEN: tl.constexpr, BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr = False,
):  # fmt: skip
    """Add up the outputs of a row's experts by their shares; a padding row gets zeros."""
    wait_for_inputs(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    live = at < tl.where(row < tl.load(meta + 4), WIDTH, 0)
    sums = tl.zeros([BLOCK], tl.float32)
    for n in range(CHOSEN):
        pair = row * CHOSEN + n
        found = tl.load(y + pair * WIDTH + at, mask=live, other=0.0).to(tl.float32)
        sums += found * tl.load(shares + pair)
    sums = tl.where(live, sums, 0.0)
    tl.store(out + row * WIDTH + at, sums.to(out.dtype.element_ty), mask=at < WIDTH)


# -- what a pass calls -----------------------------------------------------------------------------


def run_experts(
    spec: Experts,
    gate_up: ExpertWeights,
    down: ExpertWeights,
    logits: Tensor,
    h: Tensor,
    scales: Tensor | None,
    meta: Tensor,
) -> Tensor:
    """Run on h [rows, width] the experts of the largest `logits` [rows, experts] of each row.

    `scales`: a factor of each expert, f32 [experts]. `meta`: of the pass, for its real rows.
    """
    rows, chosen = len(h), spec.chosen
    choice = torch.empty(rows, chosen, dtype=torch.int32, device=h.device)
    shares = torch.empty(rows, chosen, dtype=torch.float32, device=h.device)
    with current(h.device):
        _route[(rows,)](
            logits.contiguous(), shares if scales is None else scales, meta, choice, shares,
            E=spec.count, CHOSEN=chosen, NORMALISED=spec.normalised, SCALED=scales is not None,
            BLOCK=triton.next_power_of_2(spec.count), SLOTS=triton.next_power_of_2(chosen),
            num_warps=1, **overlap(),
        )  # fmt: skip
        starts, order = sort(choice, spec.count)
        gated = product_of(spec, gate_up, True, h.contiguous(), choice, starts, order)
        y = product_of(spec, down, False, gated, choice, starts, order)
        out = torch.empty_like(h)
        width = h.shape[1]
        _mix[(rows, triton.cdiv(width, MIXED))](
            y, shares, meta, out, WIDTH=width, CHOSEN=chosen, BLOCK=MIXED, **overlap()
        )
    return out


def sort(choice: Tensor, experts: int) -> tuple[Tensor, Tensor]:
    """Sort the pairs of `choice` [rows, chosen] by expert.

    Returns where each expert's begin, int32 [experts + 2], and the pairs in their order.
    """
    pairs = choice.numel()
    starts = torch.empty(experts + 2, dtype=torch.int32, device=choice.device)
    order = torch.empty(pairs, dtype=torch.int32, device=choice.device)
    _sort[(triton.cdiv(experts + 2 + pairs, SORTED),)](
        choice, starts, order, pairs, E=experts, BLOCK=SORTED, COMPARED=COMPARED, **overlap()
    )
    return starts, order


def product_of(
    spec: Experts,
    of: ExpertWeights,
    gated: bool,
    x: Tensor,
    choice: Tensor,
    starts: Tensor,
    order: Tensor,
) -> Tensor:
    """Multiply every pair with its expert's matrix: [pairs, columns], as `_expert_product` says."""
    pairs, inner = len(order), x.shape[1]
    columns = of.weight.shape[1] // 2 if gated else of.weight.shape[1]
    n, k, stages = (GATED_TILES if gated else DOWN_TILES)[x.element_size()]
    out = torch.empty(pairs, columns, dtype=x.dtype, device=x.device)
    kind = spec.activation if spec.activation in (GELU, CLAMPED_SWIGLU) else ""
    _expert_product[(triton.cdiv(columns, n), min(pairs, spec.count))](
        x, of.weight, of.weight if of.bias is None else of.bias, choice, starts, order, out,
        float(spec.alpha), float(spec.limit), E=spec.count, CHOSEN=spec.chosen, N=columns, K=inner,
        GATED=gated, ACTIVATION=kind, BIAS=of.bias is not None, BY_EXPERT=pairs >= spec.count,
        BLOCK_M=PAIR_ROWS, BLOCK_N=n, BLOCK_K=k, PRECISION="ieee", num_warps=4, num_stages=stages,
        **overlap(),
    )  # fmt: skip
    return out
