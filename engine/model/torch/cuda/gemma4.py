"""The parts that only Gemma 4 has, in plain torch.

They are experts next to a dense block, and inputs of a token for each layer.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor

from engine.model.model_config import Layer, ModelConfig
from engine.model.torch.cuda.feed_forward import TorchDenseBlock, TorchExpertsBlock
from engine.model.torch.cuda.weights import CardWeights

if TYPE_CHECKING:
    from engine.model.torch.cuda.attention import TorchPass


def rms_normed(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Compute the RMS norm of the last dimension in f32, and return it in x's number format."""
    return F.rms_norm(x.float(), (x.shape[-1],), weight, eps).to(x.dtype)


class TorchGemma4Experts:
    """Gemma 4's mixture: experts next to a dense block, each with norms of its own.

    The router and the experts see the residual, not the dense block's input.
    """

    def __init__(self, layer: Layer, weights: CardWeights, at: str, d: ModelConfig) -> None:
        assert layer.dense is not None and layer.experts is not None
        self.dense = TorchDenseBlock(layer.dense, weights, f"{at}mlp.")
        self.experts = TorchExpertsBlock(layer.experts, weights, at, f"{at}{layer.experts.router}")
        self.eps = d.eps
        self.router_norm = weights.vector(f"{at}router.scale") * d.width**-0.5
        self.scale = weights.vector(f"{at}router.per_expert_scale")
        self.after_dense, self.after_experts, self.before_experts = (
            weights.vector(f"{at}{name}.weight")
            for name in (
                "post_feedforward_layernorm_1",
                "post_feedforward_layernorm_2",
                "pre_feedforward_layernorm_2",
            )
        )

    def run_parallel(self, h: Tensor, residual: Tensor, now: TorchPass | None = None) -> Tensor:
        """Compute the output of both for h, which is a norm of `residual`: [rows, width]."""
        router_input = rms_normed(residual, self.router_norm, self.eps)
        inputs = rms_normed(residual, self.before_experts, self.eps)
        routed = self.experts.run_routed(router_input, inputs, self.scale, now)
        dense = rms_normed(self.dense.run(h, now), self.after_dense, self.eps)
        return dense + rms_normed(routed, self.after_experts, self.eps)


class TorchPerLayerInput:
    """The part that each of Gemma 4's layers adds from a token's own input for it."""

    def __init__(self, weights: CardWeights, at: str, d: ModelConfig) -> None:
        self.gate = weights.product(f"{at}per_layer_input_gate")
        self.projection = weights.product(f"{at}per_layer_projection")
        self.norm, self.eps = weights.vector(f"{at}post_per_layer_input_norm.weight"), d.eps

    def added(self, x: Tensor, inputs: Tensor) -> Tensor:
        """Add this layer's inputs [rows, per-layer width] to x [rows, width]."""
        gate = F.gelu(self.gate(x), approximate="tanh")
        return x + rms_normed(self.projection(gate * inputs), self.norm, self.eps)


class TorchPerLayerEmbedding:
    """A token's inputs for each layer: a second embedding, and a projection of the first."""

    def __init__(self, weights: CardWeights, d: ModelConfig) -> None:
        self.table = weights.table("model.embed_tokens_per_layer.weight")
        self.projection = weights.product("model.per_layer_model_projection")
        self.norm = weights.vector("model.per_layer_projection_norm.weight")
        self.shape, self.eps, self.scale = (len(d.layers), d.per_layer_width), d.eps, d.width**-0.5

    def inputs(self, ids: Tensor, x: Tensor) -> Tensor:
        """Compute [rows, layers, per-layer width] for tokens whose scaled embeddings are x."""
        own = self.table[ids].view(-1, *self.shape) * math.sqrt(self.shape[1])
        projected = (self.projection(x) * self.scale).view(-1, *self.shape)
        return (rms_normed(projected, self.norm, self.eps) + own) * math.sqrt(0.5)
