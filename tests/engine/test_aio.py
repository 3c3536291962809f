"""The bridge from threads to the event loop: order, errors, cancellation and closed loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any

import pytest

from engine.aio import Cancellation, ThreadStream, follow
from engine.records import Done, Request, Step
from engine.worker import Job

LIMIT_S = 120  # for anything that should happen


class Target:
    """Something that can be cancelled."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()

    def cancel(self) -> None:
        self.cancelled.set()


@pytest.mark.parametrize("pooled", [False, True])
def test_items_arrive_in_order_from_another_thread(pooled: bool) -> None:
    threads = []

    def source(_: Any) -> Iterator[int]:
        threads.append(threading.current_thread())
        yield from range(100)

    async def run() -> list[int]:
        pool = ThreadPoolExecutor(1, "pool") if pooled else None
        found = [item async for item in ThreadStream(source, pool)]
        if pool is not None:
            pool.shutdown()
        return found

    assert asyncio.run(run()) == list(range(100))
    assert threads[0] is not threading.main_thread()
    assert threads[0].name.startswith("pool") == pooled


def test_an_error_is_raised_after_the_items_before_it() -> None:
    def source(_: Any) -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    async def run() -> None:
        stream = ThreadStream(source)
        assert await anext(stream) == 1
        with pytest.raises(ValueError, match="broken"):
            await anext(stream)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    asyncio.run(run())


def test_an_error_before_the_first_item_is_raised() -> None:
    def source(_: Any) -> Iterator[int]:
        raise ValueError("broken")

    async def run() -> None:
        with pytest.raises(ValueError, match="broken"):
            await anext(ThreadStream(source))

    asyncio.run(run())


@pytest.mark.parametrize("cancel_first", [False, True])
def test_a_target_is_cancelled_whichever_comes_first(cancel_first: bool) -> None:
    cancellation, target = Cancellation(), Target()
    steps = [lambda: cancellation.attach(target), cancellation.cancel]
    for step in reversed(steps) if cancel_first else steps:
        assert not target.cancelled.is_set()
        step()
    assert target.cancelled.is_set() and cancellation.cancelled


def test_closing_a_stream_cancels_its_job() -> None:
    def run_job(cancelled: Any) -> Iterator[Any]:
        raise AssertionError("no worker runs it")

    async def run() -> None:
        job = Job(Request("chat"), run_job)
        job.put(Step(drafted=1))
        async with aclosing(follow(job)) as events:
            assert await anext(events) == Step(drafted=1)
            assert not job.cancelled()
        assert job.cancelled()
        job.put(Done("cancelled"))  # ends the thread

    asyncio.run(run())


def test_a_closed_event_loop_cancels_and_drains_the_source() -> None:
    target, closed, drained = Target(), threading.Event(), threading.Event()

    def source(stream: ThreadStream[int]) -> Iterator[int]:
        stream.attach(target)
        assert closed.wait(LIMIT_S)
        yield 1
        assert stream.cancelled
        yield 2
        drained.set()

    async def run() -> None:
        ThreadStream(source)

    asyncio.run(run())
    closed.set()
    assert target.cancelled.wait(LIMIT_S) and drained.wait(LIMIT_S)


def test_ticks_fill_the_time_between_items() -> None:
    ticked = threading.Event()

    def source(_: Any) -> Iterator[int]:
        yield 1
        assert ticked.wait(LIMIT_S)
        yield 2

    async def run() -> list[int | None]:
        found: list[int | None] = []
        async for item in ThreadStream(source).with_ticks(0.001):
            found.append(item)
            if found[-2:] == [1, None]:
                ticked.set()
        return found

    found = asyncio.run(run())
    assert [item for item in found if item is not None] == [1, 2]
    assert None in found[found.index(1) : found.index(2)]


def test_a_timeout_of_the_source_is_no_tick() -> None:
    def source(_: Any) -> Iterator[int]:
        yield 1
        raise TimeoutError("its own")

    async def run() -> None:
        with pytest.raises(TimeoutError, match="its own"):
            async for _ in ThreadStream(source).with_ticks(LIMIT_S):
                pass

    asyncio.run(run())
