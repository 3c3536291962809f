"""What a family of models is, and how most of them read a config.json.

A family is data (norms, biases, windows) and functions for what differs in more than a value. What
a config.json says and its family has not is refused by the name of the field.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from engine.model.families.metadata import Settings
from engine.model.model_config import (
    FULL,
    GELU,
    SILU,
    SLIDING,
    Attention,
    Dense,
    Experts,
    Layer,
    LinearAttention,
    ModelConfig,
    Norms,
    Rope,
)
from engine.model.rope import frequencies, rope_parameters, supports_rope
from engine.model.unsupported import CHOOSE, UnsupportedModel
from engine.weights.errors import shown
from engine.weights.gguf.gguf_file import Gguf

ACTIVATIONS = {"silu": SILU, "gelu_pytorch_tanh": GELU}
ONE_ROPE = "all"
IGNORED_ROPE = {"mrope_section", "mrope_interleaved", "partial_rotary_factor"}

# A layer's tensors, as their names in GGUF -> in safetensors. A name without a suffix stands for
# the weight and the bias.
ATTENTION = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
}
FEED_FORWARD = {
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
EXPERTS = {
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.gate_proj",
    "ffn_up_exps": "mlp.experts.up_proj",
    "ffn_down_exps": "mlp.experts.down_proj",
}
MTP_TENSORS = {  # of a layer that predicts the token after the next, in safetensors -> in GGUF
    "mtp.fc": "nextn.eh_proj",
    "mtp.pre_fc_norm_embedding": "nextn.enorm",
    "mtp.pre_fc_norm_hidden": "nextn.hnorm",
    "model.norm": "nextn.shared_head_norm",
    "model.embed_tokens": "nextn.embed_tokens",
    "lm_head": "nextn.shared_head_head",
}
PRE_NORMS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
POST_NORMS = {
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
SANDWICH_NORMS = POST_NORMS | {
    "attn_norm": "input_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
}
BEFORE = Norms()
AFTER = Norms(None, "post_attention_layernorm", None, "post_feedforward_layernorm")
SANDWICH = Norms(
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)


def no_tensors(settings: Settings) -> frozenset[str]:
    """Name no tensors that a file may have and nobody reads."""
    return frozenset()


def no_more(settings: Settings) -> dict[str, Any]:
    """Change no fields of the usual `ModelConfig`."""
    return {}


def attention(family: Family, settings: Settings, n: int) -> Attention:
    """Make the softmax attention of layer n, as most families have it."""
    sliding = layer_type(family, settings, n) == SLIDING
    window = settings.get("sliding_window") or 0 if sliding else 0
    if sliding and not window:
        raise unlike(settings, "sliding_window", settings.get("sliding_window"))
    heads: int = settings["num_attention_heads"]
    d = settings.get("head_dim") or settings["hidden_size"] // heads
    biased = family.biased
    if biased is None:
        biased = ("q", "k", "v", "o") if settings.get("attention_bias") else ()
    return Attention(
        heads,
        settings.get("num_key_value_heads") or heads,
        d,
        d**-0.5,
        rope=layer_type(family, settings, n) if _ropes_by_type(family, settings) else ONE_ROPE,
        window=0 if window >= _positions(family, settings) else window,
        softcap=settings.get("attn_logit_softcapping") or 0.0,
        qk_norm=family.qk_norm,
        biased=biased,
    )


def dense(family: Family, settings: Settings, n: int) -> tuple[Dense, None]:
    """Make a gated feed-forward block."""
    biased = family.mlp_bias and bool(settings.get("mlp_bias"))
    return Dense(settings["intermediate_size"], activation(family, settings), biased), None


@dataclass(frozen=True)
class Family:
    """The models of one transformers model type, and their form in GGUF files.

    How a config.json becomes a `ModelConfig`: `more` gives fields of that, `mixer` and `blocks` the
    parts of layer n. How a GGUF file does: `settings` makes the fields of a config.json of its
    metadata; those in `fields`, without the architecture's name, are read besides the common ones.
    `names`: names of a layer's tensors, in GGUF -> in safetensors. `unread`: other tensors of a
    file.
    """

    model_type: str
    architecture: str  # its name in GGUF
    settings: Callable[[Gguf], Settings]
    names: Mapping[str, str]
    fields: frozenset[str] = frozenset()
    unread: Callable[[Settings], frozenset[str]] = no_tensors
    more: Callable[[Settings], dict[str, Any]] = no_more
    mixer: Callable[[Family, Settings, int], Attention | LinearAttention] = attention
    blocks: Callable[[Family, Settings, int], tuple[Dense | None, Experts | None]] = dense
    interleaved: bool = False  # files have rows of q and k in GGML's rope order
    llama: bool = False  # its pass is Llama's, which torch has in a faster form
    composites: tuple[str, ...] = ()  # model types of which it is the text part
    reads: tuple[str, ...] = ()  # fields that change logits or scores
    defaults: Mapping[str, Any] = field(default_factory=dict)  # values of absent fields
    norms: Norms = BEFORE
    norm_offset: float = 0.0  # published norms hold the weight less this
    qk_norm: Literal["", "head", "all"] = ""
    biased: tuple[str, ...] | None = None  # projections with a bias; None: as config.json says
    mlp_bias: bool = False  # whether config.json may say that it has one
    activation: str = ""  # the only one that it has
    layer_types: tuple[str, ...] = ()  # one of which config.json must name for each layer
    # Whether layers have windows: where "sliding_window" is set, or "use_sliding_window", too
    window: Literal["", "sliding_window", "use_sliding_window"] = ""
    partly_rotary: bool = False  # a part of each head may be
    ropes_by_type: bool = False  # each type of layer has a rotary embedding of its own


def unlike(settings: Settings, name: str, value: object) -> UnsupportedModel:
    """Make the error for a field with a value that its family has not."""
    kind = settings["model_type"]
    return UnsupportedModel(f"{kind}: {name} {shown(value)} does not run here: {CHOOSE}")


def model_config(family: Family, settings: Settings) -> ModelConfig:
    """Read the config of a model from a checked config.json.

    UnsupportedModel names a field that it lacks, or that its family has not."""
    try:
        return _model_config(family, dict(family.defaults) | settings)
    except KeyError as error:
        raise UnsupportedModel(
            f"{family.model_type}: its config.json has no {error}: copy or fetch this model again"
        ) from error


def _model_config(family: Family, settings: Settings) -> ModelConfig:
    seen = settings.get("use_bidirectional_attention")  # "vision": only by images
    if seen not in (None, False, "vision"):
        raise unlike(settings, "use_bidirectional_attention", seen)
    layers = tuple(
        Layer(family.mixer(family, settings, n), *family.blocks(family, settings, n))
        for n in range(settings["num_hidden_layers"])
    )
    if not any(isinstance(layer.mixer, Attention) for layer in layers):
        raise unlike(settings, "a model without layers of type", FULL)
    usual: dict[str, Any] = {
        "family": family.model_type,
        "vocab": settings["vocab_size"],
        "width": settings["hidden_size"],
        "positions": _positions(family, settings),
        "eps": settings["rms_norm_eps"],
        "layers": layers,
        "norms": family.norms,
        "ropes": _ropes(family, settings, layers),
        "tied": bool(settings.get("tie_word_embeddings")),
        "logit_softcap": settings.get("final_logit_softcapping") or 0.0,
        "norm_offset": family.norm_offset,
    }
    return ModelConfig(**usual | family.more(settings))


def layer_type(family: Family, settings: Settings, n: int) -> str:
    """Tell whether layer n sees everything, a window, or has a state."""
    types = settings.get("layer_types")
    listed = isinstance(types, list) and len(types) > n
    if family.layer_types and not listed:
        raise unlike(settings, "layer_types", types)
    if listed and types[n] not in (family.layer_types or (FULL, SLIDING)):  # type: ignore[index]
        raise unlike(settings, "a layer of type", types[n])  # type: ignore[index]
    if family.layer_types:
        return str(types[n])  # type: ignore[index]
    if not has_window(family, settings):
        return FULL
    return str(types[n]) if listed else SLIDING  # type: ignore[index]


def has_window(family: Family, settings: Settings) -> bool:
    """Tell whether some layers see fewer tokens than the model's context."""
    settings, types = dict(family.defaults) | settings, settings.get("layer_types")
    window = settings.get("sliding_window")
    if not window or not family.window or not settings.get(family.window):
        return False
    if isinstance(types, list) and SLIDING not in types:
        return False
    positions: float = settings.get("max_position_embeddings") or math.inf
    return bool(window < positions)


def activation(family: Family, settings: Settings) -> str:
    """Name the kernel of the blocks' activation."""
    name = "hidden_activation" if settings.get("hidden_activation") else "hidden_act"
    value = settings.get(name) or "silu"
    found = ACTIVATIONS.get(value)
    if found is None or found != (family.activation or found):
        raise unlike(settings, name, value)
    return found


def chosen(settings: Settings, name: str = "num_experts_per_tok") -> tuple[int, int]:
    """Count the experts, and those of them that a row takes."""
    count = settings.get("num_experts") or settings.get("num_local_experts") or 0
    if not count:
        raise unlike(settings, "an expert count (num_experts) of", count)
    if settings[name] > count:
        raise unlike(settings, f"with {count} experts, {name}", settings[name])
    return count, settings[name]


def is_sparse(settings: Settings, n: int) -> bool:
    """Tell whether layer n of a mixture by Qwen has experts."""
    sparse = settings.get("decoder_sparse_step") or 1
    return n not in (settings.get("mlp_only_layers") or []) and (n + 1) % sparse == 0


def _ropes_by_type(family: Family, settings: Settings) -> bool:
    parameters = settings.get("rope_parameters") or {}
    return family.ropes_by_type or any(isinstance(value, dict) for value in parameters.values())


def _ropes(family: Family, settings: Settings, layers: tuple[Layer, ...]) -> dict[str, Rope]:
    found: dict[str, Rope] = {}
    for layer in layers:
        mixer = layer.mixer
        if isinstance(mixer, Attention) and mixer.rope and mixer.rope not in found:
            own = _rope_settings(settings, mixer.rope)
            found[mixer.rope] = _rope(family, own, mixer.head_dim)
    return found


def _rope_settings(settings: Settings, name: str) -> Settings:
    """Give the settings with the parameters of one rotary embedding."""
    if name == ONE_ROPE:
        part = {"partial_rotary_factor": settings.get("partial_rotary_factor")}
        whole = part | rope_parameters(settings)
        return settings | {"rope_parameters": whole, "rope_scaling": None}
    own = (settings.get("rope_parameters") or {}).get(name)
    if not own:
        raise unlike(settings, f"rope_parameters without {name}", own)
    return settings | {"rope_parameters": own, "rope_scaling": None}


def _rope(family: Family, settings: Settings, d: int) -> Rope:
    parameters = rope_parameters(settings)
    part, kind = parameters.get("partial_rotary_factor") or 1.0, parameters["rope_type"]
    if part != 1 and not family.partly_rotary:
        raise unlike(settings, "partial_rotary_factor", part)
    plain = {name: one for name, one in parameters.items() if name not in IGNORED_ROPE}
    usable = settings | {"rope_parameters": plain, "rope_scaling": None}
    usable.pop("partial_rotary_factor", None)
    if kind == "proportional":
        usable["rope_parameters"] = plain | {"rope_type": "default"}
        inverse, factor = frequencies(usable, d)
        if parameters.get("factor", 1.0) != 1.0:
            raise unlike(settings, "rope_parameters with the factor", parameters["factor"])
        return Rope(d, int(part * d // 2), tuple(inverse.tolist())[: int(part * d // 2)], factor)
    rotary = int(d * part)
    if plain.get("short_factor") != plain.get("long_factor"):
        usable["rope_parameters"] = plain | {"long_factor": plain["short_factor"]}
    if not supports_rope(usable) or rotary % 2 or not 0 < rotary <= d:
        raise unlike(settings, f"over {part:g} of a head, the rope type", kind)
    if kind == "yarn" and parameters["rope_theta"] <= 1:
        raise unlike(settings, "YaRN with the rope_theta", parameters["rope_theta"])
    if kind == "longrope" and len(plain["short_factor"]) != rotary // 2:
        raise unlike(settings, "a short_factor that is", plain["short_factor"])
    inverse, factor = frequencies(usable, rotary)
    return Rope(rotary, rotary // 2, tuple(inverse.tolist()), factor)


def _positions(family: Family, settings: Settings) -> int:
    """Count the tokens of context.

    Two sets of LongRoPE's factors, for short and long texts, would change what is cached: the short
    ones hold up to the length the model was first trained with."""
    positions: int = settings["max_position_embeddings"]
    if _ropes_by_type(family, settings):
        return positions
    rope = rope_parameters(settings)
    if rope["rope_type"] == "longrope" and rope.get("short_factor") != rope.get("long_factor"):
        return min(positions, int(rope["original_max_position_embeddings"]))
    return positions
