"""TorchTarget: a model on torch or on our own CPU kernels, with its KV cache.

Nothing here samples, drafts or knows text.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.config import Config
from engine.model.families.gguf_tensors import OnRead
from engine.model.kv_cache import Sequence, SequencePool
from engine.model.pooled_target import PooledTarget
from engine.model.torch.cuda.current_card import current, finish
from engine.model.torch.cuda.static_forward import Static
from engine.model.torch.cuda.static_pass import BUCKETS, TOP, USUAL_ROWS, PassOutput
from engine.model.torch.inference import inference
from engine.model.torch.llama import TensorSource
from engine.model.torch.loading import LoadedModel, load
from engine.model.torch.ops import Rows
from engine.model.torch.row_invariance import checked
from engine.model.torch.tensor_cache import copied
from engine.model.torch.tensor_model import TensorModel
from engine.model.unsupported import UnsupportedModel
from engine.records import Draft, Request, RequestError, Scores

log = logging.getLogger(__name__)

MIN_CHUNK_TOKENS = 64  # prompt tokens of a pass where memory is full
MEMORY_FULL = "the card's memory is full: end what else uses it, or ask for less"
NO_MEMORY = ("out of memory", "ALLOC_FAILED")  # words of CUDA, Triton and cuBLAS


def is_out_of_memory(error: RuntimeError) -> bool:
    """Return whether a card had no memory left, for torch or for a library."""
    output = str(error)
    return isinstance(error, torch.OutOfMemoryError) or any(mark in output for mark in NO_MEMORY)


class TorchTarget(PooledTarget):
    """A loaded model, as `engine.model.target.Target`, on torch or on our own CPU kernels.

    Logits and hidden states are tensors. One thread at a time; the engine's worker owns it.
    """

    has_tensors = True

    def __init__(
        self,
        folder: Path,
        config: Config,
        weights: TensorSource | None = None,
        on_read: OnRead = lambda done, total: None,
    ) -> None:
        """Load a model as `engine.model.torch.loading.load` does.

        Then check whether the rows of a pass are independent of each other on this machine
        (`exact`).
        """
        loaded, exact = _checked(folder, config, weights, on_read)
        self.folder, self.settings = folder, loaded.settings
        self.model, self.static = loaded.model, loaded.static
        self.devices, self.dtype_name = loaded.devices, loaded.dtype
        self.vocab, self.context, self.chunk = loaded.model.vocab, loaded.context, loaded.chunk
        sequences = max(1, config.cached_sequences)
        self.pool = SequencePool(
            self._allocate, sequences, loaded.cache_bytes, torch.cuda.empty_cache
        )
        self.budget = loaded.budget  # draft nodes of a step
        self.unread: list[int] = []  # tokens of the prompt that the next forward reads
        self.keeps_states = False  # keep hidden states next to keys and values, for drafters
        # rows of a pass of static shape; fewer once memory was full
        self.max_rows = USUAL_ROWS if self.static is None else self.static.rows
        self._warned = False  # whether it was logged that memory is short
        self.exact = exact
        # whether drafts are refused unless rows are independent
        self.must_be_exact = loaded.device.type == "cpu" or loaded.exact

    @property
    def device(self) -> torch.device:
        """The device of the last layers, where hidden states and logits are."""
        return self.devices[-1]

    @property
    def device_type(self) -> str:
        """The type of the device: cpu, cuda or mps."""
        return self.device.type

    @property
    def device_name(self) -> str:
        """The device as a person would name it."""
        if self.device.type == "cuda":
            return ", ".join(torch.cuda.get_device_name(device) for device in self.devices)
        return f"{self.device.type} {platform.machine()}"

    # -- sequences -----------------------------------------------------------------------------

    def begin(self, prompt: list[int], capacity: int, owner: str = "") -> int:
        self.unread = []
        if self.keeps_states:  # sequences without hidden states are read again
            self.pool.sequences = [
                sequence for sequence in self.pool.sequences if sequence.states is not None
            ]
        return super().begin(prompt, capacity, owner)

    def _allocate(self, source: Sequence, rows: int, capacity: int) -> Sequence:
        try:
            return copied(self.model, source, rows, capacity, self.keeps_states)
        except torch.OutOfMemoryError as error:
            raise MemoryError(str(error)) from error

    # -- passes --------------------------------------------------------------------------------

    @torch.inference_mode()
    def prefill(
        self,
        prompt: list[int],
        capacity: int,
        on_chunk: Callable[[list[int], Tensor], None] | None = None,
        owner: str = "",
    ) -> Iterator[int]:
        """Read a prompt as `Target.prefill` does. On a GPU whose memory is full, chunks shrink.

        In passes of static shape, the last tokens are left to the next `forward` if they fit one
        pass and nobody wants their hidden states: the first token is chosen one pass earlier.
        """
        epoch = self.epoch
        left_over = 0 if self.static is None or on_chunk is not None else self.max_rows - 1
        while True:
            if self.epoch != epoch:  # another request ran between two chunks
                self.begin(prompt, capacity, owner)
                epoch = self.epoch
            start = len(self.tokens)
            count = len(prompt) - 1 - start
            if count <= left_over:
                self.unread = prompt[start:-1]
                return
            most = self.chunk
            if self.static is not None:
                most = min(most, self.static.prompts.chunk_of(count - left_over))
            chunk = prompt[start : start + min(count, most)]
            try:
                states = self._read(chunk)
            except torch.OutOfMemoryError as error:
                if self._drops_others():
                    continue
                if self.chunk <= MIN_CHUNK_TOKENS:
                    raise torch.OutOfMemoryError(MEMORY_FULL) from error
                self.chunk //= 2
                self._short(f"prompts are read {self.chunk} tokens at a time")
                continue
            self.tokens.extend(chunk)
            self._checkpoint(start, last=len(self.tokens) == len(prompt) - 1)
            if on_chunk is not None:
                on_chunk(chunk, states)
            finish(self.device)  # so that clocks are right, and a cancelled prompt is not read on
            yield len(self.tokens)

    @inference
    def forward(self, last: int, draft: Draft, hidden: bool = False) -> Scores:
        """Run a pass as `Target.forward` does.

        ValueError where the rows exceed the cache's capacity; on any error the cache is as before.
        """
        if self.static is not None and len(draft) < self.static.rows:
            return self._step(self.static, last, draft, hidden)
        self.catch_up()
        parents = [-1, *(parent + 1 for parent in draft.parents)]
        states = self._run([last, *draft.tokens], parents, committed=False)
        logits = self.model.head(states)
        if logits.device.type == "mps":
            logits = logits.cpu()  # tokens are drawn in f64, which Apple's GPUs do not have
        scores = Scores(logits, states if hidden else None)
        self.pending = (last, draft)
        return scores

    def _step(self, static: Static, last: int, draft: Draft, hidden: bool) -> Scores:
        current = self.sequence
        while True:
            draft = draft.first(self.max_rows - 1)
            if len(self.unread) + len(draft) >= self.max_rows:
                self.catch_up()
            base, skipped = len(current.tokens), len(self.unread)
            rows = skipped + 1 + len(draft)
            self._check_capacity(rows)
            try:
                output = static.step(*behind(self.unread, last, draft), current.cache, base)
                states = output.states[skipped:rows].clone() if hidden else None
                break
            except torch.OutOfMemoryError as error:
                if self._drops_others():
                    continue
                if self.unread:
                    self.catch_up()
                    continue
                if not len(draft):
                    raise torch.OutOfMemoryError(MEMORY_FULL) from error
                self.max_rows = max(size for size in BUCKETS if size <= len(draft))
                self._short(f"drafts are cut to {self.max_rows - 1} tokens")
        if current.states is not None:
            current.states[base : base + rows] = output.states[:rows]
        current.tokens += self.unread
        self.unread, self.pending = [], (last, draft)
        return scores_of(static, output, skipped, rows, states)

    def catch_up(self) -> None:
        """Read the tokens of the prompt that `prefill` left to the next `forward`."""
        if self.unread:
            self._read(self.unread)
            self.tokens.extend(self.unread)
            self.unread = []

    @contextmanager
    def within(self) -> Iterator[None]:
        """Enter the context of the thread that owns this target."""
        with torch.inference_mode(), current(self.device):
            yield

    @contextmanager
    def limited_memory(self) -> Iterator[None]:
        """Turn running out of a card's memory into a RequestError with a remedy, and free memory.

        It frees what later requests can do without: all cached sequences, which are read again
        where needed.
        """
        try:
            yield
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            self._forget_all()
            torch.cuda.empty_cache()
            raise RequestError(MEMORY_FULL) from error

    def _drops_others(self) -> bool:
        """Drop the cached sequences of other prompts; return whether there were any."""
        others = self.pool.sequences[:-1]
        if others:
            del self.pool.sequences[:-1]
            self._short("earlier prompts are dropped from it")
        return bool(others)

    def _short(self, what: str) -> None:
        """Free unused memory of the card, and log once that it is short."""
        torch.cuda.empty_cache()
        if not self._warned:
            log.warning("the card's memory is full: %s, which is slower", what)
        self._warned = True

    @inference
    def keep(self, path: list[int]) -> None:
        """Commit the rows on `path` as `Target.keep` does, and drop those of all other nodes."""
        assert self.pending is not None, "keep without forward"
        last, draft = self.pending
        self.pending = None
        current, base = self.sequence, len(self.tokens) + 1
        kept = current.cache if current.states is None else (*current.cache, current.states)
        if self.static is not None and len(path) <= self.static.rows:
            self.static.keep(kept, base, path)
        elif path != list(range(len(path))):
            rows = torch.tensor(path) + base
            for part in kept:
                moved = part.index_select(-2, rows.to(part.device))
                part[..., base : base + len(path), :] = moved
        if current.recurrent is not None:
            current.recurrent.keep(path)
        current.tokens += [last, *(draft.tokens[node] for node in path)]

    @inference
    def logits(self, states: Tensor) -> Tensor:
        """Compute the logits [rows, vocabulary] of hidden states that `prefill` gave."""
        return self.model.head(states)

    def capacity(self) -> int:
        """Count the draft nodes that the cache of the current sequence can still take."""
        capacity = super().capacity() - len(self.unread)
        return capacity if self.static is None else min(capacity, self.max_rows - 1)

    def warm(self) -> Iterator[tuple[int, int]]:
        """Capture the CUDA graphs of static passes, one a step; yields (captured, total)."""
        if self.static is not None:
            yield from self.static.warm()

    def _read(self, chunk: list[int]) -> Tensor:
        """Compute the final hidden states of tokens that follow the committed ones."""
        if self.static is None:
            return self._run(chunk, [-1, *range(len(chunk) - 1)], committed=True)
        self._check_capacity(len(chunk))
        current = self.sequence
        base = len(current.tokens)
        states = self.static.read(chunk, current.cache, base)
        if current.states is not None:
            current.states[base : base + len(chunk)] = states
        return states

    def _run(self, tokens: list[int], parents: list[int], committed: bool) -> Tensor:
        """Compute the final hidden states of rows behind the committed ones.

        `committed`: the rows stay.
        """
        current = self.sequence
        base = len(current.tokens)
        self._check_capacity(len(tokens))
        rows = Rows.of(base, parents, self.devices[0])
        ids = torch.tensor(tokens, dtype=torch.int64, device=self.devices[0])
        if isinstance(self.model, TensorModel):
            recurrent = current.recurrent
            states = self.model.run(
                ids, rows, current.cache, recurrent=recurrent, committed=committed
            )
        else:
            states = self.model.run(ids, rows, current.cache)
        if current.states is not None:
            current.states[base : base + len(tokens)] = states
        return states


def _checked(
    folder: Path, config: Config, weights: TensorSource | None, on_read: OnRead
) -> tuple[LoadedModel, bool]:
    """Load a model, and check whether the rows of its passes are independent.

    Where exact passes fail on a card and were not asked for, it is loaded without them.
    """
    loaded = load(folder, config, weights, on_read)
    try:
        return loaded, (loaded.device.type == "cpu" or loaded.exact) and checked(loaded)
    except UnsupportedModel as error:
        if config.exact is not None:
            raise
        what = "drafts may change a text where two tokens nearly tie"
        log.warning("%s: %s: %s", folder.name, what, error)
    del loaded
    return load(folder, replace(config, exact=False), weights, on_read), False


def behind(unread: list[int], last: int, draft: Draft) -> tuple[int, Draft]:
    """Put a chain of unread tokens in front of the last one and the draft behind it.

    Returns the first token and the draft behind that, of which only tokens and parents count.
    """
    if not unread:
        return last, draft
    first, *rest = *unread, last
    parents = [*range(-1, len(rest) - 1), *(parent + len(rest) for parent in draft.parents)]
    return first, Draft([*rest, *draft.tokens], parents)


def scores_of(
    static: Static, output: PassOutput, skipped: int, stop: int, states: Tensor | None
) -> Scores:
    """Make the scores of the rows `skipped` to `stop` of a pass of static shape.

    Logits are copied only when they are requested.
    """

    def chosen(request: Request, place: int) -> list[int]:
        return static.choices(output, stop, request, place - skipped)[skipped:]

    def logits() -> Tensor:
        try:
            with torch.inference_mode():
                return output.logits[skipped:stop].to(torch.float32, copy=True)
        except torch.OutOfMemoryError as error:
            raise torch.OutOfMemoryError(MEMORY_FULL) from error

    def likely(width: int) -> tuple[Any, Any]:
        if width <= TOP and not scores.has_logits:
            tokens, values = static.likely(output, stop, width)
            return tokens[skipped:], values[skipped:]
        found = scores.logits.topk(min(width, output.logits.shape[1]))
        return found.indices.int().cpu().numpy(), found.values.cpu().numpy()

    scores = Scores(logits, states, chosen, likely, rows=stop - skipped, launched=True)
    return scores
