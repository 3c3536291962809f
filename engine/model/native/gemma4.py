"""The parts that only Gemma 4 has: experts next to a dense block, and inputs for each layer."""

from __future__ import annotations

import numpy as np

from engine.model import _kernels
from engine.model.model_config import Layer, ModelConfig
from engine.model.native.embedding import embedding_of
from engine.model.native.feed_forward import DenseBlock, ExpertsBlock
from engine.model.native.forward_pass import Array
from engine.model.native.weights import NativeWeights


class Gemma4Experts:
    """Gemma 4's mixture: experts next to a dense block, each with norms of its own.

    The router and the experts see the residual, not the dense block's input.
    """

    def __init__(self, layer: Layer, weights: NativeWeights, at: str, d: ModelConfig) -> None:
        assert layer.dense is not None and layer.experts is not None
        self.dense = DenseBlock(layer.dense, weights, f"{at}mlp.")
        self.experts = ExpertsBlock(layer.experts, weights, at, f"{at}{layer.experts.router}")
        self.eps, self.width = d.eps, d.width
        self.router_norm = weights.vector(f"{at}router.scale") * np.float32(d.width**-0.5)
        self.scale = weights.vector(f"{at}router.per_expert_scale")
        self.after_dense, self.after_experts, self.before_experts = (
            weights.vector(f"{at}{name}.weight")
            for name in (
                "post_feedforward_layernorm_1",
                "post_feedforward_layernorm_2",
                "pre_feedforward_layernorm_2",
            )
        )
        self.nbytes = self.dense.nbytes + self.experts.nbytes

    def run_parallel(self, h: Array, residual: Array, out: Array) -> None:
        """Run the block as `Block.run` does, where h is the norm of `residual`."""
        self.dense.run(h, out)
        _kernels.rms_norm(out, self.after_dense, self.eps, out)
        router_input, inputs, more = (np.empty_like(out) for _ in range(3))
        _kernels.rms_norm(residual, self.router_norm, self.eps, router_input)
        _kernels.rms_norm(residual, self.before_experts, self.eps, inputs)
        self.experts.run_routed(router_input, inputs, more, self.scale)
        _kernels.rms_norm(more, self.after_experts, self.eps, more)
        out += more


class PerLayerInput:
    """The part that each of Gemma 4's layers adds from a token's own input for it."""

    def __init__(self, weights: NativeWeights, at: str, d: ModelConfig) -> None:
        self.gate = weights.product([(f"{at}per_layer_input_gate", None)])
        self.projection = weights.product([(f"{at}per_layer_projection", None)])
        self.norm, self.eps = weights.vector(f"{at}post_per_layer_input_norm.weight"), d.eps
        self.nbytes = self.gate.nbytes + self.projection.nbytes

    def add_to(self, x: Array, inputs: Array) -> None:
        """Add this layer's inputs [rows, per-layer width] to x [rows, width]."""
        both = np.empty((len(x), 2 * inputs.shape[1]), np.float32)
        gate = np.empty(inputs.shape, np.float32)
        self.gate.native.forward(x, gate)
        both[:, : inputs.shape[1]], both[:, inputs.shape[1] :] = gate, inputs
        gated = np.empty(inputs.shape, np.float32)
        _kernels.gelu_mul(both, gated)
        added = np.empty_like(x)
        self.projection.native.forward(gated, added)
        _kernels.rms_norm(added, self.norm, self.eps, added)
        x += added


class PerLayerEmbedding:
    """A token's inputs for each layer: a second embedding, and a projection of the first."""

    def __init__(self, weights: NativeWeights, d: ModelConfig) -> None:
        self.table = embedding_of(weights, "model.embed_tokens_per_layer")
        self.projection = weights.product([("model.per_layer_model_projection", None)])
        self.norm = weights.vector("model.per_layer_projection_norm.weight")
        self.shape, self.eps = (len(d.layers), d.per_layer_width), d.eps
        self.scale = np.float32(d.width**-0.5)

    def inputs(self, ids: Array, x: Array) -> Array:
        """Compute the layers' inputs of tokens whose scaled embeddings are x.

        They are f32 [rows, layers, per-layer width].
        """
        layers, width = self.shape
        own = self.table[ids].reshape(len(ids), layers, width) * np.float32(width**0.5)
        projected = np.empty((len(ids), layers * width), np.float32)
        self.projection.native.forward(x, projected)
        projected *= self.scale
        flat = projected.reshape(-1, width)
        _kernels.rms_norm(flat, self.norm, self.eps, flat)
        both: Array = (flat.reshape(own.shape) + own) * np.float32(2**-0.5)
        return both
