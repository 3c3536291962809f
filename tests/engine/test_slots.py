"""Several engines in one process: one computes at a time, and the most urgent job of all goes
first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from engine.model.slots import Slots
from engine.records import Done, Event, Request, Step
from engine.worker import BACKGROUND, IDLE_SECONDS, URGENCY, Job, Worker

TIMEOUT_S = 180


@contextmanager
def workers(count: int) -> Iterator[list[Worker]]:
    slots = Slots()
    with ExitStack() as stack:
        made = [Worker(slots=slots) for _ in range(count)]
        for one in made:
            stack.callback(one.close)
        yield made


class Steps:
    """Counts steps, and fails where two are taken at the same time."""

    def __init__(self) -> None:
        self.inside = self.most = 0
        self.names: list[str] = []

    def job(self, kind: str, name: str, steps: int, work: Callable[[], object] = lambda: 0) -> Job:
        def run(cancelled: Callable[[], bool]) -> Iterator[Event]:
            for _ in range(steps):
                if cancelled():
                    break
                self.inside += 1
                self.most = max(self.most, self.inside)
                self.names.append(name)
                work()
                self.inside -= 1
                yield Step()
            yield Done("cancelled" if cancelled() else "stop")

        return Job(Request(kind), run)  # type: ignore[arg-type]


def test_engines_compute_one_at_a_time() -> None:
    steps = Steps()

    def pause() -> None:  # in which the other thread could begin a step
        threading.Event().wait(0.001)

    with workers(2) as (one, two):
        jobs = [
            worker.submit(steps.job("edit", name, 40, pause))
            for name, worker in (("one", one), ("two", two))
        ]
        assert [job.result().reason for job in jobs] == ["stop", "stop"]
    assert steps.most == 1 and steps.names.count("one") == steps.names.count("two") == 40


def test_a_less_urgent_job_of_another_engine_pauses_until_the_more_urgent_one_ends() -> None:
    steps, started, go_on = Steps(), threading.Event(), threading.Event()

    def begin() -> None:
        started.set()
        assert go_on.wait(TIMEOUT_S)

    with workers(2) as (main, beside):
        edit = beside.submit(steps.job("edit", "edit", 10, begin))
        assert started.wait(TIMEOUT_S)  # its first step runs
        typed = main.submit(steps.job("complete", "typed", 10))
        while not main._engines._urgencies[URGENCY["complete"]]:
            threading.Event().wait(0.001)
        go_on.set()
        assert typed.result().reason == edit.result().reason == "stop"
    assert steps.names == ["edit", *["typed"] * 10, *["edit"] * 9]


def test_a_job_that_waits_for_its_turn_can_be_cancelled() -> None:
    steps = Steps()
    with workers(2) as (main, beside):
        slots = main._engines
        with slots.job(URGENCY["complete"]):  # a completion between two of its steps
            waiting = beside.submit(steps.job("edit", "edit", 5))
            while not slots._urgencies[URGENCY["edit"]]:
                threading.Event().wait(0.001)
            waiting.cancel()
            assert waiting.result().reason == "cancelled"
    assert steps.names == []


def test_background_work_waits_for_the_jobs_of_all_engines() -> None:
    sliced = threading.Event()

    def background() -> Iterator[float]:
        sliced.set()
        yield 0.0

    slots = Slots()
    with slots.job(URGENCY["chat"]):
        worker = Worker(background(), slots=slots)
        assert not sliced.wait(2 * IDLE_SECONDS)
    assert sliced.wait(TIMEOUT_S)
    worker.close()
    assert max(URGENCY.values()) < BACKGROUND


def test_an_engine_that_waits_for_its_turn_can_be_closed() -> None:
    steps = Steps()
    with workers(2) as (main, beside), main._engines.job(0):
        waiting = beside.submit(steps.job("chat", "chat", 5))
        beside.close()
        assert waiting.result().reason == "cancelled"


def test_an_error_ends_a_turn() -> None:
    def broken(cancelled: Callable[[], bool]) -> Iterator[Event]:
        yield Step()
        raise ValueError("broken")

    steps = Steps()
    with workers(2) as (one, two):
        assert one.submit(Job(Request("edit"), broken)).result().error == "broken"
        for worker in (one, two):
            assert worker.submit(steps.job("chat", "chat", 3)).result().reason == "stop"


@pytest.mark.parametrize("urgency", [None, 7])
def test_the_urgency_of_a_job(urgency: int | None) -> None:
    job = Job(Request("complete"), lambda cancelled: iter(()), urgency=urgency)
    assert job.urgency == (URGENCY["complete"] if urgency is None else 7)
