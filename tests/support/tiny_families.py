"""Tiny random models of every family that transformers has a causal language model of.

A family's own default configuration is made small by the names of its sizes: layers, heads, widths
and tokens of all configurations in it. `CHANGES` has what that does not reach.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from tests.conftest import byte_bpe

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, CONTEXT = 2, 32, 4, 2, 8, 512
VOCAB = 300  # more than the tokenizer has

SIZES: dict[str, int] = {}
for value, names in (
    (
        LAYERS,
        "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers "
        "num_encoder_layers num_decoder_layers num_blocks depth num_global_layers "
        "conf_num_hidden_layers",
    ),
    (
        HIDDEN,
        "hidden_size n_embd d_model embedding_dim emb_dim embedding_size word_embed_proj_dim "
        "input_embedding_size output_embedding_size backbone_hidden_size attention_hidden_size "
        "hidden_size_global lru_width out_hidden_size adapter_in_dim adapter_out_dim "
        "adapter_input_size",
    ),
    (
        HEADS,
        "num_attention_heads n_head n_heads num_heads encoder_attention_heads "
        "decoder_attention_heads num_encoder_attention_heads num_decoder_attention_heads "
        "attention_heads swa_num_attention_heads linear_num_heads linear_num_value_heads "
        "conf_num_attention_heads index_n_heads",
    ),
    (KV_HEADS, "num_kv_heads num_key_value_heads swa_num_key_value_heads linear_num_key_heads"),
    (
        HEAD_DIM,
        "head_dim swa_head_dim v_head_dim qk_nope_head_dim qk_rope_head_dim kv_channels "
        "linear_head_dim linear_key_head_dim linear_value_head_dim attention_head_dim dim_head "
        "index_head_dim d_head d_kv rotary_dim",
    ),
    (16, "kv_lora_rank q_lora_rank o_lora_rank qk_head_dim"),
    (
        64,
        "intermediate_size n_inner ffn_dim encoder_ffn_dim decoder_ffn_dim dff dim_ff d_ff "
        "d_inner ffn_hidden_size expert_ffn_hidden_size intermediate_size_mlp mlp_dim "
        "moe_intermediate_size shared_expert_intermediate_size shared_intermediate_size "
        "moe_shared_expert_intermediate_size dense_intermediate_size feed_forward_size",
    ),
    (4, "num_experts num_local_experts n_routed_experts moe_num_experts"),
    (2, "num_experts_per_tok num_experts_per_token moe_k moe_topk"),
    (1, "n_group topk_group num_expert_group mamba_n_groups n_groups"),
    (
        16,
        "sliding_window window_size attention_chunk_size local_attention sliding_window_size "
        "attention_window_size local_attention_window_len mamba_chunk_size mamba_d_state"
        " keep_window_size ssm_state_size state_size index_topk",
    ),
    (4, "zero_expert_num mamba_n_heads mamba_num_heads n_mamba_heads"),
    (16, "mamba_d_head mamba_head_dim mamba_headdim mamba_dt_rank hc_lowrank ple_embed_dim"),
    (
        VOCAB,
        "decoder_vocab_size shape_vocab_size pronunciation_vocab_size "
        "encoder_hash_byte_group_vocab audio_vocab_size vocab_size_per_layer_input",
    ),
    (64, "mamba_d_ssm"),
    (1, "decoder_start_token_id"),
    (
        CONTEXT,
        "max_position_embeddings n_positions n_ctx max_seq_len max_target_positions "
        "max_source_positions original_max_position_embeddings model_max_length context_length",
    ),
):
    SIZES |= dict.fromkeys(names.split(), value)
# Taken from the default configuration, but for the number of layers: one of each kind.
PER_LAYER = ("layer_types", "layers_block_type", "mlp_layer_types", "block_types")
UNTOUCHED = ("id2label", "label2id")
SOME_HEADS = {"head_dim": HEAD_DIM}
INDEXER = {
    "indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 16,
    "indexer_compress_ratio": 4,
}  # fmt: skip
CHANGES: dict[str, dict[str, Any]] = {  # what the names of sizes do not reach
    "cohere_compass_text": {
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e4}}
    },
    "dbrx": {"attn_config": {"rope_theta": 1e4, "clip_qkv": 8.0}},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "dots3_note": {"text_config": {"num_key_value_heads": HEADS, "head_dim": 16}},
    "dots3_note_text": {"num_key_value_heads": HEADS, "head_dim": 16},
    "falcon_h1": {"mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16},
    "gemma3n_text": {"num_kv_shared_layers": 0},
    "gemma4_assistant": {
        "default": {
            "text_config": {
                "model_type": "gemma4_text", "hidden_size_per_layer_input": 0,
                "vocab_size_per_layer_input": 0,
            }
        },
        "text_config": {"num_kv_shared_layers": LAYERS},
    },
    "got_ocr2": {"vision_config": {"num_hidden_layers": 1, "output_channels": 16}},
    "gpt_neo": {
        "attention_types": [[["global", "local"], 1]], "attention_layers": ["global", "local"],
    },
    "hunyuan_v1_dense": SOME_HEADS,
    "hunyuan_v1_moe": SOME_HEADS,
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "mamba2": {"num_heads": 4, "head_dim": 16},
    "ministral": SOME_HEADS,
    "mistral": {"sliding_window": None},
    "nemotron": {"num_key_value_heads": KV_HEADS},
    "qwen4_exp": {"text_config": INDEXER},
    "qwen4_exp_text": INDEXER,
    "reformer": {
        "is_decoder": True, "attn_layers": ["local", "lsh"], "axial_pos_shape": [16, 32],
        "axial_pos_embds_dim": [8, 24],
    },
    "zamba": {
        "num_hidden_layers": 3, "layers_block_type": ["linear_attention", "hybrid", "hybrid"],
    },
}  # fmt: skip


def tiny_config(kind: str, vocab: int) -> Any:
    """The configuration of a tiny model of a family, by its transformers model type."""
    from transformers import CONFIG_MAPPING

    made = CONFIG_MAPPING[kind]
    changes = CHANGES.get(kind, {})
    base = made(**changes.get("default", {})).to_dict()
    settings = _tiny(base, vocab)
    _merge(settings, {name: value for name, value in changes.items() if name != "default"})
    return made.from_dict(settings)


def _tiny(settings: dict[str, Any], vocab: int) -> dict[str, Any]:
    """The settings with every size made small, in every object of them."""
    tiny: dict[str, Any] = {}
    for name, value in settings.items():
        if name == "per_layer_config":
            tiny[name] = {}
        elif isinstance(value, dict) and name not in UNTOUCHED:
            tiny[name] = _tiny(value, vocab)
        elif type(value) is int and name in SIZES:
            tiny[name] = min(value, SIZES[name])
        elif type(value) is int and name == "vocab_size":
            tiny[name] = vocab
        elif type(value) is int and name.endswith("token_id"):
            tiny[name] = 0 if name == "eos_token_id" else 1
        elif isinstance(value, list) and name in PER_LAYER:
            kinds = list(dict.fromkeys(value))[:LAYERS]
            tiny[name] = kinds + kinds[-1:] * (LAYERS - len(kinds))
        elif isinstance(value, list) and len(value) == settings.get("num_hidden_layers"):
            tiny[name] = [min(one, SIZES.get(name, one)) for one in value[:LAYERS]]
        else:
            tiny[name] = copy.deepcopy(value)
    return tiny


def _merge(settings: dict[str, Any], changes: dict[str, Any]) -> None:
    for name, value in changes.items():
        if isinstance(value, dict) and isinstance(settings.get(name), dict):
            _merge(settings[name], value)
        else:
            settings[name] = value


def tiny_family(folder: Path, kind: str) -> Path:
    """Save a tiny random model of a family and a tokenizer in `folder`; returns `folder`."""
    import torch
    from transformers import AutoModelForCausalLM

    config = save_config(folder, kind)
    assert byte_bpe(folder) <= VOCAB
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():  # larger weights, or all choices would be near ties
        for name, weight in model.named_parameters():
            noise = torch.randn_like(weight)
            if weight.dim() > 1 or name.endswith("bias"):
                weight.copy_(noise * 0.3)
            else:  # of norms, and what would be zeros or ones
                weight.add_(noise * 0.1)
    model.save_pretrained(folder)
    return folder


def save_config(folder: Path, kind: str) -> Any:
    """Save the tiny config.json of a family in `folder`; returns the configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    config = tiny_config(kind, VOCAB)
    config.save_pretrained(folder)
    return config
