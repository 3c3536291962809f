"""Files on Windows, as far as another system can show it: nothing is renamed or deleted while it is
open, and folders have no locks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from index import os_calls, temporary_file
from index.temporary_file import replacing, sweep, temporary_folder


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renaming and deleting an open file fail, as they do there."""
    for module in (os_calls, temporary_file):
        monkeypatch.setattr(module, "IS_WINDOWS", True)
    opened: dict[int, str] = {}
    open_file, close_file = os.open, os.close

    def opening(path: str | Path, *args: int, **options: int) -> int:
        descriptor = open_file(path, *args, **options)
        opened[descriptor] = str(path)
        return descriptor

    def closing(descriptor: int) -> None:
        opened.pop(descriptor, None)
        close_file(descriptor)

    def refuse(name: str) -> None:
        whole = getattr(Path, name)

        def call(self: Path, *args: object, **options: object) -> object:
            if str(self) in opened.values():
                raise PermissionError(13, "it is open", str(self))
            return whole(self, *args, **options)

        monkeypatch.setattr(Path, name, call)

    monkeypatch.setattr(os, "open", opening)
    monkeypatch.setattr(os, "close", closing)
    refuse("replace")
    refuse("unlink")


def names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


@pytest.mark.usefixtures("windows")
def test_a_file_is_replaced_or_stays(tmp_path: Path) -> None:
    place = tmp_path / "a"
    for data in (b"old", b"new"):
        with replacing(place) as descriptor:
            os.write(descriptor, data)
        assert place.read_bytes() == data and names(tmp_path) == ["a"]
    with pytest.raises(RuntimeError, match="stop"), replacing(place) as descriptor:
        os.write(descriptor, b"half")
        raise RuntimeError("stop")
    assert place.read_bytes() == b"new" and names(tmp_path) == ["a"]


@pytest.mark.usefixtures("windows")
def test_temporaries_of_killed_processes_are_deleted(tmp_path: Path) -> None:
    left = tmp_path / ".draftline-0123456789abcdef.tmp"
    left.write_bytes(b"half")
    with replacing(tmp_path / "a") as descriptor:
        os.write(descriptor, b"whole")
        sweep(tmp_path)
        assert len(names(tmp_path)) == 1  # the one that is being written
    assert names(tmp_path) == ["a"]


@pytest.mark.usefixtures("windows")
def test_a_temporary_folder_is_deleted(tmp_path: Path) -> None:
    with temporary_folder(tmp_path) as folder:
        (folder / "a").write_bytes(b"1")
    assert names(tmp_path) == []
    os_calls.sync_folder(tmp_path)


@pytest.mark.parametrize("is_windows", [False, True])
def test_the_start_of_a_file_is_read(
    tmp_path: Path, is_windows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Again, too, and wherever its position is."""
    monkeypatch.setattr(os_calls, "IS_WINDOWS", is_windows)
    (tmp_path / "a").write_bytes(b"abc\r\n" * 100)
    descriptor = os.open(tmp_path / "a", os.O_RDONLY | os_calls.BINARY)
    try:
        for most in (7, 2000):
            assert os_calls.read_start(descriptor, most) == (b"abc\r\n" * 100)[:most]
    finally:
        os.close(descriptor)
