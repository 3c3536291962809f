"""Unusual files and folders, links, and missing permissions."""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from index import Workspace
from index.workspace.file_filter import MAX_FILE_BYTES
from index.workspace.token_cache import Encoder
from tests.support.child import end_of, start
from tests.support.encoders import Bytes, Composed
from tests.support.faults import (
    TIMEOUT_S,
    check,
    make_tree,
    starts_warm,
    text_of,
    texts,
    warnings_of_index,
    within,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.mark.parametrize("encoder", [Bytes(), Composed()], ids=["bytes", "composed"])
def test_unusual_files(tmp_path: Path, encoder: Encoder) -> None:
    root = tmp_path / os.fsdecode(b"ro\not\xff")
    root.mkdir()
    names = [b"a\nb", b"\xff\xfe.py", "é".encode(), "e\u0301".encode(), b" ", b"-rf", b"*", b"\\"]
    counts = {name: f"value = {at}\n".encode() for at, name in enumerate(names)}
    counts |= {
        b"empty": b"",
        b"white": b" \n\t\r\n" * 50,
        b"line": b"x" * (MAX_FILE_BYTES - 1 if isinstance(encoder, Bytes) else 5000) + b"y",
        b"bom": b"\xef\xbb\xbfvalue\r\n",
        "\U0001f600".encode() * 60: "\U0001f600\u0301".encode() * 50,
    }
    skips = {
        b"more": (b"x" * (MAX_FILE_BYTES + 1), "over 1 MiB"),
        b"half": (b"\xc3", "not UTF-8"),
        b"zero": (b"value\0", "binary"),
    }
    for name, data in (counts | {name: data for name, (data, _) in skips.items()}).items():
        Path(os.fsdecode(os.fsencode(root) + b"/" + name)).write_bytes(data)
    with (root / "sparse").open("wb") as file:
        file.truncate(200 << 20)
    (root / "hard").hardlink_to(root / "bom")
    counts[b"hard"] = counts[b"bom"]
    with warnings_of_index() as lines, Workspace(root, encoder, tmp_path / "home") as workspace:
        before = psutil.Process().io_counters().read_chars
        workspace.build()
        assert psutil.Process().io_counters().read_chars - before < 100 << 20, (
            "read the sparse file"
        )
        expected = {str(root / os.fsdecode(name)): data for name, data in counts.items()}
        ids = encoder.encode_batch([data.decode() for data in expected.values()])
        assert texts(workspace) == {
            path: one.tobytes() for path, one in zip(expected, ids, strict=True)
        }
        reasons = {str(root / os.fsdecode(name)): why for name, (_, why) in skips.items()}
        assert workspace.skipped == reasons | {str(root / "sparse"): "over 1 MiB"}
        check(workspace, ["value", "y", "\t"])
    assert lines == []
    with Workspace(root, encoder, tmp_path / "home") as workspace:
        workspace.build()
        assert workspace.stats().hits == workspace.stats().misses == 0
        assert workspace.skipped == reasons | {str(root / "sparse"): "over 1 MiB"}
        for path in expected:
            workspace.refresh([path])
        (root / "hard").write_bytes(b"both names change")
        workspace.refresh([root / "hard", root / "bom"])
        check(workspace, ["both", "value"])


def test_empty_files_are_saved(root: Path) -> None:
    home = root.parent / "home"
    for name, text in (("a", "value = 14\n" * 9), ("b", ""), ("c", "")):
        (root / name).write_text(text)
        with Workspace(root, Bytes(), home) as workspace:
            workspace.build()
        starts_warm(root, home)


def test_deep_folders(root: Path) -> None:
    """Deeper than recursion could go, then so deep that the path is too long to open."""
    deep = root
    for _ in range(1100):
        deep /= "d"
        deep.mkdir()
    (deep / "f").write_text("value = 4\n")
    try:
        with Workspace(root, Bytes()) as workspace:
            workspace.watch()
            workspace.build()
            assert workspace.paths == [str(deep / "f")]
            (deep / "f").write_text("value = 5\n")
            workspace.refresh([deep / "f"])
            assert text_of(workspace, deep / "f") == "value = 5\n"
        with Workspace(root, Bytes()) as workspace:
            for _ in range(8):
                inner, outer = root / "d", root.parent / "d" / ("n" * 250)
                outer.mkdir(parents=True)
                inner.rename(outer / "d")
                outer.parent.rename(inner)
            (root / "u").write_text("value = 6\n")
            workspace.build()
            assert workspace.paths == [str(root / "u")]
            assert "File name too long" in str(workspace.skipped)
    finally:
        subprocess.run(["rm", "-rf", str(root)], check=True)


def test_links(root: Path) -> None:
    outside = root.parent / "outside"
    (outside / "in").mkdir(parents=True)
    (outside / "in" / "f").write_text("value = 7\n")
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "f").write_text("value = 8\n")
    links = {"loop": "loop", "one": "two", "two": "one", "a/up": "..", "a/b/top": root,
             "out": outside, "outfile": outside / "in" / "f", "dots": "../outside/in/f",
             "gone": "nothing", "proc": "/proc/self/mem"}  # fmt: skip
    for name, target in links.items():
        (root / name).symlink_to(target)
    (root / "same").symlink_to("a/f")
    with Workspace(root, Bytes()) as workspace:
        everything = [root / name for name in links]
        for act in (workspace.build, workspace.scan, lambda: workspace.refresh(everything)):
            within(TIMEOUT_S, act)
            assert workspace.paths == [str(root / "a/f"), str(root / "same")]
            assert set(workspace.skipped) == {str(root / name) for name in links}
        workspace.refresh([root / "out" / "in" / "f", root / "a" / "b" / "top" / "a" / "f"])
        (outside / "in" / "f").write_text("changed outside")
        workspace.scan()
        check(workspace, ["changed", "value"])


# -- what may not be read ------------------------------------------------------------------------


def as_nobody(work: Callable[[Path], None]) -> None:
    """Run in an unprivileged child process with a folder of its own."""

    def run() -> None:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        with tempfile.TemporaryDirectory() as folder:
            work(Path(folder))

    assert end_of(start(run)) == 0


def test_files_and_folders_without_permission() -> None:
    def work(folder: Path) -> None:
        root = folder / "root"
        make_tree(root, random.Random(7))
        with warnings_of_index() as lines, Workspace(root, Bytes(), folder / "home") as workspace:
            for when in range(3):
                for path, mode in ((root / "u", 0o600), (root / "a", 0o700), (root / "c", 0o700)):
                    path.chmod(0)
                    workspace.refresh([path]) if when else workspace.build()
                    check(workspace)
                    assert workspace.skipped[str(path)] == "unreadable: Permission denied"
                    path.chmod(mode)
                    workspace.refresh([path]) if when else workspace.scan()
                    check(workspace)
                    assert str(path) not in workspace.skipped
            root.chmod(0)
            workspace.scan()
            check(workspace)
            assert workspace.paths == []
            root.chmod(0o700)
            workspace.scan()
            check(workspace)
        assert lines == []
        starts_warm(root, folder / "home")

    as_nobody(work)


@pytest.mark.parametrize("what", ["table", "part", "sqlite", "index", "tokens", "home", "lock"])
def test_a_saved_index_without_permission(what: str) -> None:
    def work(folder: Path) -> None:
        root, home = folder / "root", folder / "home"
        make_tree(root, random.Random(8))
        for _ in range(2):
            with Workspace(root, Bytes(), home) as workspace:
                workspace.build()
        denied = [home, *home.rglob("*")]
        denied = [one for one in denied if one.name == what or one.suffix == f".{what}"]
        modes = [one.stat().st_mode for one in denied]
        for one in denied:
            one.chmod(0)
        with warnings_of_index() as lines, Workspace(root, Bytes(), home) as workspace:
            workspace.build()
            (root / "u").write_text("value = 11\n" * 9)
            workspace.scan()
            workspace._segments.seal()
            workspace.compact()
            check(workspace)
            workspace.stats()
        for one, mode in zip(denied, modes, strict=True):
            if one.exists():
                one.chmod(mode)
        of_ids = [line for line in lines if "not caching token ids" in line]
        assert lines and len(of_ids) <= 1 and len(lines) - len(of_ids) <= 2, lines
        with Workspace(root, Bytes(), home) as workspace:
            workspace.build()
            check(workspace)
        starts_warm(root, home)

    as_nobody(work)
