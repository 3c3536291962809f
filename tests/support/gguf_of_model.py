"""A transformers model as the GGUF file that llama.cpp's converter makes of it.

`tests/weights/test_llama_cpp.py` shows that llama.cpp computes what transformers does from it.
"""

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

from tests.support.gguf_of_hybrid import HYBRIDS, hybrid_tensors
from tests.support.tiny_gguf import SPECIAL, TOKENS, add_tokenizer

VOCABULARY = len(TOKENS) + len(SPECIAL)
SLIDING = "sliding_attention"
F32 = gguf.GGMLQuantizationType.F32
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
NAMES = {  # in GGUF, of tensors that the gguf package has no names for
    "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
    "linear_attn.A": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias",
}
ALWAYS_F32 = ("ffn_gate_inp", "attn_sinks")

Tensors = dict[str, torch.Tensor]


def write_gguf_of(folder: Path, path: Path, kind: gguf.GGMLQuantizationType = F32) -> None:
    """Write the model of `folder` (of VOCABULARY tokens, without its tokenizer) to `path`. `kind`:
    of its matrices, but for those whose rows are not whole blocks of it."""
    config = json.loads((folder / "config.json").read_text())
    model_type = config["model_type"]
    arch, permuted = ARCHITECTURES[model_type]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch])
    _add_sizes(writer, config)
    _add_rope(writer, config)
    add_tokenizer(writer)
    if model_type in FIELDS:
        FIELDS[model_type](writer, config)
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    for name, values in stored_tensors(folder).items():
        if permuted and "q_proj." in name:
            values = _permuted(values, config["num_attention_heads"])
        if permuted and "k_proj." in name:
            values = _permuted(values, config["num_key_value_heads"])
        _add_tensor(writer, _stored_name(names, name), values, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def stored_tensors(folder: Path) -> Tensors:
    """A model's tensors with the values and in the shapes that its file has, by safetensors names.
    Rows of q and k are still in transformers' order."""
    tensors = {name: one.float() for name, one in load_file(folder / "model.safetensors").items()}
    config = json.loads((folder / "config.json").read_text())
    model_type = config["model_type"]
    if model_type in HYBRIDS:
        return hybrid_tensors(_with_joined_experts(tensors), config)
    change = TENSORS.get(model_type, _with_joined_experts)
    return change(tensors)


def _add_sizes(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if config["model_type"] == "gemma4_text":
        return  # whose layers differ in what follows
    if config.get("intermediate_size"):
        writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    if config.get("head_dim"):
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])


def _add_tensor(
    writer: gguf.GGUFWriter, name: str, values: torch.Tensor, kind: gguf.GGMLQuantizationType
) -> None:
    array = np.ascontiguousarray(values.numpy())
    block, _ = gguf.GGML_QUANT_SIZES[kind]
    plain = values.dim() == 1 or name.endswith(".bias") or any(one in name for one in ALWAYS_F32)
    if plain or kind == F32 or values.shape[-1] % block:
        writer.add_tensor(name, array)
    else:
        writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)


def _stored_name(names: gguf.TensorNameMap, name: str) -> str:
    found = names.get_name(name, try_suffixes=(".weight", ".bias"))
    if found is None:
        layer, rest = re.fullmatch(r"model\.layers\.(\d+)\.(.*)", name).groups()
        return f"blk.{layer}.{NAMES[rest]}"
    return found if name.endswith((".weight", ".bias")) else found + ".weight"


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
    """The converter does not write which layers have a window: llama.cpp knows five of six."""
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
        [one == "linear_attention" for one in config["layer_types"]],
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


def _gemma3_tensors(tensors: Tensors) -> Tensors:
    """With norms that hold 1 + w."""
    return {
        name: values + 1 if name.endswith("norm.weight") else values
        for name, values in tensors.items()
    }


def _gemma4_tensors(tensors: Tensors) -> Tensors:
    """With names of experts that end like those of other matrices."""
    return {
        name + ".weight" if ".experts." in name else name: values
        for name, values in tensors.items()
    }


def _gpt_oss_tensors(tensors: Tensors) -> Tensors:
    """With experts [experts, out, in], and gate and up apart, which take turns."""
    found = {}
    for name, values in tensors.items():
        stem = name.removesuffix("_bias")
        suffix = ".bias" if stem != name else ".weight"
        if ".experts." in name and suffix == ".weight":
            values = values.transpose(1, 2)
        if stem.endswith("gate_up_proj"):
            stem = stem.removesuffix("gate_up_proj")
            found[f"{stem}gate_proj{suffix}"] = values[:, ::2]
            found[f"{stem}up_proj{suffix}"] = values[:, 1::2]
        elif stem.endswith("experts.down_proj"):
            found[stem + suffix] = values
        else:
            found[name] = values
    return found


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
TENSORS = {
    "gemma3_text": _gemma3_tensors,
    "gemma4_text": _gemma4_tensors,
    "gpt_oss": _gpt_oss_tensors,
}


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


def _add_rope(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    """The rotary embedding, of full attention where windows have another."""
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
