"""A session's requests: prompts of large texts are tokenized in a thread, and a request may be
cancelled meanwhile."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from engine.records import Done, Request
from engine.worker import Job
from lsp_server.protocol.text_sync import OpenDocuments
from lsp_server.session import Session

TIMEOUT_S = 60
SLOT = ("edit", "file:///app.py")


class CancellableJob(Job):
    """A job that ends when it is cancelled."""

    def __init__(self, request: Request) -> None:
        super().__init__(request, lambda is_cancelled: iter(()))
        self.ended = threading.Event()

    def cancel(self) -> None:
        super().cancel()
        self.put(Done("cancelled"))
        self.ended.set()


class SlowEngine:
    """An engine whose `submit` takes until `gate` is set."""

    def __init__(self) -> None:
        self.is_submitting, self.gate = threading.Event(), threading.Event()
        self.threads: list[threading.Thread] = []
        self.jobs: list[CancellableJob] = []

    def submit(self, request: Request, *arguments: Any, **options: Any) -> Job:
        self.threads.append(threading.current_thread())
        job = CancellableJob(request)
        self.jobs.append(job)
        self.is_submitting.set()
        assert self.gate.wait(TIMEOUT_S)
        return job


def session_of(engine: SlowEngine) -> Session:
    shared: Any = SimpleNamespace(
        engine=engine, loaded=engine, elsewhere=None, configure=lambda *wish: None
    )
    session = Session(shared, OpenDocuments(), lambda method, params: None, "client")
    session.configure()
    return session


async def submitting(engine: SlowEngine) -> None:
    """Wait until the engine is tokenizing. Hangs, and fails, if that happens on this event loop."""
    assert await asyncio.to_thread(engine.is_submitting.wait, TIMEOUT_S)


@pytest.mark.parametrize("how", ["slot", "task"])
def test_a_request_is_cancelled_while_its_prompt_is_tokenized(how: str) -> None:
    """The event loop is free meanwhile, and the job is cancelled once it exists."""

    async def run() -> None:
        engine = SlowEngine()
        session = session_of(engine)
        asked = asyncio.create_task(session.ask(Request("edit", "x" * 100), SLOT))
        await submitting(engine)
        if how == "slot":
            assert session.cancel(SLOT) == 1
            engine.gate.set()
            assert (await asked).reason == "cancelled"
        else:
            asked.cancel()
            await asyncio.wait([asked])
            assert asked.cancelled() and session.cancel() == 0
            engine.gate.set()
        assert await asyncio.to_thread(engine.jobs[0].ended.wait, TIMEOUT_S)
        assert engine.threads[0] is not threading.main_thread()
        assert session.figures.totals["cancelled"] == 1

    asyncio.run(run())


def test_a_newer_request_replaces_one_whose_prompt_is_tokenized() -> None:
    async def run() -> None:
        engine = SlowEngine()
        session = session_of(engine)
        older = asyncio.create_task(session.ask(Request("edit", "older"), SLOT))
        await submitting(engine)
        engine.is_submitting.clear()
        newer = asyncio.create_task(session.ask(Request("edit", "newer"), SLOT))
        await submitting(engine)
        engine.gate.set()
        assert (await older).reason == "cancelled" and not newer.done()
        assert session.cancel() == 1 and (await newer).reason == "cancelled"

    asyncio.run(run())
