"""The forward pass of a model by its `ModelConfig` on a card, in plain torch or by its kernels.

It serves families with windows, sinks, capped logits, experts and other norms than Llama's. What
Llama's family needs has kernels of its own (`engine.model.torch.llama`); a CPU runs all families
natively (`engine.model.native`).
"""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from engine.model.model_config import Attention, ModelConfig
from engine.model.native.weights import NativeWeights
from engine.model.torch.cuda import torch_ops
from engine.model.torch.cuda.attention import TorchAttentionBlock, TorchPass
from engine.model.torch.cuda.feed_forward import TorchDenseBlock, TorchExpertsBlock
from engine.model.torch.cuda.gemma4 import (
    TorchGemma4Experts,
    TorchPerLayerEmbedding,
    TorchPerLayerInput,
)
from engine.model.torch.cuda.static_pass import ADDRESSES, StaticPass
from engine.model.torch.cuda.weights import CardWeights
from engine.model.torch.ops import Rows, product


class CardLayer:
    """One decoder layer: its blocks, and the weights of the norms around them."""

    def __init__(self, d: ModelConfig, n: int, weights: CardWeights) -> None:
        at, spec = f"model.layers.{n}.", d.layers[n]
        assert isinstance(spec.mixer, Attention)  # others run on a CPU only
        self.mixer = TorchAttentionBlock(spec.mixer, weights, n, d)
        self.mlp: TorchDenseBlock | TorchExpertsBlock | TorchGemma4Experts
        if spec.dense and spec.experts:
            self.mlp = TorchGemma4Experts(spec, weights, at, d)
        elif spec.experts:
            router = f"{at}{spec.experts.router}"
            self.mlp = TorchExpertsBlock(spec.experts, weights, f"{at}mlp.", router)
        else:
            assert spec.dense is not None
            self.mlp = TorchDenseBlock(spec.dense, weights, f"{at}mlp.")
        self.before_mixer, self.after_mixer, self.before_mlp, self.after_mlp = (
            weights.vector(f"{at}{name}.weight") if name else None for name in d.norms.names
        )
        self.inputs = TorchPerLayerInput(weights, at, d) if d.per_layer_width else None
        self.scalar = 1.0
        if d.family == "gemma4_text":
            self.scalar = float(weights.files.vector(f"{at}layer_scalar")[0])


class DescribedModel:
    """Weights and forward pass: `run` returns hidden states, `head` logits. It owns no cache."""

    def __init__(self, files: NativeWeights, device: torch.device, dtype: torch.dtype) -> None:
        """Load a model without linear attention from `files`, none of which is stored quantised."""
        d, weights = files.description, CardWeights(files, device, dtype)
        self.description, self.device, self.dtype = d, device, dtype
        self.cache_dtype = torch.float32 if device.type == "cpu" else dtype
        self.layers, self.width, self.vocab = len(d.layers), d.width, d.vocab
        self.max_positions, self.eps = d.positions, d.eps
        self.embedding = weights.table("model.embed_tokens.weight")
        own = files.has_head
        self._head = weights.product("lm_head") if own else product(self.embedding)
        self.per_layer = TorchPerLayerEmbedding(weights, d) if d.per_layer_width else None
        self.blocks = [CardLayer(d, n, weights) for n in range(self.layers)]
        self.checked_layers = self.layers
        self.norm = weights.vector("model.norm.weight")
        self.frequencies = {
            name: torch.tensor(rope.frequencies[: rope.pairs], dtype=torch.float32).to(device)
            for name, rope in d.ropes.items()
        }
        self.cache_shapes = [(device, len(of), heads, size) for heads, size, of in d.cache_groups]
        self._places = d.cache_places

    @property
    def fuses(self) -> bool:
        """Return whether a card's kernels run its passes: they know so many caches."""
        return len(self.cache_shapes) <= len(ADDRESSES)

    def extend(self, rows: Tensor) -> None:
        """Give the embedding rows [tokens, width] for more tokens, which the head does not have."""
        self.embedding = torch.cat([self.embedding, rows.to(self.device, self.embedding.dtype)])

    def embedded(self, ids: Tensor) -> Tensor:
        """Compute the first layer's input [rows, width] of tokens `ids` [rows]."""
        x, scale = self.embedding[ids], self.description.embedding_scale
        return x if scale == 1 else x * scale

    def run(
        self,
        ids: Tensor,
        rows: Rows | StaticPass,
        cache: tuple[Tensor, ...],
        layers: int | None = None,
        kernels: ModuleType | None = None,
    ) -> Tensor:
        """Compute the final hidden states [rows, width] of token `ids` [rows].

        Keys and values of the first `rows.count` rows are written to rows `rows.base ...` of
        `cache`, one tensor [2, layers, kv heads, capacity, head_dim] for each of `cache_shapes`.
        `layers`: run only the first ones. `kernels`: `triton_ops`, for a static pass of a model
        that `fuses`; such a pass can be captured. None: plain torch.
        """
        now = TorchPass(
            rows, cache, self._places, self._turns(rows.positions), self._scales(rows.positions),
            kernels,
        )  # fmt: skip
        do = torch_ops if kernels is None else kernels
        x, delta = self.embedded(ids), None
        inputs = None if self.per_layer is None else self.per_layer.inputs(ids, x)
        for n, layer in enumerate(self.blocks[:layers]):
            x, h = self._added(x, delta, layer.before_mixer, do)
            delta = self._scaled(layer.mixer.run(h, now), layer.after_mixer, do)
            x, h = self._added(x, delta, layer.before_mlp, do)
            if isinstance(layer.mlp, TorchGemma4Experts):
                delta = layer.mlp.run_parallel(h, x, now)
            else:
                delta = layer.mlp.run(h, now)
            delta = self._scaled(delta, layer.after_mlp, do)
            if layer.inputs is not None and inputs is not None:
                x, delta = layer.inputs.added(x + delta, inputs[:, n]), None
            if layer.scalar != 1:
                x, delta = (x if delta is None else x + delta) * layer.scalar, None
        return self._added(x, delta, self.norm, do)[1]

    def head(self, hidden: Tensor) -> Tensor:
        """Compute the logits [rows, vocabulary] in f32 of hidden states [rows, width]."""
        return self.words(hidden).float()

    def words(self, hidden: Tensor) -> Tensor:
        """Compute the logits in the model's own dtype."""
        logits, cap = self._head(hidden), self.description.logit_softcap
        if self.description.logit_divisor != 1:
            logits = logits / self.description.logit_divisor
        return (logits.float() / cap).tanh().mul(cap).to(logits.dtype) if cap else logits

    def _added(
        self, x: Tensor, delta: Tensor | None, norm: Tensor | None, do: ModuleType
    ) -> tuple[Tensor, Tensor]:
        """Add a block's output to x; returns the sum and its norm, the next block's input."""
        if norm is not None:
            both: tuple[Tensor, Tensor] = do.add_norm(x, delta, norm, self.eps)
            return both
        x = x if delta is None else x + delta
        return x, x

    def _scaled(self, delta: Tensor, after: Tensor | None, do: ModuleType) -> Tensor:
        """Normalise a block's output by the norm behind it, if there is one, and scale it."""
        if after is not None:
            delta = do.add_norm(delta, None, after, self.eps)[1]
        scale = self.description.residual_scale
        return delta if scale == 1 else delta * scale

    def _turns(self, positions: Tensor) -> dict[str, Tensor]:
        """Compute the rotations of each rotary embedding: a e^(i p w), complex [rows, pairs]."""
        found = {}
        for name, frequencies in self.frequencies.items():
            angles = positions[:, None] * frequencies
            factor = torch.full_like(angles, self.description.ropes[name].factor)
            found[name] = torch.polar(factor, angles)
        return found

    def _scales(self, positions: Tensor) -> Tensor | None:
        """Compute the factors of q, f32 [rows]; None for a model without any."""
        if self.description.query_scales is None:
            return None
        beta, trained = self.description.query_scales
        return 1 + beta * torch.log1p(torch.floor(positions.float() / trained))
