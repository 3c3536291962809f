"""Estimates of how much memory running a model takes, made without loading it."""

from __future__ import annotations

from pathlib import Path

import psutil  # type: ignore[import-untyped]

from engine.weights.errors import WeightsError
from engine.weights.gguf.parts import size_of

BITS = {"Q6_K": 6.6, "Q5_K_M": 5.7, "Q4_K_M": 4.9, "Q3_K_M": 3.9, "Q2_K": 3.2}  # bits of a weight
SMALLER = 0.95  # times the file: another quantisation
PACKED = 1.05  # times the file: its tensors, repacked
LIBRARIES_BYTES = 500_000_000  # bytes of torch, the tokenizer, the n-grams of Python's library
OVERHEAD_BYTES = 1 << 30  # bytes next to the weights: libraries, the prompt and the KV cache
CONTEXT_TOKENS = 8192  # tokens counted of the KV cache, which grows with what is read and written
USUAL_TOKEN_BYTES = 1 << 16  # bytes of the KV cache of one token, where they are not known


def gguf_memory(file_bytes: int, token_bytes: int = 0, context: int = 0) -> int:
    """Estimate the bytes of memory that a GGUF file takes on a CPU.

    `token_bytes`: bytes of the KV cache of one token; `context`: the most tokens that the model can
    have; 0 for unknown.
    """
    tokens = min(context or CONTEXT_TOKENS, CONTEXT_TOKENS)
    return int(PACKED * file_bytes) + LIBRARIES_BYTES + (token_bytes or USUAL_TOKEN_BYTES) * tokens


def check_memory(path: Path, needed: int, parameters: int) -> None:
    """Check that the available memory suffices for a GGUF file.

    WeightsError where it does not, with the quantisation of the same model that would fit.
    `needed`: bytes that the file takes; `parameters`: the number of the model's parameters.
    """
    available = psutil.virtual_memory().available
    if needed <= available:
        return
    size = size_of(path)
    smaller = {name: int(bits * parameters / 8) for name, bits in BITS.items()}
    fitting = [
        f"{name} (about {in_gb(bytes)})"
        for name, bytes in smaller.items()
        if bytes < SMALLER * size and needed - PACKED * (size - bytes) <= available
    ]
    other = f"its {fitting[0]}" if fitting else "a smaller model"
    raise WeightsError(
        f"{path}: needs {in_gb(needed)} of memory, {in_gb(available)} are available: end "
        f"what else uses memory, or choose {other}"
    )


def in_gb(count: float) -> str:
    """Write a number of bytes as messages show it."""
    return f"{count / 1e9:.1f} GB"


def folder_memory(weights_bytes: int, widened: bool = False) -> int:
    """Estimate the bytes of memory that a folder with weights of 16 bits takes.

    `widened`: the weights are computed with in 32 bits, as on CPUs without bf16.
    """
    return (2 if widened else 1) * weights_bytes + OVERHEAD_BYTES
