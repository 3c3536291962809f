"""A model's embedding on the CPU: rows of a table by token."""

from __future__ import annotations

import numpy as np

from engine.model.native.product import Array, NativeProduct, widened
from engine.model.native.weights import NativeWeights


class NativeEmbedding:
    """The rows of an embedding by token.

    The table is an array of weights, or the weights of a product.
    """

    def __init__(self, table: Array | NativeProduct) -> None:
        self.table = table
        shape: tuple[int, ...] = (table if isinstance(table, np.ndarray) else table.native).shape
        self.count, width = shape
        self._more = np.empty((0, width), np.float32)

    def __len__(self) -> int:
        return self.count + len(self._more)

    def __getitem__(self, ids: Array) -> Array:
        """Look up the embeddings of ids, int64 [n] -> f32 [n, width]."""
        known = np.minimum(ids, self.count - 1)
        if isinstance(self.table, np.ndarray):
            rows = widened(self.table[known])
        else:
            rows = np.empty((len(ids), self._more.shape[1]), np.float32)
            self.table.native.channels(known, rows)
        more = ids >= self.count
        if more.any():
            rows[more] = self._more[ids[more] - self.count]
        return rows

    def extend(self, rows: Array) -> None:
        """Append the embeddings of more tokens, f32 [tokens, width]."""
        self._more = np.concatenate([self._more, rows])


def embedding_of(weights: NativeWeights, name: str) -> NativeEmbedding:
    """Read the embedding `name` (without ".weight"): as a GGUF file stores it, or as an array."""
    table = weights.table(f"{name}.weight")
    return NativeEmbedding(weights.product([(name, None)]) if table is None else table)
