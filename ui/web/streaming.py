"""Run one request for a tab and yield its progress, which html.py renders."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from time import perf_counter
from typing import TYPE_CHECKING

from engine.records import Done, Request
from ui.web.progress import AnswerProgress

if TYPE_CHECKING:
    from engine.aio import Cancellation
    from ui.web.state import PageState

MIN_REFRESH_S = 0.06  # seconds between two updates of the page
MAX_REFRESH_S = 0.5  # seconds; the clock runs even when nothing else changes


async def stream_answer(
    page: PageState,
    make: Callable[[], Request],
    client: str,
    cancellation: Cancellation,
    progress: AnswerProgress | None = None,
    speculation: bool = True,
    isolated: bool = False,
) -> AsyncGenerator[AnswerProgress]:
    """Run a request, and yield its progress at most every MIN_REFRESH_S, and once it is done.

    `make`, `client`, `speculation` and `isolated` are those of `Jobs.submit`. Cancelling keeps what
    was written. Closing the generator cancels the request. Raises QueueFull, RequestError if the
    request cannot be answered, and RuntimeError if the model fails."""
    progress = progress or AnswerProgress()
    progress.pass_seconds = page.pass_seconds()
    async with aclosing(page.jobs.submit(make, client, speculation, isolated)) as stream:
        cancellation.attach(stream)
        yield progress
        await stream.accepted()
        refreshed = perf_counter()
        async with aclosing(stream.with_ticks(MAX_REFRESH_S)) as events:
            async for event in events:
                if isinstance(event, Done):
                    progress.finish(event)
                elif event is not None:
                    progress.add(event)
                due = perf_counter() - refreshed >= MIN_REFRESH_S
                if due or event is None or isinstance(event, Done):
                    yield progress
                    refreshed = perf_counter()
                    await asyncio.sleep(0)
    if progress.done is not None and progress.done.reason == "failed":
        failure = page.engine.failure or f"The model failed, try again: {progress.done.error}"
        raise RuntimeError(failure)
