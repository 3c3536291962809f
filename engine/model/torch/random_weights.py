"""Random weights, for timing a model's shape without its file.

    TorchTarget(folder, config, weights=RandomWeights(settings, device, dtype))

`folder` has config.json alone, `settings` is its content. Each tensor is made on the device when it
is requested, so there is never a second copy of the model.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from engine.model.families import read_config
from engine.model.families.tensors import shapes_of


class RandomWeights:
    """The tensors of a model by name, from a seed."""

    def __init__(
        self, settings: dict[str, Any], device: torch.device, dtype: torch.dtype, seed: int = 0
    ) -> None:
        self.device, self.dtype, self.seed = device, dtype, seed
        self.shapes = shapes_of(read_config(settings))
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
        """Make a tensor; None where the shape has none of this name."""
        return self[name] if name in self else None  # noqa: SIM401
