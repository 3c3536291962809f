"""Loading of a model folder: which device, number format and kernels a configuration means here."""

from __future__ import annotations

import contextlib
import logging
import math
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from engine.config import USUAL_BUDGET, WIDE_BUDGET, Config
from engine.model.families import family_of, read_config
from engine.model.families.gguf_tensors import GgufTensors, OnRead, tensors_of_gguf
from engine.model.families.llama import check_settings
from engine.model.families.refusal import has_llama_pass, refuse, refuse_inputs, refuse_keys
from engine.model.families.tensors import check_optional, check_tensors
from engine.model.model_config import ModelConfig
from engine.model.native.gguf_arrays import ArraySource, StoredArrays
from engine.model.native.loading import (
    BITS,
    CACHE_BYTES,
    CHUNK_TOKENS,
    DTYPES,
    check_heads,
    check_weights_fit,
    config_of_known,
    use_threads,
)
from engine.model.native.model import NativeModel
from engine.model.native.weights import NativeWeights
from engine.model.torch.cuda.cuda_graphs import CudaGraphs
from engine.model.torch.cuda.current_card import KERNELS_FROM, current, runs_kernels
from engine.model.torch.cuda.described_model import DescribedModel
from engine.model.torch.cuda.static_forward import Static, rows_for
from engine.model.torch.cuda.weight_formats import FORMATS
from engine.model.torch.gguf_weights import GgufWeights, arrays_of
from engine.model.torch.hf_model import Generic, with_defaults
from engine.model.torch.llama import Llama, TensorSource, Weights
from engine.model.torch.placement import (
    NUMBER_BYTES,
    Size,
    capacity_on,
    check_card,
    choose_devices,
    choose_dtype,
    out_of_memory_is_unsupported,
    placed,
    refuse_several,
    size_of_described,
    with_rows,
)
from engine.model.torch.tensor_model import TensorModel
from engine.model.unsupported import UnsupportedModel
from engine.weights.config_json import field_error
from engine.weights.fetch.integrity import TensorInfo, config_of, tensors_of

log = logging.getLogger(__name__)

GPU_CHUNK_TOKENS = 1024  # prompt tokens in one pass
ROTATION_BYTES = 64 << 20  # bytes that config.json may demand beyond the weights' size
MASKED_CHUNK_TOKENS = 256  # prompt tokens, where attention takes memory for every row and key


@dataclass(slots=True)
class LoadedModel:
    """A model that is ready to run."""

    folder: Path
    model: Llama | TensorModel | DescribedModel | Generic
    settings: dict[str, Any]  # its config.json
    devices: list[torch.device]  # in the order of the layers
    dtype: str  # f32, bf16, stored, q8, q4, int8, fp8 or int4
    exact: bool  # whether its kernels on a card are those that do not round by shape
    context: int  # tokens
    cache_bytes: int  # bytes of cached sequences, at most
    chunk: int  # prompt tokens a pass
    static: Static | None  # passes of static shape, where they are used
    budget: int  # draft nodes of a step

    @property
    def device(self) -> torch.device:
        """The device of the last layers, where hidden states and logits are."""
        return self.devices[-1]


def load(
    folder: Path,
    config: Config,
    weights: TensorSource | None = None,
    on_read: OnRead = lambda done, total: None,
) -> LoadedModel:
    """Load `folder` (config.json, safetensors or the name of a GGUF file).

    `weights`: tensors by name in place of the files. `on_read` is called with the bytes that were
    read of a GGUF file, and all of them. UnsupportedModel, WeightsError, ValueError or OSError with
    one line.
    """
    file = None if weights else tensors_of_gguf(folder, on_read, config.lora)
    with file or contextlib.nullcontext():
        settings = config_of(folder) if file is None else file.settings
        return _load(folder, settings, config, file, weights)


def _load(
    folder: Path,
    settings: dict[str, Any],
    config: Config,
    file: GgufTensors | None,
    weights: TensorSource | None,
) -> LoadedModel:
    llama = _llama_config(folder, settings, file)
    ours = llama is not None
    devices, described = _placed(folder, settings, config, llama, complete=file is not None)
    device, several = devices[-1], len(devices) > 1
    dtype_name = choose_dtype(config.dtype, device, folder)
    quantised = dtype_name in DTYPES
    narrow = dtype_name if dtype_name in FORMATS else ""
    exact = _exact(config, devices, ours and described is None)
    tensors = tensors_of(folder) if file is None else file.infos()
    if device.type == "cpu" and quantised and ours:
        described = _described(folder, settings, complete=file is not None)
    if device.type == "cpu":
        _use_threads(config.threads, described is not None)
    if file is not None:
        if device.type == "cpu":
            check_weights_fit(file, file.config, dtype_name)
        weights = GgufWeights(file)
    if described is None:
        if file is not None and not ours:
            raise UnsupportedModel(
                f"{file.path}: a {settings['model_type']} model runs on a CPU: choose --device cpu"
            )
        refuse(settings, ours)
    if llama is not None and (weights is None or file is not None):
        _check_llama(folder, llama, tensors)
    elif described is not None and weights is None:
        check_tensors(folder, described, tensors)
    if several:
        refuse_several(len(devices), settings, ours, dtype_name, config)
    _check_kernels(exact, narrow, settings, device, ours)
    dtype = torch.bfloat16 if narrow or dtype_name == "bf16" else torch.float32
    places: list[tuple[torch.device, int]] | None = None
    sizes: list[Size] | None = None
    if described is not None and device.type == "cuda":
        sizes = [_check_described(folder.name, described, dtype.itemsize, config, device)]
    elif llama is not None and described is None:
        places, sizes = placed(folder.name, llama, dtype_name, config.max_context, devices)
    model: Llama | TensorModel | DescribedModel | Generic
    with torch.inference_mode(), out_of_memory_is_unsupported(folder.name, devices):
        if described is not None:
            bits = BITS.get(dtype_name, 8)
            source: ArraySource = arrays_of(weights or Weights(folder))
            if file is not None and dtype_name == "stored":
                source = StoredArrays(file)
            files = NativeWeights(source, described, bits, folder)
            if device.type == "cuda":
                model = DescribedModel(files, device, dtype)
            else:
                model = TensorModel(NativeModel(described, files))
        elif llama is not None:
            named = weights or Weights(folder)
            model = Llama(llama, named, device, dtype, exact, narrow, places)
        else:
            blocks = BITS[dtype_name] if quantised else None
            model = Generic(folder, tensors, device, dtype, blocks)
    if device.type == "cpu":
        if isinstance(model, TensorModel | DescribedModel):
            check_heads(folder, model.description.head_shapes)
        else:
            check_heads(folder, {(model.heads, model.kv_heads, model.head_dim)})
    budget = config.budget or _usual_budget(model, dtype_name, exact, config, devices)
    context = min(config.max_context or 1 << 30, model.max_positions)
    cache_bytes = config.cache_bytes or CACHE_BYTES
    if sizes:
        sizes[-1] = with_rows(sizes[-1], model.vocab, 1 + budget)
        context, cache_bytes = capacity_on(devices, sizes, context, config.cache_bytes)
    chunk = CHUNK_TOKENS if device.type == "cpu" else GPU_CHUNK_TOKENS
    static = None
    if isinstance(model, Llama | DescribedModel) and _wants_static(exact, config, devices):
        static = _static(model, exact or bool(config.exact), config, budget, device)
    if exact or static is None or isinstance(model, DescribedModel):
        chunk = min(chunk, MASKED_CHUNK_TOKENS)
    return LoadedModel(
        folder, model, settings, devices, dtype_name, exact, context, cache_bytes, chunk, static,
        budget,
    )  # fmt: skip


def _usual_budget(
    model: object, dtype: str, exact: bool, config: Config, devices: list[torch.device]
) -> int:
    """Choose the draft nodes of a step: more where many rows take hardly longer than one."""
    has_graphs = config.graphs == "auto" and [place.type for place in devices] == ["cuda"]
    is_wide = has_graphs and isinstance(model, Llama) and dtype == "bf16" and not exact
    return WIDE_BUDGET if is_wide else USUAL_BUDGET


def _use_threads(threads: int, quantised: bool) -> None:
    """Share the CPU between our kernels and torch's: two thread pools would wait for each other."""
    count = use_threads(threads)
    torch.set_num_threads(1 if quantised else count)


def _exact(config: Config, devices: list[torch.device], ours: bool) -> bool:
    """Return whether passes on a card are to keep a row's bits.

    Where nothing else is asked for they are, if the card and the model have such kernels.
    """
    if config.exact is not None or devices[0].type == "cpu":
        return bool(config.exact) and devices[0].type != "cpu"
    able = ours and len(devices) == 1 and config.graphs == "auto" and runs_kernels(devices[0])
    return able and find_spec("triton") is not None


def _static(
    model: Llama | DescribedModel, exact: bool, config: Config, budget: int, device: torch.device
) -> Static:
    """Make passes of static shape, with CUDA graphs where they can be used."""
    with current(device):  # pinned buffers belong to the current card
        static = Static(model, exact, rows_for(budget, model))
    if isinstance(model, DescribedModel) and not model.fuses:
        kind = model.description.family
        log.info("passes of a %s model are launched kernel by kernel, without CUDA graphs", kind)
    if config.graphs == "auto" and device.type == "cuda" and static.fused is not None:
        static.graphs = CudaGraphs(static)
    return static


def _llama_config(
    folder: Path, settings: dict[str, Any], file: GgufTensors | None
) -> ModelConfig | None:
    """Read the config of a model of Llama's family; None for any other."""
    if not has_llama_pass(settings):
        return None
    if file is not None:
        return file.config
    check_settings(folder / "config.json", settings)
    return read_config(settings)


def _check_llama(folder: Path, llama: ModelConfig, tensors: dict[str, TensorInfo]) -> None:
    """Raise WeightsError where a model of Llama's family has other tensors than its config.json."""
    file, layers, positions = folder / "config.json", len(llama.layers), llama.positions
    if layers > len(tensors):
        fewer = f"no more layers than its files have tensors ({len(tensors)})"
        raise field_error(file, "num_hidden_layers", layers, fewer)
    ((_, _, d),) = llama.head_shapes
    stored = sum(2 * math.prod(tensor.shape) for tensor in tensors.values())
    if positions * d * 4 > ROTATION_BYTES + stored:
        fitting = "a context that fits the size of the model"
        raise field_error(file, "max_position_embeddings", positions, fitting)
    check_tensors(folder, llama, tensors)
    check_optional(folder, llama, tensors)


def _placed(
    folder: Path,
    settings: dict[str, Any],
    config: Config,
    llama: ModelConfig | None,
    complete: bool,
) -> tuple[list[torch.device], ModelConfig | None]:
    """Choose where the model runs, and read the config of one that is not of Llama's family.

    `auto` takes the CPU for what the card cannot run or hold. UnsupportedModel where no card runs
    it and one was named.
    """
    devices, auto = choose_devices(config.device), config.device == "auto"
    ours = llama is not None
    described = None if ours or devices[0].type == "mps" else _described(folder, settings, complete)
    if devices[0].type != "cuda" or (described is None and not ours):
        return devices, described
    if described is not None and described.recurrent and not auto:
        raise UnsupportedModel(
            f"{folder.name}: linear attention ({described.family}) runs on a CPU only: choose "
            "--device cpu"
        )
    if not auto:
        return devices, described
    if why := _off_card(described, config):
        log.info("%s: %s, so it runs on the CPU", folder.name, why)
    elif why := _too_large(folder.name, llama, described, config, devices[0]):
        log.warning("%s: it does not fit the card, so it runs on the CPU: %s", folder.name, why)
    return [torch.device("cpu")] if why else devices, described


def _off_card(d: ModelConfig | None, config: Config) -> str:
    """Explain why a model has no path on a card; "" if it has.

    `d`: its config; None for a model of Llama's family.
    """
    if config.dtype in ("q8", "q4"):
        return f"{config.dtype} has no path on a card"
    if d is not None and d.recurrent:
        return f"a {d.family} model has no path on cuda"
    if d is not None and config.exact:
        return f"exact passes of a {d.family} model have no path on a card"
    return ""


def _too_large(
    name: str,
    llama: ModelConfig | None,
    d: ModelConfig | None,
    config: Config,
    card: torch.device,
) -> str:
    """Explain why a model does not fit a card, by its sizes and what would fit; "" if it fits.

    Also "" if the model is refused anyway: a card's format on a CPU.
    """
    dtype = "f32" if config.dtype == "f32" else "bf16"
    try:
        if d is not None:
            _check_described(name, d, NUMBER_BYTES.get(dtype, 2), config, card)
        elif llama is not None and config.dtype not in FORMATS:
            placed(name, llama, dtype, config.max_context, [card])
    except UnsupportedModel as error:
        return str(error)
    return ""


def _check_described(
    name: str, d: ModelConfig, width: int, config: Config, card: torch.device
) -> Size:
    """Compute the size of a model by its `ModelConfig`, with numbers of `width` bytes.

    UnsupportedModel where it does not fit a card.
    """
    size = size_of_described(d, width)
    others = {"--dtype bf16": size_of_described(d, 2)} if width > 2 else {}
    check_card(name, size, config.max_context, d.positions, card, others)
    return size


def _described(folder: Path, settings: dict[str, Any], complete: bool) -> ModelConfig | None:
    """Read the config of a model that runs natively; None for a family that does not.

    `complete`: the settings have all fields.
    """
    if complete or family_of(settings) is None:
        return config_of_known(settings)
    refuse_inputs(settings)
    refuse_keys(settings, ours=True)
    return read_config(with_defaults(folder, settings))


def _check_kernels(
    exact: bool, narrow: str, settings: dict[str, Any], device: torch.device, ours: bool
) -> None:
    """Raise UnsupportedModel where exact passes or weights in `narrow` cannot run here."""
    what = "exact" if exact else narrow
    if what and not (device.type == "cuda" and ours):
        raise UnsupportedModel(
            f"{what}: not for {settings.get('model_type')} on {device.type}: choose "
            "a Llama or Qwen model on cuda, or leave it out"
        )
    if what and not runs_kernels(device):
        raise UnsupportedModel(
            f"{what} needs a card of compute capability {KERNELS_FROM[0]}.{KERNELS_FROM[1]} or "
            "newer: leave it out"
        )
    if what and find_spec("triton") is None:
        raise UnsupportedModel(f"{what} needs Triton on a GPU: install it, or leave it out")


def _wants_static(exact: bool, config: Config, devices: list[torch.device]) -> bool:
    """Return whether passes have static shapes."""
    if config.graphs not in ("auto", "off", "static"):
        raise ValueError(f"graphs {config.graphs!r}: choose auto, off or static")
    if len(devices) > 1:
        log.warning("%s: passes are launched step by step, without CUDA graphs", config.device)
        return False
    cuda = devices[0].type == "cuda"
    return config.graphs == "static" or (cuda and (config.graphs == "auto" or exact))
