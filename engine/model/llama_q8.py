"""The 8-bit forward pass of Llama's family on the CPU: native kernels on plain arrays.

The same steps as `Llama.run`. A one-token pass reads every weight once, in tens of milliseconds, so
everything between the matrix products must cost next to nothing: no tensors, no dispatch, one
thread pool.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.model import _kernels
from engine.model.llama import Llama
from engine.model.ops import Rows

Array = np.ndarray[Any, Any]


class LlamaQ8(Llama):
    """Llama's family with weights in 8-bit blocks, on the CPU."""

    def run(
        self, ids: Tensor, rows: Rows, cache: tuple[Tensor, ...], layers: int | None = None
    ) -> Tensor:
        """As `Llama.run`, in f32."""
        count, heads, both, d = len(ids), self.heads, self.heads + self.kv_heads, self.head_dim
        base, stop, eps = rows.base, rows.base + len(ids), self.eps
        all_keys, all_values = cache[0].numpy()
        turn, scale = self.turning(rows.positions).numpy(), self.residual_scale
        x = self.embedded(ids).numpy()
        blocks: list[Any] = self.blocks[:layers]  # their products are `ops.Q8`
        h, delta = np.empty_like(x), np.empty_like(x)
        qkv = np.empty((count, (both + self.kv_heads) * d), np.float32)
        mixed = np.empty((count, heads * d), np.float32)
        gate_up = np.empty((count, blocks[0].gate_up.out), np.float32)
        gated = np.empty((count, blocks[0].gate_up.out // 2), np.float32)
        split = qkv.reshape(count, -1, d)
        pairs = split[:, :both].view(np.complex64)  # [rows, heads + kv heads, d / 2]

        _kernels.rms_norm(x, blocks[0].norm_in.numpy(), eps, h)
        for n, layer in enumerate(blocks):
            layer.qkv.native.forward(h, qkv)
            if layer.qk_norm is not None:
                norm_heads(split, heads, both, layer.qk_norm, eps)
            if self.rotary[n]:
                np.multiply(pairs, turn, out=pairs)
            all_keys[n, :, base:stop] = split[:, heads:both].swapaxes(0, 1)
            all_values[n, :, base:stop] = split[:, both:].swapaxes(0, 1)
            q = np.ascontiguousarray(split[:, :heads])
            _kernels.attend(q, all_keys[n], all_values[n], base, rows.parents, self.scale, mixed)
            layer.out.native.forward(mixed, delta)
            if scale != 1:
                delta *= scale
            _kernels.add_rms_norm(x, delta, layer.norm_mlp.numpy(), eps, h)
            layer.gate_up.native.forward(h, gate_up)
            _kernels.silu_mul(gate_up, gated)
            layer.down.native.forward(gated, delta)
            if scale != 1:
                delta *= scale
            after = self.norm if n + 1 == len(blocks) else self.blocks[n + 1].norm_in
            _kernels.add_rms_norm(x, delta, after.numpy(), eps, h)
        return torch.from_numpy(h)


def norm_heads(
    split: Array, heads: int, both: int, weights: tuple[Tensor, Tensor], eps: float
) -> None:
    """Qwen3's norm of every head of q and k, in place. split: [rows, heads, head dim]."""
    for start, stop, weight in ((0, heads, weights[0]), (heads, both, weights[1])):
        part = np.ascontiguousarray(split[:, start:stop]).reshape(-1, split.shape[-1])
        _kernels.rms_norm(part, weight.numpy(), eps, part)
        split[:, start:stop] = part.reshape(split.shape[0], stop - start, -1)
