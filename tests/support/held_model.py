"""Blocks an engine's worker, so that a test decides what happens before a request is answered, or
before its answer ends."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from engine.engine import Engine
from engine.records import Done, Event, Request, Step
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


@contextmanager
def unfinished(engine: Engine | None) -> Iterator[None]:
    """In the context, an answer that has begun goes on only once it is cancelled."""
    assert engine is not None
    put = Job.put

    def put_and_wait(job: Job, event: Event) -> None:
        put(job, event)
        while isinstance(event, Step) and event.text and not job.cancelled():
            if engine.worker._closed:
                break
            time.sleep(0.002)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "put", put_and_wait)
        yield


@contextmanager
def held_at_step(number: int) -> Iterator[None]:
    """In the block, an answer waits behind this step, so that none ends before the test has
    acted."""
    over, steps, put = threading.Event(), Counter[Job](), Job.put

    def put_and_wait(job: Job, event: Event) -> None:
        put(job, event)
        steps[job] += isinstance(event, Step)
        if steps[job] == number:
            assert over.wait(TIMEOUT_S)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "put", put_and_wait)
        try:
            yield
        finally:
            over.set()
