"""The engine that all clients of this process share: loaded in the background, replaced when
another model is asked for. It knows nothing of the protocol.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.engine import Engine

log = logging.getLogger(__name__)

Listener = Callable[[], None]  # something changed; from any thread
Told = Callable[[str, int, int], None]  # progress: (what, done, of)


class NotReady(Exception):
    """Nothing can be asked of the model now; the message says why."""


class Assistant:
    """States: "idle" (nothing asked for), "loading", "ready", "error". `message` says more."""

    def __init__(self, model: str | None = None) -> None:
        """`model` counts in place of what clients ask for."""
        self.state = "idle"
        self.message = ""
        self.engine: Engine | None = None
        self.clients = 0
        self.listeners: list[Listener] = []
        self.progress: list[Told] = []
        self._model = model
        self._wanted: tuple[str, str] | None = None  # model and device
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def model(self) -> str:
        return self._wanted[0] if self._wanted else ""

    def load(self, model: str, device: str) -> str | None:
        """See to it that this model is loaded, or will be; returns at once. The reason why not,
        where other clients use another one."""
        wanted = (self._model or model, device)
        with self._lock:
            if self._closed or (wanted == self._wanted and self.state != "error"):
                return None
            if self._wanted and self.clients > 1 and self.state != "error":
                return f"this server runs {self.model} for others, too: start one for {wanted[0]}"
            self._wanted = wanted
            self.state, self.message = "loading", f"loading {wanted[0]}"
            before = self._thread
            self._thread = threading.Thread(
                target=self._load, args=(wanted, before), name="loading", daemon=True
            )
            self._thread.start()
        self._tell()
        return None

    def close(self, timeout: float) -> None:
        """Cancel what runs; wait for the model's thread, but not longer than `timeout` seconds."""
        with self._lock:
            self._closed = True
            engine, self.engine = self.engine, None
        if engine:
            closing = threading.Thread(target=engine.close, daemon=True)
            closing.start()
            closing.join(timeout)

    def _load(self, wanted: tuple[str, str], before: threading.Thread | None) -> None:
        from engine import Config, Engine

        if before:
            before.join()
        with self._lock:
            old, self.engine = self.engine, None
        if old:
            old.close()
        engine, state, message = None, "ready", ""
        try:
            engine = Engine(Config(model=wanted[0], device=wanted[1]), self.report)
        except Exception as error:  # whatever it is, the server lives on and says so
            log.debug("the model was not loaded", exc_info=error)
            state, message = "error", " ".join(f"{wanted[0]}: {error}".split())
        with self._lock:
            if wanted != self._wanted or self._closed:
                stale = engine
            else:
                self.engine, self.state, self.message, stale = engine, state, message, None
        if stale:
            stale.close()
        self._tell()

    def report(self, what: str, done: int, of: int) -> None:
        """Progress of loading or indexing; from any thread."""
        for told in list(self.progress):
            told(what, done, of)

    def _tell(self) -> None:
        for listener in list(self.listeners):
            listener()
