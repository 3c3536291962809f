"""How much memory running a model takes, estimated without loading it."""

from __future__ import annotations

GGUF_FACTOR = 1.3  # of the file: its tensors, some repacked, and the libraries
OVERHEAD_BYTES = 1 << 30  # beside a folder's weights: libraries, the prompt and the KV cache
CONTEXT_TOKENS = 8192  # of the KV cache that is counted; it grows with what is read and written


def gguf_memory(file_bytes: int, token_bytes: int, context: int) -> int:
    """Bytes of memory that a GGUF file takes on a CPU. `token_bytes`: KV cache of one token;
    `context`: the most tokens that the model can have, 0 for unknown."""
    cache_bytes = token_bytes * min(context or CONTEXT_TOKENS, CONTEXT_TOKENS)
    return int(GGUF_FACTOR * file_bytes) + cache_bytes


def folder_memory(weights_bytes: int, widened: bool = False) -> int:
    """Bytes of memory that a folder with weights of 16 bits takes. `widened`: they are computed
    with in 32 bits, as on CPUs without bf16."""
    return (2 if widened else 1) * weights_bytes + OVERHEAD_BYTES
