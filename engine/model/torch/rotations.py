"""Rotations of q and k for every position of a model's context, as tensors.

`engine.model.rope` has the frequencies; `engine.model.native.rotary_table` grows with the text.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from engine.model.rope import frequencies, rope_parameters


def rotations(settings: dict[str, Any], head_dim: int) -> Tensor:
    """a e^(i p w) for every position p and frequency w, where a is the attention factor: complex
    [positions, head_dim / 2]."""
    inverse, factor = frequencies(settings, head_dim)
    positions = torch.arange(settings["max_position_embeddings"], dtype=torch.float32)
    angles = positions[:, None] * torch.from_numpy(inverse)
    return torch.polar(torch.full_like(angles, factor), angles)


def query_scales(settings: dict[str, Any]) -> Tensor | None:
    """The factor of q at every position, f32 [positions]; None: always 1. Llama 4's temperature
    scaling keeps attention sharp in long texts; Ministral 3 has it, too."""
    rope = rope_parameters(settings)
    beta = rope.get("llama_4_scaling_beta")
    if settings["model_type"] != "ministral3" or not beta:
        return None
    positions = torch.arange(settings["max_position_embeddings"])
    periods = torch.floor(positions / rope["original_max_position_embeddings"])
    scales: Tensor = 1 + beta * torch.log(1 + periods)
    return scales
