"""Random weights, for timing a model's shape without its file.

    TorchTarget(folder, config, weights=RandomWeights(settings, device, dtype))

`folder` has config.json alone, `settings` is its content. Each tensor is made on the device when it
is requested, so there is never a second copy of the model.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class RandomWeights:
    """The tensors of a model of Llama's family by name, from a seed."""

    def __init__(
        self, settings: dict[str, Any], device: torch.device, dtype: torch.dtype, seed: int = 0
    ) -> None:
        self.device, self.dtype, self.seed = device, dtype, seed
        hidden, heads = settings["hidden_size"], settings["num_attention_heads"]
        d = settings.get("head_dim") or hidden // heads
        kv = settings.get("num_key_value_heads") or heads
        inner, words = settings["intermediate_size"], settings["vocab_size"]
        kind = settings["model_type"]
        self.shapes: dict[str, tuple[int, ...]] = {
            "model.embed_tokens.weight": (words, hidden),
            "model.norm.weight": (hidden,),
        }
        if not settings.get("tie_word_embeddings"):
            self.shapes["lm_head.weight"] = (words, hidden)
        for n in range(settings["num_hidden_layers"]):
            at = f"model.layers.{n}."
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
            self.shapes |= {at + name: shape for name, shape in layer.items()}
        self._places = {name: place for place, name in enumerate(self.shapes)}

    def __contains__(self, name: object) -> bool:
        return name in self.shapes

    def __getitem__(self, name: str) -> Tensor:
        shape = self.shapes[name]
        if "norm" in name:
            return torch.ones(shape, dtype=self.dtype, device=self.device)
        chance = torch.Generator(self.device).manual_seed(self.seed * 100_003 + self._places[name])
        made = torch.empty(shape, dtype=self.dtype, device=self.device)
        return made.normal_(0.0, 0.02, generator=chance)

    def get(self, name: str) -> Tensor | None:
        """None: the shape has none of this name."""
        return self[name] if name in self else None  # noqa: SIM401
