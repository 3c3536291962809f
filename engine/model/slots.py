"""The slots in which engines of one process compute: one at a time, for the most urgent job.

The engines share the processors.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

POLL_SECONDS = 0.02  # seconds between two checks whether a job that waits was cancelled


class Slots:
    """Slots, each for one step of a job. A smaller urgency goes first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._urgencies: Counter[int] = Counter()  # one for each job that runs or waits
        self._is_taken = False

    @contextmanager
    def job(self, urgency: int) -> Iterator[None]:
        """Pause less urgent jobs of other engines until this one has ended."""
        with self._changed:
            self._urgencies[urgency] += 1
        try:
            yield
        finally:
            with self._changed:
                self._urgencies[urgency] -= 1
                self._urgencies += Counter()  # drops zeros
                self._changed.notify_all()

    @contextmanager
    def slot(self, urgency: int, stop: Callable[[], bool]) -> Iterator[None]:
        """Hold the slot for one step of such a job.

        Waits while another engine computes, or has a more urgent job. A job that `stop` ends need
        not wait for more urgent ones.
        """
        with self._changed:
            while self._is_taken or (urgency > min(self._urgencies) and not stop()):
                self._changed.wait(None if self._is_taken else POLL_SECONDS)
            self._is_taken = True
        try:
            yield
        finally:
            with self._changed:
                self._is_taken = False
                self._changed.notify_all()
