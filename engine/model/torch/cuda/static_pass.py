"""The data of a forward pass of static shape, and the parts of a model that its kernels use."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # rows of a pass
MAX_ROWS = BUCKETS[-1]  # rows of the widest pass of any model
USUAL_ROWS = 64  # rows of the widest pass, where no larger draft is requested
DESCRIBED_ROWS = 64  # rows of a `DescribedModel`'s; its experts then do not wait for the device
HEADER_INTS = 8  # integers at the start of the input buffers: `StaticPass.meta` and padding
TOP = 8  # most likely tokens of a row that every pass gives
ADDRESSES = (0, 5)  # places in `StaticPass.meta` of the addresses of a model's caches
WORD_BITS = 64  # bits of a word in which a row's ancestors are marked


def bucket_of(rows: int) -> int:
    """Find the smallest bucket that holds `rows` rows, at most MAX_ROWS."""
    return BUCKETS[bisect_left(BUCKETS, rows)]


def write_other_addresses(
    inputs: np.ndarray[Any, np.dtype[np.int64]], cache: tuple[Tensor, ...]
) -> None:
    """Write the addresses of the caches behind the first one, which have its capacity."""
    for part, at in zip(cache[1:], ADDRESSES[1:], strict=False):
        start = part.data_ptr()
        inputs[at : at + 2] = start, start + part.nbytes // 2


@dataclass(slots=True)
class StaticPass:
    """The inputs of one pass. `parents` are those of the real rows; further rows are padding."""

    base: int  # committed rows in the cache
    count: int  # real rows
    parents: np.ndarray[Any, Any]  # int32 [count]
    cache: tuple[
        Tensor, ...
    ]  # [2, layers, kv heads, capacity, head dim]: one for each shape of heads
    # int64: addresses of keys and values; capacity, base, count; those of a second cache
    meta: Tensor
    positions: Tensor  # int64 [rows]
    # int64 [rows, words]: bit i % 64 of word i // 64 is set where row i is an ancestor or itself
    seen: Tensor
    path: Tensor  # uint8 [rows, 64 * words]: ancestors by depth, the row itself last
    tree: bool  # False: row i follows row i - 1
    exact: bool

    @property
    def keys(self) -> Tensor:
        """Keys [layers, kv heads, capacity, head dim], of a model with one shape of heads."""
        return self.cache[0][0]

    @property
    def values(self) -> Tensor:
        """Values, as `keys`."""
        return self.cache[0][1]

    def mask(self, device: torch.device) -> Tensor:
        """Mark the keys that a row may attend to, bool [rows, keys], as `Rows.mask` does."""
        key = torch.arange(self.base + self.count, device=device)
        if not self.tree:
            return key <= self.positions[:, None]
        bit = (key - self.base).clamp(min=0)
        words = self.seen[:, bit // WORD_BITS]
        return (key < self.base) | ((words >> bit % WORD_BITS) & 1).bool()


@dataclass(slots=True)
class PassOutput:
    """The outputs of one pass; the next one may overwrite them."""

    states: Tensor  # [rows, width]
    logits: Tensor  # [rows, vocabulary] in the model's dtype
    # int32 [rows * (1 + 2 * TOP)]: the largest logit's token of each row, -1 where it is not
    # finite; then [rows, TOP] tokens with the largest logits, lower ids first on ties, padded with
    # -1; then the bits of these logits in f32
    top: Tensor


class HeadShape(Protocol):
    """The heads of an attention, and what all of its kernels need."""

    heads: int
    kv_heads: int
    head_dim: int
    scale: float  # factor of attention scores
    eps: float  # epsilon of RMS norms


class AttentionShape(HeadShape, Protocol):
    """The part of a model that the kernels between its matrix products need."""

    phases: Tensor  # rotary embedding: complex [positions, head_dim / 2]
    query_scales: Tensor | None  # factors of q, f32 [positions]
    rotary: list[bool]  # whether each layer rotates q and k
    dtype: torch.dtype

    def turning(self, positions: Tensor) -> Tensor:
        """Compute the rotation of q and k at `positions` [rows], `query_scales` included.

        It is complex [rows, heads or 1, head_dim / 2].
        """
        ...


class CapturedPasses(Protocol):
    """Passes captured as CUDA graphs, by bucket; `CudaGraphs` is the implementation."""

    def use(self, static: Any, bucket: int) -> None:
        """Announce a pass of this bucket, before its inputs are sent."""
        ...

    def replay(self, bucket: int) -> PassOutput | None:
        """Replay the captured pass of a bucket; None where there is none."""
        ...

    def use_read(self, static: Any, rows: int) -> None:
        """Announce a pass of so many rows that reads a prompt, before its inputs are sent."""
        ...

    def replay_read(self, rows: int) -> Tensor | None:
        """Replay a captured pass that reads a prompt; None where there is none."""
        ...

    def warm(self, static: Any) -> Iterator[tuple[int, int]]:
        """Capture the missing passes, one per step; yields (captured, total)."""
        ...
