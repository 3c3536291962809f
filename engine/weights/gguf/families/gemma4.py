"""Gemma 4's text models: E2B and E4B with inputs for each layer and shared keys and values, 26B-A4B
with experts beside a dense block, 31B. Layers with and without a window differ in heads and
rotary embeddings. Rows of q and k are in transformers' order; norms hold w."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from engine.weights.gguf.families.family import (
    EXPERTS,
    FULL,
    SANDWICH_NORMS,
    SLIDING,
    WINDOWED,
    Config,
    Family,
    Table,
    attention,
    by_layer,
    ends,
    expert_matrices,
    experts,
    feed_forward,
    head_norms,
    layer,
    layer_types,
    norms,
    short,
    sizes,
    tensor_shape,
    window,
)
from engine.weights.gguf.families.rope import ROPE_FACTORS, base, numbers
from engine.weights.gguf.gguf_file import Gguf
from engine.weights.model_config import LIMITS, MAX_SCALE

NAME = "gemma4"
PER_LAYER = "per_layer_token_embd.weight"
NOT_ROTARY = 1e30  # by which frequencies of dimensions that are not rotated are divided
KEYS_AND_VALUES = ("attn_k.weight", "attn_v.weight", "attn_k_norm.weight")
EXPERT_NORMS = {
    "post_ffw_norm_1": "post_feedforward_layernorm_1",
    "post_ffw_norm_2": "post_feedforward_layernorm_2",
    "pre_ffw_norm_2": "pre_feedforward_layernorm_2",
}


def _config(file: Gguf) -> Config:
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
    config = sizes(file, NAME, "gemma4_text", "Gemma4ForCausalLM", inner[0], kv_heads[SLIDING])
    if config["num_attention_heads"] % kv_heads[FULL]:
        raise file.damaged(
            f"'{NAME}.attention.head_count' is not a multiple of head_count_kv {kv_heads[FULL]}"
        )
    full_dim, config["head_dim"] = config["head_dim"], _window_dim(file)
    del config["hidden_act"]
    seen = window(file, NAME)
    if not seen:
        raise file.damaged(f"'{NAME}.attention.sliding_window' is 0, expected a number of tokens")
    per_layer = {"head_dim": full_dim, "num_key_value_heads": kv_heads[FULL]}
    return config | _experts(file) | {
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": seen,
        "layer_types": types,
        "per_layer_config": {str(n): per_layer for n, kind in enumerate(types) if kind == FULL},
        "rope_parameters": _ropes(file, full_dim, config["max_position_embeddings"]),
        "num_kv_shared_layers": shared,
        "use_double_wide_mlp": inner[-1] != inner[0],
        "attention_k_eq_v": f"blk.{types.index(FULL)}.attn_v.weight" not in file.tensors,
        # Without it llama.cpp takes 30, and transformers none.
        "final_logit_softcapping": short(file.number(f"{NAME}.final_logit_softcapping", MAX_SCALE)),
        "use_bidirectional_attention": None,
        **_per_layer_inputs(file),
    }  # fmt: skip


def _inner(file: Gguf, count: int, shared: int) -> list[int]:
    """The width of each feed-forward block. Those of layers that share keys and values may have
    twice the width."""
    key = f"{NAME}.feed_forward_length"
    found = by_layer(file, key, LIMITS["intermediate_size"], count)
    own, rest = found[: count - shared], found[count - shared :]
    if set(own) != {own[0]} or not (set(rest) <= {own[0]} or set(rest) == {2 * own[0]}):
        raise file.unsupported(f"layers that differ in '{key}'")
    return found


def _kv_heads(file: Gguf, types: list[str], kind: str) -> int:
    """Heads of keys and values of the layers of one type."""
    key = f"{NAME}.attention.head_count_kv"
    counts = by_layer(file, key, LIMITS["num_key_value_heads"], len(types))
    found = {one for one, other in zip(counts, types, strict=True) if other == kind}
    if len(found) != 1:
        raise file.unsupported(f"layers of one type that differ in '{key}'")
    return found.pop()


def _window_dim(file: Gguf) -> int:
    """Dimensions of a head of the layers with a window, all of which are rotary."""
    found = file.integer(f"{NAME}.attention.key_length_swa", LIMITS["head_dim"])
    for key in (f"{NAME}.attention.value_length_swa", f"{NAME}.rope.dimension_count_swa"):
        if file.field(key, found) != found:
            raise file.unsupported(f"'{key}' unlike its key_length_swa")
    if found % 2:
        raise file.damaged(f"'{NAME}.attention.key_length_swa' is {found}, expected an even number")
    return found


def _ropes(file: Gguf, full_dim: int, context: int) -> dict[str, Any]:
    """The rotary embeddings. That of full attention rotates the first part of each half of a head,
    at the frequencies of the whole: the others are divided by NOT_ROTARY."""
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


def _experts(file: Gguf) -> dict[str, Any]:
    """26B-A4B's experts, of every layer."""
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
    """The inputs that each layer of E2B and E4B gets for a token."""
    key = f"{NAME}.embedding_length_per_layer_input"
    width = file.integer(key, LIMITS["hidden_size"], 0, least=0)
    if not width:
        return {"hidden_size_per_layer_input": 0}
    vocabulary = tensor_shape(file, PER_LAYER)[0]
    return {"hidden_size_per_layer_input": width, "vocab_size_per_layer_input": vocabulary}


def _tensors(config: Config, names: Collection[str]) -> Table:
    table, width = ends(config), config["hidden_size_per_layer_input"]
    every, hidden = config["num_hidden_layers"] * width, config["hidden_size"]
    if width:
        embedding = (config["vocab_size_per_layer_input"], every)
        table |= {
            PER_LAYER: ("model.embed_tokens_per_layer.weight", embedding, 0),
            "per_layer_model_proj.weight": (
                "model.per_layer_model_projection.weight", (every, hidden), 0,
            ),
            "per_layer_proj_norm.weight": ("model.per_layer_projection_norm.weight", (width,), 0),
        }  # fmt: skip
    for number in range(config["num_hidden_layers"]):
        table |= layer(config, number, _layer(config, number, names))
    return table


def _layer(config: Config, number: int, names: Collection[str]) -> Table:
    """The tensors of one layer."""
    own = config | config["per_layer_config"].get(str(number), {})
    shares = number >= config["num_hidden_layers"] - config["num_kv_shared_layers"]
    full = config["layer_types"][number] == FULL
    heads = attention(own) | head_norms(own)
    if full and config["attention_k_eq_v"]:
        del heads["attn_v.weight"]
    if shares:
        heads = {name: one for name, one in heads.items() if name not in KEYS_AND_VALUES}
    inner = config["intermediate_size"] * (2 if shares and config["use_double_wide_mlp"] else 1)
    table = heads | feed_forward(config, inner) | norms(config, SANDWICH_NORMS)
    table["layer_output_scale.weight"] = ("layer_scalar", (1,), 0)
    if config["enable_moe_block"]:
        table |= _mixture(config, f"blk.{number}.ffn_gate_up_exps.weight" in names)
    if config["hidden_size_per_layer_input"]:
        table |= _layer_inputs(config)
    return table


def _mixture(config: Config, fused: bool) -> Table:
    """The experts beside the dense block, and their router. `fused`: gate and up are one."""
    count, wide, hidden = (
        config[key] for key in ("num_experts", "moe_intermediate_size", "hidden_size")
    )
    matrices = expert_matrices(config, count, wide, "experts")
    if fused:
        del matrices["ffn_gate_exps.weight"], matrices["ffn_up_exps.weight"]
        shape = (count, 2 * wide, hidden)
        matrices["ffn_gate_up_exps.weight"] = ("experts.gate_up_proj.weight", shape, 0)
    return matrices | norms(config, EXPERT_NORMS) | {
        "ffn_gate_inp.weight": ("router.proj.weight", (count, hidden), 0),
        "ffn_gate_inp.scale": ("router.scale", (hidden,), 0),
        "ffn_down_exps.scale": ("router.per_expert_scale", (count,), 0),
    }  # fmt: skip


def _layer_inputs(config: Config) -> Table:
    """What puts a layer's own input for a token into its output."""
    width, hidden = config["hidden_size_per_layer_input"], config["hidden_size"]
    return norms(config, {"post_norm": "post_per_layer_input_norm"}) | {
        "inp_gate.weight": ("per_layer_input_gate.weight", (width, hidden), 0),
        "proj.weight": ("per_layer_projection.weight", (hidden, width), 0),
    }


def _others(config: Config) -> frozenset[str]:
    """The factors of the rotary embedding, and keys and values of layers that read others': some
    files have them all the same."""
    count = config["num_hidden_layers"]
    sharing = range(count - config["num_kv_shared_layers"], count)
    unread = {f"blk.{n}.{name}" for n in sharing for name in KEYS_AND_VALUES}
    return frozenset({ROPE_FACTORS, *unread})


FAMILY = Family(
    NAME,
    ("gemma4_text",),
    WINDOWED | EXPERTS | {
        "attention.shared_kv_layers", "attention.key_length_swa", "attention.value_length_swa",
        "rope.freq_base_swa", "rope.dimension_count_swa", "final_logit_softcapping",
        "embedding_length_per_layer_input",
    },
    _config,
    _tensors,
    _others,
)  # fmt: skip
