"""Weights of a GGUF file as tensors in f32 for torch, and any tensors as arrays.

The arrays are for the CPU's kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from engine.model.families.gguf_tensors import GgufTensors, tensors_of_gguf
from engine.model.native.gguf_arrays import ArraySource, GgufArrays
from engine.model.native.product import Array
from engine.model.torch.llama import TensorSource, Weights
from engine.model.torch.tensor_arrays import array_of


def weights_of(folder: Path) -> Weights | GgufWeights:
    """Open the tensors of a model's folder."""
    file = tensors_of_gguf(folder)
    return Weights(folder) if file is None else GgufWeights(file)


class GgufWeights:
    """Tensors by their safetensors names, in f32: an `engine.model.torch.llama.TensorSource`."""

    def __init__(self, tensors: GgufTensors) -> None:
        self.arrays = GgufArrays(tensors)

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __contains__(self, name: object) -> bool:
        return name in self.arrays

    def __getitem__(self, name: str) -> Tensor:
        """Read a tensor. WeightsError for values that are not finite."""
        return torch.from_numpy(self.arrays[name])

    def get(self, name: str) -> Tensor | None:
        return self[name] if name in self else None  # noqa: SIM401

    def shape(self, name: str) -> tuple[int, ...]:
        return self.arrays.tensors.outputs[name].shape


class TensorArrays:
    """The tensors of a source as arrays: an `ArraySource`."""

    def __init__(self, source: TensorSource) -> None:
        self._source = source

    def __contains__(self, name: object) -> bool:
        return name in self._source

    def __getitem__(self, name: str) -> Array:
        return array_of(self._source[name])


def arrays_of(source: TensorSource) -> ArraySource:
    """Wrap a source of tensors as one of arrays."""
    return source.arrays if isinstance(source, GgufWeights) else TensorArrays(source)
