"""Qwen3's mixtures of experts: every layer has them in place of a feed-forward block."""

from __future__ import annotations

from collections.abc import Collection

from engine.weights.gguf.families.family import (
    EXPERTS,
    PRE_NORMS,
    Config,
    Family,
    Table,
    attention,
    ends,
    expert_matrices,
    experts,
    head_norms,
    layers,
    norms,
    sizes,
    whole_heads_rotate,
)
from engine.weights.gguf.families.llama import full_attention, rope_factors
from engine.weights.gguf.families.rope import rope
from engine.weights.gguf.gguf_file import Gguf

NAME = "qwen3moe"


def _config(file: Gguf) -> Config:
    config = sizes(file, NAME, "qwen3_moe", "Qwen3MoeForCausalLM")
    head_dim, context = config["head_dim"], config["max_position_embeddings"]
    whole_heads_rotate(file, NAME, head_dim)
    full_attention(file, NAME, context)
    count, used, wide = experts(file, NAME)
    return config | {
        "rope_parameters": rope(file, NAME, head_dim, context),
        "num_experts": count,
        "num_experts_per_tok": used,
        "moe_intermediate_size": wide,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }


def _tensors(config: Config, names: Collection[str]) -> Table:
    count, wide = config["num_experts"], config["moe_intermediate_size"]
    table = attention(config) | head_norms(config) | norms(config, PRE_NORMS)
    table |= expert_matrices(config, count, wide)
    table["ffn_gate_inp.weight"] = ("mlp.gate.weight", (count, config["hidden_size"]), 0)
    return ends(config) | layers(config, table)


FAMILY = Family(
    NAME, ("qwen3_moe",), EXPERTS | {"attention.sliding_window"}, _config, _tensors, rope_factors
)
