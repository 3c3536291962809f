"""Gemma 3's text models.

Five of six layers have windows, and a rotary embedding of their own. Norms of GGUF files hold
1 + w. Rows of q and k are in transformers' order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.model.families.family import (
    ATTENTION,
    FEED_FORWARD,
    SANDWICH,
    SANDWICH_NORMS,
    Family,
    attention,
)
from engine.model.families.metadata import (
    WINDOW_FIELDS,
    Settings,
    base,
    layer_types,
    rope,
    short,
    sizes,
    whole_heads_rotate,
    window,
)
from engine.model.model_config import FULL, SLIDING, Attention
from engine.weights.config_json import MAX_SCALE
from engine.weights.gguf.gguf_file import Gguf

NAME = "gemma3"
PERIOD = 6  # layers, of which the last has no window
LAYERS_OF_27B = 62  # layers of 27B, whose scores llama.cpp scales by the width over the heads


def _read_metadata(file: Gguf) -> Settings:
    settings = sizes(file, NAME, "gemma3_text")
    head_dim, count = settings["head_dim"], settings["num_hidden_layers"]
    whole_heads_rotate(file, NAME, head_dim)
    seen, per_head = window(file, NAME), settings["hidden_size"] // settings["num_attention_heads"]
    full = rope(file, NAME, head_dim, settings["max_position_embeddings"])
    if seen and full["rope_type"] not in ("default", "linear"):
        raise file.unsupported(f"windows and rope scaling {full['rope_type']}")
    local = base(file, f"{NAME}.rope.freq_base_swa")
    return settings | {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": per_head if count == LAYERS_OF_27B else head_dim,
        "sliding_window": seen or settings["max_position_embeddings"],
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
    """Read c of c tanh(x / c), through which logits go; None: nothing."""
    key = f"{NAME}.final_logit_softcapping"
    return short(file.number(key, MAX_SCALE)) if file.field(key, 0.0) else None


def _scaled_embedding(settings: Settings) -> dict[str, Any]:
    return {"embedding_scale": settings["hidden_size"] ** 0.5}


def _attention(family: Family, settings: Settings, n: int) -> Attention:
    usual = attention(family, settings, n)
    return replace(usual, scale=settings["query_pre_attn_scalar"] ** -0.5)


FAMILY = Family(
    "gemma3_text",
    NAME,
    _read_metadata,
    ATTENTION | FEED_FORWARD | SANDWICH_NORMS,
    WINDOW_FIELDS | {"rope.freq_base_swa", "final_logit_softcapping"},
    more=_scaled_embedding,
    mixer=_attention,
    composites=("gemma3",),
    reads=("final_logit_softcapping", "attn_logit_softcapping"),
    norms=SANDWICH,
    norm_offset=1.0,
    qk_norm="head",
    layer_types=(FULL, SLIDING),
)
