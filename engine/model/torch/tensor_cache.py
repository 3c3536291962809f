"""KV caches as torch's tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from engine.model.kv_cache import Sequence
from engine.model.torch.tensor_model import TensorModel

if TYPE_CHECKING:
    from engine.model.torch.cuda.described_model import DescribedModel
    from engine.model.torch.hf_model import Generic
    from engine.model.torch.llama import Llama


def copied(
    model: Llama | Generic | TensorModel | DescribedModel,
    source: Sequence,
    rows: int,
    capacity: int,
    keeps_states: bool,
) -> Sequence:
    """Make a sequence with memory of its own that starts with the first `rows` rows of `source`.

    The keys and values of each layer are on that layer's device.
    """
    dtype = model.cache_dtype
    cache = tuple(
        torch.empty((2, count, heads, capacity, head_dim), dtype=dtype, device=device)
        for device, count, heads, head_dim in model.cache_shapes
    )
    if rows:
        for part, old in zip(cache, source.cache, strict=True):
            part[..., :rows, :] = old[..., :rows, :]
    states = None
    if keeps_states:
        states = torch.empty(capacity, model.width, device=model.device)
        if source.states is not None:
            states[:rows] = source.states[:rows]
    recurrent = None if source.recurrent is None else source.recurrent.copy(rows)
    if recurrent is None and isinstance(model, TensorModel):
        recurrent = model.recurrent_state()
    return Sequence(source.tokens[:rows], cache, states, recurrent)
