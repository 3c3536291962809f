"""A quiet machine: what comes by itself gives way to everything else, and an idle engine hands
memory back and wakes up no more. Times are those of a clock that the tests move."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from engine import Config, Done, Engine, Request
from engine.model import _kernels as kernels
from engine.model.native.loading import on_battery, use_threads
from engine.records import Event, Step
from engine.worker import BACKGROUND, REST_SECONDS, Job, Worker
from tests.conftest import tiny_model
from tests.engine.test_schedule import Clock
from tests.support.server import wait_until

TIMEOUT_S = 60  # a backstop
CODE = "".join(f"def part_{n}(left, right):\n    return left + right * {n}\n" for n in range(24))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("quiet") / "llama", context=4096)


def job(
    kind: str, threads: list[str], urgency: int | None = None, error: Exception | None = None
) -> Job:
    """A job of three steps, which notes the threads that they run in."""

    def run(stop: Callable[[], bool]) -> Iterator[Event]:
        for _ in range(3):
            threads.append(threading.current_thread().name)
            yield Step()
        if error is not None:
            raise error
        yield Done("stop")

    return Job(Request(kind, "x"), run, urgency=urgency)  # type: ignore[arg-type]


# -- rest --------------------------------------------------------------------------------------


def test_memory_is_handed_back_once_after_the_last_job_and_nothing_is_due_then() -> None:
    clock, rests = Clock(), list[float]()
    worker = Worker(clock=clock, rest=lambda: rests.append(clock.now))

    def wait(seconds: float) -> None:
        with worker._wake:
            clock.now += seconds
            worker._wake.notify()

    for uses in range(3):
        assert worker.submit(job("chat", [])).result().reason == "stop"
        wait_until(lambda: worker._rest_at == clock.now + REST_SECONDS)
        wait(REST_SECONDS - 1)
        assert worker._pause() == 1 and len(rests) == uses
        wait(1)
        wait_until(lambda uses=uses: len(rests) == uses + 1)
        wait_until(lambda: worker._pause() is None)
        wait(100 * REST_SECONDS)
        assert worker._pause() is None and len(rests) == uses + 1
    worker.close()


def test_background_work_that_is_due_comes_before_the_rest() -> None:
    done, made = list[str](), threading.Event()

    def work() -> Iterator[float]:
        assert made.wait(TIMEOUT_S)
        for n in range(3):
            done.append(f"slice {n}")
            worker._rest_at = 0.0  # due from now on
            yield 0.0

    worker = Worker(work(), rest=lambda: done.append("rest"))
    made.set()
    wait_until(lambda: "rest" in done)
    worker.close()
    assert done == ["slice 0", "slice 1", "slice 2", "rest"]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_an_answer_after_a_rest_is_the_same_and_its_prompt_is_read_again(
    model: Path, home: Path, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "_background", lambda engine: [])
    request = Request(
        "complete", CODE, suffix="\n", path="a.py", max_tokens=12, temperature=temperature, seed=3
    )
    with Engine(Config(model=str(model), threads=2, library=False)) as engine:
        first = engine.submit(request).result()
        cached = engine.submit(request).result()
        weights = engine.parts.target.model
        assert engine.parts.target.pool.sequences
        with engine.worker._wake:
            engine.worker._rest_at = 0.0
            engine.worker._wake.notify()
        wait_until(lambda: not engine.parts.target.pool.sequences)
        again = engine.submit(request).result()
        assert engine.parts.target.model is weights
    assert first.text == cached.text == again.text and first.reason == again.reason
    assert (first.usage.cached_tokens, again.usage.cached_tokens) == (0, 0)
    assert cached.usage.cached_tokens == cached.usage.prompt_tokens - 1


# -- priority ----------------------------------------------------------------------------------


def test_what_comes_by_itself_runs_in_the_thread_of_a_low_priority() -> None:
    lowered, slices = list[str](), list[str]()

    def lower() -> None:
        lowered.append(threading.current_thread().name)

    def work() -> Iterator[float]:
        slices.append(threading.current_thread().name)
        yield 0.0

    worker = Worker(work(), lower=lower)
    wait_until(worker.idle)
    threads: dict[str, list[str]] = {"complete": [], "edit": [], "chat": [], "ahead": []}
    for kind in ("complete", "edit", "chat"):
        assert worker.submit(job(kind, threads[kind])).result().reason == "stop"
    assert worker.submit(job("edit", threads["ahead"], BACKGROUND)).result().reason == "stop"
    failed = worker.submit(job("complete", [], error=ValueError("broken"))).result()
    assert (failed.reason, failed.error) == ("failed", "broken")
    worker.close()
    (low,) = lowered
    assert {*threads["complete"], *threads["ahead"], *slices} == {low}
    assert {*threads["edit"], *threads["chat"]} == {"draftline-model"}
    assert not any(thread.name == low for thread in threading.enumerate())


@pytest.mark.skipif(sys.platform != "linux", reason="other systems tell no thread's priority")
def test_a_thread_of_a_low_priority_leaves_the_others_as_they_are() -> None:
    found: list[int] = []

    def run() -> None:
        kernels.lower_priority()
        kernels.lower_priority()  # no lower
        found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [max(before, 5)]
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before


# -- battery -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("battery", "expected"),
    [
        (None, False),  # a desktop
        (SimpleNamespace(power_plugged=True), False),
        (SimpleNamespace(power_plugged=False), True),
        (SimpleNamespace(power_plugged=None), False),  # the system does not know
    ],
)
def test_half_of_the_cores_are_used_on_battery(
    battery: Any, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "sensors_battery", lambda: battery, raising=False)
    before = kernels.threads()
    assert on_battery() == expected
    try:
        for cores in (1, 2, 5, 8):
            monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
            assert (
                use_threads(0) == kernels.threads() == (max(1, cores // 2) if expected else cores)
            )
            assert use_threads(3) == kernels.threads() == 3, "as it was configured"
    finally:
        kernels.set_threads(before)


def test_a_system_that_knows_no_batteries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(psutil, "sensors_battery", raising=False)
    assert not on_battery()
