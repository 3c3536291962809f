"""The tensors that a config.json of Llama's family describes, and whether a folder has them.

Everything is compared before a tensor is read: kernels trust the shapes.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from engine.weights.errors import shown
from engine.weights.integrity import TensorInfo, damaged
from engine.weights.model_config import field_error

NEEDED = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
    "max_position_embeddings", "rms_norm_eps",
)  # fmt: skip
FLOATS = ("F64", "F32", "F16", "BF16")
ROTATION_BYTES = 64 << 20  # that config.json alone may demand, beyond the size of the weights


def shapes_of(settings: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor that the model needs, by its name in safetensors."""
    hidden, inner, words = (
        settings[name] for name in ("hidden_size", "intermediate_size", "vocab_size")
    )
    heads, kv, d = heads_of(settings)
    kind = settings["model_type"]
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (words, hidden),
        "model.norm.weight": (hidden,),
    }
    if not settings.get("tie_word_embeddings"):
        shapes["lm_head.weight"] = (words, hidden)
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (heads * d, hidden),
        "self_attn.k_proj.weight": (kv * d, hidden),
        "self_attn.v_proj.weight": (kv * d, hidden),
        "self_attn.o_proj.weight": (hidden, heads * d),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }
    if kind == "qwen2" or settings.get("attention_bias"):
        for one, count in (("q", heads), ("k", kv), ("v", kv)):
            layer[f"self_attn.{one}_proj.bias"] = (count * d,)
    if kind == "qwen3":
        layer |= {f"self_attn.{one}_norm.weight": (d,) for one in "qk"}
    for n in range(settings["num_hidden_layers"]):
        shapes |= {f"model.layers.{n}.{name}": shape for name, shape in layer.items()}
    return shapes


def heads_of(settings: dict[str, Any]) -> tuple[int, int, int]:
    """Attention heads, heads of keys and values, and the dimensions of each."""
    heads = settings["num_attention_heads"]
    d = settings.get("head_dim") or settings["hidden_size"] // heads
    return heads, settings.get("num_key_value_heads") or heads, d


def check_llama(folder: Path, settings: dict[str, Any], tensors: dict[str, TensorInfo]) -> None:
    """WeightsError where a checked config.json describes no model of Llama's family, or another
    one than the folder's tensors."""
    file = folder / "config.json"
    for name in NEEDED:
        if settings.get(name) is None:
            raise field_error(file, name, None, "a value")
    heads, kv, d = heads_of(settings)
    if heads % kv:
        raise field_error(
            file, "num_key_value_heads", kv, f"a divisor of 'num_attention_heads' {heads}"
        )
    if d < 2 or d % 2:
        raise field_error(file, "head_dim", d, "an even number (or hidden_size / heads to be one)")
    if not settings.get("head_dim") and settings["hidden_size"] % heads:
        divisor = f"a divisor of 'hidden_size' {settings['hidden_size']}"
        raise field_error(file, "num_attention_heads", heads, divisor)
    layers, positions = settings["num_hidden_layers"], settings["max_position_embeddings"]
    if layers > len(tensors):
        raise field_error(
            file,
            "num_hidden_layers",
            layers,
            f"no more layers than its files have tensors ({len(tensors)})",
        )
    stored = sum(2 * math.prod(one.shape) for one in tensors.values())
    if positions * d * 4 > ROTATION_BYTES + stored:
        raise field_error(
            file, "max_position_embeddings", positions, "a context that fits the size of the model"
        )
    _check_shapes(folder, settings, tensors)


def _check_shapes(folder: Path, settings: dict[str, Any], tensors: dict[str, TensorInfo]) -> None:
    """WeightsError where a tensor that the forward pass reads is missing or another one."""
    needed = shapes_of(settings)
    # Read wherever they are, whatever the config says of them.
    every = settings | {"attention_bias": True, "model_type": "qwen3", "tie_word_embeddings": False}
    known = shapes_of(every)
    known |= {
        f"model.layers.{n}.self_attn.o_proj.bias": (settings["hidden_size"],)
        for n in range(settings["num_hidden_layers"])
    }
    needed.pop("lm_head.weight", None)  # without one it is tied
    for name in needed.keys() - tensors.keys():
        raise damaged(folder / "config.json", f"no safetensors file has its tensor {shown(name)}")
    for name, one in tensors.items():
        if name in known and (one.shape != known[name] or one.dtype not in FLOATS):
            raise damaged(
                folder,
                f"tensor {shown(name)} is {one.dtype} {list(one.shape)}, config.json says "
                f"{list(known[name])}",
            )
        partner = name.replace("q_norm", "k_norm")
        if partner != name and name in known and partner not in tensors:
            raise damaged(folder, f"it has tensor {shown(name)} and not {shown(partner)}")
