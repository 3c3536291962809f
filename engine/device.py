"""Which device and which number format; what of a model a CUDA card has memory for.

Sizes are told before anything is loaded, and nothing is moved elsewhere when it does not fit.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from engine.generic import UnsupportedModel

log = logging.getLogger(__name__)

LEAST = 1024  # tokens of context that a model must have memory for, to be worth loading
BESIDE = 600 << 20  # bytes for libraries, graphs and what fragments
A_WORD = 16 * 40 + 64 * 6  # bytes: what a word of the vocabulary takes while tokens are chosen


def choose_device(name: str) -> torch.device:
    """`auto` takes cuda, then mps, then cpu."""
    if name != "auto":
        if name.startswith("cuda") and not torch.cuda.is_available():
            raise UnsupportedModel("device cuda: none is available here; use --device cpu")
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def choose_dtype(name: str, device: torch.device, folder: Path) -> str:
    """`auto`: bf16 on a GPU; on a CPU q8 for a model that was published quantised (its weights
    have no more than 8 bits of information each), else bf16 where the processor has it, else f32.
    """
    if name != "auto":
        if name not in {"f32", "bf16", "q8", "int8"}:
            raise ValueError(f"dtype {name!r}: choose auto, f32, bf16, q8 or int8")
        if name == "int8" and device.type != "cuda":
            raise ValueError(f"dtype int8 runs on CUDA only: choose q8 or bf16 on {device.type}")
        if name == "q8" and device.type != "cpu":
            raise ValueError(f"dtype q8 runs on the CPU only: choose bf16 or f32 on {device.type}")
        return name
    if device.type != "cpu":
        return "bf16"
    note = folder / "draftline.json"
    if note.is_file() and json.loads(note.read_text("utf-8")).get("quantization"):
        return "q8"
    native = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    return "bf16" if native() else "f32"


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes that a model takes."""

    weights: int
    token: int  # keys and values of one token
    beside: int  # all else, while it runs


def size_of(settings: dict[str, Any], width: int, matrix: int = 0) -> Size:
    """Of a model of Llama's family with numbers of `width` bytes, by its config.json; `matrix`:
    bytes of those of its matrices, where they are others."""
    hidden, heads = settings["hidden_size"], settings["num_attention_heads"]
    d = settings.get("head_dim") or hidden // heads
    kv = settings.get("num_key_value_heads") or heads
    vocab, layers = settings["vocab_size"], settings["num_hidden_layers"]
    layer = hidden * d * (2 * heads + 2 * kv) + 3 * hidden * settings["intermediate_size"]
    matrix = matrix or width
    words, turns = vocab * hidden, settings["max_position_embeddings"] * d * 4
    head = 0 if settings.get("tie_word_embeddings") and matrix == width else words * matrix
    return Size(
        layers * layer * matrix + words * width + head + turns,
        2 * layers * kv * d * width,
        BESIDE + A_WORD * vocab,
    )


def check_fits(name: str, size: Size, tokens: int, card: str, free: int, total: int) -> None:
    """UnsupportedModel with the numbers where the card has not the memory for the weights and
    `tokens` tokens of context."""
    need = size.weights + tokens * size.token + size.beside
    if need <= free:
        return
    raise UnsupportedModel(
        f"{name} needs {_gb(need)} ({_gb(size.weights)} for weights, {_gb(tokens * size.token)} "
        f"for {tokens} tokens, {_gb(size.beside)} to compute); {card} has {_gb(free)} of "
        f"{_gb(total)} free: choose a smaller model, end what else uses the card, or take "
        "--device cpu"
    )


def check_card(name: str, settings: dict[str, Any], widths: tuple[int, int], wanted: int) -> Size:
    """The model's size, where the card that is in use has the memory. `widths`: bytes of a number,
    and of a matrix's; `wanted`: tokens of context that were asked for; 0: none in particular."""
    size = size_of(settings, *widths)
    free, total = torch.cuda.mem_get_info()
    context = int(settings["max_position_embeddings"])
    tokens = min(wanted or LEAST, context)
    check_fits(name, size, tokens, torch.cuda.get_device_name(), free, total)
    return size


def room_left(size: Size, context: int, free: int) -> int:
    """Tokens of context, at most `context`, that `free` bytes hold once the weights are loaded. A
    context that must be cut is logged."""
    fits = max(1, (free - size.beside) // size.token)
    if fits < context:
        log.warning(
            "memory for %d tokens of %d is left on this card: longer prompts are refused", fits,
            context,
        )  # fmt: skip
    return min(context, fits)


@contextmanager
def memory_told(name: str) -> Iterator[None]:
    """UnsupportedModel with the numbers where a model fills its card while it is loaded."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        free, total = torch.cuda.mem_get_info()
        raise UnsupportedModel(
            f"{name} does not fit: {torch.cuda.get_device_name()} has {_gb(free)} of {_gb(total)} "
            "left and needs more: choose a smaller model, or take --device cpu"
        ) from error


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
