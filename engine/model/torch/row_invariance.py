"""The self-check at load: do this machine's kernels give a row the same bits in every batch?"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.model.kv_cache import Sequence
from engine.model.torch.ops import Rows
from engine.model.torch.placement import out_of_memory_is_unsupported
from engine.model.torch.tensor_cache import copied
from engine.model.torch.tensor_model import TensorModel
from engine.model.unsupported import UnsupportedModel
from engine.records import Draft

if TYPE_CHECKING:
    from engine.model.torch.loading import LoadedModel

log = logging.getLogger(__name__)

PREFILL_ROWS = 128  # rows of the widest checked pass of a prompt
LAST_ROWS = 8  # rows of a pass that are run again alone


def checked(loaded: LoadedModel) -> bool:
    """Run `rows_are_independent`; UnsupportedModel where a card cannot run exact passes at all."""
    if loaded.device.type == "cpu":
        return rows_are_independent(loaded)
    try:
        with out_of_memory_is_unsupported(loaded.folder.name, loaded.devices):
            return rows_are_independent(loaded)
    except UnsupportedModel:
        raise
    except Exception as error:  # Triton's, its compiler's and CUDA's have no class in common
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise UnsupportedModel(f"exact does not run here ({why}): leave --exact out") from error


@torch.inference_mode()
def rows_are_independent(loaded: LoadedModel) -> bool:
    """Check whether rows get the same bits alone and in passes of other rows.

    The passes have 2, 16, 64, 128 and the most rows of a draft, or as many as the model has
    positions. They run the first layer and the head, and all layers of a `Generic` model or on a
    card. There the last rows are run again alone, behind the others, and among the nodes of a tree:
    kernels read committed keys, those of a chain and those of a tree in loops of their own. Logged
    once if not.
    """
    widest = PREFILL_ROWS if loaded.static is None else max(PREFILL_ROWS, loaded.static.rows)
    most = min(widest, loaded.model.max_positions)
    ids = torch.arange(1, most + 1) * 7919 % loaded.model.vocab
    model, head = loaded.model, loaded.model.head
    scratch = Sequence()
    on_card = loaded.static is not None and loaded.device.type != "cpu"

    def states(start: int, stop: int) -> Tensor:
        nonlocal scratch
        if start == 0:
            scratch = copied(model, Sequence(), 0, 2 * widest, False)
        chain = [-1, *range(stop - start - 1)]
        if on_card and loaded.static is not None:
            tokens = ids[start:stop].tolist()
            if stop - start > loaded.static.rows:
                return loaded.static.read(tokens, scratch.cache, start)
            draft = Draft(tokens[1:], chain[:-1])
            output = loaded.static.step(tokens[0], draft, scratch.cache, start)
            return output.states[: len(tokens)].clone()
        rows = Rows.of(start, chain, loaded.device)
        some, layers = ids[start:stop], model.checked_layers
        if isinstance(model, TensorModel):
            state = scratch.recurrent
            return model.run(some, rows, scratch.cache, layers, state, committed=True)
        return model.run(some, rows, scratch.cache, layers)

    alone = torch.cat([states(n, n + 1) for n in range(min(3, most))])
    logits = torch.cat([head(alone[n : n + 1]) for n in range(min(3, most))])
    same = True
    for count in sorted({min(rows, most) for rows in (2, 16, 64, PREFILL_ROWS, widest)}):
        together, few = states(0, count), min(count, 3)
        same &= torch.equal(together[:few], alone[:few])
        if on_card:
            first = max(0, count - LAST_ROWS)
            forked = in_a_tree(loaded, ids[first:count].tolist(), scratch, first)
            rows = torch.cat([states(n, n + 1) for n in range(first, count)])
            same &= torch.equal(together[first:], rows) and torch.equal(forked, rows)
        if count <= 16:
            same &= torch.equal(head(together)[:few], logits[:few])
    if not same:
        log.warning(
            "this machine's kernels round by shape (%s): decoding plainly, so that "
            "speculation cannot change the answer",
            loaded.dtype,
        )
    return same


def in_a_tree(loaded: LoadedModel, tokens: list[int], sequence: Sequence, base: int) -> Tensor:
    """Run tokens behind `base` committed ones as a path of a draft in which each has a sibling."""
    assert loaded.static is not None
    draft, parent, path = Draft(), -1, [0]
    for token in tokens[1:]:
        draft.add((token + 1) % loaded.model.vocab, parent, 0.0, "check")
        parent = draft.add(token, parent, 0.0, "check")
        path.append(1 + parent)
    return loaded.static.step(tokens[0], draft, sequence.cache, base).states[path].clone()
