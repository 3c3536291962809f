"""The weights of a model on a card: vectors in f32, matrices in the model's format."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.model.families.gguf_tensors import Stored
from engine.model.model_config import Experts
from engine.model.native.product import Array, Part
from engine.model.native.product import joined as joined_arrays
from engine.model.native.weights import NativeWeights
from engine.model.torch.ops import Product, product
from engine.model.torch.tensor_arrays import tensor_of


@dataclass(frozen=True, slots=True)
class ExpertWeights:
    """One product of every expert: [experts, out, in], and the bias [experts, out], if any."""

    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True, slots=True)
class CardWeights:
    """The tensors of `files`, which stores none quantised, on a device."""

    files: NativeWeights
    device: torch.device
    dtype: torch.dtype

    def vector(self, name: str) -> Tensor:
        """Place a vector, f32 [values]."""
        return torch.from_numpy(self.files.vector(name)).to(self.device)

    def table(self, name: str) -> Tensor:
        """Place a matrix whose rows are looked up."""
        return tensor_of(self.files.array(name)).to(self.device, self.dtype)

    def product(self, *names: str) -> Product:
        """Make the product with several matrices, whose output channels follow each other.

        `names`: without ".weight" or ".bias".
        """
        return self.product_of([(name, None) for name in names])

    def product_of(self, names: list[tuple[str, Array | None]]) -> Product:
        """Make the product with rows in other orders, as `NativeWeights.parts` takes them."""
        weight, bias = self._placed(self.files.parts(names))
        return product(weight, bias)

    def experts(self, at: str, spec: Experts) -> tuple[ExpertWeights, ExpertWeights]:
        """Place gates and ups together, and downs. One expert at a time is read and placed."""
        width = self.files.description.width
        shapes = ((spec.count, 2 * spec.width, width), (spec.count, width, spec.width))
        both, down = (self._empty(shape, spec.biased) for shape in shapes)
        for n, matrices in enumerate(self.files.expert_parts(at, spec)):
            for stack, (parts, bias) in zip((both, down), matrices, strict=True):
                stack.weight[n] = _joined(parts).to(self.device, self.dtype)
                if stack.bias is not None and bias is not None:
                    stack.bias[n] = tensor_of(bias).to(self.device, self.dtype)
        return both, down

    def _empty(self, shape: tuple[int, ...], biased: bool) -> ExpertWeights:
        weight = torch.empty(shape, dtype=self.dtype, device=self.device)
        return ExpertWeights(weight, torch.zeros_like(weight[..., 0]) if biased else None)

    def _placed(self, matrices: tuple[list[Part], Array | None]) -> tuple[Tensor, Tensor | None]:
        parts, bias = matrices
        weight = _joined(parts).to(self.device, self.dtype)
        return weight, None if bias is None else tensor_of(bias).to(self.device, self.dtype)


def _joined(parts: list[Part]) -> Tensor:
    return tensor_of(joined_arrays([part for part in parts if not isinstance(part, Stored)]))
