"""Text files are read strictly and replaced atomically."""

from __future__ import annotations

import os
import stat
import struct
import sys
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


def access_list(*entries: tuple[int, int, int]) -> bytes:
    """A POSIX access control list of (tag, permissions, user or group) as the kernel stores it."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
OWNER, USER, GROUP, MASK, OTHERS, NOBODY = 1, 2, 4, 0x10, 0x20, 0xFFFFFFFF
READ, WRITE = 4, 6


def list_for(user: int, permissions: int) -> bytes:
    return access_list(
        (OWNER, WRITE, NOBODY),
        (USER, permissions, user),
        (GROUP, 0, NOBODY),
        (MASK, WRITE, NOBODY),
        (OTHERS, 0, NOBODY),
    )


def set_attribute(path: Path, name: str, value: bytes) -> None:
    try:
        os.setxattr(path, name, value)
    except OSError as error:
        pytest.skip(f"no {name} on this file system: {error.strerror}")


@pytest.mark.skipif(sys.platform != "linux", reason="Python has no extended attributes here")
def test_extended_attributes_and_access_lists_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("old")
    set_attribute(path, "user.origin", b"\0where it came from")
    set_attribute(path, ACCESS, list_for(1234, WRITE))
    set_attribute(tmp_path, DEFAULT, list_for(77, READ))
    before = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    mode = path.stat().st_mode
    replace_text(path, "new", "old")
    assert path.read_text() == "new"
    assert {name: os.getxattr(path, name) for name in os.listxattr(path)} == before
    assert path.stat().st_mode == mode


@pytest.mark.skipif(sys.platform != "linux", reason="Python has no extended attributes here")
def test_no_access_list_is_inherited_from_the_folder(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("old")
    path.chmod(0o640)
    set_attribute(tmp_path, DEFAULT, list_for(77, READ))
    replace_text(path, "new", "old")
    assert os.listxattr(path) == [] and stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_file_with_a_long_name_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / ("\U0001f60b" * 63)
    path.write_text("old")
    replace_text(path, "new", "old")
    assert path.read_text() == "new"


def test_a_folder_that_cannot_be_synced_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The file was replaced by then."""
    path = tmp_path / "t.txt"
    path.write_text("old")
    fsync = os.fsync

    def no_folders(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(22, "Invalid argument")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", no_folders)
    replace_text(path, "new", "old")
    assert path.read_text() == "new"
    (line,) = caplog.messages
    assert str(path) in line and "Invalid argument" in line


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
