"""`Watch` survives lost events, limits, roots that appear and vanish, and links."""

from __future__ import annotations

import json
import logging
import mmap
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from index.workspace import watch
from tests.support.folder_mirror import (
    TIMEOUT_S,
    Mirror,
    needs_inotify,
    on_disk,
    wait_for,
    watched,
)

ROOT = Path(__file__).resolve().parents[2]
QUEUE = Path("/proc/sys/fs/inotify/max_queued_events")
pytestmark = pytest.mark.usefixtures("no_leftover_threads")

WRITER = """
import pathlib, sys
root, times = pathlib.Path(sys.argv[1]), int(sys.argv[2])
for at in range(times):
    folder = root / f"d{at % 50}"
    folder.mkdir(exist_ok=True)
    (folder / f"{at % 2500}.py").write_text(str(at))
"""


def writer(root: Path, times: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(root), str(times)])


def test_a_burst_of_thousands(root: Path) -> None:
    mirror, watching = watched(root)
    with watching:
        assert writer(root, 2000).wait() == 0
        mirror.wait_until_equal()


@needs_inotify
def test_inotify_queue_overflow(
    root: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events are not read until the queue is full; its length is a system-wide setting."""
    reads, report = threading.Event(), watch.Watch.report

    def late(*heard: Any) -> None:
        reads.wait(TIMEOUT_S)
        report(*heard)

    monkeypatch.setattr(watch.Watch, "report", late)
    mirror, watching = watched(root)
    with watching, caplog.at_level(logging.WARNING, "index"):
        for at in range(2 * int(QUEUE.read_text())):
            os.utime(root / ("a.py", "src/b.py")[at % 2])  # equal events in a row are merged
        process = writer(root, 2000)
        wait_for(lambda: (root / "d49").is_dir())
        reads.set()
        wait_for(lambda: "the inotify queue" in caplog.text)
        assert process.wait() == 0
        mirror.wait_until_equal()
        (root / "d49" / "late.py").write_text("folders made meanwhile are watched")
        mirror.wait_until_equal()
    assert None in mirror.batches


LIMITED = """
import json, logging, sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.support.folder_mirror import watched, wait_for, on_disk
root, name, limit, late = Path(sys.argv[1]), *sys.argv[2:]
logging.basicConfig(stream=sys.stderr, format="%(message)s")
Path("/proc/sys/user/max_inotify_" + name).write_text(limit)
mirror, watching = watched(root, rescan_s=0.5)
with watching:
    before = dict(watching.polling)
    for at in range(20):
        (root / f"{{late}}{{at}}").mkdir(exist_ok=True)
    wait_for(lambda: root in watching.polling)
    for at in range(20):
        (root / f"{{late}}{{at}}" / "file.py").write_text("seen")
    mirror.wait_until_equal()
    why = watching.polling[root]
    Path("/proc/sys/user/max_inotify_" + name).write_text("1000")
    wait_for(lambda: not watching.polling)
    mirror.batches.clear()
print(json.dumps([len(before), why]))
"""


@needs_inotify
@pytest.mark.parametrize(
    ("name", "limit", "late", "remedy"),
    [
        ("watches", "10", "early", "max_user_watches"),
        ("watches", "30", "late", "max_user_watches"),
        ("instances", "0", "early", "max_user_instances"),
    ],
)
def test_the_limits_of_inotify(
    name: str, limit: str, late: str, remedy: str, tmp_path: Path
) -> None:
    """In a user namespace with limits of its own."""
    apart = ["unshare", "--user", "--map-root-user"]
    if not shutil.which("unshare") or subprocess.run([*apart, "true"]).returncode:
        pytest.skip("user namespaces are not allowed here")
    for at in range(20):
        (tmp_path / f"early{at}").mkdir()
        (tmp_path / "node_modules" / f"{at}").mkdir(parents=True)  # is not watched
    code = LIMITED.format(root=str(ROOT))
    command = [*apart, sys.executable, "-c", code, str(tmp_path), name, limit, late]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    polled_at_start, why = json.loads(result.stdout)
    assert polled_at_start == (late == "early")
    lines = [line for line in result.stderr.splitlines() if str(tmp_path) in line]
    assert len(lines) == 1 and why in lines[0] and remedy in lines[0], result.stderr


UNREADABLE = """
import os, sys, tempfile
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.support.folder_mirror import wait_for, watched
if os.getuid() == 0:  # is not bound by file modes
    os.setuid(65534)
with tempfile.TemporaryDirectory() as name:
    root = Path(name, "root")
    unreadable = root / "src" / "unreadable"
    (unreadable / "deep").mkdir(parents=True)
    unreadable.chmod(0)
    mirror, watching = watched(root)
    with watching:
        assert not watching.polling
        (root / "src" / "open.py").write_text("seen")
        mirror.wait_until_equal()
        unreadable.chmod(0o700)
        (unreadable / "deep" / "now.py").write_text("seen")
        mirror.wait_until_equal()
        (unreadable / "deep" / "now.py").write_text("watched")
        mirror.wait_until_equal()
        assert None not in mirror.batches
    root.chmod(0)
    mirror, watching = watched(root)
    with watching:
        assert "ermission" in watching.polling[root]
        wait_for(lambda: mirror.batches.count(None) > 2)
    root.chmod(0o700)
"""


@needs_inotify
def test_unreadable_folders() -> None:
    code = UNREADABLE.format(root=str(ROOT))
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "make it readable" in result.stderr


@pytest.mark.parametrize("own", [True, False], ids=["inotify", "watchdog"])
def test_roots_appear_and_vanish(root: Path, own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "USE_INOTIFY", own and watch.USE_INOTIFY)
    away = root.with_name("away")
    root.rename(away)
    mirror, watching = watched(root)
    with watching:
        for _ in range(2):
            away.rename(root)  # appears
            mirror.wait_until_equal()
            (root / "src" / "b.py").write_text("changed")
            mirror.wait_until_equal()
            shutil.rmtree(root)
            root.mkdir()  # often with the same inode
            (root / "new.py").write_text("new")
            mirror.wait_until_equal()
            (root / "new.py").write_text("changed")
            mirror.wait_until_equal()
            root.rename(away)
            mirror.wait_until_equal()
            assert mirror.files == {}
            (away / "src").mkdir()
            (away / "src" / "b.py").touch()


def test_a_linked_root(root: Path) -> None:
    link, other = root.with_name("link"), root.with_name("other")
    link.symlink_to(root)
    shutil.copytree(root, other)
    mirror, watching = watched(link)
    with watching:
        (root / "src" / "b.py").write_text("changed")
        mirror.wait_until_equal()
        assert mirror.reported() == {root / "src" / "b.py"}
        link.unlink()
        link.symlink_to(other)
        wait_for(lambda: None in mirror.batches)
        mirror.root = other
        (other / "a.py").write_text("changed")
        wait_for(lambda: {other / "a.py"} in mirror.batches)


def test_links_are_not_followed(root: Path) -> None:
    outside = root.with_name("outside")
    (outside / "deep").mkdir(parents=True)
    (root / "src" / "loop").symlink_to(root)
    (root / "out").symlink_to(outside)
    mirror, watching = watched(root)
    with watching:
        (root / "src" / "later").symlink_to(outside)
        (root / "made").mkdir()
        (root / "made" / "again").symlink_to(outside)
        optional = {root / "made" / "again"}  # unless it was created before its folder was reported
        assert mirror.reported() - optional == {root / "src" / "later", root / "made"}
        mirror.batches.clear()
        for folder in (outside, outside / "deep"):
            (folder / "file.py").write_text("outside")
        assert mirror.reported() == set()
        (root / "src" / "b.py").write_text("changed")
        assert mirror.reported() == {root / "src" / "b.py"}, (
            "once, not along each path through the loop"
        )


@needs_inotify
def test_folders_moved_out_are_not_reported(root: Path) -> None:
    mirror, watching = watched(root)
    with watching:
        (root / "src").rename(root.with_name("away"))
        assert mirror.reported() == {root / "src"}
        mirror.batches.clear()
        (root.with_name("away") / "b.py").write_text("not of the root any more")
        (root.with_name("away") / "deep" / "c.py").write_text("not of the root any more")
        assert mirror.reported() == set()


def test_excluded_folders_are_not_reported(root: Path) -> None:
    for name in ("node_modules/x", ".git/objects/ab", "src/.venv/lib", ".ssh", "pkg.egg-info"):
        (root / name).mkdir(parents=True)
    mirror, watching = watched(root)
    with watching:
        for name in ("node_modules/x", ".git/objects/ab", "src/.venv/lib", ".ssh", "pkg.egg-info"):
            (root / name / "file.py").write_text("junk")
            (root / name / "new").mkdir()
            (root / name / "new" / "file.py").write_text("junk")
        (root / "node_modules" / ".gitignore").write_text("junk")
        (root / "node_modules" / "x" / ".git").mkdir()
        (root / ".git" / "index.lock").write_text("")
        (root / ".git" / "index.lock").rename(root / ".git" / "index")
        assert mirror.reported() == set()


def test_reading_is_not_reported(root: Path) -> None:
    mirror, watching = watched(root)
    with watching:
        assert len(on_disk(root)) == 3
        for path in root.rglob("*"):
            path.stat()
        assert mirror.reported() == set()


@pytest.mark.parametrize(
    "name",
    [
        ".gitignore",
        "src/.gitignore",
        ".git/info/exclude",
        ".gitmodules",
        "src/.git/info/exclude",  # of a repository in the folder
        "src/deep/.git",
        ".draftlineindex",
    ],
)
def test_changed_ignore_files_cause_a_full_scan(root: Path, name: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    mirror, watching = watched(root)
    with watching:
        (root / name).write_text("*.log")
        assert mirror.reported() == {None}
        mirror.batches.clear()
        (root / "src" / "deep" / "CACHEDIR.TAG").touch()
        assert mirror.reported() == {root / "src" / "deep"}


def test_full_scans_find_unreported_changes(root: Path) -> None:
    """Such as writes through a memory map."""
    mirror, watching = watched(root, rescan_s=0.3)
    with watching:
        with (root / "a.py").open("r+b") as file, mmap.mmap(file.fileno(), 4) as memory:
            memory[:4] = b"mmap"
            mirror.wait_until_equal()
            assert all(batch is None for batch in mirror.batches)
        assert b"mmap" in mirror.files[root / "a.py"]


def test_nested_roots(root: Path) -> None:
    mirror = Mirror(root)
    with watch.Watch([root, root / "src", root / "none"], mirror, quiet_s=0.01):
        (root / "src" / "deep").rename(root / "deep")
        (root / "deep" / "new.py").write_text("new")
        mirror.wait_until_equal()
        shutil.rmtree(root / "src")
        mirror.wait_until_equal()


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/home/me/code", None),
        ("/home/me/far away/code", "fuse.sshfs"),
        ("/mnt/c/Users", "9p"),
        ("/mnt/c/local", None),
        ("/srv", "nfs4"),  # inside it
        ("/srv/nfs/x", "nfs4"),
        ("/srv/nfsx", None),
    ],
)
def test_remote_file_systems(folder: str, kind: str | None) -> None:
    mounts = (
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        "30 22 0:40 / /home/me/far\\040away rw - fuse.sshfs me@far:/ rw\n"
        "31 22 0:41 / /mnt/c rw master:2 - 9p drvfs rw,dirsync\n"
        "32 31 8:2 / /mnt/c/local rw - fuseblk /dev/sda2 rw\n"
        "33 22 0:42 / /srv/nfs rw - ext4 /dev/sdb rw\n"
        "34 33 0:42 / /srv/nfs rw - nfs4 host:/ rw\n"
    )
    assert watch._remote_file_system(folder, mounts) == kind
