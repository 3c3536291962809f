"""What loading a model for the CPU's own kernels checks, whichever runtime it is loaded for."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from engine.model import _kernels
from engine.model.description import Description
from engine.model.families import FAMILIES, describe
from engine.model.native.gguf_arrays import GgufArrays, StoredArrays
from engine.model.native.model import NativeModel
from engine.model.native.weights import NativeWeights
from engine.model.torch.llama_shapes import check_llama, supports
from engine.model.unsupported import UnsupportedModel, refuse_inputs, refuse_keys
from engine.weights.gguf.gguf_tensors import GgufTensors
from engine.weights.memory import check_memory, gguf_memory

DTYPES = ("stored", "q8", "q4")  # of the kernels' integer products
BITS = {"q8": 8, "q4": 4, "bf16": 16, "f32": 32}
CHUNK_TOKENS = 128  # of a prompt: few enough that a request can be cancelled between two passes
KV_BYTES = 4  # of a number in the cache
MAX_HEAD_SIZE = 512  # of the attention kernel
MIN_CONTEXT_TOKENS = 1024  # that must fit beside the weights
CACHE_BYTES = 1 << 30  # of cached sequences, at most, where the configuration leaves it open


def native_model(
    folder: Path, settings: dict[str, Any], file: GgufTensors, dtype: str
) -> NativeModel:
    """The model of a GGUF file. `dtype`: one of DTYPES. UnsupportedModel or WeightsError."""
    described = described_of(settings)
    if described is None:
        raise UnsupportedModel(
            f"{file.path}: no model of type {settings.get('model_type')!r} runs here: choose "
            "another one"
        )
    check_room(file, described, dtype)
    if supports(settings):
        check_llama(folder, settings, file.infos())
    source = StoredArrays(file) if dtype == "stored" else GgufArrays(file)
    bits = BITS.get(dtype, 8)
    model = NativeModel(described, NativeWeights(source, described, bits, folder))
    check_heads(folder, described.head_shapes)
    return model


def described_of(settings: dict[str, Any]) -> Description | None:
    """The description of a checked config.json that has all its fields; None for a family that does
    not run natively. UnsupportedModel for what its family has not."""
    if settings.get("model_type") not in FAMILIES:
        return None
    refuse_inputs(settings)
    refuse_keys(settings, ours=True)
    return describe(settings)


def check_room(file: GgufTensors, described: Description, dtype: str) -> None:
    """WeightsError where the memory that is available does not hold a GGUF file's model."""
    parameters = sum(math.prod(one.shape) for one in file.infos().values())
    width = {"q8": 1.13, "q4": 0.7, "bf16": 2, "f32": 4}.get(dtype)
    size = file.path.stat().st_size if width is None else int(width * parameters)
    groups = described.cache_groups
    token_bytes = sum(2 * len(layers) * kv * d * KV_BYTES for kv, d, layers in groups)
    needed = gguf_memory(size, token_bytes, MIN_CONTEXT_TOKENS)
    check_memory(file.path, needed, parameters)


def check_heads(folder: Path, shapes: Iterable[tuple[int, int, int]]) -> None:
    """UnsupportedModel where the attention kernel has no room for heads of these shapes: their
    number, that of the keys' and the size of each."""
    for heads, kv_heads, size in shapes:
        if size % 8 or not 8 <= size <= MAX_HEAD_SIZE or heads % kv_heads:
            raise UnsupportedModel(
                f"{folder}: {heads} heads of {size} dimensions, {kv_heads} for keys: a CPU runs "
                f"heads of a multiple of 8 dimensions, at most {MAX_HEAD_SIZE}: choose another "
                "model"
            )


def use_threads(threads: int) -> int:
    """Let the kernels run on so many threads, 0: one for each core. Returns how many these are."""
    count = threads or os.cpu_count() or 1
    _kernels.set_threads(count)
    return count
