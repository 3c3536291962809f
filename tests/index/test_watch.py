"""A mirror updated only by what `Watch` reports becomes equal to the disk.

Uses real files and the real watchdog, without regular full scans.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from index.workspace import watch
from tests.support.folder_mirror import needs_inotify, on_disk, watched

pytestmark = pytest.mark.usefixtures("no_leftover_threads")


def vim_saves(path: Path) -> None:
    probe, backup = path.with_name("4913"), path.with_name(path.name + "~")
    probe.touch()
    probe.unlink()
    path.rename(backup)
    path.write_text("by vim")
    backup.unlink()


def appends(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def replaces(path: Path) -> None:
    path.with_name(".tmp-1").write_text("replaced")
    path.with_name(".tmp-1").replace(path)


def many_files(folder: Path) -> None:
    for at in range(200):
        (folder / f"{at % 7}").mkdir(parents=True, exist_ok=True)
        (folder / f"{at % 7}" / f"{at}.py").write_text(str(at))


def moved_in(root: Path) -> None:
    many_files(root.parent / "outside")
    (root.parent / "outside").rename(root / "inside")
    (root / "inside" / "3" / "late.py").write_text("late")


def moved_out_and_replaced(root: Path) -> None:
    (root / "src").rename(root.parent / "away")
    (root / "other").mkdir()
    (root / "other").rename(root / "src")
    (root / "src" / "new.py").write_text("new")
    (root.parent / "away" / "b.py").write_text("not of the root any more")


def moved_within(root: Path) -> None:
    (root / "src").rename(root / "lib")
    (root / "lib" / "deep" / "c.py").write_text("changed after the move")
    (root / "lib" / "deep" / "d.py").write_text("made after the move")


def odd_names(root: Path) -> None:
    folder = root.joinpath(*(f"level{at}" for at in range(40)), "a\nb")
    folder.mkdir(parents=True)
    for name in (b"new\nline.py", b"latin\xff.py", "süß \U0001f60b".encode()):
        (folder / os.fsdecode(name)).write_bytes(name)


OPERATIONS: dict[str, Callable[[Path], object]] = {
    "create": lambda root: (root / "src" / "new.py").write_text("new"),
    "modify": lambda root: (root / "src" / "b.py").write_text("changed"),
    "append": lambda root: appends(root / "a.py"),
    "delete": lambda root: (root / "src" / "b.py").unlink(),
    "rename": lambda root: (root / "src" / "b.py").rename(root / "z.py"),
    "vim": lambda root: vim_saves(root / "src" / "b.py"),
    "replace": lambda root: replaces(root / "src" / "b.py"),
    "folders": lambda root: many_files(root / "x" / "y" / "z"),
    "move in": moved_in,
    "move out": lambda root: (root / "src").rename(root.parent / "away"),
    "move out and replace": moved_out_and_replaced,
    "move within": moved_within,
    "delete folder": lambda root: shutil.rmtree(root / "src"),
    "folder for file": lambda root: ((root / "a.py").unlink(), many_files(root / "a.py")),
    "junk to source": lambda root: (
        many_files(root / "build"),
        (root / "build").rename(root / "b"),
    ),
    "source to junk": lambda root: (root / "src").rename(root / "build"),
    "odd names": odd_names,
}


@pytest.mark.filterwarnings("ignore:Callback with id")  # from watchdog's own tree
@pytest.mark.parametrize("own", [True, False], ids=["inotify", "watchdog"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_the_mirror_equals_the_disk(
    name: str, own: bool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "USE_INOTIFY", own and watch.USE_INOTIFY)
    if not own and name == "move out and replace":
        pytest.skip("where watchdog's own tree fails")
    mirror, watching = watched(root)
    with watching:
        OPERATIONS[name](root)
        mirror.wait_until_equal()
        (root / "still.py").write_text("still watched")
        mirror.wait_until_equal()
    assert None not in mirror.batches


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=one"]
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_switches_branches(root: Path) -> None:
    git(root, "init")
    for branch in ("one", "two"):
        git(root, "checkout", "-b", branch) if branch == "two" else None
        for at in range(300):
            path = root / f"pkg{at % 9}" / (f"{branch}{at}.py" if at % 3 else f"{at}.py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"{branch} {at}\n" * 50)
        git(root, "add", ".")
        git(root, "commit", "-m", branch)
    mirror, watching = watched(root)
    with watching:
        for branch in ("one", "two", "one"):
            git(root, "checkout", branch)
            mirror.wait_until_equal()
    assert None not in mirror.batches


def one_step(rng: random.Random, root: Path) -> None:
    """One random operation, unless the file system refuses it."""
    outside = root.parent / "outside"
    outside.mkdir(exist_ok=True)
    folders = [root, *(path for path in root.rglob("*") if path.is_dir() and not path.is_symlink())]
    files = [path for path in root.rglob("*") if path.is_file()]
    folder, other = rng.choice(folders), rng.choice(folders)
    file = rng.choice(files or [root / "a"])
    name = rng.choice("abcdefg")
    far = [*outside.iterdir()]
    steps: list[Callable[[], object]] = [
        lambda: (folder / name).write_bytes(rng.randbytes(8)),
        lambda: file.write_bytes(rng.randbytes(8)),
        lambda: file.unlink(),
        lambda: file.rename(other / name),
        lambda: (folder / name / "x" / "y").mkdir(parents=True),
        lambda: (folder / name / "x" / "y" / "z").write_bytes(rng.randbytes(8)),
        lambda: folder != root and folder.rename(other / name),
        lambda: folder != root and folder.rename(folder.with_name(name)),
        lambda: folder != root and shutil.rmtree(folder),
        lambda: folder != root and folder.rename(outside / str(len(far))),
        lambda: rng.choice(far).rename(folder / name) if far else None,
        lambda: folder != root and folder.rename(folder.with_name("build")),
        lambda: (folder / name).symlink_to(rng.choice([root, outside, other])),
        lambda: replaces(file),
    ]
    try:
        rng.choice(steps)()
    except OSError:
        return
    if rng.random() < 0.1:
        time.sleep(0.03)


@needs_inotify
@pytest.mark.parametrize("seed", range(12))
def test_the_mirror_equals_the_disk_after_random_operations(seed: int, root: Path) -> None:
    rng = random.Random(seed)
    mirror, watching = watched(root)
    with watching:
        for _ in range(40):
            one_step(rng, root)
        mirror.wait_until_equal()
        for folder in {root, *(path.parent for path in on_disk(root))}:
            (folder / "still.py").write_text("still watched")
        mirror.wait_until_equal()
    assert None not in mirror.batches, "a full scan helped"
