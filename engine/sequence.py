"""Sequence: one text that the model has read, with its cache. Nothing here runs the model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from engine.generic import Generic
    from engine.llama import Llama


@dataclass(slots=True)
class Sequence:
    """One remembered sequence: row i of keys and values belongs to tokens[i]."""

    tokens: list[int] = field(default_factory=list)
    keys: Tensor = field(default_factory=lambda: torch.empty(0))  # [layers, kv, capacity, d]
    values: Tensor = field(default_factory=lambda: torch.empty(0))
    states: Tensor | None = None  # [capacity, width]: the rows' final hidden states, where kept
    both: Tensor | None = None  # keys and values, where they are parts of one tensor

    @property
    def capacity(self) -> int:
        return self.keys.shape[2] if self.keys.dim() == 4 else 0

    @property
    def nbytes(self) -> int:
        states = 0 if self.states is None else self.states.nbytes
        return 2 * self.keys.numel() * self.keys.element_size() + states


def copied(
    model: Llama | Generic,
    source: Sequence,
    rows: int,
    capacity: int,
    together: bool,
    keeps_states: bool,
) -> Sequence:
    """A sequence with memory of its own that starts with `rows` rows of `source`. `together`: keys
    and values are parts of one tensor."""
    shape = (model.layers, model.kv_heads, capacity, model.head_dim)
    both = None
    if together:
        both = torch.empty((2, *shape), dtype=model.cache_dtype, device=model.device)
        keys, values = both[0], both[1]
    else:
        keys = torch.empty(shape, dtype=model.cache_dtype, device=model.device)
        values = torch.empty_like(keys)
    if rows:
        keys[:, :, :rows] = source.keys[:, :, :rows]
        values[:, :, :rows] = source.values[:, :, :rows]
    states = None
    if keeps_states:
        states = torch.empty(capacity, model.width, device=model.device)
        if source.states is not None:
            states[:rows] = source.states[:rows]
    return Sequence(source.tokens[:rows], keys, values, states, both)
