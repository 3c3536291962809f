"""gpt-oss: windows in every other layer, sinks in the softmax, biases everywhere, and experts with
a clamped SwiGLU. Rows of q and k are in transformers' order."""

from __future__ import annotations

from collections.abc import Collection

from engine.weights.gguf.families.family import (
    EXPERTS,
    WINDOWED,
    Config,
    Family,
    Table,
    attention,
    biases,
    ends,
    expert_matrices,
    experts,
    layer_types,
    layers,
    norms,
    sizes,
    whole_heads_rotate,
    window,
)
from engine.weights.gguf.families.rope import base, rope
from engine.weights.gguf.gguf_file import Gguf

NAME = "gpt-oss"
PERIOD = 2  # layers, of which the last has no window
SWIGLU = {"swiglu_alpha": 1.702, "swiglu_limit": 7.0}  # constants of llama.cpp
NORMS = {"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm"}


def _config(file: Gguf) -> Config:
    count, used, wide = experts(file, NAME)
    config = sizes(file, NAME, "gpt_oss", "GptOssForCausalLM", inner=wide)
    whole_heads_rotate(file, NAME, config["head_dim"])
    seen = window(file, NAME)
    if not seen:
        raise file.unsupported(f"no '{NAME}.attention.sliding_window'")
    found = rope(file, NAME, config["head_dim"], config["max_position_embeddings"])
    if base(file, f"{NAME}.rope.freq_base_swa", found["rope_theta"]) != found["rope_theta"]:
        raise file.unsupported(f"'{NAME}.rope.freq_base_swa' unlike its freq_base")
    if found["rope_type"] == "yarn":
        found["truncate"] = False  # not in the metadata: so it was trained
    return config | SWIGLU | {
        "attention_bias": True,
        "num_local_experts": count,
        "num_experts_per_tok": used,
        "sliding_window": seen,
        "layer_types": layer_types(file, NAME, config["num_hidden_layers"], PERIOD),
        "rope_parameters": found,
    }  # fmt: skip


def _tensors(config: Config, names: Collection[str]) -> Table:
    count = config["num_local_experts"]
    biased = attention(config) | expert_matrices(config, count, config["intermediate_size"])
    biased["ffn_gate_inp.weight"] = ("mlp.router.weight", (count, config["hidden_size"]), 0)
    table = biased | biases(biased) | norms(config, NORMS)
    sinks = ("self_attn.sinks", (config["num_attention_heads"],), 0)
    return ends(config) | layers(config, table | {"attn_sinks.weight": sinks})


FAMILY = Family(NAME, ("gpt_oss",), WINDOWED | EXPERTS | {"rope.freq_base_swa"}, _config, _tensors)
