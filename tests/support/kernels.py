"""Shared parts of the tests of the native kernels: calls, oracles, instruction sets."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.model import _kernels as kernels

F32 = NDArray[np.float32]
ISAS = ("plain", "avx2", "avxvnni", "avx512vnni", "dotprod", "i8mm")
rng = np.random.default_rng()


def isas() -> list[str]:
    """The instruction sets that this processor has."""
    found, best = [], kernels.isa()
    for name in ISAS:
        try:
            kernels.set_isa(name)
        except ValueError as error:
            assert "this processor does not have it" in str(error)
        else:
            found.append(name)
    kernels.set_isa(best)
    return found


def reseed() -> None:
    """Make the random numbers of a test independent of the tests before it."""
    rng.bit_generator.state = np.random.default_rng(7).bit_generator.state


def normal(*shape: int) -> F32:
    return rng.standard_normal(shape, dtype=np.float32)


def same(a: F32, b: F32) -> bool:
    """Equal bits (so NaN equals itself and 0 differs from -0)."""
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def forward(linear: kernels.QLinear, x: F32) -> F32:
    out = np.full((len(x), linear.shape[0]), np.nan, np.float32)
    linear.forward(np.ascontiguousarray(x), out)
    return out


def weights(linear: kernels.QLinear) -> F32:
    """The weights that `forward` uses: [out, in]."""
    out = np.empty(linear.shape, np.float32)
    linear.channels(np.arange(linear.shape[0]), out)
    return out


def quantized(x: F32) -> NDArray[np.float64]:
    """The rows as QLinear sees them: int8 per block of 32, scale amax / 127."""
    rows, n = x.shape
    blocks = np.zeros((rows, -(-n // 32) * 32), np.float32)
    blocks[:, :n] = x
    blocks = blocks.reshape(rows, -1, 32)
    amax = np.abs(blocks).max(2, keepdims=True)
    q = np.rint(blocks * np.divide(np.float32(127), amax, where=amax > 0, out=np.zeros_like(amax)))
    wide: NDArray[np.float64] = q.astype(np.float64) * (amax / np.float32(127))
    return wide.reshape(rows, -1)[:, :n]
