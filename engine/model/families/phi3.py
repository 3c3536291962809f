"""Phi-3, Phi-4 and Phi-4-mini: q, k and v in one matrix, gate and up in another.

A part of each head may be rotary, with LongRoPE's factors (arXiv:2402.13753). Rows of q and k are
in transformers' order: the halves of a head follow each other.
"""

from __future__ import annotations

from typing import Any

from engine.model.families.family import PRE_NORMS, Family
from engine.model.families.metadata import (
    WINDOW_FIELDS,
    Settings,
    base,
    factors,
    original_context,
    rope,
    short,
    sizes,
    window,
)
from engine.weights.config_json import LIMITS, MAX_SCALE
from engine.weights.gguf.gguf_file import Gguf

NAME = "phi3"
LONG, SHORT = "rope_factors_long.weight", "rope_factors_short.weight"


def _read_metadata(file: Gguf) -> Settings:
    settings = sizes(file, NAME, "phi3")
    file.field(f"{NAME}.attention.sliding_window")  # files without it are of models that have one
    return settings | {
        "pad_token_id": None,  # its default may be above the vocabulary
        "sliding_window": window(file, NAME) or None,
        "rope_parameters": _rope(file, settings["head_dim"], settings["max_position_embeddings"]),
        "original_max_position_embeddings": original_context(
            file, f"{NAME}.rope.scaling", settings["max_position_embeddings"]
        ),
    }


def _rope(file: Gguf, head_dim: int, context: int) -> dict[str, Any]:
    """Read the rotary embedding. Files do not name LongRoPE, but have its factors."""
    rotary = file.integer(f"{NAME}.rope.dimension_count", LIMITS["head_dim"], head_dim)
    part = rotary / head_dim
    if rotary % 2 or rotary > head_dim or int(head_dim * part) != rotary:
        raise file.damaged(
            f"'{NAME}.rope.dimension_count' is {rotary}, expected an even number up to {head_dim}"
        )
    if (LONG in file.tensors) != (SHORT in file.tensors):
        there, lacking = (LONG, SHORT) if LONG in file.tensors else (SHORT, LONG)
        raise file.damaged(f"it has '{there}' and no '{lacking}'")
    if LONG not in file.tensors:
        found = rope(file, NAME, rotary, context)
        if found["rope_type"] != "default":
            raise file.unsupported(f"rope scaling {found['rope_type']} of a {NAME} model")
        return found | {"partial_rotary_factor": part}
    key = f"{NAME}.rope.scaling"
    kind, factor = file.text(f"{key}.type", "longrope"), file.field(f"{key}.factor", 1.0)
    if kind not in ("longrope", "none") or factor != 1:
        raise file.unsupported(f"LongRoPE's factors, '{key}.type' and '{key}.factor'")
    return {
        "rope_type": "longrope",
        "rope_theta": base(file, f"{NAME}.rope.freq_base"),
        "partial_rotary_factor": part,
        "short_factor": factors(file, SHORT, rotary),
        "long_factor": factors(file, LONG, rotary),
        "attention_factor": short(file.number(f"{key}.attn_factor", MAX_SCALE, 1.0)),
        "original_max_position_embeddings": original_context(file, key, context),
    }


def _rope_factors(settings: Settings) -> frozenset[str]:
    """Name LongRoPE's factors."""
    return frozenset({LONG, SHORT})  # the settings have them


FAMILY = Family(
    "phi3",
    NAME,
    _read_metadata,
    PRE_NORMS
    | {
        "attn_qkv": "self_attn.qkv_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_up": "mlp.gate_up_proj",
        "ffn_down": "mlp.down_proj",
    },
    WINDOW_FIELDS,
    _rope_factors,
    biased=(),
    window="sliding_window",
    partly_rotary=True,
)
