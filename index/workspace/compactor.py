"""A thread that does some work soon after it was asked to."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)


class Tender:
    """Calls `work` once after any number of `soon`, and again after the seconds that it says, if it
    does. The thread starts with the first `soon`."""

    def __init__(self, work: Callable[[], float | None]) -> None:
        self._work = work
        self._wake = threading.Event()
        self._closing = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def soon(self) -> None:
        """The work is due."""
        with self._lock:
            if self._thread is None and not self._closing:
                self._thread = threading.Thread(target=self._run, name="index", daemon=True)
                self._thread.start()
        self._wake.set()

    def close(self) -> None:
        """End the thread; the work it does now is finished, no other is begun."""
        with self._lock:
            self._closing = True
        self._wake.set()
        if self._thread:
            self._thread.join()

    def _run(self) -> None:
        pause: float | None = None
        while True:
            self._wake.wait(pause)
            self._wake.clear()
            if self._closing:
                return
            pause = None
            try:
                pause = self._work()
            except Exception as error:  # whatever it is: the next change tries again
                log.warning(
                    "the index was not merged or saved: %s: %s", type(error).__name__, error
                )
