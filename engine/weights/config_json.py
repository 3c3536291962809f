"""Checks of the fields of a config.json, before anything is made from them.

A model folder is not trusted: a size in it decides how much memory is taken and how many layers are
built, so each has a limit far above any real model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.weights.errors import WeightsError, shown

MAX_ROPE_THETA = 1e12
MIN_SCALE, MAX_SCALE = 1e-6, 1e6  # multipliers and factors of rotary embeddings

LIMITS = {  # the most that a size of a model may be, by its name in config.json
    "hidden_size": 1 << 17,
    "intermediate_size": 1 << 20,
    "num_hidden_layers": 1 << 10,
    "num_attention_heads": 1 << 12,
    "num_key_value_heads": 1 << 12,
    "head_dim": 1 << 12,
    "vocab_size": 1 << 22,
    "max_position_embeddings": 1 << 24,
    "num_experts": 1 << 12,
}
ALIASES = {  # other model types' names of the same sizes
    "n_embd": "hidden_size", "d_model": "hidden_size", "embedding_size": "hidden_size",
    "word_embed_proj_dim": "hidden_size", "num_embeddings": "vocab_size",
    "n_inner": "intermediate_size", "ffn_dim": "intermediate_size",
    "moe_intermediate_size": "intermediate_size",
    "n_layer": "num_hidden_layers", "n_layers": "num_hidden_layers",
    "num_layers": "num_hidden_layers",
    "n_head": "num_attention_heads", "n_heads": "num_attention_heads",
    "num_heads": "num_attention_heads", "num_kv_heads": "num_key_value_heads",
    "n_positions": "max_position_embeddings", "n_ctx": "max_position_embeddings",
    "max_seq_len": "max_position_embeddings", "max_sequence_length": "max_position_embeddings",
    "original_max_position_embeddings": "max_position_embeddings",
    "no_rope_layer_interval": "num_hidden_layers",
    "num_local_experts": "num_experts", "n_routed_experts": "num_experts",
    "num_experts_per_tok": "num_experts", "top_k_experts": "num_experts",
    "shared_expert_intermediate_size": "intermediate_size",
    "linear_num_key_heads": "num_attention_heads", "linear_num_value_heads": "num_attention_heads",
    "linear_key_head_dim": "head_dim", "linear_value_head_dim": "head_dim",
    "linear_conv_kernel_dim": "head_dim",
}  # fmt: skip
SIZES = {name: LIMITS[ALIASES.get(name, name)] for name in (*LIMITS, *ALIASES)}
MAY_BE_ZERO = ("num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size")
PER_LAYER = ("intermediate_size",)  # sizes that may be a list, one for each layer (Gemma 3n)
TEXTS = ("model_type", "rope_type", "hidden_act", "hidden_activation", "activation_function")
FLAGS = (
    "tie_word_embeddings", "attention_bias", "mlp_bias", "use_sliding_window", "is_encoder_decoder",
    "truncate",
)  # fmt: skip
OBJECTS = ("rope_parameters", "rope_scaling", "quantization_config", "text_config")
SCALES = (
    "embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling",
    "factor", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "attention_factor",
    "mscale", "mscale_all_dim", "llama_4_scaling_beta",
)  # fmt: skip
SCALES_OR_ZERO = ("mscale", "mscale_all_dim", "llama_4_scaling_beta")
NUMBERS = {"rms_norm_eps": 1.0, "layer_norm_eps": 1.0, "rope_theta": MAX_ROPE_THETA}
FACTORS = ("short_factor", "long_factor")
TOKENS = ("bos_token_id", "eos_token_id")


def check_config(file: Path, settings: dict[str, Any]) -> None:
    """Check the fields of a config.json and of the objects in it.

    WeightsError names the first field that no model can have. An absent field or null means the
    model type's default.
    """
    for part in _objects(settings):
        for name, value in part.items():
            if value is not None and (wanted := _wanted(name, value)):
                raise field_error(file, name, value, wanted)


def text_part(settings: dict[str, Any]) -> dict[str, Any]:
    """Extract the settings of a composite model's text part (`text_config`).

    Where it has none, the settings of the whole apply; the whole's model type is `composite`. Those
    of any other model are returned as they are.
    """
    text = settings.get("text_config")
    if not isinstance(text, dict):
        return settings
    whole = {name: value for name, value in settings.items() if name != "text_config"}
    merged: dict[str, Any] = whole | text
    return merged | {"composite": settings.get("model_type")}


def stretched(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with the context that YaRN gives a model.

    It is `factor` times the one that the model was trained with. Published files leave
    `max_position_embeddings` as it was (Qwen2.5, Qwen3).
    """
    rope = settings.get("rope_scaling") or settings.get("rope_parameters") or {}
    trained = rope.get("original_max_position_embeddings")
    if (rope.get("rope_type") or rope.get("type")) != "yarn" or not trained:
        return settings
    positions = min(int(trained * (rope.get("factor") or 1)), LIMITS["max_position_embeddings"])
    if positions <= (settings.get("max_position_embeddings") or positions):
        return settings
    return settings | {"max_position_embeddings": positions}


def field_error(file: Path, name: str, value: object, wanted: str) -> WeightsError:
    """Make the error for a field of a config.json."""
    return WeightsError(
        f"{file}: '{name}' is {shown(value)}, expected {wanted}: copy or fetch this model again"
    )


def _objects(settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the settings and every object in them, however deep."""
    waiting = [settings]
    while waiting:
        one = waiting.pop()
        waiting += [value for value in one.values() if isinstance(value, dict)]
        yield one


def _wanted(name: str, value: object) -> str:
    """Say what the field must be, where `value` is something else; "" where it is fine."""
    if name in SIZES:
        least = 0 if name in MAY_BE_ZERO else 1
        sizes = value if name in PER_LAYER and isinstance(value, list) else [value]
        if all(type(size) is int and least <= size <= SIZES[name] for size in sizes):
            return ""
        return f"an integer from {least} to {SIZES[name]}"
    if name in NUMBERS:
        if type(value) in (int, float) and 0 < value <= NUMBERS[name]:  # type: ignore[operator]
            return ""
        return f"a number above 0, at most {NUMBERS[name]:g}"
    if name in SCALES:
        zero = name in SCALES_OR_ZERO
        wanted = f"a number from {MIN_SCALE:g} to {MAX_SCALE:g}{' or 0' if zero else ''}"
        return "" if _is_scale(value) or (zero and value == 0) else wanted
    if name in FACTORS:
        scales = isinstance(value, list) and value and all(map(_is_scale, value))
        return "" if scales else f"an array of numbers from {MIN_SCALE:g} to {MAX_SCALE:g}"
    if name == "no_rope_layers":
        bits = isinstance(value, list) and all(
            type(item) is int and item in (0, 1) for item in value
        )
        return "" if bits else "an array of 0 and 1"
    if name in TEXTS:
        return "" if isinstance(value, str) else "a string"
    if name in FLAGS:
        return "" if isinstance(value, bool) else "true or false"
    if name in OBJECTS:
        return "" if isinstance(value, dict) else "an object"
    if name in TOKENS:
        ids = value if isinstance(value, list) else [value]
        return "" if all(map(is_token, ids)) else "a token id"
    if name in ("layer_types", "layers_block_type"):
        texts = isinstance(value, list) and all(isinstance(item, str) for item in value)
        return "" if texts else "an array of strings"
    if name == "sliding_window":
        return "" if type(value) is int and value >= 0 else "an integer"
    if isinstance(value, float) and not math.isfinite(value):
        return "a finite number"
    return ""


def _is_scale(value: object) -> bool:
    return type(value) in (int, float) and MIN_SCALE <= value <= MAX_SCALE  # type: ignore[operator]


def is_token(value: object) -> bool:
    """Return whether the value can be a token id."""
    return type(value) is int and 0 <= value < LIMITS["vocab_size"]
