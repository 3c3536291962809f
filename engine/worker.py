"""The thread that owns the model: jobs in, events out, owners by turns, the most urgent first.

An owner is a key of a server, or a client where there are no keys. Owners get equal time, in slices
in which more urgent jobs have a lead. Equally urgent jobs of an owner run one after the other,
clients by turns; a job that has waited long for more urgent ones gets a slice between them. So no
number of jobs, of any kind, keeps another owner's job or a chat waiting for long. Cancelling takes
effect between two forward passes. An error, or a panic of a library in Rust, ends its own job with
`Done("failed")` and nothing else. Background work runs in slices while the thread is idle; a
background job is cancelled where there are others, and when one comes. Engines that share a process
take turns. What nobody waits for, completions and background work, runs at a low priority. After
minutes without a job the thread hands memory back; then nothing wakes it up but a job.
"""

from __future__ import annotations

import logging
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue
from time import monotonic
from typing import Any, TypeVar

from engine.model.slots import Slots
from engine.records import Done, Event, Request

log = logging.getLogger(__name__)

URGENCY = {"complete": 0, "edit": 1, "chat": 2}
BACKGROUND = max(URGENCY.values()) + 1  # urgency
IDLE_SECONDS = 0.5  # seconds without requests before background work goes on
REST_SECONDS = 300.0  # seconds without requests before memory is handed back
FATAL = {"AcceleratorError"}  # errors: torch's for a card that fails; all that follows fails, too
SLICE_S = 0.25  # seconds of a job's time, while others wait
LEAD_S = (0.5, 0.25)  # seconds of an owner's time, by urgency, that more urgent jobs may be ahead
MAX_WAIT_S = 1.0  # seconds that a job waits for more urgent ones of its owner
MIN_PROGRESS = 2.0  # first steps, which may read the prompt again, that a slice lasts at least
MAX_CLIENTS = 256  # clients whose last turns, and owners whose times, are remembered
Run = Callable[[Callable[[], bool]], Iterator[Event]]  # called with `cancelled`
Sink = Callable[[Event], None]
T = TypeVar("T")


class Submitted(ABC):
    """A submitted request: iterate over it for its events, or `deliver` them.

    The last event is a Done.
    """

    late = 0  # steps that ended after `cancel`
    _done: Done | None = None

    @abstractmethod
    def _next(self) -> Event:
        """Wait for the next event."""

    @abstractmethod
    def cancel(self) -> None:
        """Stop after the current forward pass. The Done has the text written so far."""

    def deliver(self, sink: Sink) -> None:
        """Call `sink` with every event, from another thread, in place of iterating."""

        def run() -> None:
            try:
                for event in self:
                    sink(event)
            except Exception as error:  # nobody iterates, to whom it could be raised
                sink(Done("failed", error=one_line(error)))

        threading.Thread(target=run, name="draftline-events", daemon=True).start()

    def __iter__(self) -> Iterator[Event]:
        while self._done is None:
            event = self._next()
            if isinstance(event, Done):
                self._done = event
            yield event

    def result(self) -> Done:
        """Wait for the end, and return the Done."""
        for _ in self:
            pass
        assert self._done is not None
        return self._done


class Job(Submitted):
    """A request that this process answers."""

    def __init__(
        self,
        request: Request,
        run: Run,
        client: str = "",
        urgency: int | None = None,
        owner: str = "",
    ) -> None:
        """Make a job that waits to be run.

        `urgency`: smaller ones run first; by default that of the request's kind. `owner`: whose
        time the job takes; by default the client's.
        """
        self.request, self.run, self.client = request, run, client
        self.owner = owner or client
        by_kind = URGENCY.get(request.kind, max(URGENCY.values()))
        self.urgency = by_kind if urgency is None else urgency
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._sink: Sink = self._events.put
        self._passing = threading.Lock()  # held while an event is passed on, in order
        self._cancelled = threading.Event()

    def _next(self) -> Event:
        return self._events.get()

    def cancel(self) -> None:
        """Stop after the current forward pass. The Done has the text written so far."""
        self._cancelled.set()

    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    @property
    def is_gentle(self) -> bool:
        """Whether it comes by itself while somebody types, so that everything else goes first."""
        return self.request.kind == "complete" or self.urgency == BACKGROUND

    def deliver(self, sink: Sink) -> None:
        """Call `sink` with every event, in the worker's thread, which waits for it."""
        with self._passing:
            while not self._events.empty():
                sink(self._events.get())
            self._sink = sink

    def put(self, event: Event) -> None:
        """Pass an event on."""
        self.late += self.cancelled() and not isinstance(event, Done)
        with self._passing:
            self._sink(event)


def ended_job(request: Request, client: str, done: Done) -> Job:
    """Make a job that ended without the model."""
    job = Job(request, lambda cancelled: iter(()), client)
    job.put(done)
    return job


class Schedule:
    """The jobs that run or wait. Not thread-safe."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._rested: dict[Job, float] = {}  # since when a job has waited, in order of arrival
        self._begun: set[Job] = set()
        self._used: dict[str, float] = {}  # owner -> seconds, the latest to come last
        self._served: dict[str, int] = {}  # client -> number of its last turn, the latest last
        self._count = 0
        self._floor = 0.0  # seconds that a new owner begins with
        self._current: Job | None = None
        self._ran = 0.0  # seconds of the current slice
        self._least = 0.0  # seconds that the current slice has at least
        self._is_late = False  # the current job has waited long for more urgent ones, which wait

    def __len__(self) -> int:
        return len(self._rested)

    @property
    def waiting(self) -> list[Job]:
        """The jobs that have not begun, in order of arrival."""
        return [job for job in self._rested if job not in self._begun]

    def add(self, job: Job) -> None:
        """Take in a job. Background jobs give way to all others, and to a newer one."""
        if job.urgency == BACKGROUND and any(one.urgency < BACKGROUND for one in self._rested):
            job.cancel()
        for other in self._rested:
            if other.urgency == BACKGROUND:
                other.cancel()
        if all(job.owner != other.owner for other in self._rested):
            used = max(self._used.pop(job.owner, 0.0), self._floor)
            self._used[job.owner] = used
            _forget_first(self._used, {one.owner for one in self._rested} | {job.owner})
        self._rested[job] = self._clock()

    def remove(self, job: Job) -> None:
        """Drop a job that has ended."""
        self._rested.pop(job, None)
        self._begun.discard(job)
        if self._current is job:
            self._current = None

    def clear_waiting(self) -> list[Job]:
        """Drop the jobs that have not begun, and return them."""
        dropped = self.waiting
        for job in dropped:
            self.remove(job)
        return dropped

    def ran(self, seconds: float) -> None:
        """Count a step of the current job."""
        assert self._current is not None
        if not self._least:
            self._least = MIN_PROGRESS * seconds
        self._ran += seconds
        self._used[self._current.owner] += seconds
        self._rested[self._current] = self._clock()

    def next(self) -> Job | None:
        """Choose the job whose step is next; None if there are none.

        Cancelled ones are next at once, to end.
        """
        if not self._rested:
            return None
        chosen = next((job for job in self._rested if job.cancelled()), None) or self._chosen()
        if chosen is not self._current:
            self._current, self._ran, self._least = chosen, 0.0, 0.0
            self._is_late = any(
                job.owner == chosen.owner and job.urgency < chosen.urgency for job in self._rested
            )
        if chosen not in self._begun:
            self._begun.add(chosen)
            self._count += 1
            self._served.pop(chosen.client, None)
            self._served[chosen.client] = self._count
            _forget_first(self._served, {chosen.client})
        return chosen

    def _chosen(self) -> Job:
        by_owner: dict[str, list[Job]] = {}
        for job in self._rested:
            by_owner.setdefault(job.owner, []).append(job)
        self._floor = max(self._floor, min(self._used[owner] for owner in by_owner))
        heads = [self._head(jobs) for jobs in by_owner.values()]
        first, current = min(heads, key=self._place), self._current
        if current is None or current not in heads:
            return first
        makes_progress = self._ran < self._least and first.urgency >= current.urgency
        stays = makes_progress or self._place(current) <= self._place(first) + SLICE_S
        return current if stays else first

    def _place(self, job: Job) -> float:
        """Compute the seconds that count against a job among those of other owners."""
        lead = LEAD_S[job.urgency] if job.urgency < len(LEAD_S) else 0.0
        return self._used[job.owner] - lead

    def _head(self, jobs: list[Job]) -> Job:
        """Choose the next of one owner's jobs."""
        levels: dict[int, list[Job]] = {}
        for job in jobs:
            levels.setdefault(job.urgency, []).append(job)
        urgent, *others = (self._first(levels[urgency]) for urgency in sorted(levels))
        current = self._current
        if current in others and self._is_late and self._ran < max(SLICE_S, self._least):
            return current
        waited = min(others, key=self._rested.__getitem__, default=urgent)
        return waited if self._clock() - self._rested[waited] >= MAX_WAIT_S else urgent

    def _first(self, jobs: list[Job]) -> Job:
        """Choose among equally urgent jobs the one that has begun.

        If none has, choose that of the client whose last turn is longest ago.
        """
        begun = next((job for job in jobs if job in self._begun), None)
        return begun or min(jobs, key=lambda job: self._served.get(job.client, 0))


def _forget_first(known: dict[str, int] | dict[str, float], kept: Iterable[str]) -> None:
    """Drop the oldest name that is not `kept`, where there are more than MAX_CLIENTS."""
    if len(known) > MAX_CLIENTS and (
        old := next((name for name in known if name not in kept), None)
    ):
        del known[old]


class Worker:
    """One daemon thread that runs jobs."""

    def __init__(
        self,
        *background: Iterable[float],
        slots: Slots | None = None,
        within: Callable[[], AbstractContextManager[object]] = nullcontext,
        clock: Callable[[], float] = monotonic,
        on_failure: Callable[[str], None] = lambda why: None,
        rest: Callable[[], None] = lambda: None,
        lower: Callable[[], None] | None = None,
    ) -> None:
        """Start the thread.

        `background`: work to do while idle. Each slice yields the seconds until the next one; the
        first that is due runs. A job waits for one slice at most. `slots`: shared with the other
        engines of this process. `within`: a context that the whole thread runs in. `clock`:
        seconds, by which jobs take turns. `on_failure`: told why the thread has ended, where
        `close` did not end it. `rest`: called once after REST_SECONDS without a job. `lower`: gives
        the calling thread a low priority for good; gentle work then has a thread of its own.
        """
        self._within, self._on_failure, self._rest = within, on_failure, rest
        self._gentle = ThreadPoolExecutor(1, "draftline-gentle", lower) if lower else None
        self._engines = slots or Slots()
        self._idle_at = monotonic() + IDLE_SECONDS  # when background work may go on
        # work -> when its next slice is due
        self._background: dict[Iterator[float], float] = {iter(work): 0.0 for work in background}
        self._clock = clock
        self._rest_at = clock() + REST_SECONDS  # when memory is handed back
        self._schedule = Schedule(clock)
        self._begun: dict[Job, Iterator[Event]] = {}  # the events to come of each job
        self._wake = threading.Condition()
        self._closed = False
        self.failure: str | None = None  # why the thread has ended, where `close` did not end it
        self._thread = threading.Thread(target=self._run, name="draftline-model", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> Job:
        """Queue a job. RuntimeError after `close`, and once the thread has failed."""
        with self._wake:
            if self.failure is not None:
                raise RuntimeError(self.failure)
            if self._closed:
                raise RuntimeError("the engine is closed: open a new one")
            self._schedule.add(job)
            self._wake.notify()
        return job

    @property
    def waiting(self) -> list[Job]:
        """The jobs that have not begun, in order of arrival."""
        with self._wake:
            return self._schedule.waiting

    def idle(self) -> bool:
        """Return whether all background work is done."""
        return not self._background

    def add_background(self, work: Iterator[float], seconds: float) -> None:
        """Do more work while idle, in `seconds` at the earliest. For jobs, in the thread itself."""
        self._background[work] = monotonic() + seconds

    def close(self) -> None:
        """Cancel all jobs and wait for the thread to end."""
        with self._wake:
            self._closed = True
            waiting = self._schedule.clear_waiting()
            self._wake.notify()
        for job in waiting:
            job.put(Done("cancelled"))
        self._thread.join()

    def _run(self) -> None:
        """Serve jobs until the worker is closed.

        An error that ends the thread ends all jobs, and further ones are refused.
        """
        try:
            with self._within():
                self._serve()
        except BaseException as error:
            log.error("the model's thread has ended", exc_info=error)
            with self._wake:
                self.failure = f"the model has failed ({one_line(error)}): start the program again"
                jobs = [*self._begun, *self._schedule.clear_waiting()]
            for job in jobs:
                job.put(Done("failed", error=self.failure))
            self._on_failure(one_line(error))
        finally:
            if self._gentle is not None:
                self._gentle.shutdown()

    def _serve(self) -> None:
        while True:
            with self._wake:
                while not self._schedule and not self._closed:
                    pause = self._pause()
                    if pause is not None and pause <= 0:
                        break
                    self._wake.wait(pause)
                if self._closed and not self._schedule:
                    return
                has_jobs = bool(self._schedule)
            if has_jobs:
                self._run_jobs()
                self._idle_at = monotonic() + IDLE_SECONDS
                self._rest_at = self._clock() + REST_SECONDS
            else:
                self._run_slice()

    def _pause(self) -> float | None:
        """Compute the seconds until there is something to do without a job; None for never."""
        pause = self._rest_at - self._clock()
        if self._background:
            slice_at = max(self._idle_at, min(self._background.values()))
            pause = min(pause, slice_at - monotonic())
        return None if pause == math.inf else pause

    def _run_slice(self) -> None:
        now = monotonic()
        work = next((one for one, due in self._background.items() if due <= now), None)
        if work is None:
            self._rest_at = math.inf
            self._rest()
            return
        slots = self._engines

        def stop() -> bool:
            return self._closed or bool(self._schedule)

        try:
            with slots.job(BACKGROUND), slots.slot(BACKGROUND, stop):
                if not stop():
                    self._background[work] = now + self._call(True, next, work)
        except StopIteration:
            del self._background[work]
        except BaseException as error:  # optional work: everything else goes on without it
            log.warning("background work failed: %s", one_line(error))
            del self._background[work]
            if type(error).__name__ in FATAL:
                raise

    def _run_jobs(self) -> None:
        """Run steps until no job is left."""
        job = self._next()
        while job is not None:
            with self._engines.job(job.urgency):
                this, job = job, self._step(job)
                while job is this:
                    job = self._step(job)

    def _next(self) -> Job | None:
        with self._wake:
            return self._schedule.next()

    def _step(self, job: Job) -> Job | None:
        """Make the job's next event, and return the job that is next."""
        try:
            event = self._event(job)
            if event is None or isinstance(event, Done):
                self._end(job)
            if event is not None:
                job.put(event)
        except BaseException as error:  # one bad request must not end the thread
            log.debug("request failed", exc_info=error)
            self._end(job)
            job.put(Done("failed", error=one_line(error)))
            if type(error).__name__ in FATAL:
                raise
        return self._next()

    def _event(self, job: Job) -> Event | None:
        """Compute the job's next event when it is this engine's turn."""

        def stop() -> bool:
            return self._closed or job.cancelled()

        if job not in self._begun:
            if stop():
                return Done("cancelled")
            self._begun[job] = job.run(stop)
        with self._engines.slot(job.urgency, stop):
            began = self._clock()
            event: Event | None = self._call(job.is_gentle, next, self._begun[job], None)
            seconds = self._clock() - began
        with self._wake:
            self._schedule.ran(seconds)
        return event

    def _call(self, gently: bool, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function in this thread or, `gently`, in that of a low priority."""
        if gently and self._gentle is not None:
            return self._gentle.submit(function, *arguments).result()
        return function(*arguments)

    def _end(self, job: Job) -> None:
        with self._wake:
            self._schedule.remove(job)
            self._begun.pop(job, None)


def one_line(error: BaseException) -> str:
    """Write an error as one line for a person."""
    text = " ".join(str(error).split())
    return text or type(error).__name__
