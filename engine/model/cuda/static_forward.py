"""Passes of static shape: as many rows as the next bucket has, all inputs in one buffer, and what a
step needs of its outcome in one answer, so that a step waits for the device once.

The rows that fill a bucket up reach neither the cache nor the caller. On a CUDA card each bucket's
pass is captured as a graph (`engine.model.cuda.cuda_graphs`), so that Python and launches cost nothing; until then,
and on a CPU for the tests, the same passes are launched step by step.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.model.cuda import torch_ops
from engine.model.cuda.cuda_graphs import BUCKETS, MOST, Graphs
from engine.model.hf_model import UnsupportedModel
from engine.model.llama import Llama
from engine.records import Request
from engine.sampling.batched import best, drawn

log = logging.getLogger(__name__)

HEAD = 8  # integers before the rows' own: where the cache is, its rows, base, count
SCRATCH = 4 * MOST  # rows of a cache that passes are tried on


Ids = np.ndarray[Any, np.dtype[np.int32]]
Floats = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(slots=True)
class Pass:
    """What the small steps of one pass need to know. `parents` are those of the real rows."""

    base: int
    count: int  # real rows
    parents: np.ndarray[Any, Any]  # int32 [count]
    keys: Tensor  # [layers, kv heads, capacity, d]
    values: Tensor
    meta: Tensor  # int64: address of keys, of values; capacity, base, count
    positions: Tensor  # int64 [rows]
    seen: Tensor  # int64 [rows]: bit i: row i of the pass is an ancestor, or the row itself
    path: Tensor  # int64 [rows, MOST]: ancestors by depth, the row itself last
    tree: bool  # False: row i follows row i - 1
    exact: bool


@dataclass(slots=True)
class Said:
    """What a pass said; the next one may write over it."""

    states: Tensor  # [rows, width]
    logits: Tensor  # [rows, vocabulary] in the model's dtype
    best: Tensor  # int64 [rows]


class Static:
    """The passes of one model."""

    def __init__(self, model: Llama, exact: bool = False, graphs: bool = True) -> None:
        """`exact`: a row gets the same bits in every bucket. UnsupportedModel where that cannot
        be had."""
        self.model, self.device, self.exact = model, model.device, exact
        cuda = self.device.type == "cuda"
        self.fused = _fused(self.device)  # None: plain torch does the small steps
        if cuda and exact and self.fused is None:
            raise UnsupportedModel("exact needs Triton on a GPU: install it, or leave --exact out")
        # Whether they may be used: they are compiled then. An exact model has no other steps.
        self.ready = exact and self.fused is not None
        self._likely: tuple[int, Tensor, Tensor] | None = None  # width, on the device, here
        self._width = self._ready_width = 0  # likeliest words asked for, and here
        rows = HEAD + 3 * MOST
        self._sent = rows + MOST * MOST if exact else rows
        self.box = torch.zeros(rows + MOST * MOST, dtype=torch.int64, device=self.device)
        self._host = torch.zeros(rows + MOST * MOST, dtype=torch.int64, pin_memory=cuda)
        self._moved = torch.zeros(MOST, dtype=torch.int64, device=self.device)
        self._path = torch.zeros(MOST, dtype=torch.int64, pin_memory=cuda)
        self._chosen = torch.zeros(MOST, dtype=torch.int64, pin_memory=cuda)
        self.ids, self.positions, self.seen = self.box[HEAD:rows].view(3, MOST)
        self.path = self.box[rows:].view(MOST, MOST)
        self._copied = torch.cuda.Event() if cuda else None  # type: ignore[no-untyped-call]
        self._norms = [
            None if block.qk_norm is None else torch.stack(block.qk_norm) for block in model.blocks
        ]
        self.graphs = Graphs(self) if graphs and cuda and self.fused is not None else None

    # -- passes ------------------------------------------------------------------------------------

    def step(
        self, tokens: list[int], parents: list[int], keys: Tensor, values: Tensor, base: int
    ) -> Said:
        """Run up to MOST rows; what they said, of the real rows. IndexError for ids that there are
        not, torch.OutOfMemoryError where the card is full; the cache's live rows stay."""
        bucket = next(size for size in BUCKETS if size >= len(tokens))
        said = None
        if self.graphs is not None:
            self.graphs.use(self, bucket)
        now = self.filled(tokens, parents, keys, values, base, bucket)
        if self.graphs is not None:
            said = self.graphs.replay(bucket)
        if said is None:
            said = self.run(now)
        self._ready_width = 0
        count = len(tokens)
        return Said(said.states[:count], said.logits[:count], said.best[:count])

    def read(
        self, tokens: list[int], keys: Tensor, values: Tensor, base: int, layers: int | None = None
    ) -> Tensor:
        """Hidden states [tokens, width] of tokens that follow each other, any number of them;
        `layers`: after the first so many."""
        self._check(tokens)
        count = len(tokens)
        self._send([keys.data_ptr(), values.data_ptr(), keys.shape[2], base, count], 5)
        places = torch.arange(base, base + count, device=self.device)
        parents = np.arange(-1, count - 1, dtype=np.int32)
        now = Pass(base, count, parents, keys, values, self.box, places, self.seen, self.path,
                   False, self.exact)  # fmt: skip
        ids = torch.tensor(tokens, dtype=torch.int64).to(self.device)
        return self._states(ids, now, layers)

    @torch.inference_mode()
    def choices(self, said: Said, logits: Tensor, request: Request, place: int) -> list[int]:
        """The model's own token after every row; the first row stands before `place`. This is
        where a step waits for the device. -1: the logits are no numbers. `logits`: the same in
        f32, of which the likeliest words come along, where they were asked for before."""
        count, found = len(said.best), said.best
        if request.temperature > 0:
            positions = self.positions[:count] - self.positions[:1] + place
            try:
                found = drawn(said.logits, positions, request)
            except torch.OutOfMemoryError:
                found = drawn(said.logits, positions, request, together=1)
        self._chosen[:count].copy_(found, non_blocking=True)
        width, self._width = self._width, 0  # to be asked for again behind every pass
        if width:
            self._fetch(logits, width)
        self._finish()
        self._ready_width = width
        return self._chosen[:count].tolist()

    @torch.inference_mode()
    def likely(self, logits: Tensor, width: int) -> tuple[Ids, Floats]:
        """The `width` likeliest words of every row, and their logits; good until the next pass.
        Who asks after every pass does not wait: they have come with the choices."""
        if self._ready_width != width:
            self._fetch(logits, width)
            self._finish()
        self._width = self._ready_width = width
        assert self._likely is not None
        words, values = self._likely[2][:, : len(logits)].numpy()
        return words, values.view(np.float32)

    def _fetch(self, logits: Tensor, width: int) -> None:
        if self._likely is None or self._likely[0] != width:
            there = torch.zeros(2, MOST, width, dtype=torch.int32, device=self.device)
            here = torch.zeros(there.shape, dtype=torch.int32, pin_memory=there.is_cuda)
            self._likely = width, there, here
        _, there, here = self._likely
        found = logits.topk(width)
        there[0, : len(logits)] = found.indices
        there[1, : len(logits)] = found.values.view(torch.int32)
        here.copy_(there, non_blocking=True)

    def _finish(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()

    def keep(self, cache: Tensor, base: int, path: list[int]) -> None:
        """Move the rows `base + path[i]` of [..., capacity, d] to `base + i`, all at once."""
        first = next((n for n, node in enumerate(path) if node != n), len(path))
        count = len(path) - first
        if not count:
            return
        self._wait()
        self._path[:count] = torch.tensor(path[first:]) + base
        rows = self._moved[:count]
        rows.copy_(self._path[:count], non_blocking=True)
        self._mark()
        start = base + first
        cache[..., start : start + count, :] = cache.index_select(-2, rows)

    def run(self, now: Pass) -> Said:
        """Launch a pass, step by step."""
        states = self._states(self.ids[: len(now.positions)], now)
        logits = self.model.words(states)
        return Said(states, logits, best(logits))

    def _states(self, ids: Tensor, now: Pass, layers: int | None = None) -> Tensor:
        model = self.model
        do: Any = self.fused if self.fused is not None and self.ready else torch_ops
        x, delta = model.embedding[ids].to(model.dtype), None
        for n, layer in enumerate(model.blocks[:layers]):
            x, h = do.add_norm(x, delta, layer.norm_in, model.eps)
            q = do.turn(model, n, self._norms[n], layer.qkv(h), now)
            mixed = layer.out(do.attend(model, n, q, now))
            x, h = do.add_norm(x, mixed, layer.norm_mlp, model.eps)
            delta = layer.down(do.gate(layer.gate_up(h)))
        states: Tensor = do.add_norm(x, delta, model.norm, model.eps)[1]
        return states

    # -- inputs ------------------------------------------------------------------------------------

    def filled(
        self,
        tokens: list[int],
        parents: list[int],
        keys: Tensor,
        values: Tensor,
        base: int,
        bucket: int,
    ) -> Pass:
        """The buffer filled for a pass. Rows that fill the bucket up stand beside row 0."""
        self._check(tokens)
        count = len(tokens)
        depths, bits = [0] * count, [0] * count
        for row, parent in enumerate(parents):
            if parent < 0:
                bits[row] = 1 << row
            else:
                depths[row], bits[row] = depths[parent] + 1, bits[parent] | 1 << row
        inputs = np.zeros(self._sent, np.int64)
        inputs[:5] = keys.data_ptr(), values.data_ptr(), keys.shape[2], base, count
        ids, positions, seen = inputs[HEAD : HEAD + 3 * MOST].reshape(3, MOST)
        ids[:count] = tokens
        positions[:] = base
        positions[:count] += depths
        seen[:] = 1
        seen[:count] = np.array(bits, np.uint64).view(np.int64)
        if self.exact:
            places = inputs[HEAD + 3 * MOST :].reshape(MOST, MOST)
            for row, parent in enumerate(parents):
                places[row] = places[parent] if parent >= 0 else 0
                places[row, depths[row]] = row
        self._send(inputs, self._sent)
        return Pass(
            base, count, np.asarray(parents, np.int32), keys, values, self.box,
            self.positions[:bucket], self.seen[:bucket], self.path, True, self.exact,
        )  # fmt: skip

    def _check(self, tokens: list[int]) -> None:
        """A card that is asked for an embedding that there is not is lost for the whole process."""
        count = len(self.model.embedding)
        if min(tokens) < 0 or max(tokens) >= count:
            raise IndexError(f"the model has tokens 0 to {count - 1} only")

    def _send(self, inputs: Any, count: int) -> None:
        self._wait()
        self._host.numpy()[:count] = inputs
        self.box[:count].copy_(self._host[:count], non_blocking=True)
        self._mark()

    def _wait(self) -> None:
        """Until the pinned buffers were read."""
        if self._copied is not None:
            self._copied.synchronize()

    def _mark(self) -> None:
        if self._copied is not None:
            self._copied.record()

    # -- graphs ------------------------------------------------------------------------------------

    def warm(self) -> Iterator[tuple[int, int]]:
        """Capture what is not captured, one bucket a turn: (captured, of)."""
        if self.graphs is not None:
            yield from self.graphs.warm(self)

    def twin(self) -> Static:
        """The same passes, fused, on buffers of their own."""
        made = Static(self.model, self.exact, graphs=False)
        made.ready = True
        return made

    def scratch(self) -> tuple[Tensor, Tensor]:
        """A small cache that passes are tried on."""
        model = self.model
        shape = (2, model.layers, model.kv_heads, SCRATCH, model.head_dim)
        keys, values = torch.zeros(shape, dtype=model.cache_dtype, device=self.device)
        return keys, values


def _fused(device: torch.device) -> ModuleType | None:
    """The fused steps, where they run. One log line where they should and do not."""
    if device.type != "cuda":
        return None
    try:
        from engine.model.cuda import triton_ops
    except ImportError as error:
        log.warning("Triton is missing (%s): steps are launched one by one, slower", error)
        return None
    return triton_ops
