"""Loading a model for the CPU's own kernels, and the checks that any runtime makes for them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from engine.model import _kernels
from engine.model.families import family_of, read_config
from engine.model.families.gguf_tensors import GgufTensors, tensors_of_gguf
from engine.model.families.refusal import refuse_inputs, refuse_keys
from engine.model.model_config import ModelConfig
from engine.model.native.gguf_arrays import GgufArrays, StoredArrays
from engine.model.native.model import NativeModel, q8_bytes
from engine.model.native.mtp import MtpHead
from engine.model.native.weights import NativeWeights
from engine.model.unsupported import UnsupportedModel
from engine.weights.gguf.parts import size_of
from engine.weights.memory import check_memory, gguf_memory

DTYPES = ("stored", "q8", "q4")  # formats of the kernels' integer products
BITS = {"q8": 8, "q4": 4, "bf16": 16, "f32": 32}  # bits of a weight
BYTES = {"q8": 1.13, "q4": 0.7, "bf16": 2, "f32": 4}  # bytes of a weight, with its scale
CHUNK_TOKENS = 128  # prompt tokens; few, so that a request can be cancelled between passes
KV_BYTES = 4  # bytes of a number in a cache in f32
MAX_HEAD_SIZE = 512  # dimensions of a head, at most, for the attention kernel
MIN_CONTEXT_TOKENS = 1024  # tokens that must fit next to the weights
CACHE_BYTES = 1 << 30  # bytes of cached sequences, where the configuration has no limit


def native_model(folder: Path, file: GgufTensors, dtype: str, kv: str = "auto") -> NativeModel:
    """Load the model of a GGUF file. `dtype`: one of DTYPES. UnsupportedModel or WeightsError.

    `kv`: one of KV_FORMATS, for its caches.
    """
    refuse_keys(file.settings, ours=True)
    check_weights_fit(file, file.config, dtype, kv)
    model = NativeModel(file.config, _weights(folder, file, dtype), kv)
    check_heads(folder, file.config.head_shapes)
    return model


def mtp_head(folder: Path, model: NativeModel, dtype: str, lora: Sequence[str] = ()) -> MtpHead:
    """Load the layer of a model's GGUF file that predicts the token after the next.

    `folder`, `dtype` and `lora`: the model's own. UnsupportedModel where there is none, or
    WeightsError.
    """
    file = tensors_of_gguf(folder, lora=lora)
    assert file is not None
    with file:
        file.choose_mtp()
        weights = _weights(folder, file, dtype)
        weights.shapes |= {name: one.shape for name, one in file.outputs.items()}
        return MtpHead(model, weights)


def _weights(folder: Path, file: GgufTensors, dtype: str) -> NativeWeights:
    source = StoredArrays(file) if dtype == "stored" else GgufArrays(file)
    return NativeWeights(source, file.config, BITS.get(dtype, 8), folder)


def config_of_known(settings: dict[str, Any]) -> ModelConfig | None:
    """Read the config of a model from a checked config.json with all its fields.

    None for a family that does not run natively. UnsupportedModel for what its family has not.
    """
    if family_of(settings) is None:
        return None
    refuse_inputs(settings)
    refuse_keys(settings, ours=True)
    return read_config(settings)


def check_weights_fit(file: GgufTensors, config: ModelConfig, dtype: str, kv: str = "auto") -> None:
    """Raise WeightsError where the available memory does not hold a GGUF file's model."""
    parameters = sum(math.prod(info.shape) for info in file.infos().values())
    width = BYTES.get(dtype)
    merged = sum(
        int(BYTES["q8"] * math.prod(one.shape))
        for one in file.outputs.values()
        if one.source in file.adapters.names
    )
    size = size_of(file.path) + merged if width is None else int(width * parameters)
    token_bytes = sum(
        2 * len(layers) * heads * (q8_bytes(d) if kv == "q8" else KV_BYTES * d)
        for heads, d, layers in config.cache_groups
    )
    needed = gguf_memory(size, token_bytes, MIN_CONTEXT_TOKENS)
    check_memory(file.path, needed, parameters)


def check_heads(folder: Path, shapes: Iterable[tuple[int, int, int]]) -> None:
    """Raise UnsupportedModel where the attention kernel cannot run heads of these shapes.

    `shapes`: the number of heads, the number of those of keys, and the size of each.
    """
    for heads, kv_heads, size in shapes:
        if size % 8 or not 8 <= size <= MAX_HEAD_SIZE or heads % kv_heads:
            raise UnsupportedModel(
                f"{folder}: {heads} heads of {size} dimensions, {kv_heads} for keys: a CPU runs "
                f"heads of a multiple of 8 dimensions, at most {MAX_HEAD_SIZE}: choose another "
                "model"
            )


def use_threads(threads: int) -> int:
    """Let the kernels run on so many threads, and return their number.

    0: one for each core or, on battery, for half of them.
    """
    cores = os.cpu_count() or 1
    count = threads or (max(1, cores // 2) if on_battery() else cores)
    _kernels.set_threads(count)
    return count


def on_battery() -> bool:
    """Return whether the machine runs on its battery; False where it does not say."""
    import psutil  # type: ignore[import-untyped]

    sensors = getattr(psutil, "sensors_battery", None)  # not on every system
    battery = sensors() if sensors else None
    return battery is not None and battery.power_plugged is False


def lower_priority() -> None:
    """Let everything else go before the calling thread, and before the kernels it calls."""
    _kernels.lower_priority()
