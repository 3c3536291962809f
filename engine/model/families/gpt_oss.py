"""gpt-oss: windows in every other layer, sinks, biases, and experts with a clamped SwiGLU.

Rows of q and k are in transformers' order.
"""

from __future__ import annotations

from dataclasses import replace

from engine.model.families.family import (
    ATTENTION,
    EXPERTS,
    Family,
    activation,
    attention,
    chosen,
)
from engine.model.families.metadata import (
    EXPERT_FIELDS,
    WINDOW_FIELDS,
    Settings,
    base,
    experts,
    layer_types,
    rope,
    sizes,
    whole_heads_rotate,
    window,
)
from engine.model.model_config import CLAMPED_SWIGLU, FULL, SILU, SLIDING, Attention, Experts
from engine.weights.gguf.gguf_file import Gguf

NAME = "gpt-oss"
PERIOD = 2  # layers, of which the last has no window
SWIGLU = {"swiglu_alpha": 1.702, "swiglu_limit": 7.0}  # as OpenAI trained both sizes


def _read_metadata(file: Gguf) -> Settings:
    count, used, wide = experts(file, NAME)
    settings = sizes(file, NAME, "gpt_oss", inner=wide)
    whole_heads_rotate(file, NAME, settings["head_dim"])
    seen = window(file, NAME)
    if not seen:
        raise file.unsupported(f"no '{NAME}.attention.sliding_window'")
    found = rope(file, NAME, settings["head_dim"], settings["max_position_embeddings"])
    if base(file, f"{NAME}.rope.freq_base_swa", found["rope_theta"]) != found["rope_theta"]:
        raise file.unsupported(f"'{NAME}.rope.freq_base_swa' unlike its freq_base")
    if found["rope_type"] == "yarn":
        found["truncate"] = False  # not in the metadata: so it was trained
    return settings | {
        "attention_bias": True,
        "num_local_experts": count,
        "num_experts_per_tok": used,
        "sliding_window": seen,
        "layer_types": layer_types(file, NAME, settings["num_hidden_layers"], PERIOD),
        "rope_parameters": found,
    }  # fmt: skip


def _attention(family: Family, settings: Settings, n: int) -> Attention:
    return replace(attention(family, settings, n), sinks=True)


def _blocks(family: Family, settings: Settings, n: int) -> tuple[None, Experts]:
    activation(family, settings)
    return None, Experts(
        *chosen(settings), settings["intermediate_size"], CLAMPED_SWIGLU, "mlp.router",
        biased=True, alpha=settings["swiglu_alpha"], limit=settings["swiglu_limit"],
    )  # fmt: skip


FAMILY = Family(
    "gpt_oss",
    NAME,
    _read_metadata,
    ATTENTION
    | EXPERTS
    | {
        "attn_norm": "input_layernorm",
        "post_attention_norm": "post_attention_layernorm",
        "attn_sinks.weight": "self_attn.sinks",
        "ffn_gate_inp": "mlp.router",
    },
    WINDOW_FIELDS | EXPERT_FIELDS | {"rope.freq_base_swa"},
    mixer=_attention,
    blocks=_blocks,
    activation=SILU,
    layer_types=(FULL, SLIDING),
    defaults=SWIGLU,
)
