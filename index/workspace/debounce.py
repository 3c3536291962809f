"""Debouncing: collects paths that may have changed and reports them in batches from one thread."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

logger = logging.getLogger(__name__)

OnChange = Callable[[set[Path] | None], None]  # paths that may have changed; None: any may have

MAX_BATCH_PATHS = 5000  # paths; a larger batch becomes a full scan
RESCAN_COST_FACTOR = 20  # times the duration of a full scan pass before the next one


class Debouncer:
    """Calls `on_change` with the paths noted so far, from a thread of its own, one call at a time.

    A batch is reported `quiet_s` after its last path, or `max_delay_s` after its first one. None,
    a full scan, is reported every `rescan_s`, and soon after `on_change` raised an exception.
    `heartbeat` runs before each report, and every `heartbeat_s`. Between two calls of `use` no
    more than one heartbeat or full scan is due: what nobody uses wakes nobody up.
    """

    def __init__(
        self,
        on_change: OnChange,
        heartbeat: Callable[[], None],
        quiet_s: float,
        max_delay_s: float,
        rescan_s: float,
        heartbeat_s: float,
    ) -> None:
        self.rescan_s = rescan_s  # may be set at any time
        self._on_change, self._heartbeat = on_change, heartbeat
        self._quiet_s, self._max_delay_s, self._heartbeat_s = quiet_s, max_delay_s, heartbeat_s
        self._noted = threading.Condition()  # guards the next three lines
        self._paths: set[str] = set()
        self._everything = self._stopping = False
        self._first = self._last = math.inf  # times of the batch's first and last path
        self._heartbeat_at = self._rescanned_at = 0.0  # times of the last ones
        self._rescan_cost = 0.0  # seconds that the last full scan took
        self._failed = False
        self._is_used = False  # since the last heartbeat
        self._thread: threading.Thread | None = None

    def note(self, path: str | None) -> None:
        """Add a path, including everything below it, to the batch; None: everything. Any thread."""
        with self._noted:
            if path is None:
                self._everything = True
            elif len(self._paths) <= MAX_BATCH_PATHS and not _is_below(path, self._paths):
                self._paths.add(path)
            self._last = time.monotonic()
            if self._first == math.inf:
                self._first = self._last
                self._noted.notify()

    def use(self) -> None:
        """Note that somebody relies on the reports: the next heartbeat or full scan is due."""
        if not self._is_used:
            with self._noted:
                self._is_used = True
                self._noted.notify()

    def start(self) -> None:
        self._take()
        self._stopping = False
        self._heartbeat_at = self._rescanned_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="debouncer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Drop the batch. Blocks until a running `on_change` has returned."""
        if self._thread is not None:
            with self._noted:
                self._stopping = True
                self._noted.notify()
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while True:
            with self._noted:
                while not self._stopping and (wait := self._due() - time.monotonic()) > 0:
                    self._noted.wait(None if wait == math.inf else wait)
                if self._stopping:
                    return
            now = time.monotonic()
            ready = now >= min(self._batch_at(), self._rescan_at())
            if now >= self._rescan_at():
                self.note(None)
            batch = self._take() if ready else set()
            self._is_used = False
            self._heartbeat()
            self._heartbeat_at = time.monotonic()
            if ready:
                self._report(batch)

    def _due(self) -> float:
        """Compute when to wake up; never, while nothing is noted and nobody uses the reports."""
        heartbeat_at = self._heartbeat_at + self._heartbeat_s if self._is_used else math.inf
        return min(heartbeat_at, self._rescan_at(), self._batch_at())

    def _batch_at(self) -> float:
        return min(self._last + self._quiet_s, self._first + self._max_delay_s)

    def _rescan_at(self) -> float:
        if not (self._is_used or self._failed):
            return math.inf
        every = min(self.rescan_s, self._heartbeat_s) if self._failed else self.rescan_s
        return self._rescanned_at + max(every, RESCAN_COST_FACTOR * self._rescan_cost)

    def _take(self) -> set[Path] | None:
        """End the batch and return it."""
        with self._noted:
            paths = self._paths
            everything = self._everything or len(paths) > MAX_BATCH_PATHS
            self._paths, self._everything = set(), False
            self._first = self._last = math.inf
        return None if everything else {Path(path) for path in paths if not _is_below(path, paths)}

    def _report(self, batch: set[Path] | None) -> None:
        started = time.monotonic()
        try:
            self._on_change(batch)
        except Exception as error:
            logger.error("cannot process a change, rescanning: %s: %s", type(error).__name__, error)
            self._failed = True
            self._rescanned_at = time.monotonic()
        else:
            self._failed = self._failed and batch is not None
        if batch is None:
            self._rescanned_at = time.monotonic()
            self._rescan_cost = self._rescanned_at - started


def _is_below(path: str, paths: set[str]) -> bool:
    """Return whether an ancestor of the path is among the paths."""
    end = path.rfind(os.sep)
    while end > 0:
        if path[:end] in paths:
            return True
        end = path.rfind(os.sep, 0, end)
    return False
