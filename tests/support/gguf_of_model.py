"""A transformers model as the GGUF file that llama.cpp's converter makes of it.

`tests/model/test_gguf_families.py` shows that llama.cpp computes what transformers does from it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.torch import load_file

from bench.families.gguf_metadata import ARCHITECTURES, HYBRIDS, add_metadata
from tests.support.gguf_of_hybrid import hybrid_tensors
from tests.support.tiny_gguf import SPECIAL, TOKENS, add_tokenizer

VOCABULARY = len(TOKENS) + len(SPECIAL)
F32 = gguf.GGMLQuantizationType.F32
NAMES = {  # in GGUF, of tensors that the gguf package has no names for
    "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
    "linear_attn.A": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias",
}
ALWAYS_F32 = ("ffn_gate_inp", "attn_sinks")

Tensors = dict[str, torch.Tensor]


def write_gguf_of(
    folder: Path,
    path: Path,
    kind: gguf.GGMLQuantizationType = F32,
    change: Callable[[gguf.GGUFWriter], object] = lambda writer: None,
) -> None:
    """Write the model of `folder` (of VOCABULARY tokens, without its tokenizer) to `path`. `kind`:
    of its matrices, but for those whose rows are not whole blocks of it. `change` gets the writer
    before it writes."""
    config = json.loads((folder / "config.json").read_text())
    model_type = config["model_type"]
    arch, permuted = ARCHITECTURES[model_type]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch])
    add_metadata(writer, config)
    add_tokenizer(writer)
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    for name, values in stored_tensors(folder).items():
        if permuted and "q_proj." in name:
            values = _permuted(values, config["num_attention_heads"])
        if permuted and "k_proj." in name:
            values = _permuted(values, config["num_key_value_heads"])
        _add_tensor(writer, _stored_name(names, name), values, kind)
    change(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def stored_tensors(folder: Path) -> Tensors:
    """A model's tensors with the values and in the shapes that its file has, by safetensors names.
    Rows of q and k are still in transformers' order."""
    tensors = {name: one.float() for name, one in load_file(folder / "model.safetensors").items()}
    config = json.loads((folder / "config.json").read_text())
    model_type = config["model_type"]
    if model_type in HYBRIDS:
        return hybrid_tensors(_with_joined_experts(tensors), config)
    change = TENSORS.get(model_type, _with_joined_experts)
    return change(tensors)


def _add_tensor(
    writer: gguf.GGUFWriter, name: str, values: torch.Tensor, kind: gguf.GGMLQuantizationType
) -> None:
    array = np.ascontiguousarray(values.numpy())
    block, _ = gguf.GGML_QUANT_SIZES[kind]
    plain = values.dim() == 1 or name.endswith(".bias") or any(one in name for one in ALWAYS_F32)
    if plain or kind == F32 or values.shape[-1] % block:
        writer.add_tensor(name, array)
    else:
        writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)


def _stored_name(names: gguf.TensorNameMap, name: str) -> str:
    found = names.get_name(name, try_suffixes=(".weight", ".bias"))
    if found is None:
        layer, rest = re.fullmatch(r"model\.layers\.(\d+)\.(.*)", name).groups()
        return f"blk.{layer}.{NAMES[rest]}"
    return found if name.endswith((".weight", ".bias")) else found + ".weight"


def _gemma3_tensors(tensors: Tensors) -> Tensors:
    """With norms that hold 1 + w."""
    return {
        name: values + 1 if name.endswith("norm.weight") else values
        for name, values in tensors.items()
    }


def _gemma4_tensors(tensors: Tensors) -> Tensors:
    """With names of experts that end like those of other matrices."""
    return {
        name + ".weight" if ".experts." in name else name: values
        for name, values in tensors.items()
    }


def _gpt_oss_tensors(tensors: Tensors) -> Tensors:
    """With experts [experts, out, in], and gate and up apart, which take turns."""
    found = {}
    for name, values in tensors.items():
        stem = name.removesuffix("_bias")
        suffix = ".bias" if stem != name else ".weight"
        if ".experts." in name and suffix == ".weight":
            values = values.transpose(1, 2)
        if stem.endswith("gate_up_proj"):
            stem = stem.removesuffix("gate_up_proj")
            found[f"{stem}gate_proj{suffix}"] = values[:, ::2]
            found[f"{stem}up_proj{suffix}"] = values[:, 1::2]
        elif stem.endswith("experts.down_proj"):
            found[stem + suffix] = values
        else:
            found[name] = values
    return found


TENSORS = {
    "gemma3_text": _gemma3_tensors,
    "gemma4_text": _gemma4_tensors,
    "gpt_oss": _gpt_oss_tensors,
}


def _with_joined_experts(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The matrices of a layer's experts as one tensor [experts, out, in]."""
    experts: dict[str, dict[int, torch.Tensor]] = {}
    others = {}
    for name, tensor in tensors.items():
        if found := re.fullmatch(r"(.*\.mlp\.experts\.)(\d+)\.(\w+\.weight)", name):
            experts.setdefault(found[1] + found[3], {})[int(found[2])] = tensor
        else:
            others[name] = tensor
    return others | {
        name: torch.stack([parts[number] for number in range(len(parts))])
        for name, parts in experts.items()
    }


def _permuted(values: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of each head from (first half, second half) to pairs."""
    halves = values.reshape(heads, 2, len(values) // heads // 2, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)
