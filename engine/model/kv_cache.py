"""Sequence: one text that the model has read, with its cache. Nothing here runs the model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from engine.model.hf_model import Generic
    from engine.model.llama import Llama


@dataclass(slots=True)
class Sequence:
    """One remembered sequence: row i of the cache belongs to tokens[i]."""

    tokens: list[int] = field(default_factory=list)
    # keys and values [2, layers, kv heads, capacity, d]: a part for each device and its layers
    cache: tuple[Tensor, ...] = ()
    states: Tensor | None = None  # [capacity, width]: the rows' final hidden states, where kept

    @property
    def capacity(self) -> int:
        return self.cache[0].shape[3] if self.cache else 0

    @property
    def nbytes(self) -> int:
        states = 0 if self.states is None else self.states.nbytes
        return sum(part.nbytes for part in self.cache) + states


def copied(
    model: Llama | Generic, source: Sequence, rows: int, capacity: int, keeps_states: bool
) -> Sequence:
    """A sequence with memory of its own that starts with `rows` rows of `source`. Each layer's keys
    and values lie where the layer does."""
    kind = model.cache_dtype
    cache = tuple(
        torch.empty((2, count, model.kv_heads, capacity, model.head_dim), dtype=kind, device=device)
        for device, count in model.places
    )
    if rows:
        for part, old in zip(cache, source.cache, strict=True):
            part[..., :rows, :] = old[..., :rows, :]
    states = None
    if keeps_states:
        states = torch.empty(capacity, model.width, device=model.device)
        if source.states is not None:
            states[:rows] = source.states[:rows]
    return Sequence(source.tokens[:rows], cache, states)


def common_prefix(one: list[int], other: list[int]) -> int:
    """Length of the longest common prefix."""
    length = min(len(one), len(other))
    if one[:length] == other[:length]:
        return length
    return next(n for n in range(length) if one[n] != other[n])
