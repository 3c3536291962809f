"""Gemma 4's text models.

E2B and E4B have inputs for each layer and shared keys and values, 26B-A4B has experts next to a
dense block. Layers with and without a window differ in heads and rotary embeddings. Rows of q and k
are in transformers' order; norms hold w.
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
    activation,
    attention,
    chosen,
    unlike,
)
from engine.model.families.metadata import (
    EXPERT_FIELDS,
    ROPE_FACTORS,
    WINDOW_FIELDS,
    Settings,
    base,
    by_layer,
    experts,
    layer_types,
    numbers,
    short,
    sizes,
    window,
)
from engine.model.model_config import FULL, GELU, SLIDING, Attention, Dense, Experts
from engine.weights.config_json import LIMITS, MAX_SCALE
from engine.weights.gguf.gguf_file import Gguf

NAME = "gemma4"
PER_LAYER = "per_layer_token_embd.weight"
NOT_ROTARY = 1e30  # divisor of frequencies of dimensions that are not rotated
OWN = ("head_dim", "num_key_value_heads")  # fields that a layer may have for itself
KEYS_AND_VALUES = ("attn_k.weight", "attn_v.weight", "attn_k_norm.weight")


def _read_metadata(file: Gguf) -> Settings:
    count = file.integer(f"{NAME}.block_count", LIMITS["num_hidden_layers"])
    types = layer_types(file, NAME, count, None)
    if set(types) != {FULL, SLIDING} or types[-1] != FULL:
        raise file.unsupported(
            f"'{NAME}.attention.sliding_window_pattern' without windows, or with one in the last "
            "layer"
        )
    shared = file.integer(f"{NAME}.attention.shared_kv_layers", count - 1, 0, least=0)
    if set(types[: count - shared]) != {FULL, SLIDING}:
        raise file.unsupported(f"'{NAME}.attention.shared_kv_layers' {shared}: none to share")
    inner = _inner(file, count, shared)
    kv_heads = {kind: _kv_heads(file, types, kind) for kind in (FULL, SLIDING)}
    settings = sizes(file, NAME, "gemma4_text", inner[0], kv_heads[SLIDING])
    if settings["num_attention_heads"] % kv_heads[FULL]:
        raise file.damaged(
            f"'{NAME}.attention.head_count' is not a multiple of head_count_kv {kv_heads[FULL]}"
        )
    full_dim, settings["head_dim"] = settings["head_dim"], _window_dim(file)
    seen = window(file, NAME)
    if not seen:
        raise file.damaged(f"'{NAME}.attention.sliding_window' is 0, expected a number of tokens")
    per_layer = {"head_dim": full_dim, "num_key_value_heads": kv_heads[FULL]}
    return settings | _read_experts(file) | {
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": seen,
        "layer_types": types,
        "per_layer_config": {str(n): per_layer for n, kind in enumerate(types) if kind == FULL},
        "rope_parameters": _ropes(file, full_dim, settings["max_position_embeddings"]),
        "num_kv_shared_layers": shared,
        "use_double_wide_mlp": inner[-1] != inner[0],
        "attention_k_eq_v": f"blk.{types.index(FULL)}.attn_v.weight" not in file.tensors,
        # Without it llama.cpp takes 30, and transformers none.
        "final_logit_softcapping": short(file.number(f"{NAME}.final_logit_softcapping", MAX_SCALE)),
        "use_bidirectional_attention": None,
        **_per_layer_inputs(file),
    }  # fmt: skip


def _inner(file: Gguf, count: int, shared: int) -> list[int]:
    """Read the width of each feed-forward block.

    Those of layers that share keys and values may have twice the width."""
    key = f"{NAME}.feed_forward_length"
    found = by_layer(file, key, LIMITS["intermediate_size"], count)
    own, rest = found[: count - shared], found[count - shared :]
    if set(own) != {own[0]} or not (set(rest) <= {own[0]} or set(rest) == {2 * own[0]}):
        raise file.unsupported(f"layers that differ in '{key}'")
    return found


def _kv_heads(file: Gguf, types: list[str], kind: str) -> int:
    """Count the heads of keys and values of the layers of one type."""
    key = f"{NAME}.attention.head_count_kv"
    counts = by_layer(file, key, LIMITS["num_key_value_heads"], len(types))
    found = {one for one, other in zip(counts, types, strict=True) if other == kind}
    if len(found) != 1:
        raise file.unsupported(f"layers of one type that differ in '{key}'")
    return found.pop()


def _window_dim(file: Gguf) -> int:
    """Count a head's dimensions in layers with a window, all of which are rotary."""
    found = file.integer(f"{NAME}.attention.key_length_swa", LIMITS["head_dim"])
    for key in (f"{NAME}.attention.value_length_swa", f"{NAME}.rope.dimension_count_swa"):
        if file.field(key, found) != found:
            raise file.unsupported(f"'{key}' unlike its key_length_swa")
    if found % 2:
        raise file.damaged(f"'{NAME}.attention.key_length_swa' is {found}, expected an even number")
    return found


def _ropes(file: Gguf, full_dim: int, context: int) -> dict[str, Any]:
    """Read the rotary embeddings.

    That of full attention rotates the first part of each half of a head, at the frequencies of the
    whole: the others are divided by NOT_ROTARY."""
    if file.integer(f"{NAME}.rope.dimension_count", LIMITS["head_dim"], full_dim) != full_dim:
        raise file.unsupported(f"'{NAME}.rope.dimension_count' unlike its key_length")
    divisors = numbers(file, ROPE_FACTORS, full_dim // 2)
    rotated = divisors.count(1.0)
    if divisors != [1.0] * rotated + [NOT_ROTARY] * (full_dim // 2 - rotated) or not rotated:
        raise file.unsupported(f"factors in '{ROPE_FACTORS}' other than 1 and {NOT_ROTARY:g}")
    for key in ("type", "factor", "attn_factor"):
        if file.field(f"{NAME}.rope.scaling.{key}", "none") not in ("none", 1):
            raise file.unsupported(f"'{NAME}.rope.scaling.{key}'")
    return {
        FULL: {
            "rope_type": "proportional",
            "rope_theta": base(file, f"{NAME}.rope.freq_base"),
            "partial_rotary_factor": 2 * rotated / full_dim,
        },
        SLIDING: {
            "rope_type": "default",
            "rope_theta": base(file, f"{NAME}.rope.freq_base_swa"),
        },
    }


def _read_experts(file: Gguf) -> dict[str, Any]:
    """Read 26B-A4B's experts, of every layer."""
    if not file.field(f"{NAME}.expert_count", 0):
        return {"enable_moe_block": False}
    count, used, wide = experts(file, NAME)
    return {
        "enable_moe_block": True,
        "num_experts": count,
        "top_k_experts": used,
        "moe_intermediate_size": wide,
    }


def _per_layer_inputs(file: Gguf) -> dict[str, int]:
    """Read the width of the inputs that each layer of E2B and E4B gets for a token."""
    key = f"{NAME}.embedding_length_per_layer_input"
    width = file.integer(key, LIMITS["hidden_size"], 0, least=0)
    if not width:
        return {"hidden_size_per_layer_input": 0}
    vocabulary = file.shape(PER_LAYER)[0]
    return {"hidden_size_per_layer_input": width, "vocab_size_per_layer_input": vocabulary}


def _unread(settings: Settings) -> frozenset[str]:
    """Name the rotary embedding's factors, and keys and values of layers that read others'.

    Some files have them all the same."""
    count = settings["num_hidden_layers"]
    sharing = range(count - settings["num_kv_shared_layers"], count)
    unread = (f"blk.{n}.{name}" for n in sharing for name in KEYS_AND_VALUES)
    return frozenset({ROPE_FACTORS, *unread})


# --- config.json ----------------------------------------------------------------------------------


def _more(settings: Settings) -> dict[str, Any]:
    return {
        "embedding_scale": settings["hidden_size"] ** 0.5,
        "per_layer_width": settings.get("hidden_size_per_layer_input") or 0,
    }


def _attention(family: Family, settings: Settings, n: int) -> Attention:
    usual = attention(family, settings | _own(settings, n), n)
    same = bool(settings.get("attention_k_eq_v")) and usual.rope == FULL
    return replace(
        usual,
        scale=1.0,
        value_norm=True,
        keys_are_values=same,
        reads_from=_shared_with(settings, n),
    )


def _own(settings: Settings, n: int) -> Settings:
    """Find what is said of layer n alone, which is the same for all layers of a type."""
    every, types = settings.get("per_layer_config") or {}, settings.get("layer_types")
    if not every or not isinstance(types, list) or len(types) <= n:
        return {}
    first = types.index(types[n])
    found, other = (every.get(str(key)) or every.get(key) or {} for key in (n, first))
    if found != other:
        raise unlike(settings, "per_layer_config of layer", n)
    return {name: one for name, one in found.items() if name in OWN and one}


def _shared_with(settings: Settings, n: int) -> int | None:
    """Find the layer whose keys and values layer n reads."""
    shared, types = settings.get("num_kv_shared_layers") or 0, settings["layer_types"]
    first = settings["num_hidden_layers"] - shared
    if n < first:
        return None
    for other in range(first - 1, -1, -1):
        if types[other] == types[n]:
            return other
    raise unlike(settings, "num_kv_shared_layers", shared)


def _blocks(family: Family, settings: Settings, n: int) -> tuple[Dense, Experts | None]:
    """Make a dense block, and the experts next to it."""
    wider = settings.get("use_double_wide_mlp") and _shared_with(settings, n) is not None
    kernel = activation(family, settings)
    dense = Dense(settings["intermediate_size"] * (2 if wider else 1), kernel)
    if not settings.get("enable_moe_block"):
        return dense, None
    routed = chosen(settings, "top_k_experts")
    return dense, Experts(*routed, settings["moe_intermediate_size"], kernel, "router.proj")


FAMILY = Family(
    "gemma4_text",
    NAME,
    _read_metadata,
    ATTENTION
    | FEED_FORWARD
    | SANDWICH_NORMS
    | {
        "layer_output_scale.weight": "layer_scalar",
        "inp_gate": "per_layer_input_gate",
        "proj": "per_layer_projection",
        "post_norm": "post_per_layer_input_norm",
        "post_ffw_norm_1": "post_feedforward_layernorm_1",
        "post_ffw_norm_2": "post_feedforward_layernorm_2",
        "pre_ffw_norm_2": "pre_feedforward_layernorm_2",
        "ffn_gate_inp": "router.proj",
        "ffn_gate_inp.scale": "router.scale",
        "ffn_down_exps.scale": "router.per_expert_scale",
        "ffn_gate_up_exps": "experts.gate_up_proj",
        "ffn_gate_exps": "experts.gate_proj",
        "ffn_up_exps": "experts.up_proj",
        "ffn_down_exps": "experts.down_proj",
    },
    WINDOW_FIELDS
    | EXPERT_FIELDS
    | {
        "attention.shared_kv_layers",
        "attention.key_length_swa",
        "attention.value_length_swa",
        "rope.freq_base_swa",
        "rope.dimension_count_swa",
        "final_logit_softcapping",
        "embedding_length_per_layer_input",
    },
    _unread,
    more=_more,
    mixer=_attention,
    blocks=_blocks,
    composites=("gemma4",),
    reads=("final_logit_softcapping",),
    norms=SANDWICH,
    qk_norm="head",
    activation=GELU,
    layer_types=(FULL, SLIDING),
    partly_rotary=True,
    ropes_by_type=True,
)
