"""The debouncer loses no path and makes one call at a time, whatever `on_change` does."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.workspace.debounce import MAX_BATCH_PATHS, RESCAN_COST_FACTOR, Debouncer
from tests.support.folder_mirror import NEVER_S, TIMEOUT_S, Mirror, wait_for, watched


def nothing() -> None:
    pass


names = st.lists(st.sampled_from(["a", "b", "ab", "c"]), min_size=1, max_size=4)


@given(st.lists(names.map("/".join).map("/top/{}".format), max_size=30))
def test_a_batch_covers_exactly_the_noted_paths(notes: list[str]) -> None:
    batches = Debouncer(lambda batch: None, nothing, NEVER_S, NEVER_S, NEVER_S, NEVER_S)
    for note in notes:
        batches.note(note)
    batch = batches._take()
    assert batch is not None and {str(path) for path in batch} <= set(notes)
    for note in notes:
        covers = [path for path in batch if Path(note).is_relative_to(path)]
        assert len(covers) == 1, "expected exactly once: itself or an ancestor"
    assert batches._take() == set()


def test_too_many_paths_become_a_full_scan() -> None:
    batches = Debouncer(lambda batch: None, nothing, NEVER_S, NEVER_S, NEVER_S, NEVER_S)
    for at in range(MAX_BATCH_PATHS + 5):
        batches.note(f"/top/{at}")
    assert batches._take() is None
    for at in range(MAX_BATCH_PATHS):
        batches.note(f"/top/{at}")
    assert len(batches._take() or ()) == MAX_BATCH_PATHS


def test_paths_noted_by_many_threads_are_reported_by_one(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path)
    mirror.call_s = 0.01
    batches = Debouncer(mirror, nothing, 0.002, 0.005, NEVER_S, NEVER_S)
    batches.start()
    wanted = {tmp_path / f"{thread}-{at}" for thread in range(4) for at in range(300)}

    def notes(thread: int) -> None:
        for at in range(300):
            batches.note(str(tmp_path / f"{thread}-{at}"))
            time.sleep(0.0001)
            if at == 150:  # so that there is more than one batch
                wait_for(lambda: bool(mirror.batches))

    threads = [threading.Thread(target=notes, args=(each,)) for each in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_for(lambda: set(itertools.chain(*filter(None, mirror.batches))) == wanted)
    batches.stop()
    assert mirror.overlapping == 0 and len(mirror.threads) == 1 and len(mirror.batches) > 1


def test_an_exception_is_logged_and_followed_by_a_full_scan(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mirror, watching = watched(tmp_path)
    mirror.failing = 3
    with watching:
        for at in range(3):
            (tmp_path / f"{at}.py").write_text(str(at))
        mirror.wait_until_equal()
        (tmp_path / "late.py").write_text("late")
        mirror.wait_until_equal()
    assert None in mirror.batches
    errors = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert errors == ["cannot process a change, rescanning: RuntimeError: the mirror broke"] * 3


def test_slow_full_scans_are_rare() -> None:
    """Measures only a lower bound of the time between them."""
    starts: list[float] = []
    ends: list[float] = []

    def changed(batch: set[Path] | None) -> None:
        assert batch is None
        starts.append(time.monotonic())
        time.sleep(0.005)
        ends.append(time.monotonic())
        batches.use()

    batches = Debouncer(changed, nothing, NEVER_S, NEVER_S, 0.01, NEVER_S)
    batches.use()
    batches.start()
    wait_for(lambda: len(ends) > 2)
    batches.stop()
    for at in range(2):
        assert starts[at + 1] - ends[at] >= RESCAN_COST_FACTOR * (ends[at] - starts[at])


def test_stop_waits_for_a_running_call() -> None:
    entered, left = threading.Event(), threading.Event()

    def changed(batch: set[Path] | None) -> None:
        entered.set()
        wait_for(lambda: batches._stopping)
        time.sleep(0.01)  # `stop` would return now if it did not wait
        left.set()

    batches = Debouncer(changed, nothing, 0, 0, NEVER_S, NEVER_S)
    batches.start()
    batches.note("/top/a")
    assert entered.wait(TIMEOUT_S)
    batches.stop()
    assert left.is_set()


def test_stop_in_a_burst(tmp_path: Path) -> None:
    mirror, watching = watched(tmp_path, quiet_s=0.001, max_delay_s=0.002)
    going = threading.Event()

    def writes() -> None:
        for at in itertools.count():
            (tmp_path / f"{at % 100}.py").write_text(str(at))
            if going.is_set():
                return

    thread = threading.Thread(target=writes)
    thread.start()
    before = set(threading.enumerate())
    for _ in range(5):
        watching.start()
        watching.start()
        mirror.batches.clear()
        wait_for(lambda: len(mirror.batches) > 1)
        watching.stop()
        reported = len(mirror.batches)
        watching.stop()
        assert set(threading.enumerate()) <= before
        (tmp_path / "late.py").write_text("late")
        time.sleep(0.02)
        assert len(mirror.batches) == reported
    going.set()
    thread.join()
    with watching:
        mirror.files = {}
        (tmp_path / "after.py").write_text("after")
        assert tmp_path / "after.py" in mirror.reported()


@pytest.mark.parametrize("rescan_s", [0.0, NEVER_S])
def test_a_thread_whose_reports_nobody_uses_sleeps_without_a_limit(rescan_s: float) -> None:
    done: list[str] = []
    waits: list[float | None] = []
    batches = Debouncer(
        lambda batch: done.append("scan"), lambda: done.append("beat"), 0.0, 0.0, rescan_s, 0.0
    )
    wait = batches._noted.wait

    def noted_wait(timeout: float | None = None) -> bool:
        waits.append(timeout)
        return wait(timeout)

    batches._noted.wait = noted_wait  # type: ignore[method-assign]
    batches.start()
    expected = ["beat"] if rescan_s else ["beat", "scan"]
    for uses in range(4):
        wait_for(lambda: bool(waits) and waits[-1] is None)
        assert done == expected * uses
        waits.clear()
        batches.use()
        wait_for(lambda uses=uses: len(done) == len(expected) * (uses + 1))
    batches.note("/a")  # a report is due all the same, without a scan
    wait_for(lambda: len(done) == len(expected) * 4 + 2)
    assert done[-2:] == ["beat", "scan"]
    batches.stop()
