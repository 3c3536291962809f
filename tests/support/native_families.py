"""Tiny random models of the families that run natively only, all of whose tensors matter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

LANES = 64  # widths of activations in torch, whose last numbers may round differently otherwise
LAYERS = {"num_hidden_layers": 4}
WINDOWS = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
HYBRID = ["linear_attention", "linear_attention", "full_attention", "linear_attention"]
YARN = {
    "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16,
    "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False, "rope_theta": 1e4,
}  # fmt: skip
WINDOW = {"sliding_window": 8, "layer_types": WINDOWS, **LAYERS}
DELTA_NET = {
    "layer_types": HYBRID, "head_dim": 16, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_conv_kernel_dim": 4, **LAYERS,
}  # fmt: skip
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24}
SHARED = EXPERTS | {"shared_expert_intermediate_size": 16}
PROPORTIONAL = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    "full_attention": {
        "rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 1e6,
    },
}  # fmt: skip
GEMMA4 = WINDOW | {
    "head_dim": 16, "global_head_dim": 32, "rope_parameters": PROPORTIONAL,
    "final_logit_softcapping": 30.0, "hidden_size_per_layer_input": 0, "tie_word_embeddings": True,
}  # fmt: skip
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "phi3": ("phi3", {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5,
                                          "rope_theta": 1e4}, "hidden_size": 64}),
    "phi3-window": ("phi3", {"sliding_window": 8}),
    "olmo2": ("olmo2", {}),
    "olmo3": ("olmo3", WINDOW),
    "mistral-window": ("mistral", {"head_dim": 16, "sliding_window": 8}),
    "qwen3-moe": ("qwen3_moe", EXPERTS | {"head_dim": 16, "norm_topk_prob": True}),
    "gemma3": ("gemma3_text", WINDOW | {"head_dim": 16, "query_pre_attn_scalar": 24,
                                        "tie_word_embeddings": True}),
    "gemma4": ("gemma4_text", GEMMA4),
    "gemma4-e": ("gemma4_text", GEMMA4 | {
        "hidden_size_per_layer_input": LANES, "num_kv_shared_layers": 2,
        "use_double_wide_mlp": True,
    }),
    "gemma4-moe": ("gemma4_text", GEMMA4 | {
        "enable_moe_block": True, "num_experts": 8, "top_k_experts": 3,
        "moe_intermediate_size": 24, "attention_k_eq_v": True, "num_global_key_value_heads": 1,
    }),
    "gpt-oss": ("gpt_oss", WINDOW | {
        "head_dim": 16, "num_local_experts": 8, "num_experts_per_tok": 3, "swiglu_limit": 1.0,
        "intermediate_size": 2 * LANES,
        "rope_parameters": YARN,
    }),
    "qwen3-next": ("qwen3_next", DELTA_NET | SHARED),
    "qwen3.5": ("qwen3_5_text", DELTA_NET),
    "qwen3.5-moe": ("qwen3_5_moe_text", DELTA_NET | SHARED),
}  # fmt: skip


def native_model(folder: Path, name: str, **changes: Any) -> Path:
    """Save the tiny model `name` in `folder`; returns `folder`. `changes`: of its config."""
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    from tests.conftest import byte_bpe

    kind, own = FAMILIES[name]
    folder.mkdir(parents=True)
    usual = {
        "vocab_size": byte_bpe(folder), "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 512, "tie_word_embeddings": False, "bos_token_id": None,
        "eos_token_id": 0, "pad_token_id": None,
    }  # fmt: skip
    if kind == "gemma4_text":
        usual["vocab_size_per_layer_input"] = usual["vocab_size"]
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**usual | own | changes)).float()
    with torch.no_grad():
        for weight in [*model.parameters(), *_scalars(model)]:
            if weight.dim() > 1:
                weight.copy_(torch.randn_like(weight) * 0.3)
            else:  # norms, biases, sinks, gates
                weight.add_(torch.randn_like(weight) * 0.2)
    model.save_pretrained(folder)
    return folder


def _scalars(model: Any) -> list[Any]:
    """Gemma 4's factor of each layer, which is no parameter."""
    return [one for name, one in model.named_buffers() if name.endswith("layer_scalar")]
