"""The table of Token Recycling: the model's own most likely successors of each token.

Each row of logits that a verification pass computes, of accepted and rejected nodes alike,
overwrites the table row of its token. The table holds token ids only. It is one of the default
drafter's sources (`next_token`); `research.methods.token_recycling` drafts from it as published.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.drafting._drafting import Recycling

WIDTH = 8  # successors stored per token


def update_table(table: Recycling, tokens: list[int], logits: Any) -> None:
    """Overwrite the rows of `tokens` with the most likely tokens of `logits`.

    `logits`: an f32 array or a tensor [tokens, vocabulary]. Of duplicate tokens the last one
    counts.
    """
    ids = np.array(tokens, np.int32)
    if isinstance(logits, np.ndarray):
        table.update(ids, np.ascontiguousarray(logits))
    elif logits.device.type == "cpu":
        table.update(ids, logits.float().contiguous().numpy())
    else:
        best = logits.topk(min(table.table.shape[1], logits.shape[1]))
        table.put(ids, best.indices.int().cpu().numpy(), best.values.float().cpu().numpy())
