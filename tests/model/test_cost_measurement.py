"""Pass times are measured in the worker's idle time: requests come first and never wait for it."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import Config, Done, Engine, Request
from engine.model.cost_model import guess, measure, remembered
from engine.records import Event
from engine.worker import Job, Worker


@pytest.fixture(autouse=True)
def measured_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo `given_costs` (tests/conftest.py): engines of this module measure, as users' do."""
    for original in (remembered, guess, measure):
        monkeypatch.setattr(f"engine.engine.{original.__name__}", original)
    monkeypatch.setattr("engine.worker.IDLE_SECONDS", 0.01)
    # One try only: on a busy machine the next ones would come minutes later.
    monkeypatch.setattr("engine.model.cost_model.PAUSES_SECONDS", (0.0,))


TEXT = "def add(left, right):\n    return left + right\n"
REQUEST = Request("complete", TEXT, max_tokens=8)


LIMIT_S = 180  # for anything that should happen


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.005)


class Slices:
    """Idle work whose slices each wait for `permits`; `done` counts them."""

    def __init__(self, count: int, end: Exception | None = None, pause: float = 0.0) -> None:
        self.count, self.end, self.pause, self.done = count, end, pause, 0
        self.permits, self.inside = threading.Semaphore(0), threading.Event()

    def __iter__(self) -> Iterator[float]:
        for _ in range(self.count):
            self.inside.set()
            self.permits.acquire()
            self.inside.clear()
            self.done += 1
            yield self.pause
        if self.end:
            raise self.end


def job(answered: list[int], slices: Slices) -> Job:
    """A job that appends to `answered` how many slices were done when it ran."""

    def run(stop: Callable[[], bool]) -> Iterator[Event]:
        answered.append(slices.done)
        yield Done("stop")

    return Job(REQUEST, run)


def test_jobs_wait_for_the_current_slice_only() -> None:
    slices, answered = Slices(5), list[int]()
    worker = Worker(slices)
    assert slices.inside.wait(LIMIT_S)  # the first slice is running
    jobs = [worker.submit(job(answered, slices)) for _ in range(3)]
    slices.permits.release()
    assert [one.result().reason for one in jobs] == ["stop"] * 3
    assert answered == [1, 1, 1], "all waiting jobs run before the next slice"
    slices.permits.release(4)
    wait_until(lambda: slices.done == 5)
    assert worker.submit(job(answered, slices)).result().reason == "stop"
    worker.close()


def test_closing_waits_for_the_current_slice_only() -> None:
    slices = Slices(1_000_000)
    worker = Worker(slices)
    assert slices.inside.wait(LIMIT_S)
    closing = threading.Thread(target=worker.close)
    closing.start()
    wait_until(lambda: worker._closed)
    slices.permits.release()
    closing.join(LIMIT_S)
    assert not closing.is_alive() and slices.done == 1


def test_a_pause_between_slices_does_not_delay_jobs() -> None:
    slices, answered = Slices(5, pause=3600.0), list[int]()
    worker = Worker(slices)
    slices.permits.release(5)
    wait_until(lambda: slices.done == 1)
    for _ in range(3):
        assert worker.submit(job(answered, slices)).result().reason == "stop"
    assert answered == [1, 1, 1] and not worker.idle()
    worker.close()


def test_failing_idle_work_is_logged_once_and_jobs_still_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slices, answered = Slices(1, MemoryError("no memory\nat all")), list[int]()
    slices.permits.release()
    with caplog.at_level(logging.WARNING):
        worker = Worker(slices)
        wait_until(lambda: bool(caplog.messages))
        assert worker.submit(job(answered, slices)).result().reason == "stop"
        worker.close()
    assert len(caplog.messages) == 1 and "no memory at all" in caplog.messages[0]


def turns(name: str, pauses: list[float], done: list[str]) -> Iterator[float]:
    """Idle work that appends its name to `done` in each slice."""
    for pause in pauses:
        done.append(name)
        yield pause


def test_idle_work_runs_in_order_and_pauses_are_used_by_the_next() -> None:
    done = list[str]()
    worker = Worker(turns("a", [0.0] * 3, done), turns("b", [0.0] * 3, done))
    wait_until(worker.idle)
    worker.close()
    assert "".join(done) == "aaabbb"
    done.clear()
    worker = Worker(turns("a", [0.0, 3600.0, 0.0], done), turns("b", [0.0] * 3, done))
    wait_until(lambda: len(done) == 5)
    assert "".join(done) == "aabbb" and not worker.idle()
    worker.close()


def test_work_continues_after_its_pause_though_other_work_is_left() -> None:
    went_on = threading.Event()

    def first() -> Iterator[float]:
        yield 0.05
        went_on.set()

    def second() -> Iterator[float]:
        deadline = time.monotonic() + LIMIT_S
        while not went_on.is_set():
            assert time.monotonic() < deadline, "the first never continued"
            yield 0.0

    worker = Worker(first(), second())
    wait_until(worker.idle)
    worker.close()
    assert went_on.is_set()


def test_failing_idle_work_does_not_end_other_work(caplog: pytest.LogCaptureFixture) -> None:
    def failing() -> Iterator[float]:
        yield 0.0
        raise MemoryError("no memory")

    done = list[str]()
    with caplog.at_level(logging.WARNING):
        worker = Worker(failing(), turns("b", [0.0] * 3, done))
        wait_until(worker.idle)
        worker.close()
    assert done == ["b"] * 3 and len(caplog.messages) == 1 and "no memory" in caplog.messages[0]


def test_the_stdlib_is_counted_while_measuring_pauses(
    tiny: Any, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "one.py").write_text(TEXT * 50, "utf-8")
    monkeypatch.setattr("engine.model.cost_model.PAUSES_SECONDS", (3600.0,))
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / "lib"))
    with Engine(Config(model=str(tiny("llama")), threads=1)) as engine:
        wait_until(lambda: engine.library.ready)
        assert not engine.parts.cost.measured and not engine.worker.idle()
        assert engine.submit(REQUEST).result().reason in ("stop", "length")
    assert engine.library.file.parent.parent == home


def test_a_measurement_runs_beside_requests_and_is_stored_and_reused(tiny: Any, home: Path) -> None:
    config = Config(model=str(tiny("llama")), threads=1, library=False)
    file = home / "costs.json"
    with Engine(config) as engine:
        first = engine.submit(REQUEST, speculation=False).result()
        assert first.reason in ("stop", "length")
        for _ in range(3):
            again = engine.submit(REQUEST).result()
            assert (again.reason, again.text) == (first.reason, first.text)
        wait_until(file.is_file)  # at the end of measuring, before the engine is closed
    ((key, stored),) = json.loads(file.read_text("utf-8")).items()
    assert len(stored["seconds"]) == 10 and min(stored["seconds"]) > 0
    wrong = [10 * seconds for seconds in stored["seconds"]]
    file.write_text(json.dumps({key: stored | {"seconds": wrong}}), "utf-8")
    with Engine(config) as engine:
        assert engine.parts.cost.seconds.tolist() == wrong
        wait_until(engine.worker.idle)
        assert engine.parts.cost.seconds.tolist() != wrong, "measured in every process"


def test_a_closed_engine_stores_its_guess_and_the_next_one_measures(tiny: Any, home: Path) -> None:
    config = Config(model=str(tiny("llama")), threads=1, library=False)
    file = home / "costs.json"
    Engine(config).close()
    (stored,) = json.loads(file.read_text("utf-8")).values()
    with Engine(config) as engine:
        wait_until(engine.worker.idle)
        assert engine.parts.cost.seconds.tolist() != stored["seconds"]
