"""LoRA adapters in GGUF files, as llama.cpp's converter writes them, merged into a model's weights.

A matrix W becomes W + scale * alpha / rank * B A when it is read, so a pass takes no longer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.weights.errors import WeightsError, shown
from engine.weights.fetch.checksums import sha256_of
from engine.weights.gguf.gguf_file import Gguf, read_gguf

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

A, B = ".lora_a", ".lora_b"


class Adapters:
    """The adapters of one model."""

    def __init__(self, names: Sequence[str], model: Gguf) -> None:
        """Open the adapters `FILE[:scale]`. WeightsError for what does not fit the model."""
        self._adapters = [(_checked(path, model), scale) for path, scale in map(_parsed, names)]
        self.names = {
            name.removesuffix(A) for file, _ in self._adapters for name in file.tensors if A in name
        }
        self.digests = [(sha256_of(file.path), scale) for file, scale in self._adapters]

    def merge(self, name: str, weights: NDArray[np.float32]) -> None:
        """Add what the adapters change to the matrix `name` of the model, as its file has it."""
        import numpy as np

        for file, scale in self._adapters:
            if name + A in file.tensors:
                a, b = _whole(file, name + A), _whole(file, name + B)
                alpha = float(file.fields.get("adapter.lora.alpha") or a.shape[-2])
                change = np.float32(scale * alpha / a.shape[-2]) * (b @ a)
                if not np.isfinite(change).all():
                    raise file.damaged(f"tensor {shown(name + A)} holds values that are not finite")
                weights += change.reshape(weights.shape)


def _parsed(name: str) -> tuple[Path, float]:
    """Split `FILE[:scale]`."""
    path, _, number = name.rpartition(":")
    try:
        scale = float(number)
    except ValueError:
        path, scale = name, 1.0
    if not path or not math.isfinite(scale):
        raise WeightsError(f"lora {name}: name a GGUF file, or FILE:SCALE, as in style.gguf:0.5")
    return Path(path).expanduser(), scale


def _checked(path: Path, model: Gguf) -> Gguf:
    """Read an adapter, and compare it with the model."""
    try:
        file = read_gguf(path)
    except OSError as error:
        raise WeightsError(f"{path}: {error.strerror}: name another adapter") from error
    kind, form = file.fields.get("general.type"), file.fields.get("adapter.type")
    if (kind, form) != ("adapter", "lora") or not file.tensors:
        raise WeightsError(f"{path}: no LoRA adapter: convert one by convert_lora_to_gguf.py")
    if not isinstance(file.fields.get("adapter.lora.alpha", 0.0), float):
        raise file.damaged("'adapter.lora.alpha' is no number")
    ours, theirs = (one.fields.get("general.architecture") for one in (model, file))
    if ours != theirs:
        raise WeightsError(f"{path}: an adapter of {shown(theirs)} models, not of {shown(ours)}")
    for tensor in file.tensors:
        name = tensor.removesuffix(A).removesuffix(B)
        if name == tensor or name == "token_embd.weight" or name not in model.tensors:
            raise WeightsError(f"{path}: {shown(tensor)} is of nothing that can be changed here")
        a, b, whole = file.shape(name + A), file.shape(name + B), model.shape(name)
        if (*b[:-1], a[-1]) != whole or len(whole) < 2 or (*a[:-2], b[-1]) != (*b[:-2], a[-2]):
            raise WeightsError(
                f"{path}: {shown(tensor)} is of a matrix of {[*b[:-1], a[-1]]}, the model's is "
                f"{[*whole]}: it was made for another model"
            )
    return file


def _whole(file: Gguf, name: str) -> NDArray[Any]:
    shape = file.shape(name)
    return file.rows(name, 0, math.prod(shape[:-1])).reshape(shape)
