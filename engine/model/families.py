"""Descriptions of models from their checked config.json, family by family.

A family is data: which norms its layers have, how its positions are encoded, what its blocks are.
What a config.json says and no family here means is refused by the name of the field.
"""

from __future__ import annotations

from typing import Any

from engine.model.description import (
    CLAMPED_SWIGLU,
    GELU,
    SILU,
    Attention,
    Dense,
    Description,
    Experts,
    Layer,
    LinearAttention,
    Norms,
    Rope,
)
from engine.model.rope import frequencies, rope_parameters, rotary_layers, supports_rope
from engine.model.unsupported import CHOOSE, UnsupportedModel, has_window
from engine.weights.errors import shown
from engine.weights.model_config import MLP_BIASES

ACTIVATIONS = {"silu": SILU, "gelu_pytorch_tanh": GELU}
SANDWICH = Norms(
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)
NORMS = {
    "olmo2": Norms(None, "post_attention_layernorm", None, "post_feedforward_layernorm"),
    "olmo3": Norms(None, "post_attention_layernorm", None, "post_feedforward_layernorm"),
    "gemma3_text": SANDWICH,
    "gemma4_text": SANDWICH,
}
QK_NORMS = dict.fromkeys(
    ("qwen3", "qwen3_moe", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "gemma3_text",
     "gemma4_text"), "head",
) | dict.fromkeys(("olmo2", "olmo3"), "all")  # fmt: skip
GATED = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
OFFSET_NORMS = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "gemma3_text")
HYBRIDS = GATED
FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"
DENSE_FAMILIES = (
    "llama", "qwen2", "qwen3", "granite", "smollm3", "mistral", "ministral3", "phi3", "olmo2",
)  # fmt: skip
WINDOWS = ("gemma3_text", "gemma4_text", "gpt_oss", "olmo3")
FAMILIES = (*DENSE_FAMILIES, "qwen3_moe", *WINDOWS, *HYBRIDS)
UNBIASED = ("phi3", "mistral", "ministral3")  # whatever attention_bias says
PARTLY_ROTARY = ("phi3", "gemma4_text", *HYBRIDS)
ONE_ROPE = "all"
IGNORED_ROPE = {"mrope_section", "mrope_interleaved", "partial_rotary_factor"}
STATE_DIMS = range(8, 257, 8)  # of a head, that the kernel of linear attention takes
STATE_TAPS = range(2, 9)  # inputs of its convolution


def describe(settings: dict[str, Any]) -> Description:
    """The description of a checked config.json with all its fields. UnsupportedModel names a field
    that it lacks, or that no family here has."""
    try:
        return _description(settings)
    except KeyError as error:
        kind = settings["model_type"]
        raise UnsupportedModel(
            f"{kind}: its config.json has no {error}: copy or fetch this model again"
        ) from error


def _unlike(settings: dict[str, Any], field: str, value: object) -> UnsupportedModel:
    """The error for a field with a value that no family here has."""
    kind = settings["model_type"]
    return UnsupportedModel(f"{kind}: {field} {shown(value)} does not run here: {CHOOSE}")


def _description(settings: dict[str, Any]) -> Description:
    kind = settings["model_type"]
    seen = settings.get("use_bidirectional_attention")  # "vision": only by images
    if seen not in (None, False, "vision"):
        raise _unlike(settings, "use_bidirectional_attention", seen)
    layers = tuple(_layer(settings, n) for n in range(settings["num_hidden_layers"]))
    granite = settings if kind == "granite" else {}
    scale = settings["hidden_size"] ** 0.5 if kind.startswith("gemma") else 1.0
    scaling = rope_parameters(settings).get("llama_4_scaling_beta") if kind == "ministral3" else 0
    trained = rope_parameters(settings)["original_max_position_embeddings"] if scaling else 0
    return Description(
        family=kind,
        vocab=settings["vocab_size"],
        width=settings["hidden_size"],
        positions=_positions(settings),
        eps=settings["rms_norm_eps"],
        layers=layers,
        norms=NORMS.get(kind, Norms()),
        ropes=_ropes(settings, layers),
        tied=bool(settings.get("tie_word_embeddings")),
        embedding_scale=granite.get("embedding_multiplier") or scale,
        residual_scale=granite.get("residual_multiplier") or 1.0,
        logit_divisor=granite.get("logits_scaling") or 1.0,
        logit_softcap=settings.get("final_logit_softcapping") or 0.0,
        per_layer_width=settings.get("hidden_size_per_layer_input") or 0
        if kind == "gemma4_text"
        else 0,
        norm_offset=1.0 if kind in OFFSET_NORMS else 0.0,
        query_scales=(scaling, trained) if scaling else None,
    )


def _layer(settings: dict[str, Any], n: int) -> Layer:
    kind = settings["model_type"]
    mixer: Attention | LinearAttention
    if layer_type(settings, n) == LINEAR:
        mixer = _linear_attention(settings)
    else:
        mixer = _attention(settings, n)
    experts = _experts(settings, n)
    dense = None if experts is not None and kind != "gemma4_text" else _dense(settings, n)
    return Layer(mixer, dense, experts)


def layer_type(settings: dict[str, Any], n: int) -> str:
    """Whether layer n sees everything, a window, or has a state."""
    kind, types = settings["model_type"], settings.get("layer_types")
    if kind in HYBRIDS or kind in WINDOWS:
        if not isinstance(types, list) or len(types) <= n:
            raise _unlike(settings, "layer_types", types)
        if types[n] not in ((FULL, LINEAR) if kind in HYBRIDS else (FULL, SLIDING)):
            raise _unlike(settings, "a layer of type", types[n])
        return str(types[n])
    if isinstance(types, list) and len(types) > n and types[n] not in (FULL, SLIDING):
        raise _unlike(settings, "a layer of type", types[n])
    if not has_window(settings):
        return FULL
    if isinstance(types, list) and len(types) > n and types[n] in (FULL, SLIDING):
        return str(types[n])
    return SLIDING


def _attention(settings: dict[str, Any], n: int) -> Attention:
    kind, sliding = settings["model_type"], layer_type(settings, n) == SLIDING
    heads, kv_heads, d = _heads(settings, n)
    window = settings.get("sliding_window") or 0 if sliding else 0
    if sliding and not window:
        raise _unlike(settings, "sliding_window", settings.get("sliding_window"))
    scale = d**-0.5
    if kind == "gemma3_text":
        scale = settings["query_pre_attn_scalar"] ** -0.5
    if kind == "gemma4_text":
        scale = 1.0
    if kind == "granite":
        scale = settings.get("attention_multiplier") or 1.0
    return Attention(
        heads,
        kv_heads,
        d,
        scale,
        rope=_rope_name(settings, n),
        window=0 if window >= _positions(settings) else window,
        softcap=settings.get("attn_logit_softcapping") or 0.0,
        sinks=kind == "gpt_oss",
        gated=kind in GATED,
        qk_norm=QK_NORMS.get(kind, ""),  # type: ignore[arg-type]
        value_norm=kind == "gemma4_text",
        biased=_biased(settings),
        keys_are_values=kind == "gemma4_text"
        and bool(settings.get("attention_k_eq_v"))
        and not sliding,
        reads_from=_shared_with(settings, n),
    )


def _biased(settings: dict[str, Any]) -> tuple[str, ...]:
    kind = settings["model_type"]
    if kind == "qwen2":
        return ("q", "k", "v")
    return ("q", "k", "v", "o") if settings.get("attention_bias") and kind not in UNBIASED else ()


def _heads(settings: dict[str, Any], n: int) -> tuple[int, int, int]:
    """Heads, heads of keys and values, and their dimensions, of a layer."""
    own = _own(settings, n)
    heads: int = settings["num_attention_heads"]
    d = own.get("head_dim") or settings.get("head_dim") or settings["hidden_size"] // heads
    kv = own.get("num_key_value_heads") or settings.get("num_key_value_heads") or heads
    return heads, kv, d


def _own(settings: dict[str, Any], n: int) -> dict[str, Any]:
    """What Gemma 4's config says of layer n alone, which is the same for all layers of a type."""
    every = settings.get("per_layer_config") or {}
    if settings["model_type"] != "gemma4_text" or not every:
        return {}
    first = settings["layer_types"].index(settings["layer_types"][n])
    found, other = (every.get(str(one)) or every.get(one) or {} for one in (n, first))
    if found != other:
        raise _unlike(settings, "per_layer_config of layer", n)
    return dict(found)


def _shared_with(settings: dict[str, Any], n: int) -> int | None:
    """The layer whose keys and values Gemma 4's layer n reads."""
    shared = settings.get("num_kv_shared_layers") or 0
    first = settings["num_hidden_layers"] - shared
    if settings["model_type"] != "gemma4_text" or n < first:
        return None
    for other in range(first - 1, -1, -1):
        if settings["layer_types"][other] == settings["layer_types"][n]:
            return other
    raise _unlike(settings, "num_kv_shared_layers", shared)


def _linear_attention(settings: dict[str, Any]) -> LinearAttention:
    found = LinearAttention(
        settings["linear_num_key_heads"],
        settings["linear_num_value_heads"],
        settings["linear_key_head_dim"],
        settings["linear_value_head_dim"],
        settings["linear_conv_kernel_dim"],
        tiled=bool(settings.get("linear_heads_tiled")),
    )
    for field, value, fits in (
        ("linear_num_value_heads", found.value_heads, found.value_heads % found.key_heads == 0),
        ("linear_key_head_dim", found.key_dim, found.key_dim in STATE_DIMS),
        ("linear_value_head_dim", found.value_dim, found.value_dim in STATE_DIMS),
        ("linear_conv_kernel_dim", found.kernel, found.kernel in STATE_TAPS),
    ):
        if not fits:
            raise _unlike(settings, field, value)
    return found


def _activation(settings: dict[str, Any]) -> str:
    """The kernel's name of the blocks' activation. That of hybrids and gpt-oss is in other places
    too, and so is Gemma 4's: theirs is always the same."""
    kind = settings["model_type"]
    field = "hidden_activation" if settings.get("hidden_activation") else "hidden_act"
    name = settings.get(field) or "silu"
    fixed = {"gemma4_text": GELU} | dict.fromkeys((*HYBRIDS, "gpt_oss"), SILU)
    found = ACTIVATIONS.get(name)
    if found is None or found != fixed.get(kind, found):
        raise _unlike(settings, field, name)
    return found


def _dense(settings: dict[str, Any], n: int) -> Dense:
    width: int = settings["intermediate_size"]
    if settings.get("use_double_wide_mlp") and _shared_with(settings, n) is not None:
        width *= 2
    biased = settings["model_type"] in MLP_BIASES and bool(settings.get("mlp_bias"))
    return Dense(width, _activation(settings), biased)


def _experts(settings: dict[str, Any], n: int) -> Experts | None:
    kind = settings["model_type"]
    activation = _activation(settings)
    if kind == "gpt_oss":
        return Experts(
            *_chosen(settings), settings["intermediate_size"], CLAMPED_SWIGLU, "mlp.router",
            biased=True, alpha=settings["swiglu_alpha"], limit=settings["swiglu_limit"],
        )  # fmt: skip
    if kind == "gemma4_text":
        if not settings.get("enable_moe_block"):
            return None
        chosen = _chosen(settings, "top_k_experts")
        return Experts(*chosen, settings["moe_intermediate_size"], activation, "router.proj")
    if kind not in ("qwen3_moe", "qwen3_next", "qwen3_5_moe_text"):
        return None
    sparse = settings.get("decoder_sparse_step") or 1
    if n in (settings.get("mlp_only_layers") or []) or (n + 1) % sparse:
        return None
    shared = settings["shared_expert_intermediate_size"] if kind != "qwen3_moe" else 0
    return Experts(
        *_chosen(settings),
        settings["moe_intermediate_size"],
        activation,
        normalised=kind == "qwen3_5_moe_text" or bool(settings["norm_topk_prob"]),
        shared=shared,
    )


def _chosen(settings: dict[str, Any], field: str = "num_experts_per_tok") -> tuple[int, int]:
    """How many experts there are, and how many of them a row takes."""
    count = settings.get("num_experts") or settings.get("num_local_experts") or 0
    if not count:
        raise _unlike(settings, "an expert count (num_experts) of", count)
    if settings[field] > count:
        raise _unlike(settings, f"with {count} experts, {field}", settings[field])
    return count, settings[field]


def _rope_name(settings: dict[str, Any], n: int) -> str | None:
    if settings["model_type"] == "smollm3" and not rotary_layers(settings)[n]:
        return None
    return layer_type(settings, n) if _by_type(settings) else ONE_ROPE


def _by_type(settings: dict[str, Any]) -> bool:
    """Whether windows and full attention have rotary embeddings of their own."""
    parameters = settings.get("rope_parameters") or {}
    by_type = any(isinstance(one, dict) for one in parameters.values())
    return by_type or settings["model_type"] == "gemma4_text"


def _ropes(settings: dict[str, Any], layers: tuple[Layer, ...]) -> dict[str, Rope]:
    found: dict[str, Rope] = {}
    for layer in layers:
        mixer = layer.mixer
        if isinstance(mixer, Attention) and mixer.rope and mixer.rope not in found:
            found[mixer.rope] = _rope(_rope_settings(settings, mixer.rope), mixer.head_dim)
    return found


def _rope_settings(settings: dict[str, Any], name: str) -> dict[str, Any]:
    """The settings with the parameters of one rotary embedding."""
    if name == ONE_ROPE:
        part = {"partial_rotary_factor": settings.get("partial_rotary_factor")}
        whole = part | rope_parameters(settings)
        return settings | {"rope_parameters": whole, "rope_scaling": None}
    own = (settings.get("rope_parameters") or {}).get(name)
    if not own:
        raise _unlike(settings, f"rope_parameters without {name}", own)
    return settings | {"rope_parameters": own, "rope_scaling": None}


def _rope(settings: dict[str, Any], d: int) -> Rope:
    parameters = rope_parameters(settings)
    part, kind = parameters.get("partial_rotary_factor") or 1.0, parameters["rope_type"]
    if part != 1 and settings["model_type"] not in PARTLY_ROTARY:
        raise _unlike(settings, "partial_rotary_factor", part)
    plain = {name: one for name, one in parameters.items() if name not in IGNORED_ROPE}
    usable = settings | {"rope_parameters": plain, "rope_scaling": None}
    usable.pop("partial_rotary_factor", None)
    if kind == "proportional":
        usable["rope_parameters"] = plain | {"rope_type": "default"}
        inverse, factor = frequencies(usable, d)
        if parameters.get("factor", 1.0) != 1.0:
            raise _unlike(settings, "rope_parameters with the factor", parameters["factor"])
        return Rope(d, int(part * d // 2), tuple(inverse.tolist())[: int(part * d // 2)], factor)
    rotary = int(d * part)
    if plain.get("short_factor") != plain.get("long_factor"):
        usable["rope_parameters"] = plain | {"long_factor": plain["short_factor"]}
    if not supports_rope(usable) or rotary % 2 or not 0 < rotary <= d:
        raise _unlike(settings, f"over {part:g} of a head, the rope type", kind)
    inverse, factor = frequencies(usable, rotary)
    return Rope(rotary, rotary // 2, tuple(inverse.tolist()), factor)


def _positions(settings: dict[str, Any]) -> int:
    """Tokens of context. Two sets of LongRoPE's factors, for short and long texts, would change
    what is cached: the short ones hold up to the length the model was first trained with."""
    positions: int = settings["max_position_embeddings"]
    if _by_type(settings):
        return positions
    rope = rope_parameters(settings)
    if rope["rope_type"] == "longrope" and rope.get("short_factor") != rope.get("long_factor"):
        return min(positions, int(rope["original_max_position_embeddings"]))
    return positions
