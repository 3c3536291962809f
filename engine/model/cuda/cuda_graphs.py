"""The passes of one model, captured as CUDA graphs: one for each bucket of rows.

A request never waits for Triton: its kernels are compiled in a thread, on buffers and a stream of
its own. Then passes are captured while nothing is asked, or by a request that uses a bucket again
and again (tenths of a second each). Whatever fails here is logged once, and passes that are not
captured are launched step by step.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from engine.model.cuda.static_forward import Said, Static

log = logging.getLogger(__name__)

BUCKETS = (1, 2, 4, 8, 16, 32, 64)
MOST = BUCKETS[-1]
FIRST = (1, 16, 8, 4, 32, 2, 64)  # the order in which they are captured
PATIENCE = 8  # passes of a bucket, launched step by step, before a request captures it
PROMPTS = (1, 2, 4, 8, 16, 32, 64, 256)  # tokens of a prompt that kernels are compiled for
TURN = 0.05  # seconds that a turn waits for the compiler
COMPILING = threading.Lock()  # one model's kernels at a time


class Graphs:
    """What is captured, and what makes it. One thread at a time, as the model."""

    def __init__(self, static: Static) -> None:
        """Compile the small steps in the background, if they are not in use already. (`static` is
        handed in again and again, not kept: both would go only when garbage is collected.)"""
        self.on = True  # False: nothing more is captured
        self.captured: dict[int, tuple[Any, Said]] = {}
        self._uses: Counter[int] = Counter()
        self._embedding: Tensor | None = None  # that captured passes read
        self._pool: Any = None
        self._compiler: threading.Thread | None = None
        if not static.ready:
            # No daemon: one that is cut off within CUDA would take the process down at its end.
            self._compiler = threading.Thread(
                target=self._compile, args=(static,), name="draftline-compile"
            )
            self._compiler.start()

    def replay(self, bucket: int) -> Said | None:
        """What the captured pass of a bucket says of the inputs that were sent; None: there is
        none."""
        graph, said = self.captured.get(bucket, (None, None))
        if graph is not None:
            graph.replay()
        return said

    def use(self, static: Static, bucket: int) -> None:
        """A request is about to run a pass of this bucket: captured where it often does. To be
        called before its inputs are sent."""
        if self._embedding is not static.model.embedding:
            self._forget(static)
        if self.on and static.ready and bucket not in self.captured:
            self._uses[bucket] += 1
            if self._uses[bucket] >= PATIENCE:
                self.capture(static, bucket)

    def warm(self, static: Static) -> Iterator[tuple[int, int]]:
        """Capture what is not captured, a bucket or a moment of waiting a turn: (captured, of)."""
        while self._compiler is not None and self._compiler.is_alive():
            self._compiler.join(TURN)
            yield len(self.captured), len(BUCKETS)
        for bucket in FIRST:
            if self._embedding is not static.model.embedding:
                self._forget(static)
            if self.on and static.ready and bucket not in self.captured:
                self.capture(static, bucket)
            yield len(self.captured), len(BUCKETS)

    def _forget(self, static: Static) -> None:
        """Words were put behind the model's own: a graph would go on reading where they are not."""
        self.captured.clear()
        self._embedding = static.model.embedding

    @torch.inference_mode()
    def capture(self, static: Static, bucket: int) -> None:
        """Make the graph of a bucket, on a cache of its own. Where that fails nothing more is
        captured, which is logged."""
        start, stream = perf_counter(), torch.cuda.current_stream(static.device)
        try:
            self._capture(static, bucket)
        except Exception as error:  # CUDA's, Triton's and cuBLAS's have no class in common
            torch.cuda.set_stream(stream)  # a capture that breaks off leaves its own in use
            self._stop(f"steps of {bucket} rows are not captured", error)
            return
        log.info(
            "captured steps of %d rows in %.1f s (%d of %d)",
            bucket, perf_counter() - start, len(self.captured), len(BUCKETS),
        )  # fmt: skip

    def _capture(self, static: Static, bucket: int) -> None:
        device = static.device
        keys, values = static.scratch()
        now = static.filled([0] * bucket, list(range(-1, bucket - 1)), keys, values, MOST, bucket)
        aside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(aside):  # lets libraries choose kernels and take their memory
            for _ in range(2):
                static.run(now)
        torch.cuda.synchronize(device)
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        # Only this thread must do nothing that a capture forbids; others may use the card.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            said = static.run(now)
        self.captured[bucket] = graph, said

    @torch.inference_mode()
    def _compile(self, static: Static) -> None:
        """Every variant of every kernel: seconds each, unless Triton has kept it on disk."""
        start, device = perf_counter(), static.device
        log.info("compiling the steps of a pass in the background")
        try:
            aside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            with COMPILING, torch.cuda.device(device), torch.cuda.stream(aside):
                own = static.twin()
                keys, values = own.scratch()
                for bucket in FIRST:
                    if not threading.main_thread().is_alive():
                        return  # the process ends
                    own.step([0] * bucket, list(range(-1, bucket - 1)), keys, values, MOST)
                for count in PROMPTS:
                    if count <= keys.shape[2]:
                        own.read([0] * count, keys, values, 0)
                aside.synchronize()
        except Exception as error:  # Triton's, its compiler's and CUDA's have no class in common
            self._stop("Triton's kernels cannot be used", error)
            return
        log.info("compiled the steps of a pass in %.1f s", perf_counter() - start)
        static.ready = True

    def _stop(self, what: str, error: Exception) -> None:
        self.on = False
        log.warning(
            "%s, so steps are launched one by one, slower: %s", what,
            " ".join(str(error).split())[:200] or type(error).__name__,
        )  # fmt: skip
