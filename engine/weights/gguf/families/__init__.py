"""The families of models that GGUF files are read of, one file each.

A family says what its metadata mean in transformers' config.json and which tensors it has. Names
and meanings are those of llama.cpp's converter and its `gguf` package.
"""

from __future__ import annotations

from engine.weights.gguf.families import (
    gated_delta_net,
    gemma3,
    gemma4,
    gpt_oss,
    llama,
    olmo,
    phi3,
    qwen3_moe,
)
from engine.weights.gguf.families.family import Family

FAMILIES: tuple[Family, ...] = (
    *llama.FAMILIES,
    qwen3_moe.FAMILY,
    phi3.FAMILY,
    gemma3.FAMILY,
    gemma4.FAMILY,
    gpt_oss.FAMILY,
    olmo.FAMILY,
    *gated_delta_net.FAMILIES,
)
