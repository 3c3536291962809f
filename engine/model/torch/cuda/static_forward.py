"""Forward passes of static shape, which wait for the device once.

Rows are padded to a bucket, all inputs are in one buffer, and there is one transfer back. Padding
rows reach neither the cache nor the caller. On a CUDA card each bucket's pass becomes a CUDA graph
(`engine.model.torch.cuda.cuda_graphs`), which removes the cost of Python and of launches. Both
transfers are part of it: the host fills pinned memory, launches, and waits. Until then, and on a
CPU for the tests, the same passes are launched kernel by kernel.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.model import _kernels
from engine.model.torch.cuda import torch_ops
from engine.model.torch.cuda.current_card import finish, on_its_card, runs_kernels
from engine.model.torch.cuda.described_model import DescribedModel
from engine.model.torch.cuda.prompt_inputs import PromptInputs
from engine.model.torch.cuda.static_pass import (
    BUCKETS,
    DESCRIBED_ROWS,
    HEADER_INTS,
    MAX_ROWS,
    TOP,
    USUAL_ROWS,
    WORD_BITS,
    CapturedPasses,
    PassOutput,
    StaticPass,
    bucket_of,
    write_other_addresses,
)
from engine.model.torch.inference import inference
from engine.model.torch.llama import Llama
from engine.model.unsupported import UnsupportedModel
from engine.records import Draft, Request
from engine.sampling.batched import UNSURE, drawn, drawn_early, has_candidates

log = logging.getLogger(__name__)

ONE_BY_ONE = "kernels are launched one by one, which is slower"
SCRATCH_ROWS = 2 * MAX_ROWS  # rows of the cache that passes are compiled and captured on


Ids = np.ndarray[Any, np.dtype[np.int32]]
Floats = np.ndarray[Any, np.dtype[np.float32]]


class Static:
    """The static passes of one model. `graphs`, once set, replays captured passes."""

    def __init__(
        self, model: Llama | DescribedModel, exact: bool = False, rows: int = USUAL_ROWS
    ) -> None:
        """Allocate the buffers of a model's passes.

        `exact`: a row gets the same bits in every bucket; UnsupportedModel where this device cannot
        do that. `rows`: rows of the widest pass, a bucket.
        """
        self.model, self.device, self.exact, self.rows = model, model.device, exact, rows
        cuda = self.device.type == "cuda"
        # None: plain torch between the matrix products
        self.fused = _fused(self.device) if isinstance(model, Llama) or model.fuses else None
        if cuda and exact and self.fused is None:
            raise UnsupportedModel("exact needs Triton on a GPU: install it, or leave --exact out")
        # Whether the fused kernels are compiled. An exact model has no others.
        self.ready = exact and self.fused is not None
        top = torch.zeros(rows * (1 + 2 * TOP), dtype=torch.int32, pin_memory=cuda)
        # `PassOutput.top` on the host and its three parts, by bucket
        self._here = {bucket: top_parts(top, bucket) for bucket in BUCKETS if bucket <= rows}
        self._base = 0  # position of the last pass's first row
        self._running = False  # a pass may not have read its inputs, or written `top`
        self._moving = False  # `keep` may not have read its path
        by_row = [rows, rows, rows * (rows // WORD_BITS), rows * rows // 8 if exact else 0]
        size = HEADER_INTS + sum(by_row)
        self.box = torch.zeros(size, dtype=torch.int64, device=self.device)
        self._host = torch.zeros(size, dtype=torch.int64, pin_memory=cuda)
        self._inputs = self._host.numpy()  # the same memory
        self._moved = torch.zeros(rows, dtype=torch.int64, device=self.device)
        self._path = torch.zeros(rows, dtype=torch.int64, pin_memory=cuda)
        self._path_here = self._path.numpy()  # the same memory
        self._chosen = torch.zeros(rows, dtype=torch.int64, pin_memory=cuda)
        self.ids, self.positions, seen, path = torch.split(self.box[HEADER_INTS:], by_row)
        self.seen = seen.view(rows, -1)
        self.path = path.view(torch.uint8).view(-1, rows)  # used by an exact model
        self._norms = [
            None if block.qk_norm is None else torch.stack(block.qk_norm)
            for block in (model.blocks if isinstance(model, Llama) else [])
        ]
        self.prompts = PromptInputs(self.device, exact)
        self.graphs: CapturedPasses | None = None

    # -- passes ------------------------------------------------------------------------------------

    @on_its_card
    def step(self, last: int, draft: Draft, cache: tuple[Tensor, ...], base: int) -> PassOutput:
        """Run the token `last` and the draft behind it, up to `rows` rows.

        What the outputs have behind them is padding. IndexError for unknown ids,
        torch.OutOfMemoryError where the card is full; committed rows stay intact.
        """
        bucket = bucket_of(1 + len(draft))
        if self.graphs is not None:
            self.graphs.use(self, bucket)
        self.send(last, draft, cache, base)
        output = None if self.graphs is None else self.graphs.replay(bucket)
        return output or self.run(self.sent(draft, cache, base, bucket))

    @on_its_card
    def read(
        self, tokens: list[int], cache: tuple[Tensor, ...], base: int, layers: int | None = None
    ) -> Tensor:
        """Compute hidden states [tokens, width] of any number of consecutive tokens.

        They are those after the first `layers` layers (None: all).
        """
        self._check(tokens)
        most = self.prompts.sizes[-1]
        parts = [
            self._read(tokens[n : n + most], cache, base + n, layers)
            for n in range(0, len(tokens), most)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _read(
        self, tokens: list[int], cache: tuple[Tensor, ...], base: int, layers: int | None
    ) -> Tensor:
        """Run one pass over a prompt, padded unless it ends early or its model has no graphs."""
        count = len(tokens)
        padded = layers is None and bool(self.read_sizes)
        rows, graphs = (self.prompts.rows_for(count), self.graphs) if padded else (count, None)
        if graphs is not None:
            graphs.use_read(self, rows)
        self.send_prompt(tokens, cache, base, rows)
        states = None if graphs is None else graphs.replay_read(rows)
        if states is not None:
            return states[:count].clone()  # the next pass may overwrite them
        return self.run_read(self.sent_prompt(count, cache, base, rows), layers)[:count]

    def choices(self, output: PassOutput, count: int, request: Request, place: int) -> list[int]:
        """Choose the model's token after each of the `count` rows of the last pass.

        Row 0 precedes position `place`. A step waits for the device here, a second time only where
        the first draw is unsure. -1: the logits are not finite.
        """
        if request.temperature == 0:
            found: list[int] = self._fetch(output)[0][:count].tolist()
            return found
        return self._drawn(output, count, request, place)

    @inference
    def _drawn(self, output: PassOutput, count: int, request: Request, place: int) -> list[int]:
        """Choose tokens as `choices` does, by sampling."""
        some = self._draw_first(output, count, request, place)
        self._chosen[:count].copy_(some, non_blocking=True)
        self._mark()
        self._fetch(output)
        chosen: list[int] = self._chosen[:count].tolist()
        if UNSURE in chosen:
            chosen = self._draw(drawn, output, count, request, place).tolist()
        return chosen

    def _draw_first(self, output: PassOutput, count: int, request: Request, place: int) -> Tensor:
        """Sample the tokens of the last pass's rows by the fastest way; some may be UNSURE."""
        if self.fused is not None and self.ready:
            from engine.model.torch.cuda import sampling  # Triton is here

            logits = output.logits[:count]
            if sampling.draws(request, logits.shape[1]):
                shift = place - self._base
                return sampling.drawn(logits, output.top, self.positions, shift, request)
        draw = drawn_early if has_candidates(request) else drawn
        return self._draw(draw, output, count, request, place)

    def draw_each_way(self, output: PassOutput) -> None:
        """Compile the kernels that sample, each variant, on the outputs of any pass."""
        if self.fused is None:
            return
        from engine.model.torch.cuda import sampling  # Triton is here

        for request in sampling.KINDS:
            sampling.drawn(output.logits, output.top, self.positions, 0, request)

    def _draw(
        self, draw: Any, output: PassOutput, count: int, request: Request, place: int
    ) -> Tensor:
        """Sample the tokens of the last pass's rows by `drawn` or `drawn_early`."""
        logits, positions = output.logits[:count], self.positions[:count] + (place - self._base)
        try:
            return draw(logits, positions, request)  # type: ignore[no-any-return]
        except torch.OutOfMemoryError:
            return draw(logits, positions, request, max_rows=1)  # type: ignore[no-any-return]

    def likely(self, output: PassOutput, count: int, width: int) -> tuple[Ids, Floats]:
        """Return the `width` (at most TOP) most likely tokens of the `count` rows of the last pass.

        Their logits come with them. It is to be called before the next pass.
        """
        _, words, values = self._fetch(output)
        return words[:count, :width].copy(), values[:count, :width].copy()

    def _fetch(self, output: PassOutput) -> tuple[Ids, Ids, Floats]:
        """Wait for the last pass, once, and return what is on the host of its output.

        It is the largest logit's token of each row, its most likely tokens and their logits.
        """
        self._wait()
        _, best, words, values = self._here[len(output.logits)]
        return best, words, values

    @on_its_card
    def keep(self, parts: Sequence[Tensor], base: int, path: list[int]) -> None:
        """Move the rows `base + path[i]` of each [..., capacity, d] to `base + i`, all at once."""
        if not path or path[-1] == len(path) - 1:  # ascending, so all are in their places
            return
        first = next(n for n, node in enumerate(path) if node != n)
        count = len(path) - first
        if self._moving:
            self._finish()
        self._path_here[:count] = [base + node for node in path[first:]]
        rows = self._moved[:count]
        rows.copy_(self._path[:count], non_blocking=True)
        self._moving = True
        for part in parts:
            part.narrow(-2, base + first, count).copy_(part.index_select(-2, rows))

    def run(self, now: StaticPass) -> PassOutput:
        """Launch a pass, kernel by kernel, with its transfers."""
        self.receive()
        states = self._states(self.ids[: len(now.positions)], now)
        logits = self.model.words(states)
        output = PassOutput(states, logits, self._ops.top(logits))
        self.deliver(output)
        return output

    @property
    def read_sizes(self) -> list[int]:
        """Rows of the passes that read prompts; none where such passes are not padded."""
        if isinstance(self.model, Llama):
            return self.prompts.sizes
        if self.fused is None:
            return []
        return [size for size in self.prompts.sizes if size <= MAX_ROWS]  # as wide as its chunks

    def run_read(self, now: StaticPass, layers: int | None = None) -> Tensor:
        """Launch a pass that reads a prompt, kernel by kernel; returns its hidden states."""
        return self._states(self.prompts.ids[: len(now.positions)], now, layers)

    @property
    def _ops(self) -> Any:
        """The kernels between matrix products."""
        return self.fused if self.fused is not None and self.ready else torch_ops

    def _states(self, ids: Tensor, now: StaticPass, layers: int | None = None) -> Tensor:
        model = self.model
        if isinstance(model, DescribedModel):
            kernels = self.fused if self.ready else None
            return model.run(ids, now, now.cache, layers, kernels)
        do = self._ops
        x, delta = model.embedded(ids), None
        for n, layer in enumerate(model.blocks[:layers]):
            x, h = do.add_norm(x, delta, layer.norm_in, model.eps)
            q = do.rotate(model, n, self._norms[n], layer.qkv(h), now)
            mixed = model.scaled(layer.out(do.attend(model, n, q, now)))
            x, h = do.add_norm(x, mixed, layer.norm_mlp, model.eps)
            delta = model.scaled(layer.mlp.down(do.gate(layer.mlp.gate_up(h))))
        states: Tensor = do.add_norm(x, delta, model.norm, model.eps)[1]
        return states

    # -- inputs ------------------------------------------------------------------------------------

    def send(self, last: int, draft: Draft, cache: tuple[Tensor, ...], base: int) -> None:
        """Write the inputs of a pass over `last` and the draft behind it; the pass fetches them.

        IndexError for unknown ids: on a card they would end the whole process.
        """
        keys, capacity = cache[0].data_ptr(), cache[0].shape[3]
        values = keys + cache[0].nbytes // 2
        self._base = base
        self._wait()
        write_other_addresses(self._inputs, cache)
        _kernels.fill_pass(
            self._inputs, self.rows, self.exact, last, draft.tokens, draft.parents,
            self.model.embedding.shape[0], keys, values, capacity, base,
        )  # fmt: skip
        self._mark()

    def receive(self) -> None:
        """Copy the inputs that were sent to the device: the first operation of a pass."""
        self.box.copy_(self._host, non_blocking=True)

    def deliver(self, output: PassOutput) -> None:
        """Copy `output.top` to the host: the last operation of a pass."""
        self._here[len(output.logits)][0].copy_(output.top, non_blocking=True)

    def sent(self, draft: Draft, cache: tuple[Tensor, ...], base: int, bucket: int) -> StaticPass:
        """Describe the pass whose inputs were sent, padded to `bucket` rows."""
        parents = np.array([-1, *draft.parents], np.int32)
        parents[1:] += 1
        return StaticPass(
            base, len(parents), parents, cache, self.box, self.positions[:bucket],
            self.seen[:bucket], self.path[:bucket], True, self.exact,
        )  # fmt: skip

    def send_prompt(
        self, tokens: list[int], cache: tuple[Tensor, ...], base: int, rows: int
    ) -> None:
        """Send the inputs of a pass over tokens of a prompt, padded to `rows` rows."""
        self._wait()
        self.prompts.send(tokens, cache, base, rows)
        self._mark()

    def sent_prompt(
        self, count: int, cache: tuple[Tensor, ...], base: int, rows: int
    ) -> StaticPass:
        """Describe the pass over `count` tokens of a prompt whose inputs were sent."""
        parents = np.arange(-1, count - 1, dtype=np.int32)
        inputs = self.prompts
        return StaticPass(
            base, count, parents, cache, inputs.box, inputs.positions[:rows],
            self.seen, self.path, False, self.exact,
        )  # fmt: skip

    def _check(self, tokens: list[int]) -> None:
        """Raise IndexError for unknown ids."""
        count = len(self.model.embedding)
        if min(tokens) < 0 or max(tokens) >= count:
            raise IndexError(f"the model has tokens 0 to {count - 1} only")

    def _mark(self) -> None:
        """Note that the device uses the pinned inputs or outputs until `_wait` returns."""
        self._running = True

    def _wait(self) -> None:
        """Wait until the pinned inputs have been read and the pinned outputs written."""
        if self._running:
            self._finish()

    def _finish(self) -> None:
        finish(self.device)
        self._running = self._moving = False

    # -- graphs ------------------------------------------------------------------------------------

    def warm(self) -> Iterator[tuple[int, int]]:
        """Capture the missing CUDA graphs, one per step; yields (captured, total)."""
        if self.graphs is not None:
            yield from self.graphs.warm(self)

    def twin(self) -> Static:
        """Make the same passes with fused kernels, on buffers of their own."""
        made = Static(self.model, self.exact, self.rows)
        made.ready = True
        return made

    def scratch(self) -> tuple[Tensor, ...]:
        """Make a small cache to compile and capture passes on."""
        return tuple(
            torch.zeros((2, count, heads, SCRATCH_ROWS, head_dim), dtype=self.model.cache_dtype,
                        device=device)
            for device, count, heads, head_dim in self.model.cache_shapes
        )  # fmt: skip


def _fused(device: torch.device) -> ModuleType | None:
    """Import the fused kernels where they run; logs once where a card lacks them."""
    if device.type != "cuda":
        return None
    if not runs_kernels(device):
        log.warning("this card is older than the fused kernels: %s", ONE_BY_ONE)
        return None
    try:
        from engine.model.torch.cuda import triton_ops
    except ImportError as error:
        log.warning("Triton is missing (%s): %s", error, ONE_BY_ONE)
        return None
    return triton_ops


def top_parts(top: Tensor, rows: int) -> tuple[Tensor, Ids, Ids, Floats]:
    """Cut off the start of `top` that `rows` rows take, and make views of its three parts.

    The parts are those of `PassOutput.top`.
    """
    here = top[: rows * (1 + 2 * TOP)]
    words, values = here.numpy()[rows:].reshape(2, rows, TOP)
    return here, here.numpy()[:rows], words, values.view(np.float32)


def rows_for(nodes: int, model: Llama | DescribedModel) -> int:
    """Compute the rows of the widest pass, for drafts of up to `nodes` nodes.

    ValueError where no pass is so wide.
    """
    most = DESCRIBED_ROWS if isinstance(model, DescribedModel) else MAX_ROWS
    if nodes >= most:
        raise ValueError(
            f"a budget of {nodes} nodes: passes of this model on a card take {most - 1}: choose "
            f"{most - 1} or less"
        )
    return max(bucket_of(1 + nodes), USUAL_ROWS)
