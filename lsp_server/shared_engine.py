"""The engine that all clients of this process share: loaded in the background, and replaced when
another model is configured. Independent of the protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from engine.engine import Engine

log = logging.getLogger(__name__)

State = Literal["idle", "loading", "ready", "error"]  # idle: no client has configured a model yet
Listener = Callable[[], None]  # the state changed; called from any thread
OnProgress = Callable[[str, int, int], None]  # (what, done, total)


class NotReady(Exception):
    """There is no model, and none is being loaded; the message says why."""


class Superseded(NotReady):
    """A request was cancelled while it waited for the model."""


class SharedEngine:
    """Its `state`, and a `message` for the user about it."""

    def __init__(self, model: str | None = None) -> None:
        """`model` overrides what clients configure."""
        self.state: State = "idle"
        self.message = ""
        self.engine: Engine | None = None
        self.clients = 0
        self.loads = 0  # that were started
        self.listeners: list[Listener] = []
        self.progress: list[OnProgress] = []
        self._model = model
        self._wanted: tuple[str, str] | None = None  # model and device
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def model(self) -> str:
        """The configured model, loaded or not."""
        return self._wanted[0] if self._wanted else ""

    def load(self, model: str, device: str) -> str | None:
        """Start loading a model unless it is in use already. Returns the reason if other clients
        use another model."""
        wanted = (self._model or model, device)
        with self._lock:
            if self._closed or (wanted == self._wanted and self.state != "error"):
                return None
            if self._wanted and self.clients > 1 and self.state != "error":
                return f"this server runs {self.model} for others, too: start one for {wanted[0]}"
            self._wanted = wanted
            self.loads += 1
            self.state, self.message = "loading", f"loading {wanted[0]}"
            previous = self._thread
            self._thread = threading.Thread(
                target=self._load, args=(wanted, previous), name="loading", daemon=True
            )
            self._thread.start()
        self._notify()
        return None

    @property
    def loaded(self) -> Engine | None:
        """The engine of the configured model, if it is loaded."""
        return self.engine if self.state == "ready" else None

    @property
    def is_pending(self) -> bool:
        """Whether the model is yet to be loaded or to fail."""
        return self.state in ("idle", "loading")

    async def ready(self) -> Engine:
        """The engine, once it is loaded. Raises NotReady if that failed, and after `close`."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(changed.set)

        self.listeners.append(wake)
        try:
            while True:
                changed.clear()
                with self._lock:
                    if self._closed:
                        raise NotReady("the server is shutting down")
                    if self.state == "error":
                        raise NotReady(self.message)
                    if self.loaded is not None:
                        return self.loaded
                await changed.wait()
        finally:
            self.listeners.remove(wake)

    def close(self, timeout: float) -> None:
        """Cancel all jobs and wait up to `timeout` seconds for the model's thread."""
        with self._lock:
            self._closed = True
            engine, self.engine = self.engine, None
        self._notify()
        if engine:
            closing = threading.Thread(target=engine.close, daemon=True)
            closing.start()
            closing.join(timeout)

    def report(self, what: str, done: int, total: int) -> None:
        """Pass on the progress of loading or indexing; from any thread."""
        for listener in list(self.progress):
            listener(what, done, total)

    def _load(self, wanted: tuple[str, str], previous: threading.Thread | None) -> None:
        if previous:
            previous.join()
        with self._lock:
            old, self.engine = self.engine, None
        if old:
            old.close()
        engine: Engine | None = None
        state: State = "ready"
        message = ""
        try:
            from engine import Config, Engine

            engine = Engine(Config(model=wanted[0], device=wanted[1]), self.report)
        except Exception as error:  # the server keeps running, and reports it
            log.debug("the model was not loaded", exc_info=error)
            state, message = "error", " ".join(f"{wanted[0]}: {error}".split())
        with self._lock:
            is_current = wanted == self._wanted and not self._closed
            if is_current:
                self.engine, self.state, self.message = engine, state, message
        if engine and not is_current:
            engine.close()
        self._notify()

    def _notify(self) -> None:
        for listener in list(self.listeners):
            listener()
