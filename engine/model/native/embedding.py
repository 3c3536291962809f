"""The embedding of a model on the CPU: rows of a table by token."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.model.native.weights import NativeWeights
from engine.model.ops import Quantized


class StoredEmbedding:
    """The rows of an embedding by token, from the weights of a product. As much of a tensor as a
    model's users need."""

    device, dtype = torch.device("cpu"), torch.float32

    def __init__(self, product: Quantized) -> None:
        self.product, self._native = product, product.native
        self._more = torch.empty(0, product.native.shape[1])

    def __len__(self) -> int:
        return self._native.shape[0] + len(self._more)

    def __getitem__(self, ids: Tensor) -> Tensor:
        """ids: int64 [n] -> [n, width] in f32."""
        count = self._native.shape[0]
        rows = np.empty((len(ids), self._native.shape[1]), np.float32)
        self._native.channels(ids.clamp(max=count - 1).numpy(), rows)
        found = torch.from_numpy(rows)
        if len(self._more) and bool((more := ids >= count).any()):
            found[more] = self._more[ids[more] - count]
        return found

    def extended(self, rows: Tensor) -> StoredEmbedding:
        """With the embeddings of more tokens [tokens, width]."""
        self._more = torch.cat([self._more, rows])
        return self


def embedding_of(weights: NativeWeights, name: str) -> StoredEmbedding | Tensor:
    """The embedding `name` (without ".weight"): as a GGUF file stores it, or a tensor."""
    table = weights.table(f"{name}.weight")
    return StoredEmbedding(weights.product([(name, None)])) if table is None else table
