"""NativeTarget: a GGUF file's model on the CPU's own kernels, with its KV cache, without torch.

Nothing here samples, drafts or knows text.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from engine.config import USUAL_BUDGET, Config
from engine.model import _kernels
from engine.model.families.gguf_tensors import OnRead, tensors_of_gguf
from engine.model.kv_cache import Sequence, SequencePool
from engine.model.native.forward_pass import Array, PassRows
from engine.model.native.loading import (
    CACHE_BYTES,
    CHUNK_TOKENS,
    DTYPES,
    mtp_head,
    native_model,
    use_threads,
)
from engine.model.native.mtp import MtpHead
from engine.model.pooled_target import PooledTarget
from engine.records import Draft, RequestError, Scores
from engine.weights.errors import WeightsError

log = logging.getLogger(__name__)

CHECKED_ROWS = (2, 16, 64, CHUNK_TOKENS)  # rows of passes that are compared with passes of one
NO_MEMORY = "there is no memory left: end what else uses it, or ask for less"


class NativeTarget(PooledTarget):
    """A loaded model, as `engine.model.target.Target`, without torch.

    Logits and hidden states are arrays of f32. One thread at a time; the engine's worker owns it.
    """

    device_type, has_tensors = "cpu", False
    static = None  # passes have no static shape
    head_tile = _kernels.TILE  # tokens whose logits are computed together
    must_be_exact = True  # drafts are refused unless rows are independent

    def __init__(
        self, folder: Path, config: Config, on_read: OnRead = lambda done, total: None
    ) -> None:
        """Load `folder` (a tokenizer and the name of a GGUF file).

        Checks whether the rows of a pass are independent of each other on this machine (`exact`).
        `on_read` is called with the bytes that were read of the file, and all of them.
        UnsupportedModel, WeightsError, ValueError or OSError with one line.
        """
        self.folder, self._lora = folder, config.lora
        self.dtype_name = native_dtype(config.dtype)
        use_threads(config.threads)
        file = tensors_of_gguf(folder, on_read, config.lora)
        if file is None:
            raise WeightsError(f"{folder}: it names no GGUF file: choose one")
        with file:
            self.settings, self.weights_digest = file.settings, file.digest()
            self.model = native_model(folder, file, self.dtype_name, config.kv)
        self.vocab, self.chunk = self.model.vocab, CHUNK_TOKENS
        self.context = min(config.max_context or 1 << 30, self.model.max_positions)
        self.pool = SequencePool(
            self._allocate, max(1, config.cached_sequences), config.cache_bytes or CACHE_BYTES
        )
        self.budget = config.budget or USUAL_BUDGET  # draft nodes of a step
        self.exact = self._has_independent_rows()

    @property
    def device_name(self) -> str:
        """The device as a person would name it."""
        return f"cpu {platform.machine()}"

    # -- sequences -----------------------------------------------------------------------------

    def _allocate(self, source: Sequence, rows: int, capacity: int) -> Sequence:
        """Make a sequence with memory of its own that starts with the first `rows` of `source`."""
        cache = self.model.new_cache(capacity)
        if rows:
            for part, old in zip(cache, source.cache, strict=True):
                part[..., :rows, :] = old[..., :rows, :]
        if source.recurrent is None:
            recurrent = self.model.recurrent_state()
        else:
            recurrent = source.recurrent.copy(rows)
        return Sequence(source.tokens[:rows], cache, None, recurrent)

    # -- passes --------------------------------------------------------------------------------

    def prefill(
        self,
        prompt: list[int],
        capacity: int,
        on_chunk: Callable[[list[int], Array], None] | None = None,
        owner: str = "",
    ) -> Iterator[int]:
        """Read a prompt as `Target.prefill` does."""
        epoch = self.epoch
        while True:
            if self.epoch != epoch:  # another request ran between two chunks
                self.begin(prompt, capacity, owner)
                epoch = self.epoch
            start = len(self.tokens)
            if start >= len(prompt) - 1:
                return
            chunk = prompt[start : min(start + self.chunk, len(prompt) - 1)]
            states = self._run(chunk, [-1, *range(len(chunk) - 1)], committed=True)
            self.tokens.extend(chunk)
            self._checkpoint(start, last=len(self.tokens) == len(prompt) - 1)
            if on_chunk is not None:
                on_chunk(chunk, states)
            yield len(self.tokens)

    def forward(
        self, last: int, draft: Draft, hidden: bool = False, tiles: Array | None = None
    ) -> Scores:
        """Run a pass as `Target.forward` does.

        `tiles`: the logits of other tokens than those in these tiles of `head_tile` may be -inf.
        ValueError where the rows exceed the cache's capacity; on any error the cache is as before.
        """
        parents = [-1, *(parent + 1 for parent in draft.parents)]
        states = self._run([last, *draft.tokens], parents, committed=False)
        scores = Scores(self.model.head(states, tiles), states if hidden else None)
        self.pending = (last, draft)
        return scores

    def keep(self, path: list[int]) -> None:
        """Commit the rows on `path` as `Target.keep` does, and drop those of all other nodes."""
        assert self.pending is not None, "keep without forward"
        last, draft = self.pending
        self.pending = None
        current, base = self.sequence, len(self.tokens) + 1
        if path != list(range(len(path))):
            rows = np.array(path) + base
            for part in current.cache:
                part[..., base : base + len(path), :] = part[..., rows, :]
        if current.recurrent is not None:
            current.recurrent.keep(path)
        current.tokens += [last, *(draft.tokens[node] for node in path)]

    def mtp_head(self) -> MtpHead:
        """Load the layer of its file that predicts the token after the next.

        UnsupportedModel where there is none, or WeightsError.
        """
        return mtp_head(self.folder, self.model, self.dtype_name, self._lora)

    def logits(self, states: Array) -> Array:
        """Compute the logits [rows, vocabulary] of hidden states that `prefill` gave."""
        return self.model.head(states)

    def warm(self) -> Iterator[tuple[int, int]]:
        """Yield nothing, as nothing has to be made before passes are fast."""
        yield from ()

    @contextmanager
    def within(self) -> Iterator[None]:
        """Enter the context of the thread that owns this target."""
        yield

    @contextmanager
    def limited_memory(self) -> Iterator[None]:
        """Turn running out of memory into a RequestError with a remedy, and free memory.

        It frees what later requests can do without: all cached sequences, which are read again
        where needed.
        """
        try:
            yield
        except MemoryError as error:
            self._forget_all()
            raise RequestError(NO_MEMORY) from error

    def _run(self, tokens: list[int], parents: list[int], committed: bool) -> Array:
        """Compute the final hidden states of rows behind the committed ones.

        `committed`: the rows stay.
        """
        current = self.sequence
        base = len(current.tokens)
        self._check_capacity(len(tokens))
        rows = PassRows.of(base, parents)
        ids = np.array(tokens, np.int64)
        return self.model.run(
            ids, rows, current.cache, recurrent=current.recurrent, committed=committed
        )

    def _has_independent_rows(self) -> bool:
        """Check whether rows get the same bits alone and in passes of CHECKED_ROWS rows.

        It runs the first layers, which have every kind of block, and the head, and logs one line if
        not.
        """
        most = min(CHUNK_TOKENS, self.model.max_positions)
        ids = np.arange(1, most + 1, dtype=np.int64) * 7919 % self.vocab
        scratch = Sequence()

        def states(start: int, stop: int) -> Array:
            nonlocal scratch
            if start == 0:
                scratch = self._allocate(Sequence(), 0, most)
            rows = PassRows.of(start, [-1, *range(stop - start - 1)])
            layers, state = self.model.checked_layers, scratch.recurrent
            return self.model.run(
                ids[start:stop], rows, scratch.cache, layers, state, committed=True
            )

        alone = np.concatenate([states(n, n + 1) for n in range(min(3, most))])
        logits = np.concatenate([self.model.head(alone[n : n + 1]) for n in range(len(alone))])
        same = True
        for count in sorted({min(rows, most) for rows in CHECKED_ROWS}):
            together, few = states(0, count), min(count, 3)
            same &= np.array_equal(together[:few], alone[:few])
            if count <= 16:
                same &= np.array_equal(self.model.head(together)[:few], logits[:few])
        if not same:
            log.warning(
                "this machine's kernels round by shape (%s): decoding plainly, so that "
                "speculation cannot change the answer",
                self.dtype_name,
            )
        return bool(same)


def native_dtype(name: str) -> str:
    """Return the number format of a `Config.dtype` here. ValueError for one of other kernels."""
    dtype = "stored" if name == "auto" else name
    if dtype not in DTYPES:
        raise ValueError(f"dtype {name!r}: choose auto, q8 or q4 to run without torch")
    return dtype
