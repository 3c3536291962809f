"""Row-invariant matrix products and attention.

Exactness rests on this file: a row of a forward pass gets the same bits whatever other rows are in
the batch, so verifying many tokens at once gives each of them the logits it would have had alone.
On the CPU, products are native (`engine.model._kernels`, quantised) or oneDNN's on weights packed
once (f32, bf16), and attention is native; elsewhere both are plain torch, which may round by shape.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from engine.model import _kernels
from engine.model.native.product import NativeProduct
from engine.model.torch.tensor_arrays import array_of

log = logging.getLogger(__name__)

Product = Callable[[Tensor], Tensor]  # [rows, in] -> [rows, out]


@dataclass(slots=True)
class Rows:
    """The rows of one forward pass.

    Row i goes to cache row `base + i` and attends to the committed rows 0 .. base - 1, to its
    ancestors by `parents` (-1: none in this pass) and to itself.
    """

    base: int
    parents: np.ndarray  # int32 [rows]
    positions: Tensor  # int64 [rows]: base + depth
    _mask: Tensor | None = field(default=None, repr=False)  # cached for one device

    @property
    def count(self) -> int:
        return len(self.parents)

    @classmethod
    def of(cls, base: int, parents: list[int], device: torch.device) -> Rows:
        """Place rows behind `base` committed ones.

        `parents[i]` < i, or -1 for a row that follows the last committed one.
        """
        depth: list[int] = []
        for parent in parents:
            depth.append(0 if parent < 0 else depth[parent] + 1)
        positions = torch.tensor(depth, dtype=torch.int64).add_(base).to(device)
        return cls(base, np.asarray(parents, np.int32), positions)

    def mask(self, device: torch.device) -> Tensor:
        """Make the attention mask, bool [rows, base + rows], once for all layers of a device."""
        if self._mask is not None and self._mask.device == device:
            return self._mask
        rows = len(self.parents)
        if np.array_equal(self.parents, np.arange(-1, rows - 1)):  # a chain, such as a prompt
            keys = torch.arange(self.base + rows, device=device)
            self._mask = keys <= self.positions.to(device)[:, None]
            return self._mask
        sees = torch.zeros(rows, self.base + rows, dtype=torch.bool)
        sees[:, : self.base] = True
        for row, parent in enumerate(self.parents.tolist()):
            if parent >= 0:
                sees[row, self.base :] = sees[parent, self.base :]
            sees[row, self.base + row] = True
        self._mask = sees.to(device)
        return self._mask


class Quantized:
    """A `NativeProduct` of tensors."""

    def __init__(self, weight: Tensor, bias: Tensor | None, bits: int) -> None:
        """Pack `weight` [out, in] in `bits`: 8 or 4 in blocks, 16 (bfloat16) or 32 as numbers."""
        b = None if bias is None else bias.float().contiguous().numpy()
        self.inner = NativeProduct([array_of(weight)], b, bits)
        self.nbytes = self.inner.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        return torch.from_numpy(self.inner(x.contiguous().numpy()))


def joined(parts: Sequence[Tensor]) -> Tensor:
    """Join the output channels of several matrices, one after another."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


class Packed:
    """The product y = x W + b by oneDNN, on weights that are reordered once, not for every call.

    A single row is padded to two, because oneDNN has another kernel for one row, which rounds
    differently (seen on several processors; checked again at load).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 2)
        self.bias = bias
        self.nbytes: int = weight.numel() * weight.element_size()

    def __call__(self, x: Tensor) -> Tensor:
        padded = x.expand(2, -1) if x.shape[0] == 1 else x
        y: Tensor = torch.ops.mkldnn._linear_pointwise(
            padded, self.weight, self.bias, "none", [], ""
        )
        return y[: x.shape[0]]


class Stock:
    """The product of `F.linear`.

    `alone`: one row per call, slow but the same bits for any number of rows.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, alone: bool = False) -> None:
        self.weight, self.bias, self.alone = weight, bias, alone
        self.nbytes: int = weight.numel() * weight.element_size()

    def __call__(self, x: Tensor) -> Tensor:
        if not self.alone or x.shape[0] == 1:
            return F.linear(x, self.weight, self.bias)
        return torch.cat([F.linear(x[n : n + 1], self.weight, self.bias) for n in range(len(x))])


_unpacked: set[torch.dtype] = set()  # dtypes without oneDNN's packed product


def product(
    weight: Tensor,
    bias: Tensor | None = None,
    exact: bool = False,
    narrow: str = "",
) -> Product:
    """Make the fastest product with `weight` [out, in] on its device.

    It is row-invariant on a CPU, and with `exact` on a CUDA card. `narrow`: a format of
    `engine.model.torch.cuda.weight_formats`, on a card.
    """
    if weight.device.type != "cpu":
        if exact or narrow:
            from engine.model.torch.cuda.products import Tiled

            return Tiled(weight, bias, narrow)
        return Stock(weight, bias)
    if weight.dtype not in _unpacked:
        try:
            return Packed(weight, bias)
        except (RuntimeError, AttributeError) as error:
            _unpacked.add(weight.dtype)
            log.warning(
                "oneDNN's packed product of %s is missing (%s): one row at a time, which is slower",
                weight.dtype,
                str(error).splitlines()[0],
            )
    return Stock(weight, bias, alone=True)


def attend(q: Tensor, keys: Tensor, values: Tensor, rows: Rows, scale: float) -> Tensor:
    """Attend from `rows` over the cache: [rows, heads * d] in f32.

    q [rows, heads, d] f32, rotated; keys and values [kv heads, capacity, d], whose rows `rows.base
    ...` hold this pass already. Grouped query heads share a key head.
    """
    if q.device.type == "cpu" and keys.dtype == torch.float32:
        out = torch.empty(q.shape[0], q.shape[1] * q.shape[2])
        k, v = keys.contiguous().numpy(), values.contiguous().numpy()
        query = q.contiguous().numpy()
        _kernels.attend(query, k, v, rows.base, rows.parents, scale, out.numpy())
        return out
    stop = rows.base + len(rows.parents)
    keys, values, mask = keys[:, :stop], values[:, :stop], rows.mask(q.device)
    if q.is_cuda:
        return fused_attention(q.to(keys.dtype), keys, values, mask, scale).float()
    return masked_attention(q, keys.float(), values.float(), mask, scale)


def masked_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor,
    scale: float,
    softcap: float = 0.0,
    sinks: Tensor | None = None,
) -> Tensor:
    """Compute attention in plain torch.

    Grouped query heads are folded into rows, and sums over keys are in f64 so that they do not
    depend on where masked keys are. mask: bool [rows, keys]. `softcap`: scores are softcap *
    tanh(score / softcap). `sinks` [heads]: one more logit of each head, whose share is lost.
    """
    count, heads, d = q.shape
    kv = keys.shape[0]
    folded = q.view(count, kv, heads // kv, d).permute(1, 2, 0, 3).reshape(kv, -1, d)
    scores = torch.bmm(folded, keys.transpose(1, 2)).view(kv, heads // kv, count, -1) * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.masked_fill(~mask, float("-inf"))
    highest = scores.amax(-1, keepdim=True)
    if sinks is not None:
        sink = sinks.view(kv, heads // kv, 1, 1)
        highest = torch.maximum(highest, sink)
    weights = (scores - highest).exp()
    wide = torch.float32 if q.device.type == "mps" else torch.float64  # Apple's GPUs have no f64
    total = weights.sum(-1, keepdim=True, dtype=wide)
    if sinks is not None:
        total = total + (sink - highest).exp()
    mixed = torch.bmm(weights.view(kv, -1, weights.shape[-1]), values)
    mixed = (mixed.view(kv, heads // kv, count, d) / total).float()
    return mixed.permute(2, 0, 1, 3).reshape(count, heads * d)


def fused_attention(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Compute attention by torch's fused kernel, in the keys' number format.

    Query heads that share a key head become rows: not every torch kernel does grouped queries.
    """
    count, heads, d = q.shape
    kv, group = keys.shape[0], heads // keys.shape[0]
    query = q.view(count, kv, group, d).permute(1, 2, 0, 3).reshape(kv, group * count, d)
    mixed = F.scaled_dot_product_attention(
        query[None], keys[None], values[None], mask.repeat(group, 1)[None, None], scale=scale
    )
    return mixed.view(kv, group, count, d).permute(2, 0, 1, 3).reshape(count, heads * d)
