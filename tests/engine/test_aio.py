"""The bridge from threads to the event loop: order, errors, cancellation and closed loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import aclosing
from typing import Any

import pytest

from engine.aio import Cancellation, Stream, follow
from engine.records import Done, Event, Request, RequestError, Step
from engine.worker import Job, Submitted

LIMIT_S = 120  # for anything that should happen


class Target:
    """Something that can be cancelled."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()

    def cancel(self) -> None:
        self.cancelled.set()


def filled(source: Callable[[Stream[Any]], Iterable[Any]]) -> Stream[Any]:
    """A stream that a thread fills with what `source` yields, and ends with what it raises."""
    stream: Stream[Any] = Stream()

    def run() -> None:
        error: Exception | None = None
        try:
            for item in source(stream):
                stream.put(item)
        except Exception as raised:
            error = raised
        stream.end(error)

    threading.Thread(target=run, daemon=True).start()
    return stream


def test_items_arrive_in_order_from_another_thread() -> None:
    async def run() -> list[int]:
        return [item async for item in filled(lambda _: range(100))]

    assert asyncio.run(run()) == list(range(100))


def test_an_error_is_raised_after_the_items_before_it() -> None:
    def source(_: Any) -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    async def run() -> None:
        stream = filled(source)
        assert await anext(stream) == 1
        with pytest.raises(ValueError, match="broken"):
            await anext(stream)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    asyncio.run(run())


@pytest.mark.parametrize("cancel_first", [False, True])
def test_a_target_is_cancelled_whichever_comes_first(cancel_first: bool) -> None:
    cancellation, target = Cancellation(), Target()
    steps = [lambda: cancellation.attach(target), cancellation.cancel]
    for step in reversed(steps) if cancel_first else steps:
        assert not target.cancelled.is_set()
        step()
    assert target.cancelled.is_set() and cancellation.cancelled


def no_worker(cancelled: Any) -> Iterator[Any]:
    raise AssertionError("no worker runs it")


def test_closing_a_stream_cancels_its_job() -> None:
    async def run() -> None:
        job = Job(Request("chat"), no_worker)
        job.put(Step(drafted=1))
        async with aclosing(follow(job)) as events:
            assert await anext(events) == Step(drafted=1)
            assert not job.cancelled()
        assert job.cancelled()

    asyncio.run(run())


def test_a_job_is_followed_in_order_without_a_thread_of_its_own() -> None:
    """Whether its events come before or after somebody follows it."""
    events = [Step(drafted=number) for number in range(100)] + [Done("stop")]

    async def run(before: int) -> list[Event]:
        job = Job(Request("chat"), no_worker)
        for event in events[:before]:
            job.put(event)
        threads = threading.active_count()
        stream = follow(job)
        assert threading.active_count() == threads
        writer = threading.Thread(target=lambda: [job.put(event) for event in events[before:]])
        writer.start()
        found = [event async for event in stream]
        writer.join()
        return found

    for before in (0, 1, 50, len(events)):
        assert asyncio.run(run(before)) == events


def test_events_put_while_a_sink_takes_over_keep_their_order() -> None:
    job, found = Job(Request("chat"), no_worker), list[Event]()
    count = 2000
    writer = threading.Thread(
        target=lambda: [job.put(Step(drafted=number)) for number in range(count)]
    )
    writer.start()
    job.deliver(found.append)
    writer.join()
    assert found == [Step(drafted=number) for number in range(count)]


def test_an_error_of_another_engine_ends_what_is_delivered() -> None:
    class Broken(Submitted):
        def _next(self) -> Event:
            raise RequestError("it cannot be answered")

        def cancel(self) -> None: ...

    async def run() -> list[Event]:
        return [event async for event in follow(Broken())]

    assert asyncio.run(run()) == [Done("failed", error="it cannot be answered")]


def test_a_closed_event_loop_cancels_a_stream() -> None:
    target = Target()

    async def run() -> Stream[int]:
        stream: Stream[int] = Stream()
        stream.attach(target)
        return stream

    stream = asyncio.run(run())
    stream.put(1)
    assert stream.cancelled and target.cancelled.is_set()
    stream.end()


def test_ticks_fill_the_time_between_items() -> None:
    ticked = threading.Event()

    def source(_: Any) -> Iterator[int]:
        yield 1
        assert ticked.wait(LIMIT_S)
        yield 2

    async def run() -> list[int | None]:
        found: list[int | None] = []
        async for item in filled(source).with_ticks(0.001):
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
            async for _ in filled(source).with_ticks(LIMIT_S):
                pass

    asyncio.run(run())
