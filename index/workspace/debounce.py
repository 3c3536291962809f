"""Gathers paths that may have changed and tells them in batches, from one thread.

It knows nothing of where the news comes from, and reads no file.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

logger = logging.getLogger(__name__)

Changed = Callable[[set[Path] | None], None]  # what may have changed; None: anything may have

MANY = 5000  # paths of a batch above which looking at everything is no dearer
SHARE = 20  # a look at everything that takes a second is not repeated within this many


class Batches:
    """Calls `changed` with what was noted, `quiet` seconds after the last note or `most` after the
    first, and with None `every` seconds; never while it still runs. `attend` is called before each
    call, and every `attend_every` seconds. After an exception of `changed` there is a None soon."""

    def __init__(
        self,
        changed: Changed,
        attend: Callable[[], None],
        quiet: float,
        most: float,
        every: float,
        attend_every: float,
    ) -> None:
        self.every = every  # may be set at any time
        self._changed, self._attend = changed, attend
        self._quiet, self._most, self._attend_every = quiet, most, attend_every
        self._news = threading.Condition()  # guards the three lines that follow
        self._paths: set[str] = set()
        self._everything = self._stopping = False
        self._first = self._last = math.inf  # times of the batch's first and last note
        self._attended = self._looked = 0.0  # when it was last attended to, and None was told
        self._cost = 0.0  # seconds that None took
        self._failed = False
        self._thread: threading.Thread | None = None

    def note(self, path: str | None) -> None:
        """A path, with all below it, may have changed; None: anything may have. From any thread."""
        with self._news:
            if path is None:
                self._everything = True
            elif len(self._paths) <= MANY and not _is_below(path, self._paths):
                self._paths.add(path)
            self._last = time.monotonic()
            if self._first == math.inf:
                self._first = self._last
                self._news.notify()

    def start(self) -> None:
        self._take()
        self._stopping = False
        self._attended = self._looked = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="batches", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Returns when a running call has; none follows."""
        if self._thread is not None:
            with self._news:
                self._stopping = True
                self._news.notify()
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while True:
            with self._news:
                while not self._stopping and (wait := self._due() - time.monotonic()) > 0:
                    self._news.wait(wait)
                if self._stopping:
                    return
            now = time.monotonic()
            ready = now >= min(self._batch_at(), self._look_at())
            if now >= self._look_at():
                self.note(None)
            batch = self._take() if ready else set()
            self._attend()
            self._attended = time.monotonic()
            if ready:
                self._tell(batch)

    def _due(self) -> float:
        return min(self._attended + self._attend_every, self._look_at(), self._batch_at())

    def _batch_at(self) -> float:
        return min(self._last + self._quiet, self._first + self._most)

    def _look_at(self) -> float:
        every = min(self.every, self._attend_every) if self._failed else self.every
        return self._looked + max(every, SHARE * self._cost)

    def _take(self) -> set[Path] | None:
        """The batch so far; the next one begins."""
        with self._news:
            paths, everything = self._paths, self._everything or len(self._paths) > MANY
            self._paths, self._everything = set(), False
            self._first = self._last = math.inf
        return None if everything else {Path(path) for path in paths if not _is_below(path, paths)}

    def _tell(self, batch: set[Path] | None) -> None:
        started = time.monotonic()
        try:
            self._changed(batch)
        except Exception as error:
            logger.error("a change was not taken in: %s: %s", type(error).__name__, error)
            self._failed = True
            self._looked = time.monotonic()
        else:
            self._failed = self._failed and batch is not None
        if batch is None:
            self._looked = time.monotonic()
            self._cost = self._looked - started


def _is_below(path: str, paths: set[str]) -> bool:
    """Whether a folder around the path is among the paths."""
    end = path.rfind(os.sep)
    while end > 0:
        if path[:end] in paths:
            return True
        end = path.rfind(os.sep, 0, end)
    return False
