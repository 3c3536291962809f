"""Matrix products on a CUDA card with fixed tiles (Triton), also with weights of 8 or 4 bits.

A tile's size depends on the matrix alone, so a row gets the same bits in every pass, whatever rows
stand next to it. Two libraries have products with 4-bit weights, too:

* torch itself, which torchao (BSD, 0.18) goes through on a card: `aten::_weight_int4pack_mm` takes
  bf16 and groups of 32 to 256 inputs, runs in a captured graph and has tiles of 16 rows for any
  number of rows, so that exact passes could use it. But nothing unpacks its weights for the many
  rows of a prompt, where its tiles are slow; inputs come in multiples of 128, scales with zero
  points; and without a card it cannot be tested. torchao's other formats need a further package.
* gemlite (Apache-2.0, 0.6) chooses among kernels by the number of rows, some of which add the parts
  of a sum in the order in which they end, and tunes their tiles at the first call: a row does not
  keep its bits.

`python -m bench gpu --only products` times both against these kernels, and says which keep a row's
bits.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from engine.model.torch.cuda.current_card import current
from engine.model.torch.cuda.static_pass import MAX_ROWS
from engine.model.torch.cuda.weight_formats import FP8, GROUP, by_channel, by_group, widened

PRODUCT_ROWS = 64  # rows of a tile
GROUPED_ROWS = 16  # rows of a tile with 4-bit weights; a small card is slow at more padding
FEW_COLUMNS = 16384  # columns, at most, that a card's processors must share finely
WIDENED = 1 << 25  # weights; narrow ones are widened so many at a time


@triton.jit(do_not_specialize=["rows"])
def _product(
    x, weight, scales, bias, out, rows, N, K: tl.constexpr, SCALED: tl.constexpr,
    BIAS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute BLOCK_M rows of x W + b; the tiles, and so the order of every sum, never change."""
    row = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    real, there = row < rows, column < N
    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(0, K, BLOCK_K):
        at = start + tl.arange(0, BLOCK_K)
        inside = at < K
        a = tl.load(
            x + row[:, None] * K + at[None, :], mask=real[:, None] & inside[None, :], other=0.0
        )
        b = tl.load(
            weight + column[None, :].to(tl.int64) * K + at[:, None],
            mask=there[None, :] & inside[:, None], other=0.0,
        ).to(a.dtype)  # fmt: skip
        sums = tl.dot(a, b, sums, input_precision=PRECISION)
    if SCALED:
        sums = sums * tl.load(scales + column, mask=there, other=0.0)[None, :]
    if BIAS:
        sums += tl.load(bias + column, mask=there, other=0.0)[None, :].to(tl.float32)
    to = out + row[:, None].to(tl.int64) * N + column[None, :]
    tl.store(to, sums.to(out.dtype.element_ty), mask=real[:, None] & there[None, :])


@triton.jit(do_not_specialize=["rows"])
def _grouped_product(
    x, weight, scales, bias, out, rows, N, K: tl.constexpr, BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute BLOCK_M rows of x W + b with W as `by_group` packs it.

    The weights are the left operand, so that few rows make a narrow tile, and a group's sums are
    scaled, not its weights.
    """
    QUADS: tl.constexpr = (K + 4 * GROUP - 1) // (4 * GROUP)
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    real, there = row < rows, column < N
    at = tl.arange(0, GROUP)
    words = weight + column[:, None].to(tl.int64) * (QUADS * GROUP) + at[None, :]
    sums = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    for quad in range(0, QUADS):
        four = tl.load(words + quad * GROUP, mask=there[:, None], other=0)
        for n in tl.static_range(4):
            group = 4 * quad + n
            place = group * GROUP + at
            b = tl.load(
                x + row[None, :] * K + place[:, None],
                mask=real[None, :] & (place < K)[:, None], other=0.0,
            )  # fmt: skip
            # 128 + a level, in bf16, is 128 with the level as its last bits; 8 of it is 0
            level = (((four >> (4 * n)) & 15) | 0x4300).to(tl.bfloat16, bitcast=True)
            a = (level.to(tl.float32) - 136.0).to(b.dtype)
            found = tl.dot(a, b, input_precision=PRECISION)
            scale = tl.load(scales + group * N + column, mask=there, other=0.0)
            sums += found * scale[:, None].to(tl.float32)
    if BIAS:
        sums += tl.load(bias + column, mask=there, other=0.0)[:, None].to(tl.float32)
    to = out + row[None, :].to(tl.int64) * N + column[:, None]
    tl.store(to, sums.to(out.dtype.element_ty), mask=real[None, :] & there[:, None])


def tile_of(columns: int, number_bytes: int, weight_bytes: int) -> tuple[int, int, int]:
    """Choose BLOCK_N, BLOCK_K and stages of a product.

    They depend on its number of columns and on the bytes of a number and of a weight; not on its
    rows, or their bits would depend on each other. Few columns: small tiles, so that no processor
    waits, with more of the sum in flight each.
    """
    if number_bytes == 4:
        return (32 if columns <= FEW_COLUMNS else 64), 64, 2
    if columns > FEW_COLUMNS:
        return 64, 64, 4
    return (32, 128, 4) if weight_bytes == 2 else (32, 256, 3)


def grouped_tile_of(columns: int) -> tuple[int, int, int]:
    """Choose BLOCK_N, warps and stages of a product with 4-bit weights."""
    return (32, 2, 4) if columns <= FEW_COLUMNS else (64, 4, 3)


class Tiled:
    """The product y = x W + b, a row's bits the same whatever rows stand next to it.

    That does not hold where narrow weights may be widened for the many rows of a prompt.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None, narrow: str = "", widens: bool = False
    ) -> None:
        """Pack a weight.

        `narrow`: one of `weight_formats.FORMATS`, or "" for the weight as it is. `widens`: such
        weights are widened for more than MAX_ROWS rows. Not for fewer, although a large card might
        gain from a hundred on: passes over drafts keep the bits of passes over one token.
        """
        self.columns, self.inner = weight.shape
        self.bias, self.narrow, self.widens = bias, narrow, bool(narrow) and widens
        self.scales: Tensor | None = None
        if narrow == "int4":
            self.weight, self.scales = by_group(weight)
        elif narrow:
            self.weight, self.scales = by_channel(weight, FP8 if narrow == "fp8" else torch.int8)
        else:
            self.weight = weight.contiguous()
        self.nbytes: int = self.weight.numel() * self.weight.element_size()

    def __call__(self, x: Tensor) -> Tensor:
        out = torch.empty(len(x), self.columns, dtype=x.dtype, device=x.device)
        if self.widens and len(x) > MAX_ROWS:
            return self._widened(x, out)
        with current(x.device):
            if self.narrow == "int4":
                self._by_group(x.contiguous(), out)
            else:
                self._by_channel(x.contiguous(), out)
        return out

    def _by_channel(self, x: Tensor, out: Tensor) -> None:
        """Multiply with weights of 32, 16 or 8 bits."""
        n, k, stages = tile_of(self.columns, x.element_size(), self.weight.element_size())
        _product[(triton.cdiv(self.columns, n), triton.cdiv(len(x), PRODUCT_ROWS))](
            x, self.weight, self.weight if self.scales is None else self.scales,
            self.weight if self.bias is None else self.bias, out, len(x), self.columns,
            K=self.inner, SCALED=self.scales is not None, BIAS=self.bias is not None,
            BLOCK_M=PRODUCT_ROWS, BLOCK_N=n, BLOCK_K=k, PRECISION="ieee", num_warps=4,
            num_stages=stages,
        )  # fmt: skip

    def _by_group(self, x: Tensor, out: Tensor) -> None:
        """Multiply with weights of 4 bits. Programs that share weights run side by side."""
        n, warps, stages = grouped_tile_of(self.columns)
        _grouped_product[(triton.cdiv(len(x), GROUPED_ROWS), triton.cdiv(self.columns, n))](
            x, self.weight, self.scales, self.scales if self.bias is None else self.bias, out,
            len(x), self.columns, K=self.inner, BIAS=self.bias is not None, BLOCK_M=GROUPED_ROWS,
            BLOCK_N=n, GROUP=GROUP, PRECISION="ieee", num_warps=warps, num_stages=stages,
        )  # fmt: skip

    def _widened(self, x: Tensor, out: Tensor) -> Tensor:
        """Multiply by torch's own product, some output channels at a time, in x's number format.

        For many rows that is faster than small tiles.
        """
        assert self.scales is not None
        count = max(1, WIDENED // self.inner)
        for n in range(0, self.columns, count):
            some = slice(n, n + count)
            if self.narrow == "int4":
                weight = widened(self.weight[some], self.scales[:, some], self.inner, x.dtype)
                sums = F.linear(x, weight)
            else:  # levels, which the format holds exactly
                sums = F.linear(x, self.weight[some].to(x.dtype)) * self.scales[some]
            out[:, some] = sums if self.bias is None else sums + self.bias[some]
        return out
