"""Rotary position embeddings (RoFormer, arXiv:2104.09864) and their stretching to longer texts.

Models stretch them to texts that are longer than those they were trained on:

* `linear`: all frequencies are divided by a factor (position interpolation, arXiv:2306.15595).
* `llama3`: only the low ones are, with a smooth transition (Llama 3.1).
* `yarn`: the same by another ramp, and q and k grow by an attention factor (arXiv:2309.00071).
* `longrope`: each frequency has a factor (arXiv:2402.13753). Only where the factors do not depend
  on the length of the text: others would change the keys that are cached.

Numbers are those of transformers, operation by operation, without torch, which divides a number by
a tensor as its product with the reciprocal. Only powers are nearer the truth: one in some hundred
differs from torch's by its last bit.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.weights.config_json import field_error

NEEDED = {  # the parameters that each type must have
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor",),
    "longrope": ("short_factor", "long_factor"),
}
DEFAULT_THETA = 1e4
Array = NDArray[np.float32]


def rope_parameters(settings: dict[str, Any]) -> dict[str, Any]:
    """Collect the parameters of a config.json, wherever it has them, and fill in their defaults."""
    found = dict(settings.get("rope_scaling") or settings.get("rope_parameters") or {})
    theta = settings.get("rope_theta") or DEFAULT_THETA
    length = settings.get("original_max_position_embeddings")
    length = length or found.get("original_max_position_embeddings")
    return found | {
        "rope_type": found.get("rope_type") or found.get("type") or "default",
        "rope_theta": found.get("rope_theta") or theta,
        "original_max_position_embeddings": length or settings["max_position_embeddings"],
    }


def supports_rope(settings: dict[str, Any]) -> bool:
    """Return whether `frequencies` knows the type of a config.json's rotary embedding."""
    rope = settings.get("rope_scaling") or settings.get("rope_parameters") or {}
    whole = {rope.get("partial_rotary_factor"), settings.get("partial_rotary_factor")}
    return (
        (rope.get("rope_type") or rope.get("type") or "default") in NEEDED
        and rope.get("short_factor") == rope.get("long_factor")
        and whole <= {None, 1}
        and not any(
            isinstance(value, dict) for value in rope.values()
        )  # one for each type of layer
    )


def check_rope(file: Path, settings: dict[str, Any], head_dim: int) -> None:
    """Raise WeightsError for the first parameter of a config.json that gives no rotary embedding.

    The config.json is a checked one, and the error names the parameter.
    """
    rope = rope_parameters(settings)
    for name in NEEDED[rope["rope_type"]]:
        if rope.get(name) is None:
            raise field_error(file, name, None, "a value")
    if rope["rope_type"] == "llama3" and rope["high_freq_factor"] <= rope["low_freq_factor"]:
        wanted = f"a number above 'low_freq_factor' {rope['low_freq_factor']}"
        raise field_error(file, "high_freq_factor", rope["high_freq_factor"], wanted)
    if rope["rope_type"] == "yarn" and rope["rope_theta"] <= 1:
        raise field_error(file, "rope_theta", rope["rope_theta"], "a number above 1")
    if rope["rope_type"] == "longrope" and len(rope["short_factor"]) != head_dim // 2:
        wanted = f"an array of {head_dim // 2} numbers"
        raise field_error(file, "short_factor", rope["short_factor"], wanted)


def frequencies(settings: dict[str, Any], head_dim: int) -> tuple[Array, float]:
    """Compute radians per position, f32 [head_dim / 2], and the factor by which q and k grow."""
    rope = rope_parameters(settings)
    kind, wavelengths = rope["rope_type"], _wavelengths(rope, head_dim)
    if kind == "linear":
        return (1.0 / wavelengths) / np.float32(rope["factor"]), 1.0
    if kind == "llama3":
        return _llama3(1.0 / wavelengths, rope), 1.0
    if kind == "yarn":
        return _yarn(wavelengths, rope, head_dim), _yarn_attention(rope)
    if kind == "longrope":
        factors = np.array(rope["short_factor"], np.float32)
        return 1.0 / (factors * wavelengths), _longrope_attention(rope, settings)
    return 1.0 / wavelengths, 1.0


def _wavelengths(rope: dict[str, Any], head_dim: int) -> Array:
    """Compute positions per radian, f32 [head_dim / 2].

    Powers are taken in f64 and rounded once.
    """
    powers = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    theta = np.float64(np.float32(rope["rope_theta"]))
    wavelengths: Array = (theta ** powers.astype(np.float64)).astype(np.float32)
    return wavelengths


def _llama3(inverse: Array, rope: dict[str, Any]) -> Array:
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    trained = rope["original_max_position_embeddings"]
    length = (1 / inverse) * np.float32(2 * math.pi)  # positions per turn
    smooth = ((1 / length) * np.float32(trained) - np.float32(low)) / np.float32(high - low)
    between = (1 - smooth) * inverse / np.float32(factor) + smooth * inverse
    far = length > np.float32(trained / low)
    scaled = np.where(far, inverse / np.float32(factor), between)
    return np.where(length < np.float32(trained / high), inverse, scaled)


def _yarn(wavelengths: Array, rope: dict[str, Any], head_dim: int) -> Array:
    """Compute the frequencies of yarn.

    Those that turn more than `beta_fast` times in the trained length stay, those that turn less
    than `beta_slow` times are divided by `factor`, with a linear ramp between.
    """
    trained, theta = rope["original_max_position_embeddings"], rope["rope_theta"]

    def dimension(cycles: float) -> float:
        ratio = math.log(trained / (cycles * 2 * math.pi))
        return (head_dim * ratio) / (2 * math.log(theta))

    low = dimension(rope.get("beta_fast") or 32)
    high = dimension(rope.get("beta_slow") or 1)
    if rope.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001
    ramp = np.arange(head_dim // 2, dtype=np.float32)
    stays = 1 - np.clip((ramp - np.float32(low)) / np.float32(high - low), 0, 1)
    divided = 1.0 / (np.float32(rope["factor"]) * wavelengths)
    found: Array = divided * (1 - stays) + (1.0 / wavelengths) * stays
    return found


def _yarn_attention(rope: dict[str, Any]) -> float:
    if rope.get("attention_factor") is not None:
        return float(rope["attention_factor"])
    one, all_dimensions = rope.get("mscale"), rope.get("mscale_all_dim")
    if one and all_dimensions:
        return _grown(rope["factor"], one) / _grown(rope["factor"], all_dimensions)
    return _grown(rope["factor"], 1.0)


def _grown(factor: float, scale: float) -> float:
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0


def _longrope_attention(rope: dict[str, Any], settings: dict[str, Any]) -> float:
    if rope.get("attention_factor") is not None:
        return float(rope["attention_factor"])
    trained = rope["original_max_position_embeddings"]
    factor = rope.get("factor") or settings["max_position_embeddings"] / trained
    return math.sqrt(1 + math.log(factor) / math.log(trained)) if factor > 1 else 1.0
