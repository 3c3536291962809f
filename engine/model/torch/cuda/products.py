"""Matrix products on a CUDA card in which a row keeps its bits, with weights of 16 to 4 bits.

Triton kernels. A sum runs over the inputs in an order that the matrix alone decides: in parts of
`part_inputs`, each from its first input to its last, and then over the parts. So a row gets the
same bits in every pass, whatever rows stand next to it, and whether programs share a sum (drafts,
where a card's processors would wait for memory otherwise) or not (prompts). Weights are the left
operand: those of few bits are widened in registers, and few rows make a narrow tile.

Two libraries have products with 4-bit weights, too:

* torch itself, which torchao (BSD, 0.18) goes through on a card: `aten::_weight_int4pack_mm` takes
  bf16 and groups of 32 to 256 inputs, runs in a captured graph and has tiles of 16 rows for any
  number of rows. But nothing unpacks its weights for the many rows of a prompt, where its tiles are
  slow; inputs come in multiples of 128, scales with zero points; and without a card it cannot be
  tested. torchao's other formats need a further package.
* gemlite (Apache-2.0, 0.6) chooses among kernels by the number of rows, some of which add the parts
  of a sum in the order in which they end, and tunes their tiles at the first call: a row does not
  keep its bits.

`python -m bench gpu --only products` times both against these kernels, and says which keep a row's
bits.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.model.torch.cuda.current_card import current
from engine.model.torch.cuda.launching import ASSEMBLY, overlap, shared_bytes, wait_for_inputs
from engine.model.torch.cuda.static_pass import MAX_ROWS
from engine.model.torch.cuda.weight_formats import (
    GROUP,
    LEVELS,
    by_channel,
    by_group,
    levels_of,
    unpaired,
)

FEW_ROWS = 16  # rows of the narrowest tile
LEAST_INPUTS = 768  # inputs of the shortest part of a sum
PART_STEP = 256  # inputs; a part's are a multiple, and so of those of every step
MOST_PARTS = 8  # parts of a sum
PROGRAMS, NARROW_PROGRAMS = 256, 448  # programs that keep a card's memory busy, by weights' width
COUNTERS = 4096  # tiles whose sums are shared at a time
WIDENED = 1 << 25  # weights; the levels of narrow ones are unpacked so many at a time


# -- levels to bf16 --------------------------------------------------------------------------------
# Two words of 16 bits at a time. 4 bits: 128 + the level, whose last bits it is, less 136. 8 bits:
# 128 + the lower seven, less 128 or, with the sign, 256. e4m3: its bits, moved to where bf16 has
# them, are the weight times 2^-120.

_FOUR = (
    "{{ .reg .b32 t, one, less; mov.b32 one, 0x3f803f80; mov.b32 less, 0xc308c308;"
    " shr.u32 t, $1, {shift}; lop3.b32 t, t, 0x000f000f, 0x43004300, 0xEA;"
    " fma.rn.bf16x2 $0, t, one, less; }}"
)
_EIGHT = (
    "{{ .reg .b32 w, t, s, minus; mov.b32 minus, 0xbf80bf80; shr.u32 w, $1, {shift};"
    " lop3.b32 t, w, 0x007f007f, 0x43004300, 0xEA; lop3.b32 s, w, 0x00800080, 0x43004300, 0xEA;"
    " fma.rn.bf16x2 $0, s, minus, t; }}"
)
_FP8 = (
    "{{ .reg .b32 t, s, up, zero; mov.b32 up, 0x7b807b80; mov.b32 zero, 0x80008000;"
    " {sign}; {rest}; and.b32 t, t, 0x07f007f0; lop3.b32 t, s, 0x80008000, t, 0xEA;"
    " fma.rn.bf16x2 $0, t, up, zero; }}"
)
FOUR_0, FOUR_1, FOUR_2, FOUR_3 = (tl.constexpr(_FOUR.format(shift=4 * n)) for n in range(4))
EIGHT_0, EIGHT_1 = (tl.constexpr(_EIGHT.format(shift=8 * n)) for n in range(2))
FP8_0 = tl.constexpr(_FP8.format(sign="shl.b32 s, $1, 8", rest="shl.b32 t, $1, 4"))
FP8_1 = tl.constexpr(_FP8.format(sign="mov.b32 s, $1", rest="shr.u32 t, $1, 4"))


@triton.jit
def _assembled(words, code: tl.constexpr):
    return tl.inline_asm_elementwise(code, "=r,r", [words], dtype=tl.bfloat16, is_pure=True, pack=2)


@triton.jit
def _levels(words, n: tl.constexpr, NARROW: tl.constexpr, ASSEMBLY: tl.constexpr):
    """Take level `n` of each word, as bf16."""
    if ASSEMBLY:
        if NARROW == "int4":
            level = _assembled(
                words, FOUR_0 if n == 0 else (FOUR_1 if n == 1 else (FOUR_2 if n == 2 else FOUR_3))
            )
        elif NARROW == "int8":
            level = _assembled(words, EIGHT_0 if n == 0 else EIGHT_1)
        else:
            level = _assembled(words, FP8_0 if n == 0 else FP8_1)
    elif NARROW == "int4":
        level = (((words >> (4 * n)) & 15).to(tl.float32) - 8.0).to(tl.bfloat16)
    else:
        byte = (words >> (8 * n)) & 255
        if NARROW == "int8":
            level = ((byte ^ 128) - 128).to(tl.float32).to(tl.bfloat16)
        else:
            rest = (byte & 127).to(tl.int32)
            wide = ((rest << 20) + (120 << 23)).to(tl.float32, bitcast=True)
            size = tl.where(rest < 8, rest.to(tl.float32) * 0.001953125, wide)
            level = tl.where(byte < 128, size, -size).to(tl.bfloat16)
    return level


# -- the sums of a part ----------------------------------------------------------------------------


@triton.jit
def _sums(
    x, weight, scales, row, column, real, there, start, stop, stride, K: tl.constexpr,
    GROUPED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Sum over the inputs from `start` to `stop` with wide weights: [BLOCK_N, BLOCK_M].

    GROUPED: BLOCK_K weights are a group of levels, whose sums are scaled.
    """
    at = tl.arange(0, BLOCK_K)
    inputs = x + row[None, :].to(tl.int64) * K + at[:, None]
    weights = weight + column[:, None].to(tl.int64) * K + at[None, :]
    sums = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    for first in range(start, stop, BLOCK_K):
        if K % BLOCK_K == 0:
            a = tl.load(weights + first, mask=there[:, None], other=0.0)
            b = tl.load(inputs + first, mask=real[None, :], other=0.0)
        else:
            inside = first + at < K
            a = tl.load(weights + first, mask=there[:, None] & inside[None, :], other=0.0)
            b = tl.load(inputs + first, mask=real[None, :] & inside[:, None], other=0.0)
        if GROUPED:
            scale = tl.load(scales + first // BLOCK_K * stride + column, mask=there, other=0.0)
            found = tl.dot(a, b, input_precision=PRECISION)
            sums += found * scale[:, None].to(tl.float32)
        else:
            sums = tl.dot(a, b, sums, input_precision=PRECISION)
    return sums


@triton.jit
def _inputs(x, row, real, first, K: tl.constexpr, GROUP: tl.constexpr, EVEN: tl.constexpr):
    """Load the inputs of one group: [GROUP, BLOCK_M]."""
    at = first + tl.arange(0, GROUP)
    there = real[None, :]
    if not EVEN:
        there = there & (at < K)[:, None]
    return tl.load(x + row[None, :].to(tl.int64) * K + at[:, None], mask=there, other=0.0)


@triton.jit
def _narrow_sums(
    x, weight, row, column, real, there, start, stop, K: tl.constexpr, NARROW: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr, ASSEMBLY: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Sum as `_sums` over levels of 8 bits, as `by_channel` packs them."""
    STEP: tl.constexpr = 2 * GROUP
    WORDS: tl.constexpr = (K + STEP - 1) // STEP * GROUP
    words = weight + column[:, None].to(tl.int64) * WORDS + tl.arange(0, GROUP)[None, :]
    sums = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    for first in range(start, stop, STEP):
        two = tl.load(words + first // 2, mask=there[:, None], other=0)
        for n in tl.static_range(2):
            b = _inputs(x, row, real, first + n * GROUP, K, GROUP, K % STEP == 0)
            a = _levels(two, n, NARROW, ASSEMBLY).to(b.dtype)
            sums = tl.dot(a, b, sums, input_precision=PRECISION)
    return sums


@triton.jit
def _grouped_sums(
    x, weight, scales, row, column, real, there, start, stop, stride, K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr, ASSEMBLY: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Sum as `_sums` over weights as `by_group` packs them; a group's sums are scaled."""
    STEP: tl.constexpr = 4 * GROUP
    WORDS: tl.constexpr = (K + STEP - 1) // STEP * GROUP
    words = weight + column[:, None].to(tl.int64) * WORDS + tl.arange(0, GROUP)[None, :]
    sums = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    # The scales of a step are asked for one step ahead; the last step asks for its own again.
    scale = scales + column
    ahead = scale + start // GROUP * stride
    s0 = tl.load(ahead, mask=there, other=0.0)
    s1 = tl.load(ahead + stride, mask=there, other=0.0)
    s2 = tl.load(ahead + 2 * stride, mask=there, other=0.0)
    s3 = tl.load(ahead + 3 * stride, mask=there, other=0.0)
    for first in range(start, stop, STEP):
        four = tl.load(words + first // 4, mask=there[:, None], other=0)
        ahead = scale + tl.minimum(first + STEP, WORDS * 4 - STEP) // GROUP * stride
        n0 = tl.load(ahead, mask=there, other=0.0)
        n1 = tl.load(ahead + stride, mask=there, other=0.0)
        n2 = tl.load(ahead + 2 * stride, mask=there, other=0.0)
        n3 = tl.load(ahead + 3 * stride, mask=there, other=0.0)
        for n in tl.static_range(4):
            b = _inputs(x, row, real, first + n * GROUP, K, GROUP, K % STEP == 0)
            a = _levels(four, n, "int4", ASSEMBLY).to(b.dtype)
            found = tl.dot(a, b, input_precision=PRECISION)
            s = s0 if n == 0 else (s1 if n == 1 else (s2 if n == 2 else s3))
            sums += found * s[:, None].to(tl.float32)
        s0, s1, s2, s3 = n0, n1, n2, n3
    return sums


@triton.jit(do_not_specialize=["rows", "part"])
def _product(
    x, weight, scales, bias, shared, counters, out, rows, N, stride, part,
    K: tl.constexpr, NARROW: tl.constexpr, WIDE: tl.constexpr, BIAS: tl.constexpr,
    SHARED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr, UNIT: tl.constexpr, ASSEMBLY: tl.constexpr, OVERLAP: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute BLOCK_M rows of BLOCK_N columns of x W + b, in sums over UNIT * `part` inputs.

    SHARED: a program computes one part, and the last one that ends adds all up. WIDE: the levels of
    narrow weights are unpacked. `stride`: columns of the whole matrix.
    """
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    real, there = row < rows, column < N
    wait_for_inputs(OVERLAP)
    parts = tl.cdiv(K, part * UNIT)
    total = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    first, end = 0, parts
    if SHARED:
        first = tl.program_id(2)
        end = first + 1
    for n in range(first, end):
        start = n * part * UNIT
        stop = tl.minimum(start + part * UNIT, K)
        if WIDE:
            sums = _sums(
                x, weight, scales, row, column, real, there, start, stop, stride, K,
                NARROW == "int4", BLOCK_M, BLOCK_N, BLOCK_K, PRECISION,
            )  # fmt: skip
        elif NARROW == "int4":
            sums = _grouped_sums(
                x, weight, scales, row, column, real, there, start, stop, stride, K, BLOCK_M,
                BLOCK_N, GROUP, ASSEMBLY, PRECISION,
            )  # fmt: skip
        else:
            sums = _narrow_sums(
                x, weight, row, column, real, there, start, stop, K, NARROW, BLOCK_M, BLOCK_N,
                GROUP, ASSEMBLY, PRECISION,
            )  # fmt: skip
        total += sums
    to = row[None, :].to(tl.int64) * stride + column[:, None]
    mask = real[None, :] & there[:, None]
    last = True
    if SHARED and parts > 1:
        size = rows.to(tl.int64) * stride
        tl.store(shared + first * size + to, total, mask=mask)
        tl.debug_barrier()
        counter = counters + tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
        last = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu") == parts - 1
        if last:
            tl.store(counter, 0)
            total = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
            for n in range(parts):
                total += tl.load(shared + n * size + to, mask=mask, other=0.0, cache_modifier=".cg")
    if last:
        if NARROW == "int8" or NARROW == "fp8":
            total = total * tl.load(scales + column, mask=there, other=0.0)[:, None]
        if BIAS:
            total += tl.load(bias + column, mask=there, other=0.0)[:, None].to(tl.float32)
        tl.store(out + to, total.to(out.dtype.element_ty), mask=mask)


# -- tiles -----------------------------------------------------------------------------------------


class Tile(NamedTuple):
    """How a product is cut into programs; it changes no bit of the result."""

    rows: int
    columns: int
    inputs: int  # of a step
    warps: int
    stages: int


def part_inputs(columns: int, inner: int, narrow: bool) -> int:
    """Choose the inputs of a part of a sum, by the shape of the matrix alone.

    A matrix of few columns is cut so that PROGRAMS or NARROW_PROGRAMS keep the memory busy.
    """
    programs = (NARROW_PROGRAMS if narrow else PROGRAMS) // -(-columns // 64)
    parts = max(1, min(MOST_PARTS, programs, inner // LEAST_INPUTS))
    whole = PART_STEP * parts
    return -(-inner // whole) * PART_STEP


def tile_of(rows: int, narrow: str, number_bytes: int, parts: int) -> Tile:
    """Choose the tile of a product of `rows` rows, as measured on an H200."""
    few = rows <= FEW_ROWS
    if number_bytes == 4:
        step = LEVELS[narrow] * GROUP if narrow and rows <= MAX_ROWS else GROUP
        return Tile(FEW_ROWS if few else 64, 64, step, 4, 2)
    if rows > MAX_ROWS:  # a group of levels at a time
        return Tile(128, 128, GROUP, 8, 3 if narrow == "int4" else 4)
    if narrow:
        return Tile(FEW_ROWS if few else 64, 64, LEVELS[narrow] * GROUP, 4, 3)
    return Tile(FEW_ROWS, 64, 128, 4, 4 if parts > 1 else 3) if few else Tile(64, 64, 128, 4, 3)


def stage_bytes(tile: Tile, narrow: str, number_bytes: int) -> int:
    """Count the bytes of shared memory that the inputs and weights of one step take."""
    weights = 2 * GROUP if narrow else tile.inputs * number_bytes
    return tile.rows * tile.inputs * number_bytes + tile.columns * weights


def fitting(tile: Tile, narrow: str, number_bytes: int, limit: int) -> Tile:
    """Take as many of a tile's stages as `limit` bytes of shared memory hold.

    Smaller cards have too few registers as well for many rows of weights in groups.
    """
    if narrow == "int4" and limit < tile.stages * stage_bytes(tile, narrow, number_bytes):
        tile = tile._replace(rows=min(tile.rows, 32))
    stages = limit // stage_bytes(tile, narrow, number_bytes)
    return tile._replace(stages=max(1, min(tile.stages, stages)))


@cache
def _counters(device: torch.device, stream: int) -> Tensor:
    """Return zeros, which every product of a stream finds and leaves."""
    return torch.zeros(COUNTERS, dtype=torch.int32, device=device)


def counters_of(device: torch.device) -> Tensor:
    """Return the counters of the current stream."""
    return _counters(
        device, torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
    )


class Tiled:
    """The product y = x W + b, a row's bits the same whatever rows stand next to it."""

    def __init__(self, weight: Tensor, bias: Tensor | None, narrow: str = "") -> None:
        """Pack a weight.

        `narrow`: one of `weight_formats.FORMATS`, or "" for the weight as it is.
        """
        self.columns, self.inner = weight.shape
        self.bias, self.narrow = bias, narrow
        self.scales: Tensor | None = None
        if narrow == "int4":
            self.weight, self.scales = by_group(weight)
        elif narrow:
            self.weight, self.scales = by_channel(weight, narrow)
        else:
            self.weight = weight.contiguous()
        self.part = part_inputs(self.columns, self.inner, bool(narrow))
        self.nbytes: int = self.weight.numel() * self.weight.element_size()

    def __call__(self, x: Tensor) -> Tensor:
        out = torch.empty(len(x), self.columns, dtype=x.dtype, device=x.device)
        x = x.contiguous()
        with current(x.device):
            if len(x) <= MAX_ROWS or not self.narrow:
                self._multiply(x, self.weight, out, slice(0, self.columns))
            else:  # levels are unpacked once, not for every tile of rows
                count = max(1, WIDENED // self.inner)
                for n in range(0, self.columns, count):
                    some = slice(n, min(n + count, self.columns))
                    self._multiply(x, self._levels(some, x.dtype), out, some)
        return out

    def _multiply(self, x: Tensor, weight: Tensor, out: Tensor, some: slice) -> None:
        """Compute the columns `some` of `out`, to which the rows of `weight` belong."""
        rows, size = len(x), x.element_size()
        columns = some.stop - some.start
        parts = triton.cdiv(self.inner, self.part)
        tile = tile_of(rows, self.narrow, size, parts)
        wide = not self.narrow or rows > MAX_ROWS
        tile = fitting(tile, "" if wide else self.narrow, size, shared_bytes(x.device))
        shared = rows <= MAX_ROWS and parts > 1
        sums = counters = out
        if shared:
            sums = torch.empty(parts, rows, columns, dtype=torch.float32, device=x.device)
            counters = counters_of(x.device)
        grid = triton.cdiv(rows, tile.rows), triton.cdiv(columns, tile.columns)
        _product[(*grid, parts if shared else 1)](
            x, weight, out if self.scales is None else self.scales[..., some],
            out if self.bias is None else self.bias[some], sums, counters, out[:, some], rows,
            columns, self.columns, self.part // PART_STEP, K=self.inner, NARROW=self.narrow,
            WIDE=wide, BIAS=self.bias is not None, SHARED=shared, BLOCK_M=tile.rows,
            BLOCK_N=tile.columns, BLOCK_K=tile.inputs, GROUP=GROUP, UNIT=PART_STEP,
            ASSEMBLY=ASSEMBLY, PRECISION="ieee", num_warps=tile.warps, num_stages=tile.stages,
            **overlap(),
        )  # fmt: skip

    def _levels(self, some: slice, dtype: torch.dtype) -> Tensor:
        """Unpack the levels of some columns, less their scales: [columns, inner] in `dtype`."""
        if self.narrow == "int4":
            return levels_of(self.weight[some])[:, : self.inner].to(dtype).sub_(8)
        return unpaired(self.weight[some], self.inner, self.narrow).to(dtype)
