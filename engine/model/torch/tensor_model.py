"""A native model with tensors in and out, for code that is written for torch.

Such code is drafters that are models themselves, training and experiments.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.model.native.forward_pass import PassRows
from engine.model.native.model import NativeModel
from engine.model.native.recurrent_state import RecurrentState
from engine.model.torch.ops import Rows


class TensorEmbedding:
    """The rows of a native model's embedding by token; as much of a tensor as its users need."""

    device, dtype = torch.device("cpu"), torch.float32

    def __init__(self, native: NativeModel) -> None:
        self._native = native

    def __len__(self) -> int:
        return len(self._native.embedding)

    def __getitem__(self, ids: Tensor) -> Tensor:
        """Look up the embeddings of ids, int64 [n] -> f32 [n, width]."""
        return torch.from_numpy(self._native.embedding[ids.numpy()])


class TensorModel:
    """The interface of `engine.model.torch.llama.Llama` over a `NativeModel`.

    Tensors share the memory of its arrays.
    """

    def __init__(self, native: NativeModel) -> None:
        self.native = native
        self.description, self.blocks = native.description, native.blocks
        self.device, self.dtype = torch.device("cpu"), torch.float32
        self.cache_dtype = torch.float32
        self.layers, self.width, self.vocab = native.layers, native.width, native.vocab
        self.max_positions, self.checked_layers = native.max_positions, native.checked_layers
        self.cache_shapes = [(self.device, *shape) for shape in native.cache_shapes]
        self.embedding = TensorEmbedding(native)

    @property
    def nbytes(self) -> int:
        """Bytes, as `NativeModel.nbytes`."""
        return self.native.nbytes

    def recurrent_state(self) -> RecurrentState | None:
        """Make the states of a new sequence, as `NativeModel.recurrent_state` does."""
        return self.native.recurrent_state()

    def extend(self, rows: Tensor) -> None:
        """Give the embedding rows [tokens, width] for more tokens, which the head does not have."""
        self.native.embedding.extend(rows.float().numpy())

    def run(
        self,
        ids: Tensor,
        rows: Rows,
        cache: tuple[Tensor, ...],
        layers: int | None = None,
        recurrent: RecurrentState | None = None,
        committed: bool = False,
    ) -> Tensor:
        """Run a pass as `NativeModel.run` does."""
        states = self.native.run(
            ids.numpy(),
            PassRows(rows.base, rows.parents, rows.positions.numpy()),
            tuple(part.numpy() for part in cache),
            layers,
            recurrent,
            committed,
        )
        return torch.from_numpy(states)

    def head(self, hidden: Tensor) -> Tensor:
        """Compute the logits [rows, vocabulary] in f32 of hidden states [rows, width]."""
        return torch.from_numpy(self.native.head(hidden.numpy()))

    words = head
