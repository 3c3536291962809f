"""The forward passes of one model as CUDA graphs, one for each bucket of rows.

Passes that read prompts have graphs of their own (`Static.read_sizes`).

A request never waits for Triton: kernels are compiled in a thread, on buffers and a stream of its
own. Then passes are captured while the engine is idle, or by a request that uses a bucket often
(tenths of a second each). A failure is logged once; passes without a graph are launched kernel by
kernel.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from engine.model.torch.cuda.current_card import current
from engine.model.torch.cuda.static_pass import MAX_ROWS, PassOutput
from engine.records import Draft

if TYPE_CHECKING:
    from engine.model.torch.cuda.static_forward import Static

log = logging.getLogger(__name__)
R = TypeVar("R")

CAPTURE_ORDER = (1, 16, 8, 4, 32, 2, 64, 128, 256)  # rows of the buckets, the most useful first
CAPTURE_AFTER_USES = 8  # passes of a bucket before a request captures it
WAIT_SECONDS = 0.05  # seconds for the compiler, per step
COMPILING = threading.Lock()  # held to compile one model's kernels at a time


class CudaGraphs:
    """The captured passes. One thread at a time, as for the model."""

    def __init__(self, static: Static) -> None:
        """Compile the fused kernels in the background unless they are compiled.

        `static` is passed to every method and not kept, which would be a reference cycle.
        """
        self.on = True  # False: nothing more is captured
        self.captured: dict[int, tuple[Any, PassOutput]] = {}
        self.reading: dict[int, tuple[Any, Tensor]] = {}  # those that read prompts, by rows
        self._uses: Counter[tuple[int, bool]] = Counter()
        self._embedding: Tensor | None = None  # the one that the captured passes read
        self._pool: Any = None  # memory, which all of them share
        self._stream: Any = None  # one to capture on; each leaves workspaces of libraries behind
        self._compiler: threading.Thread | None = None
        if not static.ready:
            # Not a daemon: a thread cut off inside CUDA would crash the process at its end.
            self._compiler = threading.Thread(
                target=self._compile, args=(static,), name="draftline-compile"
            )
            self._compiler.start()

    def replay(self, bucket: int) -> PassOutput | None:
        """Run the captured pass of a bucket on the inputs sent; None where there is none."""
        graph, output = self.captured.get(bucket, (None, None))
        if graph is not None:
            graph.replay()
        return output

    def replay_read(self, rows: int) -> Tensor | None:
        """Run the captured pass that reads so many rows of a prompt; None where there is none."""
        graph, states = self.reading.get(rows, (None, None))
        if graph is not None:
            graph.replay()
        return states

    def use(self, static: Static, bucket: int) -> None:
        """Count a use of this bucket and capture it if it is used often.

        It is to be called before the inputs are sent.
        """
        self._count(static, bucket, False)

    def use_read(self, static: Static, rows: int) -> None:
        """Count a use of the pass that reads so many rows, as `use` does."""
        self._count(static, rows, True)

    def _count(self, static: Static, rows: int, reads: bool) -> None:
        if self._lacks(static, rows, reads):
            self._uses[rows, reads] += 1
            if self._uses[rows, reads] >= CAPTURE_AFTER_USES:
                self.capture(static, rows, reads)

    def _lacks(self, static: Static, rows: int, reads: bool) -> bool:
        """Return whether this pass is to be captured and is not yet."""
        if self._embedding is not static.model.embedding:
            self._forget(static)
        return self.on and static.ready and rows not in (self.reading if reads else self.captured)

    def warm(self, static: Static) -> Iterator[tuple[int, int]]:
        """Wait for the compiler, then capture the missing buckets, one per step.

        Yields (captured, total).
        """
        passes = passes_of(static)
        while self._compiler is not None and self._compiler.is_alive():
            self._compiler.join(WAIT_SECONDS)
            yield self._done(), len(passes)
        for rows, reads in passes:
            if self._lacks(static, rows, reads):
                self.capture(static, rows, reads)
            yield self._done(), len(passes)

    def _done(self) -> int:
        return len(self.captured) + len(self.reading)

    def _forget(self, static: Static) -> None:
        """Drop all graphs: rows were added to the embedding, and they read the old one.

        Their pool ends with them: torch captures into no pool that has lost all its graphs.
        """
        self.captured.clear()
        self.reading.clear()
        self._pool = None
        self._embedding = static.model.embedding

    @torch.inference_mode()
    def capture(self, static: Static, rows: int, reads: bool = False) -> None:
        """Capture the graph of a bucket, or of a pass that reads a prompt, on a scratch cache.

        After a failure, which is logged, nothing more is captured.
        """
        start, stream = perf_counter(), torch.cuda.current_stream(static.device)
        try:
            with current(static.device):
                self._capture(static, rows, reads)
        except Exception as error:  # CUDA's, Triton's and cuBLAS's have no class in common
            torch.cuda.set_stream(stream)  # a broken capture leaves its own stream current
            self._stop(f"passes of {rows} rows cannot be captured", error)
            return
        log.info(
            "captured passes of %d rows in %.1f s (%d of %d)",
            rows, perf_counter() - start, self._done(), len(passes_of(static)),
        )  # fmt: skip

    def _capture(self, static: Static, rows: int, reads: bool) -> None:
        cache = static.scratch()
        if reads:
            static.send_prompt([0], cache, 0, rows)
            prompt = static.sent_prompt(1, cache, 0, rows)
            self.reading[rows] = self._recorded(static.device, partial(static.run_read, prompt))
            return
        draft = chain_of(rows)
        static.send(0, draft, cache, MAX_ROWS)
        now = static.sent(draft, cache, MAX_ROWS, rows)
        graph, output = self._recorded(static.device, partial(static.run, now))
        self.captured[rows] = graph, output
        graph.replay()  # which gives logits
        static.draw_each_way(output)

    def _recorded(self, device: torch.device, run: Callable[[], R]) -> tuple[Any, R]:
        """Capture what `run` launches; returns the graph and the outputs that it writes."""
        if self._stream is None:
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(self._stream):  # libraries choose kernels and allocate
            for _ in range(2):
                run()
        torch.cuda.synchronize(device)
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        # Thread-local: other threads may use the card meanwhile.
        with torch.cuda.graph(
            graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
        ):
            output = run()
        return graph, output

    @torch.inference_mode()
    def _compile(self, static: Static) -> None:
        """Compile every variant of every kernel: seconds each unless Triton has them on disk."""
        start, device = perf_counter(), static.device
        log.info("compiling kernels in the background")
        try:
            aside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            with COMPILING, current(device), torch.cuda.stream(aside):
                own = static.twin()
                cache = own.scratch()
                own.read([0], cache, 0, layers=1)
                for rows, reads in passes_of(static):
                    if not threading.main_thread().is_alive():
                        return  # the process ends
                    if reads:
                        own.send_prompt([0], cache, 0, rows)
                        own.run_read(own.sent_prompt(1, cache, 0, rows))
                    else:
                        own.draw_each_way(own.step(0, chain_of(rows), cache, MAX_ROWS))
                aside.synchronize()
        except Exception as error:  # Triton's, its compiler's and CUDA's have no class in common
            self._stop("Triton's kernels cannot be used", error)
            return
        log.info("compiled kernels in %.1f s", perf_counter() - start)
        static.ready = True

    def _stop(self, what: str, error: Exception) -> None:
        self.on = False
        log.warning(
            "%s: kernels are launched one by one, which is slower: %s", what,
            " ".join(str(error).split())[:200] or type(error).__name__,
        )  # fmt: skip


def chain_of(rows: int) -> Draft:
    """Make the draft that fills a pass of `rows` rows behind a first token."""
    return Draft([0] * (rows - 1), [*range(-1, rows - 2)])


def buckets_of(static: Static) -> list[int]:
    """List the buckets of a model's passes, the most useful first."""
    return [size for size in CAPTURE_ORDER if size <= static.rows]


def passes_of(static: Static) -> list[tuple[int, bool]]:
    """List the passes of a model by their rows and whether they read a prompt.

    The most useful come first. Those that read prompts are captured from the widest down, so that
    the others fit in its memory.
    """
    drafts = [(size, False) for size in buckets_of(static)]
    return [*drafts, *((size, True) for size in reversed(static.read_sizes))]
