"""The engine's jobs for an event loop: so many at once, and none for a client that is gone.

A request occupies one of a fixed number of places until its job ended; a thread of a pool of that
size tokenises it and hands its events to the loop. In which order jobs run is the engine's
business. It knows nothing of HTTP but that a client can hang up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import TYPE_CHECKING, Any

from engine.records import Done, Event, Request, Step
from ui.api.batch_job import Walk, Work

if TYPE_CHECKING:
    from engine.engine import Engine
    from engine.worker import Job

CLIENTS = 64  # whose earlier answers are remembered


class Full(Exception):
    """Every place is taken."""


class Answer:
    """One request under way: iterate it, once, for its events, the last of which is a Done.

    All but `attach` and `cancel` belongs to the loop."""

    def __init__(self, client: str) -> None:
        self.client = client
        self.opened = perf_counter()
        self.first: float | None = None  # seconds until the first text
        self.seconds = 0.0  # in all, known at the end
        self.late = 0  # steps that ended after `cancel`, known at the end
        self.cancelled = False
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._submitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._job: Job | None = None

    async def submitted(self) -> None:
        """Wait until the engine has it. RequestError where it cannot be answered; RuntimeError
        where the engine is closed."""
        await self._submitted

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            event = await self._events.get()
            yield event
            if isinstance(event, Done):
                return

    async def result(self) -> Done:
        """Wait for the end."""
        async for event in self:
            if isinstance(event, Done):
                return event
        raise RuntimeError("the stream ended without a Done")

    def cancel(self) -> None:
        """Stop after the pass under way. Nothing where it ended."""
        self.cancelled = True
        if self._job is not None:
            self._job.cancel()

    def attach(self, job: Job) -> None:
        """The engine has it (any thread). Either this sees `cancelled`, or `cancel` the job."""
        self._job = job
        if self.cancelled:
            job.cancel()

    def submitted_as(self, error: Exception | None) -> None:
        if not self._submitted.done():  # else nobody waits any more
            if error is None:
                self._submitted.set_result(None)
            else:
                self._submitted.set_exception(error)

    def put(self, event: Event) -> None:
        now = perf_counter() - self.opened
        if isinstance(event, Done):
            self.seconds = now
            self.late = self._job.late if self._job else 0
        elif self.first is None and event.text:
            self.first = now
        self._events.put_nowait(event)


class Jobs:
    """An engine's places. Belongs to the loop that `ask` is called in."""

    def __init__(
        self,
        engine: Engine,
        places: int,
        on_end: Callable[[Answer, Done], None] = lambda answer, done: None,
    ) -> None:
        """`on_end` is told of every answer that the engine had taken."""
        self.engine, self.places, self.on_end = engine, places, on_end
        self._open: set[Answer | Walk] = set()
        self._pool = ThreadPoolExecutor(places, thread_name_prefix="draftline-events")
        self._clients: OrderedDict[str, str] = OrderedDict()  # the last one used is last

    @property
    def open(self) -> int:
        """How many requests run or wait."""
        return len(self._open)

    def ask(
        self,
        make: Callable[[], Request],
        client: str,
        speculation: bool = True,
        afresh: bool = False,
    ) -> Answer:
        """Hand a request to the engine; `make` is called in a thread. `afresh`: what was written
        for the client is forgotten, before and after. Raises Full."""
        if self.open >= self.places:
            raise Full
        answer = Answer(self._name(client))
        self._open.add(answer)
        loop = asyncio.get_running_loop()
        self._pool.submit(self._follow, answer, make, speculation, afresh, loop)
        return answer

    def walk(self, work: Work, client: str) -> Walk:
        """Run a work of many requests in a thread. Raises Full."""
        if self.open >= self.places:
            raise Full
        walk = Walk(self._name(client))
        self._open.add(walk)
        self._pool.submit(self._walk, walk, work, asyncio.get_running_loop())
        return walk

    def cancel(self) -> None:
        """Cancel all that is open (any thread)."""
        for answer in list(self._open):
            answer.cancel()

    def close(self) -> None:
        """Take nothing more. What runs ends with the engine."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _follow(
        self,
        answer: Answer,
        make: Callable[[], Request],
        speculation: bool,
        afresh: bool,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """In a thread of the pool: submit, and hand over the events."""
        try:
            if afresh:
                self.engine.forget(client=answer.client)
            job = self.engine.submit(make(), speculation, client=answer.client)
        except Exception as error:  # whoever waits for the answer gets it
            tell(loop, self._refused, answer, error)
            return
        answer.attach(job)
        tell(loop, answer.submitted_as, None)
        for event in job:
            if afresh and isinstance(event, Done):
                self.engine.forget(client=answer.client)
            if not tell(loop, self._told, answer, event):
                job.cancel()

    def _walk(self, walk: Walk, work: Work, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread of the pool: hand over what it gives, and how it ends."""
        failed: Exception | None = None
        try:
            for event in work(walk):
                if not tell(loop, walk.put, event):
                    walk.cancel()
        except Exception as error:  # whoever waits for it gets it
            failed = error
        tell(loop, self._walked, walk, failed)

    def _walked(self, walk: Walk, failed: Exception | None) -> None:
        self._open.discard(walk)
        walk.end(failed)

    def _refused(self, answer: Answer, error: Exception) -> None:
        self._open.discard(answer)
        answer.submitted_as(error)

    def _told(self, answer: Answer, event: Event) -> None:
        answer.put(event)
        if isinstance(event, Done):
            self._open.discard(answer)
            self.on_end(answer, event)

    def _name(self, client: str) -> str:
        """The engine's name for a client: one of few, for it remembers what it wrote for each. A
        name that is given to another is forgotten."""
        name = self._clients.pop(client, None)
        if name is None:
            name = f"api-{len(self._clients)}"
            if len(self._clients) == CLIENTS:
                _, name = self._clients.popitem(last=False)
                self.engine.forget(client=name)
        self._clients[client] = name
        return name


def tell(loop: asyncio.AbstractEventLoop, what: Callable[..., None], *given: Any) -> bool:
    """Have something called in the loop's thread. False where the loop is closed."""
    try:
        loop.call_soon_threadsafe(what, *given)
    except RuntimeError:
        return False
    return True


@contextlib.asynccontextmanager
async def held(
    answer: Answer, receive: Callable[[], Awaitable[MutableMapping[str, Any]]]
) -> AsyncIterator[Answer]:
    """The answer, cancelled when its client hangs up (`receive` says so), or at the end."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        answer.cancel()

    watching = asyncio.create_task(watch())
    try:
        yield answer
    finally:
        watching.cancel()
        answer.cancel()


def drafted_from_prediction(step: Step, encode: Callable[[str], list[int]]) -> int:
    """Tokens of a step that were copied from the text that the client expected."""
    drafted = [piece for piece in step.pieces if piece.source != "model"]
    own = [piece.text for piece in drafted if piece.source == "prediction"]
    if len(own) == len(drafted):
        return step.accepted
    return min(step.accepted, len(encode("".join(own))))
