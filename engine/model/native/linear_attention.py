"""Gated DeltaNet (arXiv:2412.06464): a state in place of keys and values."""

from __future__ import annotations

import numpy as np

from engine.model import _kernels
from engine.model.model_config import LinearAttention, ModelConfig
from engine.model.native.forward_pass import Array, Pass
from engine.model.native.recurrent_state import LayerState
from engine.model.native.weights import NativeWeights


class LinearAttentionBlock:
    """A layer of linear attention."""

    def __init__(
        self, spec: LinearAttention, weights: NativeWeights, layer: int, d: ModelConfig
    ) -> None:
        at = f"model.layers.{layer}.linear_attn."
        self.spec, self.eps = spec, d.eps
        self.mixed, self.z, self.b, self.a = (
            weights.product([(f"{at}in_proj_{name}", None)]) for name in ("qkv", "z", "b", "a")
        )
        self.conv = weights.matrix(f"{at}conv1d.weight")
        self.decay, self.dt_bias = weights.vector(f"{at}A"), weights.vector(f"{at}dt_bias")
        self.norm = weights.vector(f"{at}norm.weight")
        self.out = weights.product([(f"{at}out_proj", None)])
        heads = np.arange(spec.value_heads, dtype=np.int32)
        group = spec.value_heads // spec.key_heads
        self.key_head_of = heads % spec.key_heads if spec.tiled else heads // group
        products = (self.mixed, self.z, self.b, self.a, self.out)
        self.nbytes = sum(product.nbytes for product in products)

    def run_states(
        self, h: Array, out: Array, now: Pass, state: LayerState, pending: int, committed: bool
    ) -> None:
        """Run the layer as `Block.run` does, after `pending` rows of the state's log.

        `committed`: the rows stay.
        """
        spec, count, skip = self.spec, now.count, state.applied
        waiting = pending - skip
        if committed:
            inputs = tuple(
                np.empty((waiting + count, log.shape[1]), np.float32) for log in state.log
            )
            for scratch, log in zip(inputs, state.log, strict=True):
                scratch[:waiting] = log[skip:pending]
        else:
            inputs = tuple(log[skip : pending + count] for log in state.log)
        for product, target in zip((self.mixed, self.a, self.b), inputs, strict=True):
            product.native.forward(h, target[waiting:])
        mixed = np.empty((count, spec.value_heads * spec.value_dim), np.float32)
        stays = waiting + count if committed else waiting
        rows, a, b = inputs
        _kernels.delta_rule(
            rows, a, b, self.conv, self.decay, self.dt_bias, spec.key_heads, self.key_head_of,
            stays, waiting, now.parents[: 0 if committed else None], state.tail, state.state, mixed,
        )  # fmt: skip
        state.applied = pending
        z = np.empty_like(mixed)
        self.z.native.forward(h, z)
        shape = (count, spec.value_heads, spec.value_dim)
        _kernels.gated_norm(mixed.reshape(shape), z.reshape(shape), self.norm, self.eps,
                            mixed.reshape(shape))  # fmt: skip
        self.out.native.forward(mixed, out)
