"""Gated feed-forward blocks and mixtures of them, in plain torch or by a card's kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.model.model_config import CLAMPED_SWIGLU, GELU, SILU, Dense, Experts
from engine.model.torch.cuda.static_pass import DESCRIBED_ROWS, StaticPass
from engine.model.torch.cuda.weights import CardWeights, ExpertWeights

if TYPE_CHECKING:
    from engine.model.torch.cuda.attention import TorchPass


def gated(both: Tensor, spec: Dense | Experts) -> Tensor:
    """Multiply the activated gates with the ups of [..., 2 * width]."""
    gate, up = both.chunk(2, -1)
    if isinstance(spec, Experts) and spec.activation == CLAMPED_SWIGLU:
        gate, up = gate.clamp(max=spec.limit), up.clamp(-spec.limit, spec.limit)
        return (up + 1) * gate * torch.sigmoid(spec.alpha * gate)
    if spec.activation == GELU:
        return F.gelu(gate, approximate="tanh") * up
    return F.silu(gate) * up


class TorchDenseBlock:
    """A gated feed-forward block."""

    def __init__(self, spec: Dense, weights: CardWeights, at: str) -> None:
        self.spec = spec
        self.gate_up = weights.product(f"{at}gate_proj", f"{at}up_proj")
        self.down = weights.product(f"{at}down_proj")

    def run(self, h: Tensor, now: TorchPass | None = None) -> Tensor:
        """Run the block on h [rows, width] -> the same."""
        both = self.gate_up(h)
        if now is not None and now.kernels is not None and self.spec.activation == SILU:
            return self.down(now.kernels.gate(both))
        return self.down(gated(both, self.spec))


class TorchExpertsBlock:
    """A mixture of experts, and the shared expert that every row takes."""

    def __init__(self, spec: Experts, weights: CardWeights, at: str, router: str) -> None:
        """Read the weights of a mixture.

        `at`: what the experts' names begin with; `router`: its name without ".weight".
        """
        self.spec = spec
        self.router = weights.product(router)
        self.gate_up, self.down = weights.experts(f"{at}experts.", spec)
        self.shared = self.shared_gate = None
        if spec.shared:
            dense = Dense(spec.shared, spec.activation)
            self.shared = TorchDenseBlock(dense, weights, f"{at}shared_expert.")
            self.shared_gate = weights.product(f"{at}shared_expert_gate")

    def run(self, h: Tensor, now: TorchPass | None = None) -> Tensor:
        """Run the mixture on h [rows, width] -> the same."""
        out = self.run_routed(h, h, now=now)
        if self.shared is None or self.shared_gate is None:
            return out
        gate = self.shared_gate(h).expand_as(h)  # so that rows do not share a vector on a CPU
        return out + gate.sigmoid() * self.shared.run(h, now)

    def run_routed(
        self,
        router_input: Tensor,
        h: Tensor,
        scale: Tensor | None = None,
        now: TorchPass | None = None,
    ) -> Tensor:
        """Run on h the experts that the router chooses for `router_input`.

        `scale`: a factor for each expert.
        """
        if now is not None and now.kernels is not None and isinstance(now.rows, StaticPass):
            from engine.model.torch.cuda.expert_ops import run_experts

            logits = self.router(router_input)
            return run_experts(self.spec, self.gate_up, self.down, logits, h, scale, now.rows.meta)
        choice, shares = self._route(router_input)
        if scale is not None:
            shares = shares * scale[choice]
        found = self._chosen(h, choice)
        return (found.float() * shares[..., None]).sum(1).to(h.dtype)

    def _route(self, router_input: Tensor) -> tuple[Tensor, Tensor]:
        """Choose the experts of each row, int64 [rows, chosen], and their shares in f32."""
        logits = self.router(router_input).float()
        best, choice = logits.topk(self.spec.chosen)
        if self.spec.normalised:
            return choice, best.softmax(-1)
        return choice, (best - logits.logsumexp(-1, keepdim=True)).exp()

    def _chosen(self, h: Tensor, choice: Tensor) -> Tensor:
        """Compute the outputs of the chosen experts [rows, chosen, width].

        Which way depends on the number of rows only; no pass of static shape waits for the device.
        On a CPU each row is multiplied alone, so that its bits do not depend on the others.
        """
        if h.device.type == "cpu" or len(h) <= gathered_rows(self.spec):
            return self._gathered(h, choice)
        return self._every(h, choice) if len(h) <= DESCRIBED_ROWS else self._sorted(h, choice)

    def _gathered(self, h: Tensor, choice: Tensor) -> Tensor:
        """Run the experts with a copy of the weights for each row and expert."""
        rows, chosen = choice.shape
        few = choice.flatten()
        x = h[:, None].expand(-1, chosen, -1).reshape(rows * chosen, 1, -1)
        y = self._through(x, _at(self.gate_up, few), _at(self.down, few))
        return y.view(rows, chosen, -1)

    def _every(self, h: Tensor, choice: Tensor) -> Tensor:
        """Run all rows through all experts, whose weights are read once."""
        y = self._through(h.expand(self.spec.count, -1, -1), self.gate_up, self.down)
        return y[choice, torch.arange(len(h), device=h.device)[:, None]]

    def _sorted(self, h: Tensor, choice: Tensor) -> Tensor:
        """Run expert by expert, each with the rows that take it: for the many rows of a prompt."""
        flat = choice.flatten()
        order = flat.argsort(stable=True)
        counts = flat.bincount(minlength=self.spec.count).tolist()
        y = h.new_empty(len(flat), h.shape[1])
        for expert, some in enumerate(torch.split(order, counts)):
            if len(some):
                at = slice(expert, expert + 1)
                x = h[some // self.spec.chosen][None]
                y[some] = self._through(x, _at(self.gate_up, at), _at(self.down, at))[0]
        return y.view(*choice.shape, -1)

    def _through(self, x: Tensor, gate_up: ExpertWeights, down: ExpertWeights) -> Tensor:
        """Run each expert's rows of x [experts, rows, width] through it."""
        return _batched(gated(_batched(x, gate_up), self.spec), down)


def gathered_rows(spec: Experts) -> int:
    """Count the rows up to which copies of the chosen experts cost less than reading all.

    A gathered weight is read, written and read again.
    """
    return spec.count // (3 * spec.chosen)


def _at(of: ExpertWeights, places: Tensor | slice) -> ExpertWeights:
    return ExpertWeights(of.weight[places], None if of.bias is None else of.bias[places])


def _batched(x: Tensor, of: ExpertWeights) -> Tensor:
    """Multiply each expert's rows, [experts, rows, in] -> [experts, rows, out]."""
    weight = of.weight.transpose(1, 2)
    return torch.bmm(x, weight) if of.bias is None else torch.baddbmm(of.bias[:, None], x, weight)
