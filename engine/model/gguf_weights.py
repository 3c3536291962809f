"""Weights of a GGUF file: as it stores them for the CPU's kernels, in f32 for others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from engine.model import _kernels
from engine.model.llama import Weights
from engine.weights.gguf_tensors import GgufTensors, Stored, tensors_of_gguf


def weights_of(folder: Path) -> Weights | GgufWeights:
    """The tensors of a model's folder."""
    file = tensors_of_gguf(folder)
    return Weights(folder) if file is None else GgufWeights(file)


class GgufWeights:
    """Tensors by their safetensors names, in f32: an `engine.model.llama.TensorSource`."""

    def __init__(self, tensors: GgufTensors) -> None:
        self.tensors = tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    def __getitem__(self, name: str) -> Tensor:
        """WeightsError for values that are not finite."""
        stored = self.tensors.read(name)
        values = np.empty((len(stored.rows), stored.columns), np.float32)
        _kernels.dequantize(stored.kind, stored.rows, values)
        if not np.isfinite(values).all():
            raise self.tensors.gguf.damaged(f"tensor '{name}' holds values that are not finite")
        return torch.from_numpy(values).reshape(self.tensors.outputs[name].shape)

    def get(self, name: str) -> Tensor | None:
        return self[name] if name in self else None  # noqa: SIM401

    def shape(self, name: str) -> tuple[int, ...]:
        return self.tensors.outputs[name].shape


class StoredWeights(GgufWeights):
    """The same; matrices also as they are stored."""

    def stored(self, name: str) -> Stored:
        return self.tensors.read(name)
