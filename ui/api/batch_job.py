"""A work of many requests under way, for an event loop: a generator that runs in a thread.

It occupies one place of ui/api/jobs.py, which starts it, from its beginning to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.worker import Job

Work = Callable[["Walk"], Iterator[Any]]


class Walk:
    """Iterate it, once, for what the generator gives; what it raises is raised there.

    The generator asks `stopped` now and then, tells `attach` of each job that it has submitted, and
    submits them as `client`. All but those belongs to the loop."""

    def __init__(self, client: str) -> None:
        self.client = client
        self.cancelled = False
        self._events: asyncio.Queue[tuple[Any, Exception | None, bool]] = asyncio.Queue()
        self._job: Job | None = None

    async def __aiter__(self) -> AsyncIterator[Any]:
        while True:
            event, error, ended = await self._events.get()
            if error is not None:
                raise error
            if ended:
                return
            yield event

    def cancel(self) -> None:
        """End it soon: after the pass under way."""
        self.cancelled = True
        if self._job is not None:
            self._job.cancel()

    def stopped(self) -> bool:
        return self.cancelled

    def attach(self, job: Job) -> None:
        """The engine has it. Either this sees `cancelled`, or `cancel` the job."""
        self._job = job
        if self.cancelled:
            job.cancel()

    def put(self, event: Any) -> None:
        self._events.put_nowait((event, None, False))

    def end(self, error: Exception | None) -> None:
        self._events.put_nowait((None, error, True))
