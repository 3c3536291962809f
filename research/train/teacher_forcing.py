"""Teacher forcing: a frozen model's logits and hidden states along a given text, in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.records import Draft

if TYPE_CHECKING:
    from engine.model.torch.torch_target import TorchTarget

CHUNK_ROWS = 64  # rows per pass; their logits over a vocabulary of 150,000 take 40 MB


def forced_rows(
    model: TorchTarget, ids: list[int], first: int = 0
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield (row, logits [rows, vocabulary], hidden [rows, width]) for the rows from `first` on.

    A row's logits predict the token after it.
    """
    model.begin(ids[: first + 1], len(ids) + 1)
    for _ in model.prefill(ids[: first + 1], len(ids) + 1):
        pass
    for start in range(first, len(ids), CHUNK_ROWS):
        chunk = ids[start : start + CHUNK_ROWS]
        rest = Draft(chunk[1:], list(range(-1, len(chunk) - 2)))
        scores = model.forward(chunk[0], rest, hidden=True)
        model.keep(list(range(len(rest))))
        yield start, scores.logits, scores.hidden


def hidden_states(model: TorchTarget, ids: list[int], first: int = 0) -> Tensor:
    """Compute hidden states [rows, width] of the rows from `first` on, float32."""
    chunks = [hidden.float().cpu() for _, _, hidden in forced_rows(model, ids, first)]
    return torch.cat(chunks).clone() if chunks else torch.empty(0, model.model.width)
