"""Models of Llama's family: the tensors that a config.json describes, and whether they are there.

Everything is compared before a tensor is read: kernels trust the shapes.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

from engine.model.rope import check_rope, supports_rope
from engine.model.unsupported import has_window
from engine.weights.errors import shown
from engine.weights.fetch.integrity import TensorInfo, damaged
from engine.weights.model_config import ATTENTION_BIASES, MLP_BIASES, field_error

FAMILY = {"llama", "qwen2", "qwen3", "granite", "smollm3", "mistral", "ministral3"}
NEEDED = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
    "max_position_embeddings", "rms_norm_eps",
)  # fmt: skip
TOGETHER = (  # tensors of a layer of which it has all or none
    ("self_attn.q_norm.weight", "self_attn.k_norm.weight"),
    ("self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"),
    ("mlp.gate_proj.bias", "mlp.up_proj.bias"),
)
FLOATS = ("F64", "F32", "F16", "BF16")
ROTATION_BYTES = 64 << 20  # that config.json alone may demand, beyond the size of the weights


def supports(config: dict[str, Any]) -> bool:
    """Whether `engine.model.torch.llama` runs a model, given its parsed config.json."""
    return (
        config.get("model_type") in FAMILY
        and config.get("hidden_act", "silu") == "silu"
        and supports_rope(config)
        and not has_window(config)
        and not config.get("quantization_config")
    )


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
    if kind == "qwen3_moe":
        experts, wide = settings["num_experts"], settings["moe_intermediate_size"]
        layer = {name: shape for name, shape in layer.items() if not name.startswith("mlp.")} | {
            "mlp.gate.weight": (experts, hidden),
            "mlp.experts.gate_proj.weight": (experts, wide, hidden),
            "mlp.experts.up_proj.weight": (experts, wide, hidden),
            "mlp.experts.down_proj.weight": (experts, hidden, wide),
        }
    qkv = {"self_attn.q": heads * d, "self_attn.k": kv * d, "self_attn.v": kv * d}
    biases = qkv if kind == "qwen2" else {}
    if kind in ATTENTION_BIASES and settings.get("attention_bias"):
        biases = qkv | {"self_attn.o": hidden}
    if kind in MLP_BIASES and settings.get("mlp_bias"):
        biases = biases | {"mlp.gate": inner, "mlp.up": inner, "mlp.down": hidden}
    layer |= {f"{name}_proj.bias": (size,) for name, size in biases.items()}
    if kind in ("qwen3", "qwen3_moe"):
        layer |= {f"self_attn.{one}_norm.weight": (d,) for one in "qk"}
    for n in range(settings["num_hidden_layers"]):
        shapes |= {f"model.layers.{n}.{name}": shape for name, shape in layer.items()}
    return shapes


def text_name(name: str) -> str:
    """The name that a tensor of a composite model's text part has in a model of text alone."""
    if name.startswith("model.language_model."):
        return f"model.{name.removeprefix('model.language_model.')}"
    return name.removeprefix("language_model.")


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
    check_rope(file, settings, d)
    layers, positions = settings["num_hidden_layers"], settings["max_position_embeddings"]
    if len(settings.get("no_rope_layers") or range(layers)) < layers:
        raise field_error(
            file, "no_rope_layers", settings["no_rope_layers"], f"an entry for {layers} layers"
        )
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
    needed, named = shapes_of(settings), {text_name(name): one for name, one in tensors.items()}
    # Read wherever they are, whatever the config says of them.
    every = settings | {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False}
    known = shapes_of(every | {"model_type": "llama"}) | shapes_of(every | {"model_type": "qwen3"})
    needed.pop("lm_head.weight", None)  # without one it is tied
    for name in needed.keys() - named.keys():
        raise damaged(folder / "config.json", f"no safetensors file has its tensor {shown(name)}")
    if len(named) < len(tensors):
        raise damaged(folder, "it has one of its text part's tensors under two names")
    for name, one in named.items():
        if name in known and (one.shape != known[name] or one.dtype not in FLOATS):
            raise damaged(
                folder,
                f"tensor {shown(name)} is {one.dtype} {list(one.shape)}, config.json says "
                f"{list(known[name])}",
            )
    for n, names in itertools.product(range(settings["num_hidden_layers"]), TOGETHER):
        there = [f"model.layers.{n}.{name}" in named for name in names]
        if any(there) and not all(there):
            has, lacks = names[there.index(True)], names[there.index(False)]
            raise damaged(folder, f"layer {n} has tensor {shown(has)} and not {shown(lacks)}")
