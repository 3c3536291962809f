"""A job of the engine, followed from the event loop: cancelled when whoever follows is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from engine.records import Done, Event

if TYPE_CHECKING:
    from engine.worker import Job


async def follow(job: Job) -> AsyncGenerator[Event, None]:
    """Its events, up to Done. Use `aclosing`: leaving early cancels the job."""
    loop = asyncio.get_running_loop()
    events: asyncio.Queue[Event] = asyncio.Queue()

    def pump() -> None:
        for event in job:
            try:
                loop.call_soon_threadsafe(events.put_nowait, event)
            except RuntimeError:  # the loop is closed: nobody listens
                return

    threading.Thread(target=pump, name="events", daemon=True).start()
    try:
        while True:
            event = await events.get()
            yield event
            if isinstance(event, Done):
                return
    finally:
        job.cancel()
