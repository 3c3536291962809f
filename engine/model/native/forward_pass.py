"""What all layers of one forward pass share."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

from engine.model.ops import Rows

Array: TypeAlias = np.ndarray[Any, Any]


class Pass:
    """The rows of a pass, and where their keys and values go."""

    def __init__(
        self,
        rows: Rows,
        cache: tuple[Tensor, ...],
        places: list[tuple[int, int]],
        turns: dict[str, Array],
        query_scales: Array | None,
    ) -> None:
        self.base, self.parents, self.count = rows.base, rows.parents, len(rows.parents)
        self.arrays = [one.numpy() for one in cache]
        self.places, self.turns, self.query_scales = places, turns, query_scales

    def keys_and_values(self, layer: int) -> tuple[Array, Array]:
        """Those of a layer: [kv heads, capacity, head dim] each."""
        group, place = self.places[layer]
        keys, values = self.arrays[group]
        return keys[place], values[place]
