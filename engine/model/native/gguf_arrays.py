"""Weights of a GGUF file as arrays: as it stores them for the CPU's kernels, or in f32."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from engine.model import _kernels
from engine.model.families.gguf_tensors import GgufTensors, Stored
from engine.model.native.product import Array
from engine.weights.gguf.gguf_file import in_8_bits


class ArraySource(Protocol):
    """Arrays of weights (`engine.model.native.product`) by their safetensors names."""

    def __contains__(self, name: object, /) -> bool: ...
    def __getitem__(self, name: str, /) -> Any: ...


class GgufArrays:
    """Arrays in f32 by their safetensors names."""

    def __init__(self, tensors: GgufTensors) -> None:
        self.tensors = tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    def __getitem__(self, name: str) -> Array:
        """Read a tensor. WeightsError for values that are not finite."""
        stored = self.tensors.read(name)
        values = np.empty((len(stored.rows), stored.columns), np.float32)
        _kernels.dequantize(stored.kind, stored.rows, values)
        if not np.isfinite(values).all():
            raise self.tensors.gguf.damaged(f"tensor '{name}' holds values that are not finite")
        return values.reshape(self.tensors.outputs[name].shape)


class StoredArrays(GgufArrays):
    """Arrays in f32 by their safetensors names, and matrices also as they are stored."""

    def stored(self, name: str) -> Stored:
        """Read a matrix as it is stored, or in 8 bits where adapters change a quantised one."""
        found, source = self.tensors.read(name), self.tensors.outputs[name].source
        is_merged = source in self.tensors.adapters.names
        if not is_merged or self.tensors.gguf.stored_as(source) in ("F32", "F16", "BF16"):
            return found
        kind, rows = in_8_bits(found.rows.view(np.float32))
        return found._replace(kind=kind, rows=rows)
