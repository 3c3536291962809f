"""Rotations of q and k for every position of a model's context, as tensors.

`engine.model.rope` has the frequencies; `engine.model.native.rotary_table` grows with the text.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.model.model_config import Rope


def rotations(rope: Rope, positions: int) -> Tensor:
    """Compute a e^(i p w) for every position p and frequency w: complex [positions, pairs].

    a is the factor of attention.
    """
    steps = torch.arange(positions, dtype=torch.float32)
    angles = steps[:, None] * torch.tensor(rope.frequencies, dtype=torch.float32)
    return torch.polar(torch.full_like(angles, rope.factor), angles)


def query_scales(beta: float, trained: int, positions: int) -> Tensor:
    """Compute the factor of q at every position, f32 [positions].

    Llama 4's temperature scaling keeps attention sharp in long texts; Ministral 3 has it, too.
    `trained`: positions without it.
    """
    periods = torch.floor(torch.arange(positions) / trained)
    scales: Tensor = 1 + beta * torch.log(1 + periods)
    return scales
