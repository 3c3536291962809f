"""Files that change while they are read, folders that appear and vanish, and wrong clocks."""

from __future__ import annotations

import gc
import os
import random
import shutil
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from index import Workspace
from index.workspace.watch import Watch
from tests.support.encoders import Bytes
from tests.support.faults import (
    NAMES,
    TIMEOUT_S,
    check,
    found,
    git,
    make_tree,
    small_segments,
    starts_warm,
    text_of,
    two_branches,
    wait_until_fresh,
    warnings_of_index,
    within,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@contextmanager
def meanwhile(work: Callable[[int], object]) -> Iterator[None]:
    """Call `work` with 0, 1, 2, ... on a thread until the block ends; reraise its errors."""
    stop = threading.Event()
    errors: list[BaseException] = []

    def run() -> None:
        number = 0
        try:
            while not stop.is_set() or number < 3:
                work(number)
                number += 1
        except BaseException as error:  # reraised
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(TIMEOUT_S)
    assert not errors and not thread.is_alive(), errors


def replaced(path: Path, kind: str) -> None:
    """Replace a path by a file of this kind, atomically where possible."""
    made = path.with_name(f"{path.name}.{kind}")
    if kind == "file":
        made.write_text("value = 1\n")
    elif kind == "pipe":
        os.mkfifo(made)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(os.path.relpath(made))
    elif kind == "link":
        made.symlink_to("/etc/hostname")
    elif kind == "loop":
        made.symlink_to(path)
    elif kind == "folder":
        made.mkdir()
        (made / "inside").write_text("value = 2\n")
        (made / "binary").write_bytes(b"\0")
    if path.is_dir() and not path.is_symlink():
        path.rename(path.parent.parent / f"away{time.monotonic_ns()}")
    elif kind == "folder":
        path.unlink()
    made.rename(path)


KINDS = ("file", "pipe", "socket", "link", "loop", "folder")


# -- while it is read ----------------------------------------------------------------------------


def test_a_file_that_grows_while_it_is_read(root: Path) -> None:
    """Each indexed text was once the file's; the last is all of it."""
    path = root / "log"
    path.touch()
    seen = set()
    with Workspace(root, Bytes()) as workspace, path.open("a") as file:
        written = 0

        def grow(_: int) -> None:
            nonlocal written
            if written < 2000 * (len(seen) + 1):  # never so far ahead that it is seen only once
                file.write(f"line {written}\n")
                file.flush()
                written += 1

        with meanwhile(grow):
            while len(seen) < 4:
                workspace.scan()
                seen.add(text_of(workspace, path))
        whole = path.read_text()
        workspace.refresh([path])
        assert text_of(workspace, path) == whole
        assert all(one is not None and whole.startswith(one) for one in seen)
        check(workspace)


def test_files_that_vanish_while_they_are_read(root: Path) -> None:
    with Workspace(root, Bytes()) as workspace, warnings_of_index() as lines:

        def come_and_go(number: int) -> None:
            for name in range(30):
                (root / f"f{name % 3}").mkdir(exist_ok=True)
                (root / f"f{name % 3}" / f"{name}").write_text(f"value = {number}\n")
            shutil.rmtree(root / f"f{number % 3}")

        with meanwhile(come_and_go):
            for number in range(100):
                workspace.scan()
                workspace.refresh([root / f"f{number % 3}" / f"{number % 30}"])
        workspace.scan()
        check(workspace)
        assert lines == [] and workspace.paths


def test_a_path_that_keeps_changing_its_type(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing hangs, and nothing outside the root is read."""
    path, chance = root / "path", random.Random(6)
    path.touch()
    monkeypatch.chdir(tmp_path)  # socket addresses must be short
    with Workspace(root, Bytes()) as workspace:
        flips = 0

        def flip(number: int) -> None:
            nonlocal flips
            with suppress(FileNotFoundError):
                replaced(path, chance.choice(KINDS))
            flips = number

        def read() -> None:
            while flips < 100:
                workspace.scan()
                workspace.refresh([path])
                assert text_of(workspace, path) in (None, "", "value = 1\n")
                assert text_of(workspace, path / "inside") in (None, "value = 2\n")

        with meanwhile(flip):
            within(TIMEOUT_S, read)
        workspace.scan()
        check(workspace)


@pytest.mark.parametrize("wide", [True, False], ids=["scan", "refresh"])
def test_from_any_type_to_any_other(
    root: Path, tmp_path: Path, wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = root / "path"
    path.touch()
    with Workspace(root, Bytes()) as workspace:
        for before in KINDS:
            for after in KINDS:
                for kind in (before, after, before):
                    replaced(path, kind)
                    within(TIMEOUT_S, lambda: workspace.refresh(None if wide else [path]))
                    expected = {"file": path, "folder": path / "inside"}.get(kind)
                    assert workspace.paths == ([str(expected)] if expected else [])
                    assert len(workspace.skipped) == (kind != "file")
                    check(workspace)


def test_a_buffer_of_a_skipped_file(root: Path) -> None:
    """Closing the buffer removes the document."""
    path = root / "a"
    path.write_bytes(b"binary\0")
    os.utime(path, (1, 1))
    with Workspace(root, Bytes()) as workspace:
        workspace.build()
        workspace.update(path, "value = 3\n")
        assert workspace.paths == [str(path)]
        workspace.update(path, None)
        check(workspace)
        for look in (lambda: workspace.refresh([path]), workspace.scan):
            look()
            assert workspace.skipped == {str(path): "binary"}
        (root / "b").write_text("not where the rename said")
        workspace.refresh([root / "b"])
        workspace.rename(root / "b", path)
        workspace.scan()
        check(workspace)


# -- what comes and goes, and the clock ----------------------------------------------------------


@pytest.mark.parametrize("watched", [False, True])
def test_a_root_that_comes_and_goes(root: Path, tmp_path: Path, watched: bool) -> None:
    with Workspace(root, Bytes(), tmp_path / "home") as workspace:
        if watched:
            workspace.watch()
        make_tree(root, random.Random(1))
        workspace.build()
        for seed in range(2, 5):
            away = tmp_path / f"away{seed}"
            for there in (False, True):
                if there:
                    make_tree(root, random.Random(seed))
                elif seed == 2:
                    root.rename(away)
                else:
                    shutil.rmtree(root)
                wait_until_fresh_or_refresh(workspace, watched)
                assert bool(workspace.paths) == there
                workspace.compact()
        (root / "u").write_text("value = 12\n")
        wait_until_fresh_or_refresh(workspace, watched)
        check(workspace)
    starts_warm(root, tmp_path / "home")


def wait_until_fresh_or_refresh(workspace: Workspace, watched: bool) -> None:
    root = workspace.roots[0]
    if not watched:
        workspace.refresh([root])
    elif root.exists():
        wait_until_fresh(workspace)
    else:
        until = time.monotonic() + TIMEOUT_S
        while workspace.paths and time.monotonic() < until:
            workspace._note_use()  # as a query does
            time.sleep(0.01)


@pytest.mark.parametrize("when", [0, -(10**18), 10**18, 4 * 10**18])
@pytest.mark.parametrize("wide", [True, False], ids=["scan", "refresh"])
def test_a_wrong_clock(root: Path, when: int, wide: bool) -> None:
    """Texts of equal size and time, written one after another, are all noticed: by another part of
    the stamp, or because the file is read again."""
    path, home = root / "a", root.parent / "home"
    with Workspace(root, Bytes(), home) as workspace:
        for number in range(100, 250):
            if number % 3 == 0:
                path.unlink(missing_ok=True)  # the next file may reuse its inode
            path.write_text(f"value = {number}\n")
            os.utime(path, ns=(when, when))
            workspace.refresh(None if wide else [path])
            assert text_of(workspace, path) == f"value = {number}\n"
        check(workspace)
    path.write_text("value = 250\n")
    os.utime(path, ns=(when, when))
    with Workspace(root, Bytes(), home) as workspace:
        workspace.build()
        assert text_of(workspace, path) == "value = 250\n"
    starts_warm(root, home)


def test_two_files_swap_names(root: Path) -> None:
    """Each then has the other's inode, and both have the same times."""
    one, two, aside = root / "one", root / "two", root.parent / "aside"
    one.write_text("value = 1\n")
    two.write_text("value = 2\n")
    for path in (one, two):
        os.utime(path, ns=(10**18, 10**18))
    with Workspace(root, Bytes(), root.parent / "home") as workspace:
        for turn in range(50):
            workspace.scan()
            texts = [text_of(workspace, path) for path in (one, two)]
            assert texts == [f"value = {1 + turn % 2}\n", f"value = {2 - turn % 2}\n"]
            one.rename(aside)
            two.rename(one)
            aside.rename(two)


# -- branches ----------------------------------------------------------------------


def test_a_checkout_is_followed(tmp_path: Path) -> None:
    root, home = tmp_path / "root", tmp_path / "home"
    two_branches(root, 100, 1000)
    with Workspace(root, Bytes(), home) as workspace:
        workspace._watch = Watch([root], workspace.refresh, rescan_s=1e6)  # no full scans
        workspace._watch.start()
        workspace.build()
        for branch in ("two", "one"):
            git(root, "checkout", "-q", branch)
            wait_until_fresh(workspace)
            tokenized = workspace.stats().misses
        assert tokenized == 202, "the ids of both branches are cached"
        workspace.compact()
        assert workspace.stats().dead < 0.5
        assert found(workspace, list(b"two_")) != found(workspace, list(b"one_"))


def test_compacted_segments_are_freed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as the compaction ends, without garbage collection."""
    small_segments(monkeypatch)
    make_tree(tmp_path, random.Random(1))
    gc.collect()
    gc.disable()
    try:
        with Workspace(tmp_path, Bytes()) as workspace:
            workspace.build()
            workspace.compact()
            before = [weakref.ref(segment) for segment in workspace._segments.segments]
            for name in NAMES:
                (tmp_path / name).write_text("value = 13\n" * 50)
            workspace.scan()
            workspace.compact()
            after = workspace._segments.segments
            kept = [one() for one in before if one() and one() not in after]
            assert kept == []
    finally:
        gc.enable()
