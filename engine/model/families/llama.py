"""Llama and its relatives: full attention, gated feed-forward blocks, norms before both."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from engine.model.families.family import ATTENTION, FEED_FORWARD, PRE_NORMS, Family, attention
from engine.model.families.metadata import (
    ROPE_FACTORS,
    Settings,
    biased,
    no_experts,
    no_windows,
    rope,
    short,
    sizes,
    whole_heads_rotate,
)
from engine.model.model_config import Attention
from engine.model.rope import check_rope, rope_parameters
from engine.weights.config_json import MAX_SCALE, field_error
from engine.weights.gguf.gguf_file import Gguf

NEEDED = (  # fields of config.json
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
    "max_position_embeddings", "rms_norm_eps",
)  # fmt: skip
NO_ROPE_INTERVAL = 4  # layers of SmolLM3: a constant of llama.cpp that its files do not have
TEMPERATURE = "mistral3.attention.temperature_scale"  # key of the scale of Ministral 3's queries


def read_metadata(name: str, file: Gguf) -> Settings:
    """Read the metadata of a file of architecture `name`."""
    no_experts(file, name)
    scaled = name == "mistral3" and file.field(TEMPERATURE, 0)
    kind = name if name != "mistral3" else "ministral3" if scaled else "mistral"
    settings = sizes(file, name, kind)
    head_dim, context = settings["head_dim"], settings["max_position_embeddings"]
    whole_heads_rotate(file, name, head_dim)
    no_windows(file, name, context)
    if name == "granite" and not file.field("granite.rope.scaling.finetuned", True):  # its switch
        raise file.unsupported("no rotary embedding ('granite.rope.scaling.finetuned')")
    family = BY_MODEL_TYPE[kind]
    settings["rope_parameters"] = rope(file, name, head_dim, context)
    settings["attention_bias"] = family.biased is None and biased(
        file, ("attn_q", "attn_k", "attn_v", "attn_output")
    )
    if family.mlp_bias:
        settings["mlp_bias"] = biased(file, ("ffn_gate", "ffn_up", "ffn_down"))
    if "sliding_window" in family.defaults:
        settings["sliding_window"] = None
    if kind == "ministral3":
        if settings["rope_parameters"]["rope_type"] != "yarn":
            raise file.unsupported(f"'{TEMPERATURE}' without YaRN")
        settings["rope_parameters"]["llama_4_scaling_beta"] = short(
            file.number(TEMPERATURE, MAX_SCALE)
        )
    if kind == "granite":
        settings |= _multipliers(file, head_dim)
    if kind == "smollm3":
        layers = range(settings["num_hidden_layers"])
        settings["no_rope_layers"] = [int((n + 1) % NO_ROPE_INTERVAL != 0) for n in layers]
    return settings


def check_settings(file: Path, settings: Settings) -> None:
    """Refuse a checked config.json that gives no model: WeightsError names the field."""
    for name in NEEDED:
        if settings.get(name) is None:
            raise field_error(file, name, None, "a value")
    heads, hidden = settings["num_attention_heads"], settings["hidden_size"]
    d = settings.get("head_dim") or hidden // heads
    if heads % (kv := settings.get("num_key_value_heads") or heads):
        divisor = f"a divisor of 'num_attention_heads' {heads}"
        raise field_error(file, "num_key_value_heads", kv, divisor)
    if d < 2 or d % 2:
        raise field_error(file, "head_dim", d, "an even number (or hidden_size / heads to be one)")
    if not settings.get("head_dim") and hidden % heads:
        divisor = f"a divisor of 'hidden_size' {hidden}"
        raise field_error(file, "num_attention_heads", heads, divisor)
    check_rope(file, settings, d)
    if (
        settings["model_type"] == "ministral3"
        and rope_parameters(settings)["rope_type"] == "default"
    ):
        raise field_error(file, "rope_parameters", None, "those of YaRN")
    layers, rotated = settings["num_hidden_layers"], settings.get("no_rope_layers")
    if rotated is not None and len(rotated) < layers:
        raise field_error(file, "no_rope_layers", rotated, f"an entry for {layers} layers")


def rope_factors(settings: Settings) -> frozenset[str]:
    """Name the factors of Llama 3's rotary embedding, which the settings have."""
    return frozenset({ROPE_FACTORS})


def _multipliers(file: Gguf, head_dim: int) -> dict[str, float]:
    """Read Granite's multipliers."""
    return {
        "embedding_multiplier": short(file.number("granite.embedding_scale", MAX_SCALE, 1.0)),
        "residual_multiplier": short(file.number("granite.residual_scale", MAX_SCALE, 1.0)),
        "logits_scaling": short(file.number("granite.logit_scale", MAX_SCALE)),
        "attention_multiplier": short(
            file.number("granite.attention.scale", MAX_SCALE, head_dim**-0.5)
        ),
    }


def _granite(settings: Settings) -> dict[str, Any]:
    return {
        "embedding_scale": settings.get("embedding_multiplier") or 1.0,
        "residual_scale": settings.get("residual_multiplier") or 1.0,
        "logit_divisor": settings.get("logits_scaling") or 1.0,
    }


def _granite_attention(family: Family, settings: Settings, n: int) -> Attention:
    return replace(
        attention(family, settings, n), scale=settings.get("attention_multiplier") or 1.0
    )


def _ministral(settings: Settings) -> dict[str, Any]:
    """Read Llama 4's temperature of queries."""
    rope = rope_parameters(settings)
    beta, trained = rope.get("llama_4_scaling_beta"), rope["original_max_position_embeddings"]
    return {"query_scales": (beta, trained) if beta else None}


def _smollm_attention(family: Family, settings: Settings, n: int) -> Attention:
    """Leave q and k of every fourth layer as they are (NoPE, arXiv:2501.18795)."""
    usual, given = attention(family, settings, n), settings.get("no_rope_layers")
    interval = settings.get("no_rope_layer_interval") or NO_ROPE_INTERVAL
    rotates = (n + 1) % interval if given is None else given[n]  # 1: rotated, against the name
    return usual if rotates else replace(usual, rope=None)


def _family(
    model_type: str, architecture: str = "", fields: tuple[str, ...] = (), **more: Any
) -> Family:
    architecture = architecture or model_type
    return Family(
        model_type,
        architecture,
        partial(read_metadata, architecture),
        ATTENTION | FEED_FORWARD | PRE_NORMS,
        frozenset({*fields, "attention.sliding_window", "expert_count", "expert_used_count"}),
        rope_factors,
        llama=True,
        **more,
    )


LLAMA = _family("llama", interleaved=True, mlp_bias=True)
QWEN2 = _family("qwen2", biased=("q", "k", "v"), window="use_sliding_window")
QWEN3 = _family("qwen3", qk_norm="head", window="use_sliding_window")
GRANITE = _family(
    "granite",
    fields=("attention.scale", "embedding_scale", "residual_scale", "logit_scale"),
    interleaved=True,
    mlp_bias=True,
    reads=("logits_scaling",),
    more=_granite,
    mixer=_granite_attention,
)
SMOLLM3 = _family(
    "smollm3",
    interleaved=True,
    mlp_bias=True,
    window="use_sliding_window",
    defaults={"rope_theta": 2e6, "tie_word_embeddings": True},
    mixer=_smollm_attention,
)
MISTRAL = _family(
    "mistral",
    "mistral3",
    interleaved=True,
    biased=(),
    composites=("mistral3",),
    window="sliding_window",
    defaults={"sliding_window": 4096},
)
MINISTRAL3 = _family(
    "ministral3",
    "mistral3",
    ("attention.temperature_scale",),
    interleaved=True,
    biased=(),
    composites=("mistral3",),
    window="sliding_window",
    more=_ministral,
)
FAMILIES = (LLAMA, QWEN2, QWEN3, GRANITE, SMOLLM3, MISTRAL, MINISTRAL3)
BY_MODEL_TYPE = {described.model_type: described for described in FAMILIES}
