"""A background thread that compacts an index shortly after it changed."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable

from index._core import stop_builds

log = logging.getLogger(__name__)


class Compactor:
    """Runs `work` on its own thread, once for any number of requests made before it starts.

    `work` may return a number of seconds after which it wants to run again. The thread starts with
    the first request.
    """

    def __init__(self, work: Callable[[], float | None]) -> None:
        self._work = work
        self._wake = threading.Event()
        self._closing = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def request(self) -> None:
        """Run `work` soon. Ignored after `close`."""
        with self._lock:
            if self._thread is None and not self._closing:
                self._thread = threading.Thread(target=self._run, name="compactor", daemon=True)
                self._thread.start()
                atexit.register(self._abort)
        self._wake.set()

    def close(self) -> None:
        """Start no more work, without waiting for what is running; see `join`."""
        with self._lock:
            self._closing = True
        self._wake.set()

    def join(self) -> None:
        """Close, and block until running work has ended."""
        self.close()
        if self._thread:
            self._thread.join()

    def _abort(self) -> None:
        """Stop at exit: the interpreter must not end under running native code."""
        stop_builds(True)
        try:
            self.join()
        finally:
            stop_builds(False)

    def _run(self) -> None:
        delay: float | None = None
        while True:
            self._wake.wait(delay)
            self._wake.clear()
            if self._closing:
                atexit.unregister(self._abort)
                return
            delay = None
            try:
                delay = self._work()
            except Exception as error:  # the next change tries again
                if not self._closing:
                    name = type(error).__name__
                    log.warning("cannot compact or save the index: %s: %s", name, error)
