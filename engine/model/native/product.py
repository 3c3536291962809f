"""Matrix products of the CPU's kernels, from weights as arrays.

An array of weights has f32, f16 or f64, or bfloat16 as the 16 bits of each number (uint16), which
numpy has no type for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from engine.model import _kernels
from engine.model.families.gguf_tensors import F32_KIND, Stored

Array: TypeAlias = np.ndarray[Any, Any]
Part: TypeAlias = Stored | Array  # a matrix: rows as a file stores them, or [out, in]

BF16_KIND = 30  # GGUF's type of numbers in bfloat16


class NativeProduct:
    """The product y = x W + b, the same bits on every processor.

    W is as a GGUF file stores it, or in 8- or 4-bit blocks, and x in 8 bits, or both are numbers.
    Integer sums are exact, and floats are added in one order.
    """

    def __init__(self, parts: Sequence[Part], bias: Array | None, bits: int = 8) -> None:
        """Pack the weights of `parts`, whose output channels follow each other.

        All parts are stored or none is. Those that are not are held in `bits`: 8 or 4 in blocks, 16
        (bfloat16) or 32 (f32) as numbers.
        """
        b = None if bias is None else widened(bias)
        stored = [part for part in parts if isinstance(part, Stored)]
        if stored:
            rows = [(part.kind, part.rows) for part in stored]
            self.native = _kernels.QLinear.stored(rows, stored[0].columns, b)
        else:
            self.native = _packed(joined([part for part in parts if _is_array(part)]), b, bits)
        self.out = self.native.shape[0]
        self.nbytes: int = self.native.nbytes

    def __call__(self, x: Array) -> Array:
        """Multiply x, f32 [rows, in] -> f32 [rows, out]."""
        y = np.empty((len(x), self.out), np.float32)
        self.native.forward(np.ascontiguousarray(x), y)
        return y

    def some(self, x: Array, tiles: Array) -> Array:
        """Multiply as a call does, for the channels of `tiles` only, int32 [n]; -inf elsewhere."""
        y = np.full((len(x), self.out), -np.inf, np.float32)
        self.native.forward_tiles(np.ascontiguousarray(x), y, tiles)
        return y


def _is_array(part: Part) -> bool:
    return not isinstance(part, Stored)


def _packed(weight: Array, bias: Array | None, bits: int) -> _kernels.QLinear:
    """Make the native product with an array of weights [out, in]."""
    columns = weight.shape[1]
    if bits == 32:
        return _kernels.QLinear.stored([(F32_KIND, bytes_of(widened(weight)))], columns, bias)
    if bits == 16:
        return _kernels.QLinear.stored([(BF16_KIND, bytes_of(narrowed(weight)))], columns, bias)
    source = np.ascontiguousarray(weight) if weight.dtype == np.uint16 else widened(weight)
    return _kernels.QLinear(source, bias, bits)


def joined(parts: Sequence[Any]) -> Array:
    """Join the output channels of several matrices, one after another."""
    if len(parts) == 1:
        whole: Array = parts[0]
        return whole
    same = len({part.dtype for part in parts}) == 1
    return np.concatenate([part if same else widened(part) for part in parts])


def widened(values: Array) -> Array:
    """Convert an array of weights to f32, contiguous."""
    if values.dtype == np.uint16:
        return (np.ascontiguousarray(values).astype(np.uint32) << 16).view(np.float32)
    return np.ascontiguousarray(values, np.float32)


def narrowed(values: Array) -> Array:
    """Convert finite weights to the bits of bfloat16, rounded to nearest, ties to even."""
    if values.dtype == np.uint16:
        return np.ascontiguousarray(values)
    bits = widened(values).view(np.uint32)
    last = (bits >> np.uint32(16)) & np.uint32(1)
    return ((bits + (np.uint32(0x7FFF) + last)) >> np.uint32(16)).astype(np.uint16)


def bytes_of(values: Array) -> Array:
    """View a contiguous matrix as uint8 [rows, bytes of a row]."""
    return values.view(np.uint8)


def is_numbers(values: Array) -> bool:
    """Return whether an array holds weights, and not integers."""
    return values.dtype.kind == "f" or bool(values.dtype == np.uint16)


def is_finite(values: Array) -> bool:
    """Return whether an array of weights has neither NaN nor infinity."""
    if values.dtype == np.uint16:
        return not bool(((values & np.uint16(0x7F80)) == np.uint16(0x7F80)).any())
    return bool(np.isfinite(values).all())
