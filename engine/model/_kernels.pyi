"""Native CPU kernels. Arrays: CPU, C-contiguous; numpy, torch or any dlpack; never copied.

The law: a row's bits depend on that row alone, not on the rows beside it, their number, the
threads or the instruction set. All release the GIL and may be called from several threads (one at
a time runs in the pool). A shape that does not fit is a ValueError, another dtype a TypeError.
After a fork the child has no workers and runs on the calling thread.
"""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = Any  # an array as above; the docstrings give dtype and shape

def isa() -> str:
    """The instruction set in use: "plain", "avx2" or "avx512vnni"; the best one at start."""

def set_isa(name: str) -> None:
    """Use another one, for tests. ValueError if this processor does not have it."""

def threads() -> int:
    """Threads that work on a call, the caller included; 1 at start."""

def set_threads(count: int) -> None:
    """At least 1; costs nothing while idle."""

class QLinear:
    """y = x W^T + bias in int8: blocks of 32 inputs, weights packed once, x quantised per row."""

    def __init__(self, weight: Array, bias: Array | None = None) -> None:
        """weight: [out, in] f32 or uint16 (bfloat16 bits), all finite; bias: [out] f32."""

    def forward(self, x: Array, out: Array) -> None:
        """x: [k, in] f32 -> out: [k, out] f32. A row with NaN or infinity gives a row of NaN."""

    def dequantize(self) -> NDArray[np.float32]:
        """[out, in]: the weights that forward uses."""

    @property
    def shape(self) -> tuple[int, int]:
        """(out, in)"""

    @property
    def nbytes(self) -> int:
        """Bytes of the packed weights, scales and bias."""

def attend(
    q: Array,
    keys: Array,
    values: Array,
    base: int,
    parents: Array,
    scale: float,
    out: Array,
) -> None:
    """Attention of k new tokens (a tree) over a cache; node i's own key lies at row base + i.

    q: [k, heads, d] f32, rotated; keys, values: [kv_heads, capacity, d] f32; parents: [k] int32,
    an earlier node or -1 (child of the last committed row); out: [k, heads * d] f32. Node i sees
    rows 0 .. base - 1, its ancestors and itself. d: a multiple of 8, at most 256.
    """

def rms_norm(x: Array, weight: Array, eps: float, out: Array) -> None:
    """out = x / sqrt(mean(x^2) + eps) * weight; x, out: [k, n] f32; weight: [n] f32."""

def add_rms_norm(residual: Array, delta: Array, weight: Array, eps: float, out: Array) -> None:
    """residual += delta, then out = rms_norm(residual); all [k, n] f32."""

def silu_mul(gate_up: Array, out: Array) -> None:
    """out = silu(gate) * up; gate_up: [k, 2n] f32, the gates first; out: [k, n] f32."""
