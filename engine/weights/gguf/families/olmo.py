"""Olmo 2, and Olmo 3 with its windows: norms after each half of a layer, and over all heads of q
and k together. Rows of q and k are in transformers' order."""

from __future__ import annotations

from collections.abc import Collection

from engine.weights.gguf.families.family import (
    FULL,
    SLIDING,
    WINDOWED,
    Config,
    Family,
    Table,
    attention,
    ends,
    feed_forward,
    layer_types,
    layers,
    norms,
    sizes,
    whole_heads_rotate,
    window,
)
from engine.weights.gguf.families.rope import base, rope
from engine.weights.gguf.gguf_file import Gguf

NAME = "olmo2"
PERIOD = 4  # layers, of which the last has no window
NORMS = {
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


def _config(file: Gguf) -> Config:
    seen = window(file, NAME)
    kind = ("olmo3", "Olmo3ForCausalLM") if seen else ("olmo2", "Olmo2ForCausalLM")
    config = sizes(file, NAME, *kind)
    whole_heads_rotate(file, NAME, config["head_dim"])
    # The converter writes the model's own factor of attention, which is all of YaRN's. llama.cpp
    # multiplies it by the one that follows from the scale, and its logits are not the model's.
    full = rope(
        file, NAME, config["head_dim"], config["max_position_embeddings"], factor_is_yarns=True
    )
    if not seen:
        return config | {"rope_parameters": full}
    local = base(file, f"{NAME}.rope.freq_base_swa", full["rope_theta"])
    return config | {
        "sliding_window": seen,
        "layer_types": layer_types(file, NAME, config["num_hidden_layers"], PERIOD),
        "rope_parameters": {
            FULL: full,
            SLIDING: {"rope_type": "default", "rope_theta": local},  # windows are never scaled
        },
    }


def _tensors(config: Config, names: Collection[str]) -> Table:
    q, k = (config[f"num_{one}_heads"] * config["head_dim"] for one in ("attention", "key_value"))
    table = attention(config) | feed_forward(config) | norms(config, NORMS)
    table |= {
        "attn_q_norm.weight": ("self_attn.q_norm.weight", (q,), 0),
        "attn_k_norm.weight": ("self_attn.k_norm.weight", (k,), 0),
    }
    return ends(config) | layers(config, table)


FAMILY = Family(NAME, ("olmo2", "olmo3"), WINDOWED | {"rope.freq_base_swa"}, _config, _tensors)
