"""Devices, number formats, and whether a model fits into the memory of CUDA cards.

Sizes are checked before anything is loaded; a model that does not fit is refused, not split between
a card and the CPU.
"""

from __future__ import annotations

import logging
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from engine.config import Config, devices
from engine.model.families.tensors import shapes_of
from engine.model.model_config import Experts, ModelConfig
from engine.model.native.loading import MIN_CONTEXT_TOKENS
from engine.model.torch.cuda.feed_forward import gathered_rows
from engine.model.torch.cuda.weight_formats import FORMATS, head_format, matrix_bytes
from engine.model.unsupported import UnsupportedModel
from engine.weights.catalogue.builtins import BUILTINS
from engine.weights.memory import in_gb
from engine.weights.resolve import gguf_of

log = logging.getLogger(__name__)

OVERHEAD_BYTES = 600 << 20  # bytes of libraries, CUDA graphs and fragmentation
OLD_DRIVER = "driver on your system is too old"  # words of torch
NOT_BUILT = "this torch is built for CPUs only"
NO_CARD = ("no NVIDIA driver", "No CUDA GPUs", NOT_BUILT)  # errors where no card is to be expected
NUMBER_BYTES = {"f32": 4}  # bytes of a number, also of keys and values; 2 in other dtypes
LOGIT_BYTES = 6  # bytes of a row's token: in the model's dtype and in f32
CHOOSING_BYTES = 16 * 40 + 64 * LOGIT_BYTES  # bytes per token of the vocabulary, for 64 rows


def choose_device(name: str) -> torch.device:
    """Choose the torch device of a name. UnsupportedModel.

    `auto` takes a CUDA card, else the CPU, and logs why it leaves a card or Apple's GPU out.
    """
    device = _device_of(name)
    if device.type == "cuda":
        # It would make a plan for every length of a cache: tens of milliseconds a step.
        torch.backends.cuda.enable_cudnn_sdp(False)
    return device


def _device_of(name: str) -> torch.device:
    if name.startswith("cuda"):
        device = torch.device(name)
        if not (why := cuda_failure()):
            last = torch.cuda.device_count() - 1
            if (device.index or 0) > last:
                raise UnsupportedModel(
                    f"device {name}: the last card here is cuda:{last}: choose that one, or "
                    "--device auto"
                )
            why = _card_failure(device)
        if why:
            raise UnsupportedModel(f"device {name}: {why}, or use --device cpu")
        return device
    if name == "mps":
        if not torch.backends.mps.is_available():
            raise UnsupportedModel("device mps: there is no Apple GPU here: use --device cpu")
        log.warning("nobody has tried Apple's GPU: if it fails, use --device cpu")
    if name != "auto":
        return torch.device(name)
    why = cuda_failure() or _card_failure(torch.device("cuda"))
    if not why:
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        log.info("Apple's GPU is left out, as nobody has tried it: the model runs on the CPU")
    elif not any(known in why for known in NO_CARD):
        log.warning("no card is used: %s; the model runs on the CPU", why)
    return torch.device("cpu")


def cuda_failure() -> str:
    """Explain why torch can use no card here, and what would help; "" where it can use one."""
    with warnings.catch_warnings():  # torch's own warning has many lines
        warnings.simplefilter("ignore")
        if torch.cuda.is_available():
            return ""
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except AssertionError:
        return f"{NOT_BUILT}: install one that is built for CUDA"
    except RuntimeError as error:
        why = " ".join(str(error).split()).split(". ")[0].rstrip(".")
        if OLD_DRIVER in why:
            made_for = f"torch is made for CUDA {torch.version.cuda}"
            return f"{why} and {made_for}: update the driver, install a torch for its CUDA"
        return f"{why}: see whether nvidia-smi lists a card"
    return "torch lists no card: see whether nvidia-smi does"


def _card_failure(card: torch.device) -> str:
    """Explain why torch cannot compute on a card that it lists; "" where it can."""
    major, minor = torch.cuda.get_device_capability(card)
    built = re.findall(r"\b(sm|compute)_(\d+)", " ".join(torch.cuda.get_arch_list()))
    # A card runs the code of older ones of its series, and compiles that of all older ones.
    runs = [
        int(number) <= 10 * major + minor and (kind == "compute" or int(number) // 10 == major)
        for kind, number in built
    ]
    if built and not any(runs):
        return (
            f"{_named(card)} has compute capability {major}.{minor}, for which this torch is not "
            f"built ({torch.__version__}): install one that is"
        )
    try:
        torch.cuda.mem_get_info(card)  # the first use of its memory
    except RuntimeError as error:
        why = str(error).splitlines()[0]
        return f"{_named(card)} cannot be used ({why}): end what else uses it"
    return ""


def choose_devices(text: str) -> list[torch.device]:
    """Choose the torch devices of a `Config.device`."""
    return [choose_device(name) for name in devices(text)]


def refuse_several(
    count: int, settings: dict[str, Any], ours: bool, dtype: str, config: Config
) -> None:
    """Raise UnsupportedModel with one line where the model cannot be split across `count` devices.

    `ours`: it is of Llama's family.
    """
    layers = settings.get("num_hidden_layers", 0)
    why = ""
    if not ours:
        kind = settings.get("model_type")
        why = f"{kind} runs on one device: name one, or choose a Llama or Qwen model"
    elif count > layers:
        why = f"it has {layers} layers: name {layers} devices at most"
    elif dtype in {"stored", "q8", "q4", *FORMATS}:
        what = "a quantised model" if dtype == "stored" else dtype
        why = f"{what} runs on one device: name one, or choose --dtype bf16"
    elif config.exact:
        why = "--exact runs on one device: name one, or leave it out"
    if why:
        raise UnsupportedModel(f"{config.model} on {config.device}: {why}")


def shares(layers: int, free: Sequence[int]) -> list[int]:
    """Split `layers` equal layers among devices, at least one each, given their `free` bytes.

    Returns how many each device gets: the split whose fullest device has the most bytes per layer.
    """
    counts = [1] * len(free)
    for _ in range(layers - len(free)):
        counts[max(range(len(free)), key=lambda n: free[n] / (counts[n] + 1))] += 1
    return counts


def choose_dtype(name: str, device: torch.device, folder: Path) -> str:
    """Choose the number format.

    `auto`: bf16 on a GPU; on a CPU "stored", as the GGUF file has it, or for safetensors bf16 where
    the processor supports it natively, else f32.
    """
    if name != "auto":
        if name not in {"f32", "bf16", "q8", "q4", *FORMATS}:
            known = ", ".join(["auto, f32, bf16, q8, q4", *FORMATS[:-1]])
            raise ValueError(f"dtype {name!r}: choose {known} or {FORMATS[-1]}")
        if name in FORMATS and device.type != "cuda":
            other = "q4" if name == "int4" else "q8"
            raise ValueError(
                f"dtype {name} runs on CUDA only: choose {other} or bf16 on {device.type}"
            )
        if name in ("q8", "q4") and device.type != "cpu":
            where = f"choose bf16 or f32 on {device.type}"
            raise ValueError(f"dtype {name} runs on the CPU only: {where}")
        return name
    if device.type != "cpu":
        return "bf16"
    if gguf_of(folder):
        return "stored"
    native = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    return "bf16" if native() else "f32"


@dataclass(frozen=True, slots=True)
class Size:
    """Memory of a model, in bytes."""

    weights: int
    token: int  # bytes of the KV cache for one token
    overhead: int  # everything else while it runs


def size_of(config: ModelConfig, dtype: str, some: range | None = None) -> Size:
    """Compute the size of a model of Llama's family on a card.

    `some`: only these layers, with the embedding before the first and the head after the last.
    """
    width, narrow = NUMBER_BYTES.get(dtype, 2), dtype if dtype in FORMATS else ""
    ((heads, kv, d),) = config.head_shapes
    hidden, vocab, layers = config.width, config.vocab, len(config.layers)
    assert config.layers[0].dense is not None
    inner = config.layers[0].dense.width
    some = range(layers) if some is None else some
    first, last = some.start == 0, some.stop == layers
    attention, feed_forward = ((heads + 2 * kv) * d, hidden), (2 * inner, hidden)
    matrices = (attention, (hidden, heads * d), feed_forward, (hidden, inner))
    layer = sum(matrix_bytes(narrow, width, *shape) for shape in matrices)
    words, phases = vocab * hidden * width, config.positions * d * 4
    once = first and config.tied and not narrow
    begins = words + phases if first else 0
    ends = matrix_bytes(head_format(narrow), width, vocab, hidden) if last and not once else 0
    return Size(
        len(some) * layer + begins + ends,
        2 * len(some) * kv * d * width,
        OVERHEAD_BYTES + CHOOSING_BYTES * vocab * last,
    )


def size_of_described(d: ModelConfig, width: int) -> Size:
    """Compute the size of a model by its `ModelConfig`, with numbers of `width` bytes."""
    copied = max(
        (_gathered(layer.experts, d.width) for layer in d.layers if layer.experts), default=0
    )
    return Size(
        sum(math.prod(shape) for shape in shapes_of(d).values()) * width,
        sum(2 * len(layers) * kv * head_dim for kv, head_dim, layers in d.cache_groups) * width,
        OVERHEAD_BYTES + CHOOSING_BYTES * d.vocab + copied * width,
    )


def _gathered(spec: Experts, width: int) -> int:
    """Count the numbers of the experts' weights that a pass of few rows copies."""
    return gathered_rows(spec) * spec.chosen * 3 * spec.width * width


def with_rows(size: Size, vocab: int, rows: int) -> Size:
    """Add the memory for passes of up to `rows` rows to `size`."""
    return replace(size, overhead=size.overhead + max(rows - 64, 0) * LOGIT_BYTES * vocab)


def check_card(
    name: str,
    size: Size,
    wanted: int,
    context: int,
    card: torch.device,
    others: Mapping[str, Size] | None = None,
) -> None:
    """Raise UnsupportedModel where a card lacks the memory for a model and its context.

    The context is `wanted` tokens (0: a few), at most `context`. `others`: the sizes that the model
    would have with other options.
    """
    tokens = min(wanted or MIN_CONTEXT_TOKENS, context)
    check_fits(name, size, tokens, _named(card), *torch.cuda.mem_get_info(card), others)


def check_fits(
    name: str,
    size: Size,
    tokens: int,
    card: str,
    free: int,
    total: int,
    others: Mapping[str, Size] | None = None,
) -> None:
    """Raise UnsupportedModel where a card lacks the memory for weights and `tokens` of context.

    The error has the numbers and what would fit.
    """
    need = _needed(size, tokens)
    if need <= free:
        return
    fitting = [
        f"{option} ({in_gb(_needed(other, tokens))})"
        for option, other in (others or {}).items()
        if _needed(other, tokens) <= free
    ]
    raise UnsupportedModel(
        f"{name} needs {in_gb(need)} ({in_gb(size.weights)} for weights, "
        f"{in_gb(tokens * size.token)} for {tokens} tokens, {in_gb(size.overhead)} to compute); "
        f"{card} has {in_gb(free)} of {in_gb(total)} free: "
        f"choose {', '.join([*fitting, _smaller(size, tokens, free)])}, end "
        "what else uses the card, or take --device cpu"
    )


def _needed(size: Size, tokens: int) -> int:
    return size.weights + tokens * size.token + size.overhead


def _smaller(size: Size, tokens: int, free: int) -> str:
    """Name a smaller model: the largest built-in one that fits, if any."""
    sizes = {
        builtin.name: replace(size, weights=builtin.bf16_bytes) for builtin in BUILTINS.values()
    }
    fitting = {
        name: _needed(one, tokens)
        for name, one in sizes.items()
        if one.weights < size.weights and _needed(one, tokens) <= free
    }
    if not fitting:
        return "a smaller model"
    name = max(fitting, key=lambda one: fitting[one])
    return f"a smaller model such as {name} ({in_gb(fitting[name])})"


def placed(
    name: str,
    config: ModelConfig,
    dtype: str,
    wanted: int,
    devices: list[torch.device],
) -> tuple[list[tuple[torch.device, int]], list[Size]]:
    """Choose how many layers each device gets.

    Also returns, on cards, the size of each part, which must fit (UnsupportedModel). `wanted`:
    requested tokens of context, 0 for none.
    """
    layers, context = len(config.layers), config.positions
    if devices[0].type != "cuda":
        return [*zip(devices, shares(layers, [1] * len(devices)), strict=True)], []
    memory = [torch.cuda.mem_get_info(card) for card in devices]
    left = [free - OVERHEAD_BYTES for free, _ in memory]
    head = size_of(config, dtype, range(layers, layers))
    left[0] -= size_of(config, dtype, range(0)).weights
    left[-1] -= head.weights + head.overhead - OVERHEAD_BYTES
    places, sizes, start = [], [], 0
    for card, count, (free, total) in zip(devices, shares(layers, left), memory, strict=True):
        places.append((card, count))
        sizes.append(size_of(config, dtype, range(start, start + count)))
        part = name if count == layers else f"{name}, layers {start} to {start + count - 1},"
        tokens = min(wanted or MIN_CONTEXT_TOKENS, context)
        others = _in_other_dtypes(config, dtype) if len(devices) == 1 else None
        check_fits(part, sizes[-1], tokens, _named(card), free, total, others)
        start += count
    return places, sizes


def _in_other_dtypes(config: ModelConfig, dtype: str) -> dict[str, Size]:
    """Compute the sizes of a model of Llama's family in the dtypes that take less memory.

    They are by the option.
    """
    sizes = {f"--dtype {name}": size_of(config, name) for name in ("bf16", *FORMATS)}
    own = size_of(config, dtype).weights
    return {option: size for option, size in sizes.items() if size.weights < own}


def capacity_on(
    cards: list[torch.device], sizes: list[Size], context: int, memory: int
) -> tuple[int, int]:
    """Compute how much context the cards can hold once the weights are loaded.

    Returns how many of `context` tokens, and how many of `memory` bytes of cached sequences (0:
    half of what is left).
    """
    torch.cuda.empty_cache()
    token, left = sum(size.token for size in sizes), 1 << 62
    for card, size in zip(cards, sizes, strict=True):
        free = torch.cuda.mem_get_info(card)[0]
        context = capacity_left(
            size, context, free, _named(card) if len(cards) > 1 else "this card"
        )
        left = min(left, max(0, free - size.overhead) * token // size.token)
    return context, min(memory, left) if memory else left // 2


def capacity_left(size: Size, context: int, free: int, card: str = "this card") -> int:
    """Count how many of `context` tokens `free` bytes can hold once the weights are loaded.

    Logged if not all of them.
    """
    fits = max(1, (free - size.overhead) // size.token)
    if fits < context:
        log.warning(
            "memory for %d of %d tokens is left on %s: longer prompts are refused", fits, context,
            card,
        )  # fmt: skip
    return min(context, fits)


@contextmanager
def out_of_memory_is_unsupported(name: str, cards: Sequence[torch.device]) -> Iterator[None]:
    """Turn running out of memory while loading into UnsupportedModel.

    The error has the numbers of the fullest card.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        card = min(cards, key=lambda one: torch.cuda.mem_get_info(one)[0])
        free, total = torch.cuda.mem_get_info(card)
        raise UnsupportedModel(
            f"{name} does not fit: {_named(card)} has {in_gb(free)} of {in_gb(total)} "
            "left and needs more: choose a smaller model, or take --device cpu"
        ) from error


def _named(card: torch.device) -> str:
    """Name a card, with its number if that was given."""
    name = torch.cuda.get_device_name(card)
    return name if card.index is None else f"{name} ({card})"
