"""The segment store and other processes: kills at every step, full disks, concurrent readers."""

from __future__ import annotations

import errno
import logging
import os
import random
import resource
import shutil
import signal
import time
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from index.workspace.segment_store import Part, SavedState, SegmentStore, new_name
from tests.support.child import end_of, kill, start
from tests.support.file_steps import each_step, kill_at
from tests.support.folder_mirror import wait_for
from tests.support.segment_store import OURS, load, names, same, save, state, whole

TIMEOUT_S = 180  # a backstop


@pytest.mark.parametrize("clears", [False, True], ids=["save", "clear"])
@pytest.mark.parametrize("first", [None, 1], ids=["empty", "full"])
def test_kill_9_at_any_step_leaves_one_state(
    tmp_path: Path, first: int | None, clears: bool
) -> None:
    old = first and state(first)
    seen = set()
    for number in count():
        folder = tmp_path / str(number)
        if old:
            save(folder, old)

        def work(folder: Path = folder, number: int = number) -> None:
            store = SegmentStore(folder, OURS)
            store.load()
            kill_at(number)
            assert store.acquire()
            if clears:
                store.clear()
            else:
                store.save(state(2))

        ended = end_of(start(work))
        loaded = load(folder)
        after = loaded and loaded.meta["number"]
        assert after in ((first, None) if clears else (first, 2))
        assert loaded is None or same(loaded, state(loaded.meta["number"]))
        seen.add(after)
        save(folder, state(3))
        assert whole(folder, state(3))
        if ended == 0:
            break
        assert ended == -signal.SIGKILL
    assert number > (10 if clears else 25)
    assert seen == {first, None if clears else 2}


def test_files_are_synced_before_they_are_named(tmp_path: Path) -> None:
    """For power loss: contents are synced before they are named, parts before the table."""
    save(tmp_path, state(1))
    left = {"dead.part", ".draftline-0123456789abcdef.tmp"}  # left by a killed writer
    for name in left:
        (tmp_path / name).touch()

    def work() -> None:
        paths: dict[int, str] = {}
        synced: list[str] = []
        last = ""
        real_open = os.open

        def opened(path: Any, *args: Any, **options: Any) -> int:
            handle = real_open(path, *args, **options)
            paths[handle] = str(path)
            return handle

        def before(name: str, args: tuple[Any, ...]) -> None:
            nonlocal last
            if name == "fsync":
                synced.append(paths[args[0]])
            elif name == "replace":
                assert synced[-1] == str(args[0]), "renamed before it was synced"
                table = Path(args[1]).name == "table"
                assert not table or str(tmp_path) in synced, (
                    "table renamed before its parts were synced"
                )
            elif name == "write":
                assert not left & names(tmp_path), "deleted too late"
            elif name == "unlink" and Path(args[0]).name not in left:
                assert last.endswith("table") and synced[-1] == str(tmp_path), "deleted too early"
            last = str(args[1]) if name == "replace" else last

        each_step(before)
        os.open = opened
        with SegmentStore(tmp_path, OURS) as store:
            assert store.acquire()
            store.save(state(3))
        assert last.endswith("table") and len(synced) == 5

    assert end_of(start(work)) == 0
    assert whole(tmp_path, state(3))


def test_kill_9_at_any_moment(tmp_path: Path) -> None:
    folder, rng = tmp_path / "index", random.Random(3)
    reached = 0
    for turn in range(15):

        def work(first: int = reached + 1) -> None:
            store = SegmentStore(folder, OURS)
            store.load()
            assert store.acquire()
            for number in count(first):
                store.save(state(number, size=5000))

        def further(reached: int = reached) -> bool:
            loaded = load(folder)
            return loaded is not None and loaded.meta["number"] > reached

        child = start(work)
        if turn % 5 == 0:  # makes progress even on a slow machine
            wait_for(further)
        time.sleep(rng.uniform(0.005, 0.05))
        kill(child)
        loaded = load(folder)
        number = loaded.meta["number"] if loaded else 0
        assert number >= reached, "a saved state was lost"
        assert loaded is None or same(loaded, state(number, size=5000))
        reached = number
    assert reached > 0
    save(folder, state(1))
    assert whole(folder, state(1))


def test_what_a_killed_writer_left_is_swept(tmp_path: Path) -> None:
    """Unless there is a writer; and nothing that a store would not have written."""
    save(tmp_path, state(1))
    left = {"dead.part", ".draftline-0123456789abcdef.tmp"}
    foreign = {"Mine.part", "a.b.part", "0123.tmp", ".draftline-mine.tmp", "link.part"}
    for name in (left | foreign) - {"link.part"}:
        (tmp_path / name).write_text("text")
    (tmp_path / "link.part").symlink_to("Mine.part")
    store = SegmentStore(tmp_path, OURS)
    with SegmentStore(tmp_path, OURS) as writer:
        assert writer.acquire()
        store.sweep()
        assert "dead.part" in names(tmp_path), "the writer may need it"
    store.sweep()
    assert same(load(tmp_path), state(1))
    assert names(tmp_path) == foreign | {"table", "lock", "part1.part", "part2.part"}
    (tmp_path / "table").write_bytes(b"damaged")
    store.sweep()
    assert {"part1.part", "part2.part"} < names(tmp_path)


def test_a_full_disk_leaves_the_old_state(tmp_path: Path) -> None:
    save(tmp_path, state(1))
    small = Part(new_name(), {"ids": np.arange(9)})
    big = np.zeros(1 << 18)
    too_large = [
        SavedState({}, {}, [small, Part(new_name(), {"ids": big})]),
        SavedState({}, {"paths": big}, [*state(1).parts, small]),
    ]

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        for saved, loads in ((each, loads) for each in too_large for loads in (True, False)):
            with SegmentStore(tmp_path, OURS) as store:
                assert store.acquire()
                if loads:
                    assert store.load() is not None
                resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
                with pytest.raises(OSError, match=r"\.part|table") as caught:
                    store.save(saved)
                assert caught.value.errno == errno.EFBIG
                assert whole(tmp_path, state(1))
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
                store.save(saved)
                assert whole(tmp_path, saved)
                store.save(state(1))

    assert end_of(start(work)) == 0
    assert whole(tmp_path, state(1))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_loaded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save(tmp_path / "index", state(1))
    (tmp_path / "index" / "lock").unlink()
    (tmp_path / "index").chmod(0o500)
    try:
        store = SegmentStore(tmp_path / "index", OURS)
        assert not store.acquire() and len(caplog.messages) == 1
        assert same(store.load(), state(1))
        with pytest.raises(RuntimeError, match="not the writer"):
            store.save(state(2))
    finally:
        (tmp_path / "index").chmod(0o700)


def test_a_folder_that_cannot_be_created_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    store = SegmentStore(tmp_path / "file" / "index", OURS)
    with caplog.at_level(logging.WARNING):
        assert not store.acquire() and not store.writable
    assert len(caplog.messages) == 1 and "file" in caplog.messages[0]
    assert store.nbytes() == 0


def test_only_one_store_is_the_writer(tmp_path: Path) -> None:
    with SegmentStore(tmp_path, OURS) as one, SegmentStore(tmp_path, OURS) as two:
        for act in (lambda: one.save(state(1)), one.clear):
            with pytest.raises(RuntimeError, match="not the writer"):
                act()
        assert not names(tmp_path)
        assert one.acquire() and one.acquire() and one.writable
        assert not two.acquire() and not two.writable
        one.save(state(1))
        assert same(two.load(), state(1))
        with pytest.raises(RuntimeError, match="not the writer"):
            two.save(state(2))
        one.close()
        assert not one.writable and two.acquire()
        two.save(state(2))
        assert not one.acquire() and same(one.load(), state(2))


def test_the_lock_is_released_when_its_holder_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "index"

    def work() -> None:
        store = SegmentStore(folder, OURS)
        assert store.acquire()
        store.save(state(1))
        time.sleep(2 * TIMEOUT_S)

    child = start(work)
    with SegmentStore(folder, OURS) as store:
        try:
            wait_for(lambda: store.load() is not None)
            assert not store.acquire()
        finally:
            kill(child)
        assert store.acquire()
        store.save(state(2))
        assert whole(folder, state(2))


def test_a_deleted_folder_is_recreated(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    with SegmentStore(folder, OURS) as store, SegmentStore(folder, OURS) as other:
        assert store.acquire()
        store.save(state(1))
        shutil.rmtree(folder)
        assert not store.writable
        store.save(state(2))
        assert store.writable and whole(folder, state(2))
        shutil.rmtree(folder)
        assert other.acquire()
        with pytest.raises(RuntimeError, match="not the writer"):
            store.save(state(3))
        other.save(state(4))
        assert whole(folder, state(4))


def test_a_concurrent_reader_loads_consistent_states(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(tmp_path, state(1))

    def work() -> None:
        with SegmentStore(tmp_path, OURS) as store:
            assert store.acquire()
            for number in count(2):
                store.save(state(number))

    child = start(work)
    try:
        seen = [1]
        deadline = time.monotonic() + TIMEOUT_S
        while len(set(seen)) < 100:
            loaded = load(tmp_path)
            assert loaded is not None and same(loaded, state(loaded.meta["number"]))
            seen.append(loaded.meta["number"])
            assert time.monotonic() < deadline, "the writer is too slow"
    finally:
        kill(child)
    assert seen == sorted(seen) and not caplog.messages
