"""Temporary files and folders: what a killed writer leaves is deleted, and nothing else."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from index.temporary_file import NAME, replacing, sweep, temporary_folder
from index.workspace import file_filter
from tests.support.child import kill, start
from tests.support.folder_mirror import wait_for
from tests.support.segment_store import names

LEFT = ".draftline-0123456789abcdef.tmp"
Writer = Callable[[Path], AbstractContextManager[Any]]


def file_in(folder: Path) -> AbstractContextManager[int]:
    return replacing(folder / "file")


KINDS = [
    pytest.param(file_in, stat.S_ISREG, id="file"),
    pytest.param(temporary_folder, stat.S_ISDIR, id="folder"),
]


@pytest.mark.parametrize(("writer", "is_kind"), KINDS)
def test_only_what_a_killed_writer_left_is_swept(
    tmp_path: Path, writer: Writer, is_kind: Callable[[int], bool]
) -> None:
    folder, ready = tmp_path / "folder", tmp_path / "ready"
    folder.mkdir()

    def work() -> None:
        with writer(folder) as made:
            if isinstance(made, Path):
                (made / "inside").mkdir()
                (made / "inside" / "file").write_text("text")
            ready.touch()
            signal.pause()

    child = start(work)
    wait_for(ready.exists)
    (name,) = names(folder)
    assert NAME.fullmatch(name)
    sweep(folder, is_kind)
    assert names(folder) == {name}, "its writer is alive"
    kill(child)
    sweep(folder, stat.S_ISDIR if is_kind is stat.S_ISREG else stat.S_ISREG)
    assert names(folder) == {name}, "of another kind"
    sweep(folder, is_kind)
    assert names(folder) == set()


def test_files_of_others_are_not_swept(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("text")
    foreign = [f"x{LEFT}", f"{LEFT}x", ".draftline-mine.tmp", LEFT.upper(), "a.tmp", "a.part"]
    for name in foreign:
        (tmp_path / name).write_text("text")
    (tmp_path / LEFT.replace("0", "1")).symlink_to("target")
    (tmp_path / LEFT.replace("0", "2")).symlink_to("nothing")
    os.mkfifo(tmp_path / LEFT.replace("0", "3"))
    (tmp_path / LEFT.replace("0", "4")).mkdir()
    (tmp_path / LEFT).write_text("text")
    if os.geteuid() == 0:
        (tmp_path / LEFT.replace("0", "5")).write_text("text")
        os.chown(tmp_path / LEFT.replace("0", "5"), 1234, 1234)
    before = names(tmp_path)
    sweep(tmp_path)
    assert names(tmp_path) == before - {LEFT}
    sweep(tmp_path / "missing")


def test_temporary_files_are_not_indexed(tmp_path: Path) -> None:
    """They may hold the text of a file that is left out for its name."""
    (tmp_path / LEFT).write_text("text")
    (tmp_path / "a.tmp").write_text("text")
    assert [file.path for file in file_filter.walk(tmp_path)] == ["a.tmp"]
    with pytest.raises(file_filter.Skipped, match="temporary"):
        file_filter.lookup(tmp_path, LEFT)


def test_a_file_that_is_swept_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def swept(path: Path, flags: int, mode: int = 0o777) -> int:
        descriptor = opened(path, flags, mode)
        if flags & os.O_CREAT:
            monkeypatch.undo()
            sweep(tmp_path)
            assert names(tmp_path) == set()
        return descriptor

    monkeypatch.setattr(os, "open", swept)
    with replacing(tmp_path / "file") as descriptor:
        os.write(descriptor, b"text")
    assert (tmp_path / "file").read_text() == "text" and names(tmp_path) == {"file"}


def test_an_exception_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "file") as descriptor:
        os.write(descriptor, b"new")
        raise KeyboardInterrupt
    assert (tmp_path / "file").read_text() == "old" and names(tmp_path) == {"file"}
