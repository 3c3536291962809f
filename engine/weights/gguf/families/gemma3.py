"""Gemma 3's text models: windows in five of six layers, which have a rotary embedding of their own.
Norms hold 1 + w. Rows of q and k are in transformers' order."""

from __future__ import annotations

from collections.abc import Collection

from engine.weights.gguf.families.family import (
    FULL,
    SANDWICH_NORMS,
    SLIDING,
    WINDOWED,
    Config,
    Family,
    Table,
    attention,
    ends,
    feed_forward,
    head_norms,
    layer_types,
    layers,
    norms,
    short,
    sizes,
    whole_heads_rotate,
    window,
)
from engine.weights.gguf.families.rope import base, rope
from engine.weights.gguf.gguf_file import Gguf
from engine.weights.model_config import MAX_SCALE

NAME = "gemma3"
PERIOD = 6  # layers, of which the last has no window
LAYERS_OF_27B = 62  # whose scores llama.cpp scales by the width over the heads


def _config(file: Gguf) -> Config:
    config = sizes(file, NAME, "gemma3_text", "Gemma3ForCausalLM")
    head_dim, count = config["head_dim"], config["num_hidden_layers"]
    whole_heads_rotate(file, NAME, head_dim)
    seen, per_head = window(file, NAME), config["hidden_size"] // config["num_attention_heads"]
    full = rope(file, NAME, head_dim, config["max_position_embeddings"])
    if seen and full["rope_type"] not in ("default", "linear"):
        raise file.unsupported(f"windows and rope scaling {full['rope_type']}")
    local = base(file, f"{NAME}.rope.freq_base_swa")
    del config["hidden_act"]
    return config | {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": per_head if count == LAYERS_OF_27B else head_dim,
        "sliding_window": seen or config["max_position_embeddings"],
        "layer_types": layer_types(file, NAME, count, PERIOD) if seen else [FULL] * count,
        "rope_parameters": {
            FULL: full,
            SLIDING: {"rope_type": "default", "rope_theta": local},
        },
        "final_logit_softcapping": _logit_softcap(file),
        "attn_logit_softcapping": None,
        "use_bidirectional_attention": False,
    }


def _logit_softcap(file: Gguf) -> float | None:
    """c of c tanh(x / c), through which logits go; None: nothing."""
    key = f"{NAME}.final_logit_softcapping"
    return short(file.number(key, MAX_SCALE)) if file.field(key, 0.0) else None


def _tensors(config: Config, names: Collection[str]) -> Table:
    table = attention(config) | head_norms(config) | feed_forward(config)
    return ends(config) | layers(config, table | norms(config, SANDWICH_NORMS))


FAMILY = Family(
    NAME,
    ("gemma3_text",),
    WINDOWED | {"rope.freq_base_swa", "final_logit_softcapping"},
    _config,
    _tensors,
)
