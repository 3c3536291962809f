"""The tensors of Qwen3-Next and Qwen3.5 with the values and in the order that llama.cpp's converter
gives them."""

from __future__ import annotations

from typing import Any

import torch

Tensors = dict[str, torch.Tensor]


def hybrid_tensors(tensors: Tensors, config: dict[str, Any]) -> Tensors:
    """By their names in safetensors, but `linear_attn.A`, which is -exp(A_log)."""
    found = {}
    for name, values in tensors.items():
        if name.endswith("A_log"):
            name, values = name.removesuffix("_log"), -values.exp()
        elif name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
            values = values + 1
        elif "conv1d" in name:
            values = values.squeeze(1)
        elif name.endswith("experts.gate_up_proj"):
            gate, up = values.chunk(2, 1)
            stem = name.removesuffix("gate_up_proj")
            found |= {f"{stem}gate_proj.weight": gate, f"{stem}up_proj.weight": up}
            continue
        elif name.endswith("experts.down_proj"):
            name += ".weight"
        if "linear_attn" not in name:
            found[name] = values
        elif config["model_type"] != "qwen3_next":
            found[name] = _tiled(name, values, config)
        elif "in_proj_qkvz" in name:
            found |= _split(name, values, config)
        else:
            found[name] = values
    return found


def _split(name: str, values: torch.Tensor, config: dict[str, Any]) -> Tensors:
    """Rows by key head: q, k, v and z of each; as q, k and v of all, and z of all."""
    key_heads, key_dim = config["linear_num_key_heads"], config["linear_key_head_dim"]
    wide = config["linear_num_value_heads"] // key_heads * config["linear_value_head_dim"]
    parts = values.reshape(key_heads, -1, values.shape[1]).split([key_dim, key_dim, wide, wide], 1)
    q, k, v, z = (part.reshape(-1, values.shape[1]) for part in parts)
    return {name.replace("qkvz", "qkv"): torch.cat([q, k, v]), name.replace("qkvz", "z"): z}


def _tiled(name: str, values: torch.Tensor, config: dict[str, Any]) -> torch.Tensor:
    """Value heads by their place within the group of a key head, rather than by key head."""
    key_heads = config["linear_num_key_heads"]
    group = config["linear_num_value_heads"] // key_heads

    def turn(rows: torch.Tensor) -> torch.Tensor:
        by_head = rows.reshape(key_heads, group, -1, *rows.shape[1:])
        return by_head.transpose(0, 1).reshape(rows.shape)

    if "out_proj" in name:
        return turn(values.T).T.contiguous()
    if "norm" in name:
        return values
    keys = 2 * key_heads * config["linear_key_head_dim"]
    if "conv1d" in name or "in_proj_qkv" in name:
        return torch.cat([values[:keys], turn(values[keys:])])
    return turn(values)
