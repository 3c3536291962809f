"""Atomic replacement of files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.atomic_write import write_atomically


@pytest.mark.parametrize("mode", [0o644, 0o600])
def test_a_file_is_created_and_replaced_with_its_mode(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    for data in (b"old\r\n", b"new"):
        write_atomically(path, data, mode)
        assert path.read_bytes() == data and path.stat().st_mode & 0o777 == mode
    assert [*tmp_path.iterdir()] == [path]


def test_the_mode_may_be_set_by_a_function(tmp_path: Path) -> None:
    write_atomically(tmp_path / "file", b"", lambda descriptor: os.fchmod(descriptor, 0o640))
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_a_failure_keeps_the_old_file_and_no_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old" and [*tmp_path.iterdir()] == [path]
