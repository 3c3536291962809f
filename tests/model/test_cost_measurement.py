"""Measuring beside requests: these go first, and nothing waits for it."""

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
from engine.model.cost_model import remembered
from engine.records import Event
from engine.worker import Job, Worker


@pytest.fixture(autouse=True)
def measured_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here engines measure what a pass costs, as they do for users."""
    monkeypatch.setattr("engine.engine.remembered", remembered)


TEXT = "def add(left, right):\n    return left + right\n"
REQUEST = Request("complete", TEXT, max_tokens=8)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 180
    while not true():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.005)


class Slices:
    """Spare work: counts its slices; each waits until it may end."""

    def __init__(self, count: int, end: Exception | None = None, pause: float = 0.0) -> None:
        self.count, self.end, self.pause, self.done = count, end, pause, 0
        self.may, self.inside = threading.Semaphore(0), threading.Event()

    def __iter__(self) -> Iterator[float]:
        for _ in range(self.count):
            self.inside.set()
            self.may.acquire()
            self.inside.clear()
            self.done += 1
            yield self.pause
        if self.end:
            raise self.end


def job(answered: list[int], slices: Slices) -> Job:
    """A job that notes how many slices were done when it ran."""

    def run(stop: Callable[[], bool]) -> Iterator[Event]:
        answered.append(slices.done)
        yield Done("stop")

    return Job(REQUEST, run)


def test_a_job_waits_for_one_slice_and_then_the_rest_is_done() -> None:
    slices, answered = Slices(5), list[int]()
    worker = Worker(slices)
    assert slices.inside.wait(180)  # the first slice is being done
    jobs = [worker.submit(job(answered, slices)) for _ in range(3)]
    slices.may.release()
    assert [one.result().reason for one in jobs] == ["stop"] * 3
    assert answered == [1, 1, 1], "all that waits comes before the next slice"
    slices.may.release(4)
    until(lambda: slices.done == 5)
    assert worker.submit(job(answered, slices)).result().reason == "stop"
    worker.close()


def test_closing_waits_for_one_slice_at_most() -> None:
    slices = Slices(1_000_000)
    worker = Worker(slices)
    assert slices.inside.wait(180)
    closing = threading.Thread(target=worker.close)
    closing.start()
    until(lambda: worker._closed)
    slices.may.release()
    closing.join(180)
    assert not closing.is_alive() and slices.done == 1


def test_a_pause_between_slices_holds_nobody_up() -> None:
    slices, answered = Slices(5, pause=3600.0), list[int]()
    worker = Worker(slices)
    slices.may.release(5)
    until(lambda: slices.done == 1)
    for _ in range(3):
        assert worker.submit(job(answered, slices)).result().reason == "stop"
    assert answered == [1, 1, 1] and not worker.idle()
    worker.close()


def test_spare_work_that_fails_is_named_once_and_jobs_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slices, answered = Slices(1, MemoryError("no memory\nat all")), list[int]()
    slices.may.release()
    with caplog.at_level(logging.WARNING):
        worker = Worker(slices)
        until(lambda: bool(caplog.messages))
        assert worker.submit(job(answered, slices)).result().reason == "stop"
        worker.close()
    assert len(caplog.messages) == 1 and "no memory at all" in caplog.messages[0]


def turns(name: str, pauses: list[float], done: list[str]) -> Iterator[float]:
    """Spare work that notes its slices."""
    for pause in pauses:
        done.append(name)
        yield pause


def test_the_first_work_comes_first_and_the_next_does_not_wait_with_it() -> None:
    done = list[str]()
    worker = Worker(turns("a", [0.0] * 3, done), turns("b", [0.0] * 3, done))
    until(worker.idle)
    worker.close()
    assert "".join(done) == "aaabbb"
    done.clear()
    worker = Worker(turns("a", [0.0, 3600.0, 0.0], done), turns("b", [0.0] * 3, done))
    until(lambda: len(done) == 5)
    assert "".join(done) == "aabbb" and not worker.idle()
    worker.close()


def test_what_waited_goes_on_before_what_did_not_wait_is_done() -> None:
    went_on = threading.Event()

    def first() -> Iterator[float]:
        yield 0.05
        went_on.set()

    def second() -> Iterator[float]:
        deadline = time.monotonic() + 180
        while not went_on.is_set():
            assert time.monotonic() < deadline, "the first had no turn"
            yield 0.0

    worker = Worker(first(), second())
    until(worker.idle)
    worker.close()
    assert went_on.is_set()


def test_work_that_fails_ends_no_other(caplog: pytest.LogCaptureFixture) -> None:
    def failing() -> Iterator[float]:
        yield 0.0
        raise MemoryError("no memory")

    done = list[str]()
    with caplog.at_level(logging.WARNING):
        worker = Worker(failing(), turns("b", [0.0] * 3, done))
        until(worker.idle)
        worker.close()
    assert done == ["b"] * 3 and len(caplog.messages) == 1 and "no memory" in caplog.messages[0]


def test_the_library_is_counted_while_measuring_waits_for_calm(
    tiny: Any, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "one.py").write_text(TEXT * 50, "utf-8")
    monkeypatch.setattr(
        "engine.model.cost_model.PAUSES_SECONDS", (3600.0,)
    )  # a machine that is busy for an hour
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / "lib"))
    with Engine(Config(model=str(tiny("llama")), threads=2)) as engine:
        until(lambda: engine.library.ready)
        assert not engine.parts.cost.measured and not engine.worker.idle()
        assert engine.submit(REQUEST).result().reason in ("stop", "length")
    assert engine.library.file.parent.parent == home


def test_the_first_request_does_not_wait_and_the_measurement_is_kept(tiny: Any, home: Path) -> None:
    config = Config(model=str(tiny("llama")), threads=2, library=False)
    with Engine(config) as engine:
        first = engine.submit(REQUEST, speculation=False).result()
        assert first.reason in ("stop", "length")
        for _ in range(20):  # in the middle of it, and after it
            again = engine.submit(REQUEST).result()
            assert (again.reason, again.text) == (first.reason, first.text)
        file = home / "costs.json"
        until(file.is_file)  # at the end of measuring, before the engine is closed
    (kept,) = json.loads(file.read_text("utf-8")).values()
    assert len(kept["seconds"]) == 9 and min(kept["seconds"]) > 0


def test_an_engine_that_is_closed_at_once_keeps_a_guess_and_measures_next_time(
    tiny: Any, home: Path
) -> None:
    config = Config(model=str(tiny("llama")), threads=2, library=False)
    file = home / "costs.json"
    Engine(config).close()
    (key, kept), *others = json.loads(file.read_text("utf-8")).items()
    assert not others
    kept["measured"] = False  # as where it was closed in the middle
    file.write_text(json.dumps({key: kept}), "utf-8")
    with Engine(config) as engine:
        until(engine.worker.idle)
        assert engine.parts.cost.seconds.tolist() != kept["seconds"]


def test_what_was_measured_is_not_measured_again(tiny: Any, home: Path) -> None:
    config = Config(model=str(tiny("llama")), threads=2, library=False)
    with Engine(config) as engine:
        until(engine.worker.idle)
    file = home / "costs.json"
    (key, kept), *_ = json.loads(file.read_text("utf-8")).items()
    file.write_text(json.dumps({key: kept | {"measured": True}}), "utf-8")
    with Engine(config) as engine:
        until(engine.worker.idle)
        assert engine.parts.cost.measured and engine.parts.cost.seconds.tolist() == kept["seconds"]
