"""Whether the rows of a pass see each other, asked of this machine's own kernels at load."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.model.cuda.cuda_graphs import MOST
from engine.model.hf_model import UnsupportedModel
from engine.model.kv_cache import Sequence, copied
from engine.model.ops import Rows
from engine.model.placement import memory_told

if TYPE_CHECKING:
    from engine.model.torch_target import TorchTarget

log = logging.getLogger(__name__)

MANY = 128  # rows, as in a chunk of a prompt


def checked(target: TorchTarget) -> bool:
    """`rows_are_alone`; UnsupportedModel where a card cannot run exact passes at all."""
    if target.device.type == "cpu":
        return rows_are_alone(target)
    try:
        with memory_told(target.folder.name, target.devices):
            return rows_are_alone(target)
    except UnsupportedModel:
        raise
    except Exception as error:  # Triton's, its compiler's and CUDA's have no class in common
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise UnsupportedModel(f"exact does not run here ({why}): leave --exact out") from error


@torch.inference_mode()
def rows_are_alone(target: TorchTarget) -> bool:
    """Whether rows get the same bits alone and in passes of 2, 16, 64 and 128 rows (first layer and
    head; all layers of a `Generic` model, and on a card). Logged once where they do not."""
    ids = torch.arange(1, MANY + 1) * 7919 % target.vocab
    scratch = copied(target.model, Sequence(), 0, 2 * MANY, False)
    run, head = target.model.run, target.model.head

    def states(start: int, stop: int) -> Tensor:
        chain = [-1, *range(stop - start - 1)]
        if target.static is not None and target.device.type != "cpu":
            some, (keys, values) = ids[start:stop].tolist(), scratch.cache[0]
            if stop - start > MOST:
                return target.static.read(some, keys, values, start)
            return target.static.step(some, chain, keys, values, start).states
        rows = Rows.of(start, chain, target.device)
        return run(ids[start:stop], rows, scratch.cache, layers=1)

    alone = torch.cat([states(n, n + 1) for n in range(3)])
    logits = torch.cat([head(alone[n : n + 1]) for n in range(3)])
    same = True
    for count in (2, 16, 64, MANY):
        together, few = states(0, count), min(count, 3)
        same &= torch.equal(together[:few], alone[:few])
        if count <= 16:
            same &= torch.equal(head(together)[:few], logits[:few])
    if not same:
        log.warning(
            "this machine's kernels round by shape (%s): decoding plainly, so that "
            "speculation cannot change the answer",
            target.dtype_name,
        )
    return same
