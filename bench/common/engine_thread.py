"""Run code in an engine's own thread, where nothing else uses the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from engine import Done, Engine, Request
from engine.records import Event
from engine.worker import Job

T = TypeVar("T")


def in_engine_thread(engine: Engine, work: Callable[[], T]) -> T:
    """Run `work` in the engine's thread after the jobs submitted before.

    Returns its result. Raises RuntimeError if the job failed.
    """
    found: list[T] = []

    def run(cancelled: Callable[[], bool]) -> Iterator[Event]:
        found.append(work())
        yield Done("stop")

    done = engine.worker.submit(Job(Request("chat"), run)).result()
    if not found:
        raise RuntimeError(done.error or done.reason)
    return found[0]
