"""Gated feed-forward blocks and mixtures of them."""

from __future__ import annotations

import numpy as np

from engine.model import _kernels
from engine.model.model_config import GELU, Dense, Experts
from engine.model.native.forward_pass import Array
from engine.model.native.weights import NativeWeights


class DenseBlock:
    """A gated feed-forward block."""

    def __init__(self, spec: Dense, weights: NativeWeights, at: str) -> None:
        self.activation = spec.activation
        self.gate_up = weights.product([(f"{at}gate_proj", None), (f"{at}up_proj", None)])
        self.down = weights.product([(f"{at}down_proj", None)])
        self.nbytes = self.gate_up.nbytes + self.down.nbytes

    def run(self, h: Array, out: Array) -> None:
        both = np.empty((len(h), self.gate_up.out), np.float32)
        self.gate_up.native.forward(h, both)
        gated = np.empty((len(h), self.gate_up.out // 2), np.float32)
        (_kernels.gelu_mul if self.activation == GELU else _kernels.silu_mul)(both, gated)
        self.down.native.forward(gated, out)


class ExpertsBlock:
    """A mixture of experts, and the shared expert that every row takes."""

    def __init__(self, spec: Experts, weights: NativeWeights, at: str, router: str) -> None:
        """Read the weights of a mixture.

        `at`: what the experts' names begin with; `router`: its name without ".weight".
        """
        self.spec = spec
        self.router = weights.product([(router, None)])
        self.gate_up, self.down = weights.experts(f"{at}experts.", spec)
        self.shared = self.shared_gate = None
        if spec.shared:
            self.shared = DenseBlock(
                Dense(spec.shared, spec.activation), weights, f"{at}shared_expert."
            )
            self.shared_gate = weights.product([(f"{at}shared_expert_gate", None)])
        others = (self.router, self.shared, self.shared_gate)
        self.nbytes = sum(other.nbytes for other in others if other)
        every = sum(product.nbytes for product in (*self.gate_up, *self.down))
        self.nbytes += every * spec.chosen // spec.count

    def run(self, h: Array, out: Array) -> None:
        self.run_routed(h, h, out)
        if self.shared is None or self.shared_gate is None:
            return
        more, gate = np.empty_like(out), np.empty((len(h), 1), np.float32)
        self.shared.run(h, more)
        self.shared_gate.native.forward(h, gate)
        _kernels.sigmoid_mul(np.repeat(gate, more.shape[1], 1), more)
        out += more

    def run_routed(
        self, router_input: Array, h: Array, out: Array, scale: Array | None = None
    ) -> None:
        """Run on h the experts that the router chooses for `router_input`.

        `scale`: a factor for each expert.
        """
        spec, count = self.spec, len(h)
        logits = np.empty((count, self.router.out), np.float32)
        self.router.native.forward(router_input, logits)
        choice = np.empty((count, spec.chosen), np.int32)
        shares = np.empty((count, spec.chosen), np.float32)
        _kernels.route(logits, spec.normalised, choice, shares, expert_scales=scale)
        _kernels.run_experts(
            self.gate_up, self.down, h, choice, shares, out, spec.activation, spec.alpha, spec.limit
        )
