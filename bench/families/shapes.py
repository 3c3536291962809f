"""Shapes of models that people run, by the fields of their config.json.

The number of layers is cut, so that a file has a few GB. A layer costs what it costs in the whole
model.
"""

from __future__ import annotations

from typing import Any

# Qwen3.5's positions of images, which text does not have.
SECTIONS = {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25,
            "mrope_section": [11, 11, 10], "mrope_interleaved": True}  # fmt: skip
FULL, SLIDING = "full_attention", "sliding_attention"
GEMMA_ROPES = {
    FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
    SLIDING: {"rope_type": "default", "rope_theta": 1e4},
}
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {  # model type, fields
    "qwen3-1.7b": ("qwen3", {
        "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 14,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
        "vocab_size": 151936, "tie_word_embeddings": True,
    }),
    "qwen3-coder-30b-a3b": ("qwen3_moe", {
        "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 10,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
        "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
        "norm_topk_prob": True, "vocab_size": 151936,
    }),
    "gemma-3-4b": ("gemma3_text", {
        "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 12,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "sliding_window": 1024, "vocab_size": 262144, "tie_word_embeddings": True,
    }),
    "gemma-4-31b": ("gemma4_text", {
        "hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 6,
        "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 256,
        "global_head_dim": 512, "num_global_key_value_heads": 4, "attention_k_eq_v": True,
        "sliding_window": 1024, "vocab_size": 262144, "tie_word_embeddings": True,
        "hidden_size_per_layer_input": 0, "final_logit_softcapping": 30.0,
        "rope_parameters": GEMMA_ROPES,
    }),
    "gpt-oss-20b": ("gpt_oss", {
        "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 4,
        "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
        "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128,
        "vocab_size": 201088, "max_position_embeddings": 131072,
    }),
    "olmo-3-7b": ("olmo3", {
        "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 8,
        "num_attention_heads": 32, "num_key_value_heads": 32, "sliding_window": 4096,
        "max_position_embeddings": 32768, "vocab_size": 100352,
    }),
    "qwen3.5-4b": ("qwen3_5_text", {
        "hidden_size": 2560, "intermediate_size": 9216, "num_hidden_layers": 16,
        "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 256,
        "vocab_size": 248320, "tie_word_embeddings": True, "rope_parameters": SECTIONS,
    }),
    "qwen3.5-35b-a3b": ("qwen3_5_moe_text", {
        "hidden_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 16,
        "num_key_value_heads": 2, "head_dim": 256, "num_experts": 256, "num_experts_per_tok": 8,
        "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
        "vocab_size": 248320, "rope_parameters": SECTIONS,
    }),
    "qwen3-coder-next-80b-a3b": ("qwen3_next", {
        "hidden_size": 2048, "intermediate_size": 5120, "num_hidden_layers": 4,
        "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
        "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512, "vocab_size": 151936,
    }),
}  # fmt: skip


def config_of(name: str, **changes: Any) -> dict[str, Any]:
    """Make the config.json of a shape, with all fields of its model type and some changed."""
    kind, fields = SHAPES[name]
    return filled(kind, fields | changes)


def filled(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Fill a config.json with some fields, and those of its model type in place of the others."""
    from transformers import CONFIG_MAPPING

    context = {"max_position_embeddings": 32768}
    made: dict[str, Any] = fields | CONFIG_MAPPING[kind](**context | fields).to_dict()
    made.setdefault("attention_bias", False)
    made.setdefault("head_dim", made["hidden_size"] // made["num_attention_heads"])
    if "per_layer_config" in made:
        made["per_layer_config"] = {str(n): one for n, one in made["per_layer_config"].items()}
    return made
