"""The engine's jobs, for an event loop: a bounded queue, with a stream of events for each job.

A request holds a slot of the queue until its job ends. A thread of a pool of that size tokenizes
it; its events come from the model's thread. The engine decides the order in which jobs run. Where
the queue is full, an owner, a key or else a client, still gets the slots that are its share.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from threading import Lock, Semaphore
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from engine.aio import Stream
from engine.editing.apply_answer import apply_answer, merged
from engine.editing.apply_snippet import merge
from engine.records import Done, Event, Piece, Request, Step
from engine.worker import Job, Submitted, ended_job

if TYPE_CHECKING:
    from engine.remote.any_engine import ServedEngine

T = TypeVar("T")
SHARE = 4  # slots that an owner gets although others fill the queue
MIN_OWNERS = 8  # owners; there are such slots for as many, where there are fewer keys
MAX_PREPARING = 3  # requests of an owner that are tokenized at once
MAX_CLIENTS = 64  # clients; the engine remembers their earlier answers
ACCEPTED = Step()  # precedes a job's events


class QueueFull(Exception):
    """All slots of the queue are taken."""


class _Owner:
    """A key, or a client where there is none, while it has requests here."""

    def __init__(self, preparing: int) -> None:
        """Start without requests. `preparing`: how many are tokenized at once."""
        self.slots = 0
        self.preparing = Semaphore(preparing)


class JobStream(Stream[Event]):
    """The events of one request.

    ACCEPTED once the engine has it, then the job's, the last of which is a Done. Several requests
    follow each other.
    """

    def __init__(self, client: str) -> None:
        super().__init__()
        self.client = client
        self.first_text_s: float | None = None  # seconds from the request to the first text
        self.total_s = 0.0  # set with the Done
        self.late_steps = 0  # forward passes that ended after `cancel`; set with the Done
        self._created = perf_counter()
        self._accepted = False

    async def accepted(self) -> None:
        """Wait until the engine has the request.

        Raises RequestError if it cannot be answered, EditRefused for an update that cannot be
        merged, RuntimeError if the engine is closed.
        """
        if not self._accepted:
            await super().__anext__()
            self._accepted = True

    async def __anext__(self) -> Event:
        await self.accepted()
        return await super().__anext__()

    async def result(self) -> Done:
        """Wait for the end."""
        async for event in self:
            if isinstance(event, Done):
                return event
        raise RuntimeError("the stream ended without a Done")

    def record_time(self, event: Event) -> None:
        """Note when an event arrived. Called in the model's thread."""
        elapsed_s = perf_counter() - self._created
        if isinstance(event, Done):
            self.total_s = elapsed_s
        elif self.first_text_s is None and (event.text or event.reasoning):
            self.first_text_s = elapsed_s


def merged_job(request: Request, client: str) -> Job | None:
    """Return the job of an update that is merged without the model. Raises EditRefused."""
    text = merge(request.text, request.update, request.path).text
    return None if text is None else ended_job(request, client, merged(text))


class Jobs:
    """The queue of an engine. All methods but `cancel` belong to one event loop."""

    def __init__(
        self,
        engine: ServedEngine,
        queue_size: int,
        on_end: Callable[[JobStream, Done], None] = lambda stream, done: None,
        owners: int = 0,
    ) -> None:
        """Start without requests.

        `on_end` is called, in some thread, for every request that the engine accepted. `owners`:
        how many keys
        there are.
        """
        self.engine, self.queue_size, self.on_end = engine, queue_size, on_end
        # Another server reads the prompts itself, and accepts a request when it likes
        self._preparing = MAX_PREPARING if engine.drafts else queue_size
        self._reserved = min(SHARE, queue_size) * max(owners, MIN_OWNERS)
        self._open: dict[Stream[Any], str] = {}  # the open streams and their owners
        self._owners: dict[str, _Owner] = {}
        self._lock = Lock()  # guards both
        threads = queue_size + self._reserved
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="draftline-events")
        self._client_names: OrderedDict[str, str] = OrderedDict()  # least recently used first

    @property
    def open(self) -> int:
        """The number of requests that are running or waiting."""
        return len(self._open)

    def submit(
        self,
        make: Callable[[], Request] | Sequence[Callable[[], Request]],
        client: str,
        speculation: bool = True,
        isolated: bool = False,
        raw: bool = False,
        owner: str = "",
        **options: Any,
    ) -> JobStream:
        """Submit the request that `make`, called in a thread, returns; of several one by one.

        Each has a Done; one that fails or is cancelled is the last.
        `isolated`: the engine forgets the client's answers before and after. The text of a request
        with an `update` is the new file, in one Step at the end; EditRefused is raised to the
        reader. `raw`: it is the model's answer instead. `owner`: the key, whose slots and time it
        takes; without one, the client's. `options`: more of `Engine.submit`. Raises QueueFull.
        """
        holder = owner or client
        self._check_capacity(holder)
        options |= {"speculation": speculation, "owner": owner}
        name = self._client_name(client)
        with self._lock:  # the job cannot end before it is in the set
            preparing = self._take_slot(holder)
            stream = JobStream(name)
            makes = make if isinstance(make, Sequence) else [make]
            self._pool.submit(self._prepare, stream, makes, isolated, raw, preparing, options)
            self._open[stream] = holder
        return stream

    def submit_batch(
        self, work: Callable[[Stream[T], str], Iterable[T]], client: str, owner: str = ""
    ) -> Stream[T]:
        """Run work that consists of many requests; it takes one slot. Raises QueueFull.

        `work(stream, client)` is iterated in a thread. It submits its requests as `client`, passes
        each job to `stream.attach`, and ends soon after `stream.cancelled`. `owner` as of
        `submit`."""
        holder = owner or client
        self._check_capacity(holder)
        name = self._client_name(client)
        stream: Stream[T] = Stream()
        with self._lock:
            self._take_slot(holder)
            self._pool.submit(self._run_batch, stream, work, name)
            self._open[stream] = holder
        return stream

    def cancel(self) -> None:
        """Cancel everything that is running or waiting. Thread-safe."""
        with self._lock:
            streams = list(self._open)
        for stream in streams:
            stream.cancel()

    def forget(self, client: str) -> None:
        """Forget the answers to a client."""
        name = self._client_names.get(client)
        if name is not None:
            self.engine.forget(client=name)

    def close(self) -> None:
        """Accept nothing more. Running jobs end with the engine."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _prepare(
        self,
        stream: JobStream,
        makes: Sequence[Callable[[], Request]],
        isolated: bool,
        raw: bool,
        preparing: Semaphore,
        options: dict[str, Any],
        first: bool = True,
    ) -> None:
        """Tokenize a request, and let its job fill the stream, before the others' jobs do."""
        try:
            if isolated:
                self.engine.forget(client=stream.client)
            with preparing:
                request = makes[0]()
                update = request if request.update and not raw else None
                done = merged_job(update, stream.client) if update else None
                job = done or self.engine.submit(
                    request, client=stream.client, cancelled=lambda: stream.cancelled, **options
                )
            stream.attach(job)
            if first:
                stream.put(ACCEPTED)
            more = None
            if makes[1:]:
                rest = (stream, makes[1:], isolated, raw, preparing, options, False)
                more = partial(self._prepare, *rest)
            job.deliver(partial(self._pass_on, stream, job, isolated, update, more))
        except Exception as error:
            self._end(stream, error)

    def _pass_on(
        self,
        stream: JobStream,
        job: Submitted,
        isolated: bool,
        update: Request | None,
        more: Callable[[], None] | None,
        event: Event,
    ) -> None:
        """Pass an event on to the reader. Called in the model's thread."""
        try:
            stream.record_time(event)
            if not isinstance(event, Done):
                stream.put(replace(event, pieces=()) if update else event)
                return
            stream.late_steps = job.late
            if isolated:
                self.engine.forget(client=stream.client)
            self.on_end(stream, event)
            if update and event.reason not in ("failed", "cancelled"):
                self._pool.submit(self._put_file, stream, update, event)
                return
            if more is not None and event.reason in ("stop", "length"):
                stream.put(event)
                self._pool.submit(more)
                return
            self._release(stream)  # before the reader sees the end
            stream.put(event)
            stream.end()
        except Exception as error:  # the reader's: the model goes on
            self._end(stream, error)

    def _put_file(self, stream: JobStream, update: Request, done: Done) -> None:
        """End a stream with the new file, which is checked as a whole.

        EditRefused is raised to the reader.
        """
        self._release(stream)
        try:
            done = replace(done, text=apply_answer(update, done))
            stream.put(Step((Piece(done.text, "model"),)))
            stream.put(done)
            stream.end()
        except Exception as error:
            stream.end(error)

    def _run_batch(
        self, stream: Stream[T], work: Callable[[Stream[T], str], Iterable[T]], client: str
    ) -> None:
        try:
            for item in work(stream, client):
                stream.put(item)
            self._end(stream)
        except Exception as error:
            self._end(stream, error)

    def _end(self, stream: Stream[Any], error: Exception | None = None) -> None:
        """End a stream that may hold a slot."""
        self._release(stream)
        stream.end(error)

    def _check_capacity(self, holder: str) -> None:
        owner = self._owners.get(holder)
        slots = owner.slots if owner else 0
        extra = self._reserved if slots < min(SHARE, self.queue_size) else 0
        if self.open >= self.queue_size + extra:
            raise QueueFull

    def _take_slot(self, holder: str) -> Semaphore:
        owner = self._owners.setdefault(holder, _Owner(self._preparing))
        owner.slots += 1
        return owner.preparing

    def _release(self, stream: Stream[Any]) -> None:
        with self._lock:
            holder = self._open.pop(stream, None)
            if holder is not None:
                self._owners[holder].slots -= 1
                if not self._owners[holder].slots:
                    del self._owners[holder]

    def _client_name(self, client: str) -> str:
        """Return the engine's name for a client.

        The engine keeps state by name, so there are few: the least recently used one is forgotten
        and reused.
        """
        name = self._client_names.pop(client, None)
        if name is None:
            name = f"api-{len(self._client_names)}"
            if len(self._client_names) == MAX_CLIENTS:
                _, name = self._client_names.popitem(last=False)
                self.engine.forget(client=name)
        self._client_names[client] = name
        return name
