"""The thread that owns the model: jobs in, events out, the most urgent first.

A request that is more urgent runs between two steps of one that is less so; cancelling takes
effect between two passes. An error ends its own job with `Done("failed")` and nothing else.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count
from queue import SimpleQueue

from engine.records import Done, Event, Request

log = logging.getLogger(__name__)

URGENCY = {"complete": 0, "edit": 1, "chat": 2}
Run = Callable[[Callable[[], bool]], Iterator[Event]]  # given "is it cancelled?"


class Job:
    """One submitted request: iterate it for its events, the last of which is a Done."""

    def __init__(self, request: Request, run: Run) -> None:
        self.request, self.run = request, run
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._cancelled = threading.Event()
        self._done: Done | None = None

    def __iter__(self) -> Iterator[Event]:
        while self._done is None:
            event = self._events.get()
            if isinstance(event, Done):
                self._done = event
            yield event

    def result(self) -> Done:
        """Wait for the end."""
        for _ in self:
            pass
        assert self._done is not None
        return self._done

    def cancel(self) -> None:
        """Stop soon: between two passes. The Done keeps what was written so far."""
        self._cancelled.set()

    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    def put(self, event: Event) -> None:
        self._events.put(event)


class Worker:
    """One daemon thread that runs jobs."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, Job]] = []
        self._order = count()
        self._wake = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="draftline-model", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> Job:
        """Queue a job. RuntimeError after `close`."""
        with self._wake:
            if self._closed:
                raise RuntimeError("the engine is closed: open a new one")
            urgency = URGENCY.get(job.request.kind, max(URGENCY.values()))
            heappush(self._waiting, (urgency, next(self._order), job))
            self._wake.notify()
        return job

    def close(self) -> None:
        """Cancel what runs and what waits, and wait for the thread to end."""
        with self._wake:
            self._closed = True
            waiting, self._waiting = self._waiting, []
            self._wake.notify()
        for _, _, job in waiting:
            job.put(Done("cancelled"))
        self._thread.join()

    def _next(self, before: int) -> tuple[int, Job] | None:
        """The most urgent waiting job that is more urgent than `before`."""
        with self._wake:
            if self._waiting and self._waiting[0][0] < before:
                urgency, _, job = heappop(self._waiting)
                return urgency, job
        return None

    def _serve(self) -> None:
        while True:
            with self._wake:
                while not self._waiting and not self._closed:
                    self._wake.wait()
                if self._closed:
                    return
            self._drain(max(URGENCY.values()) + 1)

    def _drain(self, before: int) -> None:
        """Run all waiting jobs more urgent than `before`."""
        while (found := self._next(before)) is not None:
            self._serve_one(*found)

    def _serve_one(self, urgency: int, job: Job) -> None:
        try:

            def stop() -> bool:
                return self._closed or job.cancelled()

            if stop():
                job.put(Done("cancelled"))
                return
            for event in job.run(stop):
                job.put(event)
                if not isinstance(event, Done):
                    self._drain(urgency)
        except Exception as error:  # one bad request must not end the thread
            log.debug("request failed", exc_info=error)
            job.put(Done("failed", error=one_line(error)))


def one_line(error: BaseException) -> str:
    """An error as one line for a person."""
    text = " ".join(str(error).split())
    return text or type(error).__name__
