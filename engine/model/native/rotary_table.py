"""Rotations of a rotary embedding by position, made as far as a text has grown."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.model.model_config import Rope

# positions; fixed blocks keep a rotation from depending on the order of requests
BLOCK_POSITIONS = 1024


class RotaryTable:
    """The rotations a e^(i p w) of every position p and frequency w; a is the embedding's factor.

    Angles are f32, as in transformers; their sines are taken in f64 and rounded once, so that every
    processor gives the same bits.
    """

    def __init__(self, rope: Rope) -> None:
        self._frequencies = np.array(rope.frequencies[: rope.pairs], np.float32)
        self._factor = rope.factor
        self._table: NDArray[np.complex64] = np.empty((0, rope.pairs), np.complex64)

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.complex64]:
        """Look up the rotations of positions [rows] -> complex64 [rows, pairs]."""
        while int(positions.max(initial=0)) >= len(self._table):
            self._table = np.concatenate([self._table, self._block(len(self._table))])
        rows: NDArray[np.complex64] = self._table[positions]
        return rows

    def _block(self, start: int) -> NDArray[np.complex64]:
        positions = np.arange(start, start + BLOCK_POSITIONS, dtype=np.float32)
        angles = (positions[:, None] * self._frequencies).astype(np.float64)
        found: NDArray[np.complex64] = (self._factor * np.exp(1j * angles)).astype(np.complex64)
        return found
