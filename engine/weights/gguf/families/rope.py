"""Rotary embeddings in GGUF's metadata, as transformers' `rope_parameters`."""

from __future__ import annotations

from typing import Any

from engine.weights.errors import shown
from engine.weights.gguf.families.family import short, tensor_shape
from engine.weights.gguf.gguf_file import Gguf
from engine.weights.model_config import LIMITS, MAX_ROPE_THETA, MAX_SCALE

ROPE_FACTORS = "rope_freqs.weight"  # by which Llama 3 divides its frequencies


def rope(
    file: Gguf, name: str, head_dim: int, context: int, factor_is_yarns: bool = False
) -> dict[str, Any]:
    """The parameters of the rotary embedding of whole heads. `factor_is_yarns`: `attn_factor` is
    YaRN's whole factor of attention, not one more beside it."""
    key = f"{name}.rope.scaling"
    theta = base(file, f"{name}.rope.freq_base")
    older = file.number(f"{name}.rope.scale_linear", MAX_SCALE, 1.0)
    factor = short(file.number(f"{key}.factor", MAX_SCALE, older))
    kind = file.text(f"{key}.type", "linear")
    if kind == "linear" and factor == 1:
        kind = "none"
    is_whole = factor_is_yarns and kind == "yarn" and f"{key}.attn_factor" in file.fields
    if not is_whole and file.field(f"{key}.attn_factor", 1.0) != 1:
        raise file.unsupported(f"'{key}.attn_factor'")
    if ROPE_FACTORS in file.tensors:
        if kind != "none":
            raise file.unsupported(f"both rope factors and rope scaling {shown(kind)}")
        divisors = factors(file, ROPE_FACTORS, head_dim)
        lengths = {"factor": 1.0, "original_max_position_embeddings": context}
        return {"rope_type": "longrope", "rope_theta": theta, "attention_factor": 1.0,
                "short_factor": divisors, "long_factor": divisors, **lengths}  # fmt: skip
    if kind == "none":
        return {"rope_type": "default", "rope_theta": theta}
    if kind == "linear":
        return {"rope_type": "linear", "rope_theta": theta, "factor": factor}
    if kind != "yarn" or file.field(f"{key}.yarn_ext_factor", 1.0) != 1:
        raise file.unsupported(f"rope scaling {shown(kind)}")
    found = {"rope_type": "yarn", "rope_theta": theta, "factor": factor}
    found |= _yarn(file, key, context)
    if is_whole:
        found["attention_factor"] = short(file.number(f"{key}.attn_factor", MAX_SCALE))
    return found


def base(file: Gguf, key: str, default: float = 10000.0) -> float:
    """The base of the rotary embedding's frequencies."""
    return short(file.number(key, MAX_ROPE_THETA, default))


def _yarn(file: Gguf, key: str, context: int) -> dict[str, Any]:
    """YaRN's parameters beside its factor (arXiv:2309.00071)."""
    found: dict[str, Any] = {
        "original_max_position_embeddings": original_context(file, key, context),
        "beta_fast": short(file.number(f"{key}.yarn_beta_fast", MAX_SCALE, 32.0)),
        "beta_slow": short(file.number(f"{key}.yarn_beta_slow", MAX_SCALE, 1.0)),
    }
    if file.field(f"{key}.yarn_attn_factor", 0):  # llama.cpp writes it, but does not read it
        found["attention_factor"] = short(file.number(f"{key}.yarn_attn_factor", MAX_SCALE))
    elif file.field(f"{key}.yarn_log_multiplier", 0):
        multiplier = short(file.number(f"{key}.yarn_log_multiplier", MAX_SCALE))
        found |= {"mscale": 1.0, "mscale_all_dim": multiplier}
    return found


def original_context(file: Gguf, key: str, context: int) -> int:
    """The context that the model was first trained with."""
    most = LIMITS["max_position_embeddings"]
    return file.integer(f"{key}.original_context_length", most, context)


def factors(file: Gguf, name: str, rotary: int) -> list[float]:
    """What each frequency of `rotary` dimensions is divided by, from the tensor `name`."""
    divisors = numbers(file, name, rotary // 2)
    if not all(0 < one <= MAX_SCALE for one in divisors):
        raise file.damaged(f"tensor '{name}' has a factor that is not above 0")
    return divisors


def numbers(file: Gguf, name: str, count: int) -> list[float]:
    """The values of a vector."""
    if tensor_shape(file, name) != (count,):
        found = list(tensor_shape(file, name))
        raise file.damaged(f"tensor '{name}' is {found}, expected [{count}]")
    return [short(float(one)) for one in file.rows(name, 0, 1).flatten()]
