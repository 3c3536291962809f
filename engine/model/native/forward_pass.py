"""The data that all layers of one forward pass share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class PassRows:
    """The rows of one forward pass.

    Row i goes to cache row `base + i` and attends to the committed rows 0 .. base - 1, to its
    ancestors by `parents` (-1: none in this pass) and to itself.
    """

    base: int
    parents: Array  # int32 [rows]
    positions: Array  # int64 [rows]: base + depth

    @classmethod
    def of(cls, base: int, parents: list[int]) -> PassRows:
        """Place rows behind `base` committed ones.

        `parents[i]` < i, or -1 for a row that follows the last committed one.
        """
        depth: list[int] = []
        for parent in parents:
            depth.append(0 if parent < 0 else depth[parent] + 1)
        return cls(base, np.array(parents, np.int32), np.array(depth, np.int64) + base)


class Pass:
    """The rows of a pass, and where their keys and values go."""

    def __init__(
        self,
        rows: PassRows,
        cache: tuple[Array, ...],
        places: list[tuple[int, int]],
        phases: dict[str, Array],
        query_scales: Array | None,
    ) -> None:
        self.base, self.parents, self.count = rows.base, rows.parents, len(rows.parents)
        self.cache, self.places, self.phases = cache, places, phases
        self.query_scales = query_scales

    def keys_and_values(self, layer: int) -> tuple[Array, Array]:
        """Return the keys and the values of a layer: [kv heads, capacity, head dim] each."""
        group, place = self.places[layer]
        keys, values = self.cache[group]
        return keys[place], values[place]
