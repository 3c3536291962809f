"""The names and shapes of a model's tensors, and whether safetensors files have them.

All is compared before a tensor is read: kernels trust the shapes.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path

from engine.model.model_config import Attention, Layer, LinearAttention, ModelConfig
from engine.weights.errors import shown
from engine.weights.fetch.integrity import TensorInfo, damaged

Shapes = dict[str, tuple[int, ...]]

FLOATS = ("F64", "F32", "F16", "BF16")
FUSED = {  # a projection: the tensor that may hold it with others
    "q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj",
    "gate_proj": "gate_up_proj", "up_proj": "gate_up_proj",
    "in_proj_qkv": "in_proj_qkvz", "in_proj_z": "in_proj_qkvz",
    "in_proj_b": "in_proj_ba", "in_proj_a": "in_proj_ba",
}  # fmt: skip
EXPERT = re.compile(r"(?<=\.experts\.)\d+\.")  # part of names of experts that are stored one by one
TOGETHER = (  # tensors of a layer of which it has all or none
    ("self_attn.q_norm.weight", "self_attn.k_norm.weight"),
    ("self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"),
    ("mlp.gate_proj.bias", "mlp.up_proj.bias"),
)


def text_name(name: str) -> str:
    """Translate the name of a tensor of a composite model's text part."""
    if name.startswith("model.language_model."):
        return f"model.{name.removeprefix('model.language_model.')}"
    return name.removeprefix("language_model.")


def check_tensors(folder: Path, d: ModelConfig, tensors: dict[str, TensorInfo]) -> None:
    """Refuse a folder whose safetensors files lack a tensor or have it in another shape.

    What they hold in one tensor with others is checked as it is read. WeightsError."""
    needed, named = shapes_of(d), {text_name(name): one for name, one in tensors.items()}
    if len(named) < len(tensors):
        raise damaged(folder, "it has one of its text part's tensors under two names")
    _check_shapes(folder, needed, named)
    for name in needed:
        if not {name, *_other_names(name)} & named.keys() and name != "lm_head.weight":
            raise damaged(
                folder / "config.json", f"no safetensors file has its tensor {shown(name)}"
            )


def check_optional(folder: Path, d: ModelConfig, tensors: dict[str, TensorInfo]) -> None:
    """Refuse other shapes of tensors that torch's pass of Llama's family reads where they are.

    Those of one kind must be there together. WeightsError."""
    named = {text_name(name): one for name, one in tensors.items()}
    _check_shapes(folder, shapes_of(_with_all_biases(d)), named)
    for n, names in itertools.product(range(len(d.layers)), TOGETHER):
        there = [f"model.layers.{n}.{name}" in named for name in names]
        if any(there) and not all(there):
            has, lacks = names[there.index(True)], names[there.index(False)]
            raise damaged(folder, f"layer {n} has tensor {shown(has)} and not {shown(lacks)}")


def _check_shapes(folder: Path, shapes: Shapes, named: dict[str, TensorInfo]) -> None:
    for name, one in named.items():
        whole = EXPERT.sub("", name)
        wanted = shapes.get(whole, one.shape)[len(name) != len(whole) :]
        found = one.shape[:1] + one.shape[2:] if "conv1d" in name else one.shape
        if whole in shapes and (wanted not in (found, one.shape) or one.dtype not in FLOATS):
            raise damaged(
                folder,
                f"tensor {shown(name)} is {one.dtype} {list(one.shape)}, config.json says "
                f"{list(wanted)}",
            )


def _with_all_biases(d: ModelConfig) -> ModelConfig:
    """Give a config of Llama's family every bias and norm that its layers may have."""
    layers = []
    for layer in d.layers:
        assert isinstance(layer.mixer, Attention) and layer.dense is not None
        mixer = replace(layer.mixer, biased=("q", "k", "v", "o"), qk_norm="head")
        layers.append(Layer(mixer, replace(layer.dense, biased=True)))
    return replace(d, layers=tuple(layers), tied=False)


def container(name: str, shapes: Shapes) -> tuple[str, tuple[int, ...]]:
    """Name the tensor that may hold a projection with others, and its shape."""
    stem, _, kind = name.rpartition(".")
    at, _, last = stem.rpartition(".")
    whole, shape = FUSED.get(last), shapes[name]
    if whole is None or kind != "weight":
        return name, shape
    parts = [f"{at}.{one}.weight" for one, other in FUSED.items() if other == whole]
    rows = sum(shapes[part][-2] for part in parts if part in shapes)
    return f"{at}.{whole}.weight", (*shape[:-2], rows, shape[-1])


def _other_names(name: str) -> list[str]:
    """Name the tensors of which one may hold a tensor of `shapes_of`."""
    stem, _, kind = name.rpartition(".")
    at, _, last = stem.rpartition(".")
    if at.endswith(".experts"):
        whole = f"{at}.{'down' if last == 'down_proj' else 'gate_up'}_proj"
        one_by_one = f"{at}.0.{last}.weight"
        return [f"{whole}_bias"] if kind == "bias" else [one_by_one, whole, f"{whole}.weight"]
    return [f"{at}.{FUSED.get(last, last)}.{kind}", f"{name}_log"]


def shapes_of(d: ModelConfig) -> Shapes:
    """List the shape of each tensor that a model has, by its name."""
    shapes: Shapes = {
        "model.embed_tokens.weight": (d.vocab, d.width),
        "model.norm.weight": (d.width,),
    }
    if not d.tied:
        shapes["lm_head.weight"] = (d.vocab, d.width)
    if d.per_layer_width:
        all_layers = len(d.layers) * d.per_layer_width
        shapes |= {
            "model.embed_tokens_per_layer.weight": (d.vocab, all_layers),
            "model.per_layer_model_projection.weight": (all_layers, d.width),
            "model.per_layer_projection_norm.weight": (d.per_layer_width,),
        }
    for n, layer in enumerate(d.layers):
        own = _mixer_shapes(d, layer.mixer) | _feed_forward_shapes(d, layer)
        own |= {f"{norm}.weight": (d.width,) for norm in d.norms.names if norm}
        if d.family == "gemma4_text":
            own["layer_scalar"] = (1,)
        if d.per_layer_width:
            own |= {
                "per_layer_input_gate.weight": (d.per_layer_width, d.width),
                "per_layer_projection.weight": (d.width, d.per_layer_width),
                "post_per_layer_input_norm.weight": (d.width,),
            }
        shapes |= {f"model.layers.{n}.{name}": shape for name, shape in own.items()}
    return shapes


def _mixer_shapes(d: ModelConfig, mixer: Attention | LinearAttention) -> Shapes:
    if isinstance(mixer, LinearAttention):
        at, values = "linear_attn.", mixer.value_heads * mixer.value_dim
        return {
            f"{at}in_proj_qkv.weight": (mixer.channels, d.width),
            f"{at}in_proj_z.weight": (values, d.width),
            f"{at}in_proj_b.weight": (mixer.value_heads, d.width),
            f"{at}in_proj_a.weight": (mixer.value_heads, d.width),
            f"{at}conv1d.weight": (mixer.channels, mixer.kernel),
            f"{at}A": (mixer.value_heads,),
            f"{at}dt_bias": (mixer.value_heads,),
            f"{at}norm.weight": (mixer.value_dim,),
            f"{at}out_proj.weight": (d.width, values),
        }
    at, q, kv = "self_attn.", mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim
    shapes: Shapes = {
        f"{at}q_proj.weight": (q * (2 if mixer.gated else 1), d.width),
        f"{at}o_proj.weight": (d.width, q),
    }
    if mixer.reads_from is None:
        shapes[f"{at}k_proj.weight"] = (kv, d.width)
        if not mixer.keys_are_values:
            shapes[f"{at}v_proj.weight"] = (kv, d.width)
    shapes |= _biases(shapes, mixer.biased)
    if mixer.sinks:
        shapes[f"{at}sinks"] = (mixer.heads,)
    if mixer.qk_norm:
        whole = mixer.qk_norm == "all"
        shapes[f"{at}q_norm.weight"] = (q if whole else mixer.head_dim,)
        if mixer.reads_from is None:
            shapes[f"{at}k_norm.weight"] = (kv if whole else mixer.head_dim,)
    return shapes


def _feed_forward_shapes(d: ModelConfig, layer: Layer) -> Shapes:
    shapes: Shapes = {}
    if layer.dense:
        shapes |= _gated("mlp.", d.width, layer.dense.width)
        shapes |= _biases(shapes, ("gate", "up", "down") if layer.dense.biased else ())
    experts = layer.experts
    if experts is None:
        return shapes
    count, wide = experts.count, experts.width
    router, at = experts.router, "experts." if layer.dense else "mlp.experts."
    shapes |= {
        f"{router}.weight": (count, d.width),
        f"{at}gate_proj.weight": (count, wide, d.width),
        f"{at}up_proj.weight": (count, wide, d.width),
        f"{at}down_proj.weight": (count, d.width, wide),
    }
    if experts.biased:
        shapes |= {
            f"{router}.bias": (count,),
            f"{at}gate_proj.bias": (count, wide),
            f"{at}up_proj.bias": (count, wide),
            f"{at}down_proj.bias": (count, d.width),
        }
    if experts.shared:
        shapes |= _gated("mlp.shared_expert.", d.width, experts.shared)
        shapes["mlp.shared_expert_gate.weight"] = (1, d.width)
    if layer.dense:
        shapes |= {
            "router.scale": (d.width,),
            "router.per_expert_scale": (count,),
            "post_feedforward_layernorm_1.weight": (d.width,),
            "post_feedforward_layernorm_2.weight": (d.width,),
            "pre_feedforward_layernorm_2.weight": (d.width,),
        }
    return shapes


def _gated(at: str, width: int, inner: int) -> Shapes:
    return {
        f"{at}gate_proj.weight": (inner, width),
        f"{at}up_proj.weight": (inner, width),
        f"{at}down_proj.weight": (width, inner),
    }


def _biases(matrices: Shapes, names: tuple[str, ...]) -> Shapes:
    """List the biases of those projections among some matrices."""
    return {
        name.replace(".weight", ".bias"): shape[:1]
        for name, shape in matrices.items()
        if name.removesuffix("_proj.weight").rpartition(".")[2] in names
    }
