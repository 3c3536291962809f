"""A transformers model as the GGUF file that llama.cpp's converter makes of it, in f32."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import load_file

from tests.support.tiny_gguf import SPECIAL, TOKENS, add_tokenizer

VOCABULARY = len(TOKENS) + len(SPECIAL)
# Model type: GGUF's architecture, and whether q and k are put into GGML's rope order.
ARCHITECTURES = {
    "llama": (gguf.MODEL_ARCH.LLAMA, True),
    "qwen2": (gguf.MODEL_ARCH.QWEN2, False),
    "qwen3": (gguf.MODEL_ARCH.QWEN3, False),
    "qwen3_moe": (gguf.MODEL_ARCH.QWEN3MOE, False),
    "granite": (gguf.MODEL_ARCH.GRANITE, True),
    "smollm3": (gguf.MODEL_ARCH.SMOLLM3, True),
    "mistral": (gguf.MODEL_ARCH.MISTRAL3, True),
    "ministral3": (gguf.MODEL_ARCH.MISTRAL3, True),
}


def write_gguf_of(
    folder: Path, path: Path, kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32
) -> None:
    """Write the model of `folder` (of VOCABULARY tokens, without its tokenizer) to `path`. `kind`:
    of its matrices."""
    config = json.loads((folder / "config.json").read_text())
    arch, permuted = ARCHITECTURES[config["model_type"]]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch])
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    if config.get("head_dim"):
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if config["model_type"] == "granite":
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])
    _add_rope(writer, config["rope_parameters"], head_dim)
    add_tokenizer(writer)
    if config["model_type"] == "qwen3_moe":
        writer.add_expert_count(config.get("num_experts") or config["num_local_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    for name, tensor in _with_joined_experts(load_file(folder / "model.safetensors")).items():
        values = tensor.float()
        if permuted and "q_proj." in name:
            values = _permuted(values, heads)
        if permuted and "k_proj." in name:
            values = _permuted(values, kv_heads)
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        array = np.ascontiguousarray(values.numpy())
        if values.dim() == 1 or "gate_inp" in stored or kind == gguf.GGMLQuantizationType.F32:
            writer.add_tensor(stored, array)
        else:
            writer.add_tensor(stored, gguf.quants.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _with_joined_experts(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The matrices of a layer's experts as one tensor [experts, out, in]."""
    experts: dict[str, dict[int, torch.Tensor]] = {}
    others = {}
    for name, tensor in tensors.items():
        if found := re.fullmatch(r"(.*\.mlp\.experts\.)(\d+)\.(\w+\.weight)", name):
            experts.setdefault(found[1] + found[3], {})[int(found[2])] = tensor
        else:
            others[name] = tensor
    return others | {
        name: torch.stack([parts[number] for number in range(len(parts))])
        for name, parts in experts.items()
    }


def _add_rope(writer: gguf.GGUFWriter, rope: dict[str, Any], head_dim: int) -> None:
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        if "beta_fast" in rope:
            writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
        if "attention_factor" in rope:
            writer.add_rope_scaling_yarn_attn_factor(rope["attention_factor"])
        if "mscale_all_dim" in rope:
            writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
        if "llama_4_scaling_beta" in rope:
            writer.add_attn_temperature_scale(rope["llama_4_scaling_beta"])
    if rope["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", _llama3_factors(rope, head_dim))


def _llama3_factors(rope: dict[str, Any], head_dim: int) -> np.ndarray[Any, Any]:
    """What each frequency is divided by, one after another."""
    low, high, factor = (rope[f"{name}factor"] for name in ("low_freq_", "high_freq_", ""))
    factors = []
    for one in range(0, head_dim, 2):
        turns = rope["original_max_position_embeddings"] / (
            2 * math.pi * rope["rope_theta"] ** (one / head_dim)
        )
        smooth = min(max((turns - low) / (high - low), 0.0), 1.0)
        factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)


def _permuted(values: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of each head from (first half, second half) to pairs."""
    halves = values.reshape(heads, 2, len(values) // heads // 2, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)
