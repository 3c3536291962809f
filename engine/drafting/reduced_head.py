"""A draft model's output layer, reduced to the tokens that it is likely to draft.

Li et al., "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time
Test" (2025, arXiv 2503.01840) drafts over its 32,000 most frequent tokens. Here these are the first
ids, for merges of byte pairs are numbered by frequency, and those of the text so far. The output
layer of a small model is a third of its pass, and a draft that misses a rare token costs only time.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

FREQUENT_TOKENS = 32_768  # the first ids
MIN_VOCABULARY = 2 * FREQUENT_TOKENS  # tokens; below, too little is saved


class ReducedHead:
    """The tiles of an output layer that are computed, for one text."""

    def __init__(self, vocabulary: int, tile: int) -> None:
        """Start with the frequent tokens. `tile`: tokens that are computed together."""
        self.vocabulary, self.tile = vocabulary, tile
        self.tiles: NDArray[np.int32] = np.arange(FREQUENT_TOKENS // tile, dtype=np.int32)
        self._known = set(self.tiles.tolist())
        self._read = 0  # tokens of the text

    def add(self, tokens: Iterable[int]) -> None:
        """Compute these tokens, too, as far as the model has them."""
        new = {token // self.tile for token in tokens if token < self.vocabulary} - self._known
        if new:
            self._known |= new
            self.tiles = np.array(sorted(self._known), np.int32)

    def follow(self, text: list[int]) -> None:
        """Add the tokens of a text that grows."""
        self.add(text[self._read :])
        self._read = len(text)


def reduced_head(vocabulary: int, tile: int) -> ReducedHead | None:
    """Return the reduced output layer of a model, or None where all of it is computed.

    `tile`: tokens that its runtime computes together; 0: all.
    """
    return ReducedHead(vocabulary, tile) if tile and vocabulary >= MIN_VOCABULARY else None
