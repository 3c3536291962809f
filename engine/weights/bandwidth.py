"""The memory bandwidth of this machine, which bounds how fast a model writes without drafts.

A pass over one token reads each active weight once, so its time is at least their bytes over the
bandwidth.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from time import perf_counter

import numpy as np

BLOCK_BYTES = 32 << 20  # bytes that a thread reads: more than its share of the processor's caches
MAX_THREADS = 8  # threads; on most machines fewer use up the bandwidth
MAX_SECONDS = 0.1  # seconds of reading, after one round


@cache
def bandwidth() -> float:
    """Measure the bytes per second that all cores read from memory; the fastest of some rounds."""
    threads = min(os.cpu_count() or 1, MAX_THREADS)
    with ThreadPoolExecutor(threads) as pool:
        blocks = [*pool.map(lambda _: np.ones(BLOCK_BYTES // 4, np.int32), range(threads))]
        best, ends = float("inf"), perf_counter() + MAX_SECONDS
        while best == float("inf") or perf_counter() < ends:
            start = perf_counter()
            list(pool.map(np.max, blocks))
            best = min(best, perf_counter() - start)
    return threads * BLOCK_BYTES / best
