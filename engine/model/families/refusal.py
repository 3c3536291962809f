"""Models that cannot run here, told by their config.json before anything is read.

Nothing here needs torch.
"""

from __future__ import annotations

import math
from typing import Any

from engine.model.families import FAMILIES, family_of
from engine.model.families.family import has_window
from engine.model.rope import supports_rope
from engine.model.unsupported import CHOOSE, RECURRENT, UnsupportedModel
from engine.weights.errors import shown

UNSUPPORTED_KEYS = {  # config keys that change attention or logits in ways not supported here
    "final_logit_softcapping": "it caps logits",
    "attn_logit_softcapping": "it caps attention scores",
    "logit_scale": "it rescales logits",
    "logits_scaling": "it rescales logits",
    "alibi": "its attention is biased by distance",
    "keep_window_size": "its attention drops keys",
}
RECURRENT_KEYS = (
    "hybrid_override_pattern", "mamba_d_conv", "ssm_cfg", "conv_L_cache", "state_size",
)  # fmt: skip
WINDOW_LAYERS = ("sliding_attention", "chunked_attention", "local", "hybrid_sliding")
STATE_LAYERS = ("linear_attention", "conv", "mamba", "recurrent", "hybrid")
FULL_LAYERS = ("full_attention", "attention", "global")
# Parts of a config.json that only models of more than text have.
OTHER_INPUTS = {
    "vision_config": "images", "vq_config": "images", "img_processor": "images",
    "audio_config": "audio", "audio_encoder": "audio", "audio_encoder_config": "audio",
    "audio_processor": "audio",
}  # fmt: skip


def has_llama_pass(settings: dict[str, Any]) -> bool:
    """Tell by a checked config.json whether `engine.model.torch.llama` runs a model."""
    family = family_of(settings)
    return (
        family is not None
        and family.llama
        and settings.get("hidden_act", "silu") == "silu"
        and supports_rope(settings)
        and not has_window(family, settings)
        and not settings.get("quantization_config")
    )


def refuse(settings: dict[str, Any], ours: bool = False) -> None:
    """Refuse a model that cannot be decoded speculatively without changing its answers.

    `settings`: its checked config.json; `ours`: our own forward pass runs it."""
    kind = settings.get("composite") or settings.get("model_type", "model")
    refuse_inputs(settings)
    if why := _attention(settings):
        raise UnsupportedModel(f"{kind}: {why}; {CHOOSE}")
    if settings.get("composite") and not ours:
        raise UnsupportedModel(
            f"{kind}: its text part cannot run with this hidden_act or rope_parameters; {CHOOSE}"
        )
    refuse_keys(settings, ours)


def refuse_keys(settings: dict[str, Any], ours: bool) -> None:
    """Refuse a key that changes attention or logits and that no forward pass here reads.

    `settings`: the model's checked config.json; `ours`: our own would run it."""
    kind = settings.get("composite") or settings.get("model_type", "model")
    family = family_of(settings)
    if why := _other_states(settings):
        raise UnsupportedModel(f"{kind}: {why}; {CHOOSE}")
    for key, why in UNSUPPORTED_KEYS.items():
        read = ours and family is not None and key in family.reads
        if settings.get(key) not in (None, False, 1, 1.0) and not read:
            raise UnsupportedModel(f"{kind}: {why} ({key}), which is not supported; {CHOOSE}")


def refuse_inputs(settings: dict[str, Any]) -> None:
    """Refuse a model of more than text, or whose weights are stored in a way that is not known.

    `settings`: its checked config.json."""
    kind = settings.get("composite") or settings.get("model_type", "model")
    if why := _other_inputs(settings):
        raise UnsupportedModel(f"{kind}: {why}; {CHOOSE}")
    if stored := settings.get("quantization_config"):
        method = stored.get("quant_method") or stored.get("format") or "an unnamed method"
        raise UnsupportedModel(
            f"{kind}: its weights are quantised by {shown(method)} (quantization_config), which is "
            "not supported; choose its bf16 version, or a GGUF file of it"
        )


def _other_inputs(settings: dict[str, Any]) -> str:
    """Say why a model is not one of text alone; "" where it is, or where its text part runs."""
    if settings.get("is_encoder_decoder"):
        return "encoder-decoder models are not supported"
    composite, known = settings.get("composite"), _composites()
    if composite and composite not in known:
        runs = ", ".join(known)
        return f"a composite model, of which only the text part of {runs} runs here"
    inputs = {what for key, what in OTHER_INPUTS.items() if settings.get(key)}
    if inputs and not composite:
        return f"a model of {' and '.join(sorted(inputs))} too, whose text part does not run here"
    return ""


def _other_states(settings: dict[str, Any]) -> str:
    """Say why a model's layers keep other things than keys and values; "" where they do not."""
    if settings.get("kv_lora_rank"):
        return "its attention caches compressed keys and values (MLA), which is not supported"
    return RECURRENT if any(settings.get(key) for key in RECURRENT_KEYS) else ""


def _attention(settings: dict[str, Any]) -> str:
    """Say why layers cannot be rolled back by dropping rows of a cache; "" where they can."""
    if why := _other_states(settings):
        return why
    keys = ("layer_types", "layers_block_type", "block_types", "attention_layers")
    lists = [settings[key] for key in keys if isinstance(settings.get(key), list)]
    types = {name for each in lists for name in each if isinstance(name, str)}
    if types & set(STATE_LAYERS):
        return RECURRENT
    family = family_of(settings)
    default = family.defaults.get("sliding_window") if family else None  # window of all layers
    window = settings.get("sliding_window", default)
    if (types and not default) or settings.get("use_sliding_window") is False:
        window = None
    positions = settings.get("max_position_embeddings") or math.inf
    if types & set(WINDOW_LAYERS) or (window and window < positions):
        return "its layers with a sliding window cannot be rolled back"
    if other := types - set(FULL_LAYERS):
        return f"its layers of type {shown(min(other))} are not supported"
    return ""


def _composites() -> tuple[str, ...]:
    """List the model types whose text part runs here."""
    return tuple(dict.fromkeys(kind for family in FAMILIES for kind in family.composites))
