"""Looking up and loading one file while it changes, moves, vanishes or is replaced by a link."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from index.workspace import file_filter, secrets


def make(root: Path, tree: dict[str, str | bytes]) -> None:
    for name, content in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def test_lookup_finds_what_walk_finds(tmp_path: Path) -> None:
    make(tmp_path, {"real.py": "text", "sub/a.py": ""})
    (tmp_path / "link.py").symlink_to("sub/a.py")
    found = {file.path: file for file in file_filter.walk(tmp_path)}
    assert {path: file_filter.lookup(tmp_path, path) for path in found} == found
    assert found["link.py"].real_path == str(tmp_path.resolve() / "sub" / "a.py")
    status = (tmp_path / "real.py").stat()
    assert found["real.py"].stamp == (
        4, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, secrets.VERSION
    )  # fmt: skip
    assert found["real.py"].changed == status.st_mtime_ns


def test_lookup_of_a_missing_file(tmp_path: Path) -> None:
    for path in ("gone.py", "no/folder/gone.py"):
        with pytest.raises(file_filter.Skipped, match=r"^unreadable: No such file or directory$"):
            file_filter.lookup(tmp_path, path)


@pytest.mark.parametrize("path", ["", "/etc/hosts", "../out.py", "a/../../out.py", "./a", "a\0b"])
def test_lookup_stays_in_the_folder(tmp_path: Path, path: str) -> None:
    make(tmp_path, {"out.py": "", "root/a/b.py": ""})
    with pytest.raises(file_filter.Skipped, match="not a path in the folder"):
        file_filter.lookup(tmp_path / "root", path)


def old(path: Path) -> None:
    """Set the modification time to long ago."""
    os.utime(path, ns=(1, time.time_ns() - 10 * file_filter.TIMESTAMP_GRANULARITY_NS))


def test_a_stamp_is_given_only_if_a_later_write_changes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, {"a": "text"})
    with monkeypatch.context() as patch:
        # Longer than this test takes.
        patch.setattr(file_filter, "TIMESTAMP_GRANULARITY_NS", 10**12)
        old(tmp_path / "a")
        (file,) = file_filter.walk(tmp_path)
        assert file_filter.load(file) == ("text", None)  # its ctime is recent
    time.sleep(2e-9 * file_filter.TIMESTAMP_GRANULARITY_NS)
    assert file_filter.load(file) == ("text", file.stamp)
    os.utime(tmp_path / "a", ns=(1, time.time_ns() + 10**12))
    assert file_filter.load(file) == ("text", None)


def test_a_growing_file_has_no_stamp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, {"a": "text"})
    (file,) = file_filter.walk(tmp_path)
    whole = os.pread

    def read_and_grow(descriptor: int, size: int, start: int) -> bytes:
        data = whole(descriptor, size, start)
        with (tmp_path / "a").open("a") as grown:
            grown.write("+")
        old(tmp_path / "a")
        return data

    monkeypatch.setattr(os, "pread", read_and_grow)
    assert file_filter.load(file) == ("text" + "+" * (file_filter.MAX_READ_ATTEMPTS - 1), None)


def test_a_replaced_file_is_not_read(tmp_path: Path) -> None:
    make(tmp_path, {"out/a.py": "secret", "root/in/a.py": "text", "root/b.py": "", "root/c.py": ""})
    root = tmp_path / "root"
    b, c, a = file_filter.walk(root)
    (root / "in").rename(tmp_path / "old")
    (root / "in").symlink_to(tmp_path / "out")
    (root / "b.py").unlink()
    (root / "b.py").symlink_to(tmp_path / "out" / "a.py")
    (root / "c.py").unlink()
    os.mkfifo(root / "c.py")
    for file, reason in ((a, "became a link"), (b, "unreadable"), (c, "not a regular file")):
        with pytest.raises(file_filter.Skipped, match=reason):
            file_filter.load(file)


@pytest.mark.parametrize("name", ["a (deleted)", "two\nlines", os.fsdecode(b"\xff")])
def test_misleading_names_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("text")
    (file,) = file_filter.walk(tmp_path)
    assert file_filter.load(file)[0] == "text"


def test_files_deleted_during_the_walk_are_reported(tmp_path: Path) -> None:
    make(tmp_path, {"a": "", "b": "", "c/d": ""})
    reasons: dict[str, str] = {}
    walk = file_filter.walk(tmp_path, reasons.__setitem__)
    assert next(walk).path == "a"
    shutil.rmtree(tmp_path / "c")
    (tmp_path / "b").unlink()
    assert list(walk) == []
    assert reasons == dict.fromkeys("bc", "unreadable: No such file or directory")
