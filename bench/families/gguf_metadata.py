"""The metadata that llama.cpp's converter writes of a model, by its config.json."""

from __future__ import annotations

import math
from typing import Any

import gguf
import numpy as np

SLIDING = "sliding_attention"
HYBRIDS = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
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
    "phi3": (gguf.MODEL_ARCH.PHI3, False),
    "gemma3_text": (gguf.MODEL_ARCH.GEMMA3, False),
    "gemma4_text": (gguf.MODEL_ARCH.GEMMA4, False),
    "gpt_oss": (gguf.MODEL_ARCH.GPT_OSS, False),
    "olmo2": (gguf.MODEL_ARCH.OLMO2, False),
    "olmo3": (gguf.MODEL_ARCH.OLMO2, False),
    "qwen3_next": (gguf.MODEL_ARCH.QWEN3NEXT, False),
    "qwen3_5_text": (gguf.MODEL_ARCH.QWEN35, False),
    "qwen3_5_moe_text": (gguf.MODEL_ARCH.QWEN35MOE, False),
}


def add_metadata(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    """Add all fields but those of the tokenizer, and the tensors that stand for some."""
    _add_sizes(writer, config)
    _add_rope(writer, config)
    if config["model_type"] in FIELDS:
        FIELDS[config["model_type"]](writer, config)


def _add_sizes(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    further = config.get("mtp_num_hidden_layers") or 0
    writer.add_block_count(config["num_hidden_layers"] + further)
    if further:
        writer.add_nextn_predict_layers(further)
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if config["model_type"] == "gemma4_text":
        return  # its layers differ in what follows
    if config.get("intermediate_size"):
        writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    if config.get("head_dim"):
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])


def _add_granite(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_attention_scale(config["attention_multiplier"])
    writer.add_embedding_scale(config["embedding_multiplier"])
    writer.add_residual_scale(config["residual_multiplier"])
    writer.add_logit_scale(config["logits_scaling"])


def _add_qwen3_moe(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_expert_count(config.get("num_experts") or config["num_local_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])


def _add_phi3(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    rope = config["rope_parameters"]
    original = rope.get("original_max_position_embeddings", config["max_position_embeddings"])
    writer.add_rope_scaling_orig_ctx_len(original)
    writer.add_sliding_window(config["sliding_window"] or 0)
    if "long_factor" in rope:
        scale = config["max_position_embeddings"] / original
        writer.add_rope_scaling_attn_factors(
            math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 else 1.0
        )
        for name in ("long", "short"):
            writer.add_tensor(f"rope_factors_{name}.weight", np.float32(rope[f"{name}_factor"]))


def _add_gemma3(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    """Add which layers have a window.

    The converter does not write it: llama.cpp knows five of six.
    """
    if SLIDING in config["layer_types"]:
        writer.add_sliding_window(config["sliding_window"])
    if config["final_logit_softcapping"]:
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])


def _add_olmo(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_sliding_window(config["sliding_window"])
    writer.add_sliding_window_pattern([one == SLIDING for one in config["layer_types"]])


def _add_gpt_oss(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_sliding_window(config["sliding_window"])
    writer.add_expert_count(config["num_local_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_feed_forward_length(config["intermediate_size"])


def _add_hybrid(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    heads = config["linear_num_value_heads"]
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(config["linear_key_head_dim"])
    writer.add_ssm_group_count(config["linear_num_key_heads"])
    writer.add_ssm_time_step_rank(heads)
    writer.add_ssm_inner_size(config["linear_value_head_dim"] * heads)
    writer.add_array(
        f"{writer.arch}.attention.recurrent_layers",
        [one == "linear_attention" for one in config["layer_types"]]
        + [False] * (config.get("mtp_num_hidden_layers") or 0),
    )
    if config["model_type"] != "qwen3_next":
        writer.add_rope_dimension_sections([*config["rope_parameters"]["mrope_section"], 0])
    if "num_experts" in config:
        _add_qwen3_moe(writer, config)
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])


def _add_gemma4(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    layers, shared = config["num_hidden_layers"], config["num_kv_shared_layers"]
    windows = [one == SLIDING for one in config["layer_types"]]
    full = config["per_layer_config"][str(windows.index(False))]
    inner = config["intermediate_size"]
    if config["use_double_wide_mlp"]:
        inner = [inner if n < layers - shared else 2 * inner for n in range(layers)]
    writer.add_feed_forward_length(inner)
    kv_heads = config["num_key_value_heads"]
    if "num_key_value_heads" in full:
        kv_heads = [kv_heads if one else full["num_key_value_heads"] for one in windows]
    writer.add_head_count_kv(kv_heads)
    writer.add_shared_kv_layers(shared)
    writer.add_embedding_length_per_layer_input(config["hidden_size_per_layer_input"])
    writer.add_sliding_window(config["sliding_window"])
    writer.add_sliding_window_pattern(windows)
    writer.add_key_length(full["head_dim"])
    writer.add_value_length(full["head_dim"])
    writer.add_key_length_swa(config["head_dim"])
    writer.add_value_length_swa(config["head_dim"])
    writer.add_rope_dimension_count_swa(config["head_dim"])
    if config["final_logit_softcapping"]:
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if config["enable_moe_block"]:
        writer.add_expert_count(config["num_experts"])
        writer.add_expert_used_count(config["top_k_experts"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    part = config["rope_parameters"]["full_attention"]["partial_rotary_factor"]
    pairs = full["head_dim"] // 2
    rotated = int(part * pairs)
    factors = [1.0] * rotated + [1e30] * (pairs - rotated)
    writer.add_tensor("rope_freqs.weight", np.float32(factors))


FIELDS = {
    "granite": _add_granite,
    "qwen3_moe": _add_qwen3_moe,
    "phi3": _add_phi3,
    "gemma3_text": _add_gemma3,
    "gemma4_text": _add_gemma4,
    "gpt_oss": _add_gpt_oss,
    "olmo3": _add_olmo,
    **dict.fromkeys(HYBRIDS, _add_hybrid),
}


def _add_rope(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    """Add the rotary embedding, that of full attention where windows have another."""
    whole = config["rope_parameters"]
    rope = whole.get("full_attention", whole)
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    if config["model_type"] == "gemma4_text":
        head_dim = config["per_layer_config"][str(config["num_hidden_layers"] - 1)]["head_dim"]
    part = rope.get("partial_rotary_factor", 1.0) if "full_attention" not in whole else 1.0
    writer.add_rope_dimension_count(int(part * head_dim))
    writer.add_rope_freq_base(rope["rope_theta"])
    if "sliding_attention" in whole:
        writer.add_rope_freq_base_swa(whole["sliding_attention"]["rope_theta"])
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
    """Return the divisors of the frequencies, one after another."""
    low, high, factor = (rope[f"{name}factor"] for name in ("low_freq_", "high_freq_", ""))
    factors = []
    for one in range(0, head_dim, 2):
        turns = rope["original_max_position_embeddings"] / (
            2 * math.pi * rope["rope_theta"] ** (one / head_dim)
        )
        smooth = min(max((turns - low) / (high - low), 0.0), 1.0)
        factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)
