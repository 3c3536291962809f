"""The quantised forward pass of Llama's family on the CPU: native kernels on plain arrays.

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
from engine.model.gguf_weights import StoredWeights
from engine.model.llama import FeedForward, Llama, TensorSource
from engine.model.ops import Product, Quantized, Rows
from engine.weights.gguf_tensors import Stored

Array = np.ndarray[Any, Any]


class StoredEmbedding:
    """The rows of an embedding by token, from the weights of a product. As much of a tensor as a
    model's users need."""

    device, dtype = torch.device("cpu"), torch.float32

    def __init__(self, product: Quantized) -> None:
        self._native = product.native
        self._more = torch.empty(0, product.native.shape[1])

    def __len__(self) -> int:
        return self._native.shape[0] + len(self._more)

    def __getitem__(self, ids: Tensor) -> Tensor:
        """ids: int64 [n] -> [n, width] in f32."""
        count = self._native.shape[0]
        rows = np.empty((len(ids), self._native.shape[1]), np.float32)
        self._native.channels(ids.clamp(max=count - 1).numpy(), rows)
        found = torch.from_numpy(rows)
        if len(self._more) and bool((more := ids >= count).any()):
            found[more] = self._more[ids[more] - count]
        return found

    def extended(self, rows: Tensor) -> StoredEmbedding:
        """With the embeddings of more tokens [tokens, width]."""
        self._more = torch.cat([self._more, rows])
        return self


class Experts:
    """The feed-forward part of a layer of experts."""

    def __init__(self, weights: StoredWeights, layer: int, chosen: int, normalise: bool) -> None:
        """`chosen`: experts of each row; `normalise`: their weights add up to 1."""
        at = f"model.layers.{layer}.mlp."
        self.chosen, self.normalise = chosen, normalise
        self.router = Quantized([weights.stored(f"{at}gate.weight")], None)
        gate, up, down = (
            weights.stored(f"{at}experts.{name}_proj.weight") for name in ("gate", "up", "down")
        )
        count = self.router.out
        gates, ups, downs = (np.split(one.rows, count) for one in (gate, up, down))
        self.gate_up = [
            _kernels.QLinear.stored([(gate.kind, one), (up.kind, other)], gate.columns)
            for one, other in zip(gates, ups, strict=True)
        ]
        self.down = [_kernels.QLinear.stored([(down.kind, one)], down.columns) for one in downs]
        products = [self.router.native, *self.gate_up, *self.down]
        self.nbytes = sum(one.nbytes for one in products)

    def run(self, x: Array, out: Array) -> None:
        """x, out: f32 [rows, width]."""
        logits = np.empty((len(x), self.router.out), np.float32)
        self.router.native.forward(x, logits)
        choice = np.empty((len(x), self.chosen), np.int32)
        weights = np.empty((len(x), self.chosen), np.float32)
        _kernels.route(logits, self.normalise, choice, weights)
        _kernels.run_experts(self.gate_up, self.down, x, choice, weights, out)


class Dense(FeedForward):
    """The feed-forward part of every other layer, on arrays."""

    def run(self, x: Array, out: Array) -> None:
        """x, out: f32 [rows, width]."""
        gate_up, down = self.gate_up, self.down
        assert isinstance(gate_up, Quantized) and isinstance(down, Quantized)
        both = np.empty((len(x), gate_up.out), np.float32)
        gate_up.native.forward(x, both)
        gated = np.empty((len(x), gate_up.out // 2), np.float32)
        _kernels.silu_mul(both, gated)
        down.native.forward(gated, out)


class LlamaQuantized(Llama):
    """Llama's family on the CPU, with weights as a GGUF file stores them or in 8-bit blocks."""

    bits = 8  # of matrices that are quantised here; the head always has 8

    def _set_words(self, named: TensorSource, tied: bool, first: torch.device) -> None:
        if not isinstance(named, StoredWeights):
            embedding = named["model.embed_tokens.weight"]
            self.embedding = embedding
            head = None if tied else named.get("lm_head.weight")
            self._head: Product = Quantized([embedding if head is None else head], None)
            return
        table = Quantized([named.stored("model.embed_tokens.weight")], None)
        self.embedding: Any = StoredEmbedding(table)
        own = not tied and "lm_head.weight" in named
        self._head = Quantized([named.stored("lm_head.weight")], None) if own else table

    def extend(self, rows: Tensor) -> None:
        if isinstance(self.embedding, StoredEmbedding):
            self.embedding = self.embedding.extended(rows)
        else:
            super().extend(rows)

    def _matrix(self, named: TensorSource, name: str, paired: bool = False) -> Any:
        if not isinstance(named, StoredWeights):
            return super()._matrix(named, name, paired)
        found = named.stored(name)
        if not paired:
            return found
        return found._replace(rows=self._paired(torch.from_numpy(found.rows)).numpy())

    def _feed_forward(self, weights: TensorSource, n: int, place: torch.device) -> Any:
        if isinstance(weights, StoredWeights) and f"model.layers.{n}.mlp.gate.weight" in weights:
            return Experts(weights, n, self.experts_per_row, self.normalised_experts)
        made = super()._feed_forward(weights, n, place)
        return Dense(made.gate_up, made.down)

    def _product(
        self, device: torch.device, parts: list[Tensor | Stored], bias: Tensor | None = None
    ) -> Product:
        return Quantized(parts, bias, self.bits)

    def run(
        self, ids: Tensor, rows: Rows, cache: tuple[Tensor, ...], layers: int | None = None
    ) -> Tensor:
        """As `Llama.run`, in f32."""
        count, heads, both, d = len(ids), self.heads, self.heads + self.kv_heads, self.head_dim
        base, stop, eps = rows.base, rows.base + len(ids), self.eps
        all_keys, all_values = cache[0].numpy()
        turn, scale = self.turning(rows.positions).numpy(), self.residual_scale
        x = self.embedded(ids).numpy()
        blocks: list[Any] = self.blocks[:layers]  # their products are `ops.Quantized`
        h, delta = np.empty_like(x), np.empty_like(x)
        qkv = np.empty((count, (both + self.kv_heads) * d), np.float32)
        mixed = np.empty((count, heads * d), np.float32)
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
            layer.mlp.run(h, delta)
            if scale != 1:
                delta *= scale
            after = self.norm if n + 1 == len(blocks) else self.blocks[n + 1].norm_in
            _kernels.add_rms_norm(x, delta, after.numpy(), eps, h)
        return torch.from_numpy(h)


class LlamaQ4(LlamaQuantized):
    """With matrices in 4-bit blocks."""

    bits = 4


def norm_heads(
    split: Array, heads: int, both: int, weights: tuple[Tensor, Tensor], eps: float
) -> None:
    """Qwen3's norm of every head of q and k, in place. split: [rows, heads, head dim]."""
    for start, stop, weight in ((0, heads, weights[0]), (heads, both, weights[1])):
        part = np.ascontiguousarray(split[:, start:stop]).reshape(-1, split.shape[-1])
        _kernels.rms_norm(part, weight.numpy(), eps, part)
        split[:, start:stop] = part.reshape(split.shape[0], stop - start, -1)
