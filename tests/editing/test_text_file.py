"""Text files are read strictly and replaced atomically."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.editing.text_file import FileError, read_text, replace_text


@settings(max_examples=30)
@given(st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=40))
@example("\ufeffa\r\nb\rc\n\u2028e\u0301")
def test_a_written_text_is_read_back(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("file") / "t.txt"
    path.write_bytes(b"old")
    replace_text(path, text, "old")
    assert path.read_bytes() == text.encode()
    assert read_text(path) == text
    assert [p.name for p in path.parent.iterdir()] == ["t.txt"]


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"ab\0c")
    (tmp_path / "latin").write_bytes(b"caf\xe9\n")
    (tmp_path / "surrogate").write_bytes(b"\xed\xa0\x80")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 30)
    for name, says in {
        "missing": "no such file",
        "": "a folder",
        "binary": "NUL at byte 2",
        "latin": "byte 3 is 0xe9",
        "surrogate": "byte 0 is 0xed",
        "pipe": "not a regular file",
        "loop": "loop|levels of symbolic links",
        "huge": "1073741824 bytes",
        "latin/x": "Not a directory",
        "/proc/self/mem": "Input/output error",
        "a" * 300: "File name too long",
        "nul\0": "not a valid file name",
    }.items():
        with pytest.raises(FileError, match=says) as refused:
            read_text(tmp_path / name)
        assert "\n" not in str(refused.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_permissions_are_respected(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("old")
    path.chmod(0o444)
    with pytest.raises(FileError, match="read-only"):
        replace_text(path, "new", "old")
    path.chmod(0)
    with pytest.raises(FileError, match="not readable"):
        read_text(path)


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755, 0o4750])
def test_mode_owner_and_link_are_kept(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "real"
    folder.mkdir()
    path = folder / "t.txt"
    path.write_text("old")
    if os.geteuid() == 0:
        os.chown(path, 1234, 1234)
    path.chmod(mode)
    before = path.stat()
    link = tmp_path / "link"
    link.symlink_to("real/t.txt")
    replace_text(link, "new\r\n", "old")
    assert link.is_symlink()
    assert path.read_bytes() == b"new\r\n"
    after = path.stat()
    assert stat.S_IMODE(after.st_mode) == mode
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)


def test_a_file_changed_since_it_was_read_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("theirs")
    with pytest.raises(FileError, match="changed on disk"):
        replace_text(path, "ours", "old")
    assert path.read_text() == "theirs"
    path.unlink()
    with pytest.raises(FileError, match="no such file"):
        replace_text(path, "ours", "old")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_file_and_no_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.txt"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match="No space left on device"):
        replace_text(path, "new", "old")
    assert [p.read_text() for p in tmp_path.iterdir()] == ["old"]
