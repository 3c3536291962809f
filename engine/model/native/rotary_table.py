"""Rotations of a rotary embedding by position, made as far as a text has grown."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from engine.model.description import Rope

# Computed in fixed blocks, so that a rotation does not depend on the order of requests.
BLOCK_POSITIONS = 1024


class RotaryTable:
    """a e^(i p w) for every position p and frequency w, where a is the embedding's factor."""

    def __init__(self, rope: Rope) -> None:
        self._frequencies = torch.tensor(rope.frequencies[: rope.pairs], dtype=torch.float32)
        self._factor = rope.factor
        self._table: NDArray[np.complex64] = np.empty((0, rope.pairs), np.complex64)

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.complex64]:
        """positions: [rows] -> complex64 [rows, pairs]."""
        while int(positions.max(initial=0)) >= len(self._table):
            self._table = np.concatenate([self._table, self._block(len(self._table))])
        rows: NDArray[np.complex64] = self._table[positions]
        return rows

    def _block(self, start: int) -> NDArray[np.complex64]:
        positions = torch.arange(start, start + BLOCK_POSITIONS, dtype=torch.float32)
        angles = positions[:, None] * self._frequencies
        made: NDArray[np.complex64] = torch.polar(
            torch.full_like(angles, self._factor), angles
        ).numpy()
        return made
