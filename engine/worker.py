"""The thread that owns the model: jobs in, events out, the most urgent first.

Of equally urgent jobs that of the client which waited longest since its last turn is next. A
request that is more urgent runs between two steps of one that is less so; cancelling takes
effect between two passes. An error ends its own job with `Done("failed")` and nothing else. While
nothing is asked, spare work is done, a slice at a time; while one piece of it waits, others go on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from time import monotonic

from engine.records import Done, Event, Request

log = logging.getLogger(__name__)

URGENCY = {"complete": 0, "edit": 1, "chat": 2}
QUIET = 0.5  # seconds
CLIENTS = 256  # whose last turns are known; any other had none, as far as the order goes
Run = Callable[[Callable[[], bool]], Iterator[Event]]  # given "is it cancelled?"


class Job:
    """One submitted request: iterate it for its events, the last of which is a Done."""

    def __init__(self, request: Request, run: Run, client: str = "") -> None:
        self.request, self.run, self.client = request, run, client
        self.urgency = URGENCY.get(request.kind, max(URGENCY.values()))
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._cancelled = threading.Event()
        self._done: Done | None = None
        self.late = 0  # steps that ended after `cancel`

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
        self.late += self.cancelled() and not isinstance(event, Done)
        self._events.put(event)


class Worker:
    """One daemon thread that runs jobs."""

    def __init__(self, *spare: Iterable[float]) -> None:
        """`spare`: works for when nothing was asked for QUIET seconds, in slices; a job waits for
        one of these at most. Each slice yields the seconds until the work's next one. Of works
        that need not wait, the first in this order has its slice."""
        self._quiet = monotonic() + QUIET  # when spare work may go on
        # work -> when its next slice may begin
        self._spare: dict[Iterator[float], float] = {iter(one): 0.0 for one in spare}
        self._waiting: list[Job] = []  # in the order that they came
        self._turns: dict[str, int] = {}  # client -> when it last had one; the latest is last
        self._turn = 0
        self._wake = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="draftline-model", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> Job:
        """Queue a job. RuntimeError after `close`."""
        with self._wake:
            if self._closed:
                raise RuntimeError("the engine is closed: open a new one")
            self._waiting.append(job)
            self._wake.notify()
        return job

    def rested(self) -> bool:
        """Whether no spare work is left."""
        return not self._spare

    def close(self) -> None:
        """Cancel what runs and what waits, and wait for the thread to end."""
        with self._wake:
            self._closed = True
            waiting, self._waiting = self._waiting, []
            self._wake.notify()
        for job in waiting:
            job.put(Done("cancelled"))
        self._thread.join()

    def _next(self, before: int) -> Job | None:
        """The next waiting job that is more urgent than `before`, or was cancelled."""

        def place(job: Job) -> tuple[int, int]:
            return (-1 if job.cancelled() else job.urgency, self._turns.get(job.client, 0))

        with self._wake:
            found = [job for job in self._waiting if place(job)[0] < before]
            if not found:
                return None
            job = min(found, key=place)
            self._waiting.remove(job)
            self._turn += 1
            self._turns.pop(job.client, None)
            self._turns[job.client] = self._turn
            if len(self._turns) > CLIENTS:
                del self._turns[next(iter(self._turns))]
            return job

    def _serve(self) -> None:
        while True:
            with self._wake:
                while not self._waiting and not self._closed:
                    pause = self._pause()
                    if pause is not None and pause <= 0:
                        break
                    self._wake.wait(pause)
                if self._closed:
                    return
                asked = bool(self._waiting)
            if asked:
                self._drain(max(URGENCY.values()) + 1)
                self._quiet = monotonic() + QUIET
            else:
                self._do_spare()

    def _pause(self) -> float | None:
        """Seconds until the next slice of spare work; None: there is none."""
        if not self._spare:
            return None
        return max(self._quiet, min(self._spare.values())) - monotonic()

    def _do_spare(self) -> None:
        now = monotonic()
        spare = next(one for one, due in self._spare.items() if due <= now)
        try:
            self._spare[spare] = now + next(spare)
        except StopIteration:
            del self._spare[spare]
        except Exception as error:  # it is only spare: all else goes on without it
            log.warning("work beside the requests ended: %s", one_line(error))
            del self._spare[spare]

    def _drain(self, before: int) -> None:
        """Run all waiting jobs more urgent than `before`."""
        while (job := self._next(before)) is not None:
            self._serve_one(job)

    def _serve_one(self, job: Job) -> None:
        try:

            def stop() -> bool:
                return self._closed or job.cancelled()

            if stop():
                job.put(Done("cancelled"))
                return
            for event in job.run(stop):
                job.put(event)
                if not isinstance(event, Done):
                    self._drain(job.urgency)
        except Exception as error:  # one bad request must not end the thread
            log.debug("request failed", exc_info=error)
            job.put(Done("failed", error=one_line(error)))


def one_line(error: BaseException) -> str:
    """An error as one line for a person."""
    text = " ".join(str(error).split())
    return text or type(error).__name__
