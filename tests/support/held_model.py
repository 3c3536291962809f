"""Blocks an engine's worker, so that a test decides what happens before a request is answered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine.engine import Engine
from engine.records import Done, Event, Request
from engine.worker import Job

TIMEOUT_S = 180  # a backstop


@contextmanager
def held(engine: Engine | None) -> Iterator[None]:
    """Requests to an idle engine stay in the queue until the context ends."""
    assert engine is not None
    is_held, release = threading.Event(), threading.Event()

    def wait(is_cancelled: Callable[[], bool]) -> Iterator[Event]:
        is_held.set()
        assert release.wait(TIMEOUT_S)
        yield Done("stop")

    engine.worker.submit(Job(Request("complete"), wait, "a test"))
    assert is_held.wait(TIMEOUT_S)
    try:
        yield
    finally:
        release.set()
