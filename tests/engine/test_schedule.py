"""The order of jobs, by a clock that the jobs move: whatever one owner has queued, the others and
its own chats get their turn, and answers stay the same."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import Config, Engine
from engine.records import Done, Event, Request, Step
from engine.worker import LEAD_S, MAX_WAIT_S, SLICE_S, URGENCY, Job, Schedule, Worker

KINDS = ("complete", "edit", "chat")
MOST_WAIT_S = 2.0  # of any job beside another owner's, and of a chat beside completions
LONG_S = 4.0  # of the jobs that would keep others waiting


class Clock:
    """Seconds that pass while a job makes a step."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def job_of(kind: str, owner: str = "", client: str = "", urgency: int | None = None) -> Job:
    request: Any = Request(kind, "x")  # type: ignore[arg-type]
    return Job(request, lambda stop: iter(()), client, urgency, owner)


class Simulation:
    """A schedule whose jobs make steps of some seconds, until they have taken their time."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.schedule = Schedule(self.clock)
        self.left: dict[Job, float] = {}
        self.step: dict[Job, float] = {}
        self.came: dict[Job, float] = {}
        self.began: dict[Job, float] = {}
        self.ended: dict[Job, float] = {}
        self.order: list[Job] = []  # of steps

    def add(self, job: Job, seconds: float, step: float = 0.05) -> Job:
        self.schedule.add(job)
        self.left[job], self.step[job], self.came[job] = seconds, step, self.clock.now
        return job

    def run(self, until: float = float("inf")) -> None:
        while self.clock.now < until and (job := self.schedule.next()) is not None:
            self.began.setdefault(job, self.clock.now)
            self.order.append(job)
            self.clock.now += self.step[job]
            self.schedule.ran(self.step[job])
            self.left[job] -= self.step[job]
            if self.left[job] <= 1e-9 or job.cancelled():
                self.schedule.remove(job)
                self.ended[job] = self.clock.now

    def waited(self, job: Job) -> float:
        """Seconds to the first step."""
        return self.began[job] - self.came[job]


FLOODS = st.lists(st.tuples(st.sampled_from(KINDS), st.floats(0.01, LONG_S)), max_size=12)
STEPS = st.sampled_from([0.02, 0.05, 0.2])


@settings(max_examples=60, deadline=None)
@given(flood=FLOODS, kind=st.sampled_from(KINDS), step=STEPS, before=st.floats(0, 6), last=STEPS)
def test_no_flood_of_one_owner_keeps_another_waiting(
    flood: list[tuple[str, float]], kind: str, step: float, before: float, last: float
) -> None:
    """Whatever the one has queued, and for however long."""
    now = Simulation()
    for number, (what, seconds) in enumerate(flood):
        now.add(job_of(what, "A", f"client {number}"), seconds, step)
    now.run(until=before)
    mine = now.add(job_of(kind, "B"), 2 * last, last)
    now.run()
    assert now.waited(mine) <= LEAD_S[0] + SLICE_S + 3 * step
    assert now.ended[mine] - now.came[mine] <= MOST_WAIT_S
    assert all(now.left[job] <= 1e-9 for job in now.left), "every job ends"


@settings(max_examples=60, deadline=None)
@given(lengths=st.lists(st.floats(0.01, LONG_S), min_size=1, max_size=8), step=STEPS)
def test_a_chat_gets_a_turn_beside_completions_of_its_owner(
    lengths: list[float], step: float
) -> None:
    now = Simulation()
    for seconds in lengths:
        now.add(job_of("complete"), seconds, step)
    chat = now.add(job_of("chat"), 3.0, step)
    now.run()
    turns = [number for number, job in enumerate(now.order) if job is chat]
    seconds = [0.0]
    for job in now.order:
        seconds.append(seconds[-1] + now.step[job])
    starts = [seconds[number] for number in turns]
    assert starts[0] <= MAX_WAIT_S + step
    gaps = [later - one for one, later in itertools.pairwise(starts)]
    assert max(gaps) <= MAX_WAIT_S + 2 * step <= MOST_WAIT_S


def test_owners_get_equal_time() -> None:
    now = Simulation()
    for number in range(20):
        now.add(job_of("chat", "A", f"{number}"), 10)
    one, other = now.add(job_of("chat", "B"), 10), now.add(job_of("chat", "C"), 10)
    now.run(until=12)
    for job in (one, other):
        assert 10 - now.left[job] == pytest.approx(4, abs=2 * SLICE_S)


def test_a_more_urgent_job_runs_at_once() -> None:
    """Also that of another owner, if it has not taken more time than the others."""
    for owner in ("A", "B"):
        now = Simulation()
        now.add(job_of("chat", "A"), 10)
        now.run(until=1)
        urgent = now.add(job_of("complete", owner), 0.2)
        now.run(until=1.1)
        assert now.waited(urgent) == 0


def test_an_owner_saves_no_time_while_it_has_nothing_to_do() -> None:
    now = Simulation()
    busy = now.add(job_of("chat", "A"), 100)
    now.run(until=50)
    late = now.add(job_of("chat", "B"), 100)
    now.run(until=52)
    assert 100 - now.left[late] == pytest.approx(1, abs=2 * SLICE_S)
    assert 100 - now.left[busy] == pytest.approx(51, abs=2 * SLICE_S)


def test_jobs_of_one_owner_run_one_after_the_other() -> None:
    """Equally urgent ones, clients in turns: each change would read a prompt again."""
    now = Simulation()
    jobs = [now.add(job_of("chat", "A", name), 3) for name in ("x", "x", "y", "x")]
    now.run()
    changes = [
        job for job, before in zip(now.order, [None, *now.order], strict=False) if job is not before
    ]
    assert changes == [jobs[0], jobs[2], jobs[1], jobs[3]]


def test_a_slice_makes_progress_where_prompts_are_read_again() -> None:
    """The first step of each slice takes 5 s: as much time is left for the others."""
    now = Simulation()
    jobs = [now.add(job_of("chat", owner), 60) for owner in "AB"]
    useful = 0.0
    for _ in range(200):
        job = now.schedule.next()
        assert job in jobs
        first = not now.order or now.order[-1] is not job
        now.order.append(job)
        now.clock.now += 5.0 if first else 0.1
        now.schedule.ran(5.0 if first else 0.1)
        useful += 0.0 if first else 0.1
    changes = sum(one is not other for one, other in zip(now.order, now.order[1:], strict=False))
    assert useful / (changes + 1) >= 4.9


def test_a_cancelled_job_is_next() -> None:
    now = Simulation()
    now.add(job_of("complete", "A"), 10)
    other = now.add(job_of("chat", "A"), 10)
    now.run(until=0.1)
    other.cancel()
    assert now.schedule.next() is other


# -- the worker ---------------------------------------------------------------------------------


def steps(clock: Clock, count: int, log: list[str], name: str) -> Callable[..., Iterator[Event]]:
    def run(stop: Callable[[], bool]) -> Iterator[Event]:
        for _ in range(count):
            if stop():
                yield Done("cancelled")
                return
            log.append(name)
            clock.now += 0.1
            yield Step()
        yield Done("stop")

    return run


def test_the_worker_runs_jobs_in_slices() -> None:
    clock, log = Clock(), []
    worker = Worker(clock=clock)
    with worker._wake:  # nothing begins before all are there
        jobs = [
            Job(Request("complete", "x"), steps(clock, 100, log, "A"), owner="A") for _ in range(2)
        ]
        jobs.append(Job(Request("chat"), steps(clock, 3, log, "B"), owner="B"))
        for job in jobs:
            worker._schedule.add(job)
        worker._wake.notify()
    assert [job.result().reason for job in jobs] == ["stop"] * 3
    assert log.count("A") == 200 and max(n for n, name in enumerate(log) if name == "B") < 20
    worker.close()


def test_closing_ends_jobs_that_pause() -> None:
    clock, log = Clock(), []
    worker = Worker(clock=clock)
    jobs = [
        worker.submit(Job(Request("chat"), steps(clock, 10**9, log, owner), owner=owner))
        for owner in "ABC"
    ]
    for job in jobs:
        assert isinstance(next(iter(job)), Step), "all have begun"
    worker.close()
    assert [job.result().reason for job in jobs] == ["cancelled"] * 3


@pytest.mark.parametrize("fatal", [False, True])
def test_an_error_ends_its_own_job_or_all(fatal: bool) -> None:
    clock, log = Clock(), []
    kind = type("AcceleratorError", (Exception,), {}) if fatal else ValueError

    def fails(stop: Callable[[], bool]) -> Iterator[Event]:
        yield Step()
        while len({*log}) < 2:
            clock.now += 0.1
            yield Step()
        raise kind("broken")

    worker = Worker(clock=clock)
    jobs = [Job(Request("chat"), steps(clock, 1 << 12, log, owner), owner=owner) for owner in "AB"]
    broken = Job(Request("complete", "x"), fails, owner="C")
    with worker._wake:  # all wait before the first begins
        for job in (*jobs, broken):
            worker.submit(job)
    assert broken.result().reason == "failed"
    assert {job.result().reason for job in jobs} == {"failed" if fatal else "stop"}
    worker.close()


@pytest.mark.parametrize("kind", ["llama"])
def test_answers_are_the_same_in_slices(tiny: Any, kind: str, home: Any) -> None:
    """Each step of an answer is followed by one of another owner's answer."""
    with Engine(Config(model=str(tiny(kind)), threads=1, library=False)) as engine:
        requests = [
            Request("complete", text * 20, max_tokens=30, temperature=heat, seed=7)
            for text in ("def f(x):\n", "a b c d ")
            for heat in (0.0, 0.9)
        ]
        alone = [engine.submit(one).result().text for one in requests]
        clock = engine.worker._clock = engine.worker._schedule._clock = Clock()
        original = engine.worker._schedule.ran
        switches: list[str] = []

        def ran(seconds: float) -> None:
            current = engine.worker._schedule._current
            assert current is not None
            switches.append(current.owner)
            clock.now += 10.0
            original(10.0)
            engine.worker._schedule._least = 0.0  # so that another one is next at once

        engine.worker._schedule.ran = ran  # type: ignore[method-assign]
        all_there = threading.Event()

        def wait(stop: Callable[[], bool]) -> Iterator[Event]:
            all_there.wait()
            yield Done("stop")

        engine.worker.submit(Job(Request("chat"), wait, owner="first"))
        jobs = [engine.submit(one, False, owner=f"key {n}") for n, one in enumerate(requests)]
        all_there.set()
        assert [job.result().text for job in jobs] == alone
    changes = sum(one != other for one, other in itertools.pairwise(switches))
    assert changes >= 30, "the answers were written by turns"


def test_urgencies_have_leads() -> None:
    assert len(LEAD_S) == max(URGENCY.values())
