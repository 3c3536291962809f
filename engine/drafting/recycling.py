"""Token Recycling: what the model itself last held likely after each token is offered again.

Luo et al., "Turning Trash into Treasure: Accelerating Inference of LLMs with Token Recycling":
each row of logits that a verification computed, of accepted and of refused nodes alike, overwrites
its token's row. The table is one of ids; no text is kept. The prompt's own rows are not computed,
so nothing is learnt from them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine._drafting import Recycling

WIDTH = 8  # successors of a token


def recycle(table: Recycling, tokens: list[int], logits: Any) -> None:
    """Overwrite the rows of `tokens` with the likeliest of `logits` (torch.Tensor [tokens,
    vocabulary]), which followed them; where a token is there twice, the last one counts."""
    ids = np.array(tokens, np.int32)
    if logits.device.type == "cpu":
        table.update(ids, logits.float().contiguous().numpy())
        return
    best = logits.topk(min(WIDTH, logits.shape[1]))  # a GPU's rows are sorted where they are
    table.put(ids, best.indices.int().cpu().numpy(), best.values.float().cpu().numpy())
