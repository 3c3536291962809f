"""Shared parts of the fault tests: expected answers, random changes of a tree, a child process that
is killed at work, and small disks."""

from __future__ import annotations

import logging
import mmap
import os
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

import index.workspace.segment_set
import index.workspace.workspace
from index import Workspace
from index.workspace.persistence import SavedIndex
from index.workspace.segment_set import SegmentSet
from index.workspace.segment_store import SegmentStore
from index.workspace.token_cache import Encoder
from index.workspace.token_db import TokenDB
from tests.support import child
from tests.support.encoders import Bytes

TIMEOUT_S = 180  # a backstop
TAILS = ["value = ", "return ", "\n", "e", "def name", "no such text", "7\n"]
WORDS = ["value = 7\n", "return value\n", "def name():\n", "    ", "é🙂\n", "x + ", "item\n"]
PARTS = ("get", "_value", "old", "_name", "text", "_file", "path", "_line", "node", "_item")
CODE = [one + two for one in PARTS for two in PARTS]
NAMES = [f"{folder}{name}" for folder in ("", "a/", "a/b/", "c/") for name in "uvwxyz"]
PHASES = ("load", "scan", "merge", "save", "ids")  # of a child's work


def texts(workspace: Workspace) -> dict[str, bytes]:
    return {document.path: document.tokens.tobytes() for document in workspace.documents}


def text_of(workspace: Workspace, path: Path) -> str | None:
    """The text of a file as indexed with the tokenizer `Bytes`."""
    ids = {one.path: one.tokens for one in workspace.documents}.get(str(path))
    return None if ids is None else bytes(ids.tolist()).decode()


def found(workspace: Workspace, tail: Any) -> Any:
    """A query's answers in an order that does not depend on the order of changes."""
    matches = workspace.match(tail, k=1 << 20)
    places = sorted((match.path, match.end) for match in matches)
    count = matches[0].count if matches else 0
    tree = workspace.tree(tail, nodes=500, width=300) if count <= 1024 else None
    branches = [] if tree is None else [tree.tokens, tree.parents, tree.probs]
    return (
        [(match.length, match.count) for match in matches[:1]],
        places,
        [each.tolist() for each in branches],
    )


def check(workspace: Workspace, tails: Collection[str] = TAILS) -> None:
    """Assert that documents, skipped files and answers equal those of a fresh build."""
    with Workspace(workspace.roots, workspace.encoder) as fresh:
        fresh.build()
        actual, expected = texts(workspace), texts(fresh)
        wrong = [path for path in {**actual, **expected} if actual.get(path) != expected.get(path)]
        assert not wrong, [
            (path, *[_short(each.get(path)) for each in (actual, expected)]) for path in wrong[:3]
        ]
        assert workspace.skipped == fresh.skipped
        assert workspace.size == fresh.size
        for tail in workspace.encoder.encode_batch(list(tails)):
            assert found(workspace, tail) == found(fresh, tail)


def _short(ids: bytes | None) -> str:
    return "none" if ids is None else f"{len(ids) // 4} tokens, {ids[:80:4]!r}..."


def wait_until_fresh(workspace: Workspace, tails: Collection[str] = TAILS) -> None:
    """Wait until `check` passes."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        workspace._note_use()  # as a query does
        try:
            check(workspace, tails)
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


@contextmanager
def warnings_of_index() -> Iterator[list[str]]:
    """The warnings that the index logs in this block."""
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler = Lines(logging.WARNING)
    logging.getLogger("index").addHandler(handler)
    try:
        yield lines
    finally:
        logging.getLogger("index").removeHandler(handler)


def small_segments(patch: pytest.MonkeyPatch | None = None) -> None:
    """Make segments and batches small, so that there is much to merge and to save."""
    for module, name, size in (
        (index.workspace.segment_set, "ACTIVE_SEGMENT_TOKENS", 300),
        (index.workspace.workspace, "MAX_ACTIVE_BATCH_TOKENS", 100),
        (index.workspace.workspace, "FREEZE_BATCH_TOKENS", 2000),
        (index.workspace.workspace, "READ_BATCH_CHARS", 1500),
    ):
        if patch:
            patch.setattr(module, name, size)
        else:
            setattr(module, name, size)


def within(seconds: float, work: Callable[[], object]) -> None:
    """Run `work` on a thread; fail if it takes longer than a time limit."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # reraised
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "timed out"
    if errors:
        raise errors[0]


# -- random changes -----------------------------------------------------------------------------


def some_text(chance: random.Random) -> str:
    if chance.random() < 0.05:
        return "binary\0"
    return "".join(chance.choices(WORDS, k=chance.choice((0, 3, 30, 30, 300))))


def make_tree(root: Path, chance: random.Random) -> None:
    for name in NAMES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(some_text(chance))


def change(root: Path, chance: random.Random) -> list[Path]:
    """Make one random change in a tree, unless the file system refuses it; returns the paths."""
    path, other = (root / name for name in chance.sample(NAMES, 2))
    made = path.with_name(f"new{threading.get_ident()}")
    kind = chance.choice(("write", "write", "replace", "append", "delete", "move", "drop"))
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "write":
            path.write_text(some_text(chance))
        elif kind == "replace":
            made.write_text(some_text(chance))
            made.replace(path)
        elif kind == "append":
            with path.open("a") as file:
                file.write(some_text(chance))
        elif kind == "delete":
            path.unlink()
        elif kind == "move":
            path.replace(other)
        elif chance.random() < 0.2:
            shutil.rmtree(root / "a" / "b")
            return [root / "a" / "b"]
    return [path, other, made]


# -- a killed child process ----------------------------------------------------------------------


def shared_bytes(path: Path) -> mmap.mmap:
    """A file as memory that processes share."""
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 0)


def record_phases(seen: mmap.mmap) -> None:
    """Record in shared memory which phases this process is in from now on."""

    def wrapped(real: Callable[..., Any], phase: int) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            seen[phase] = 1
            try:
                return real(*args, **options)
            finally:
                seen[phase] = 0

        return run

    owners = (
        (SavedIndex, "load"),
        (Workspace, "scan"),
        (SegmentSet, "merge"),
        (SegmentStore, "save"),
    )
    for phase, (owner, name) in enumerate((*owners, (TokenDB, "write"))):
        setattr(owner, name, wrapped(getattr(owner, name), phase))


def work_forever(root: Path, home: Path, chance: random.Random) -> None:
    """Build, change, merge and save forever."""
    small_segments()
    while True:
        with Workspace(root, Bytes(), home) as workspace:
            if chance.random() < 0.2:
                workspace.clear()
            workspace.build()
            for step in range(chance.randrange(1, 20)):
                workspace.refresh(change(root, chance) + change(root, chance))
                if chance.random() < 0.3:
                    buffer = root / chance.choice(NAMES)
                    workspace.update(buffer, chance.choice([None, some_text(chance)]), step)
                if chance.random() < 0.3:
                    workspace.compact()


def kill_in_phase(
    worker: BaseProcess, seen: mmap.mmap, phase: int, chance: random.Random
) -> list[str]:
    """Kill a child soon, in this phase if it gets there; returns the phases it was in."""
    time.sleep(chance.uniform(0, 0.1))
    deadline = time.monotonic() + 1
    while not seen[phase] and time.monotonic() < deadline:
        time.sleep(0)
    time.sleep(chance.choice((0, 0, 0.0005, 0.002, 0.005)))
    child.kill(worker)
    return [name for at, name in enumerate(PHASES) if seen[at]]


def kill_repeatedly(folder: Path, seeds: Collection[int]) -> set[str]:
    """Kill one child per seed. After each kill the next start answers like a fresh build and logs
    nothing. Returns the phases in which children were killed."""
    root, home = folder / "root", folder / "home"
    make_tree(root, random.Random(0))
    died: set[str] = set()
    for seed in seeds:
        phases, chance = folder / "phases", random.Random(seed)
        phases.write_bytes(bytes(len(PHASES)))

        def work(phases: Path = phases, seed: int = seed) -> None:
            record_phases(shared_bytes(phases))
            work_forever(root, home, random.Random(seed))

        worker, seen = child.start(work), shared_bytes(phases)
        died.update(kill_in_phase(worker, seen, seed % len(PHASES), chance))
        with warnings_of_index() as lines, Workspace(root, Bytes(), home) as workspace:
            workspace.build()
            check(workspace)
        assert lines == [], f"seed {seed}"
    starts_warm(root, home)
    assert not [path for path in home.rglob("*") if path.suffix == ".tmp"]
    return died


def starts_warm(root: Path, home: Path, encoder: Encoder | None = None) -> None:
    """Assert that the next start answers right, logs nothing and reads no file."""
    with warnings_of_index() as lines, Workspace(root, encoder or Bytes(), home) as workspace:
        workspace.build()
        stats = workspace.stats()
        check(workspace)
    got = (lines, stats.hits, stats.misses)
    assert got == ([], 0, 0), got


# -- disks ---------------------------------------------------------------------------------------


@contextmanager
def tiny_disk(folder: Path, size: str) -> Iterator[Callable[[str], None]]:
    """Mount a disk of this size at `folder`; yields a function that resizes it. Needs root."""
    folder.mkdir()

    def mount(options: str) -> bool:
        command = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
        return subprocess.run(command, capture_output=True).returncode == 0

    if os.geteuid() != 0 or not mount(f"size={size}"):
        pytest.skip("mounting a disk needs root")
    try:
        yield lambda more: _sure(mount(f"remount,size={more}"))
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _sure(done: bool) -> None:
    assert done, "cannot resize the disk"


def git(root: Path, *arguments: str) -> None:
    """Run git without the user's configuration."""
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    name = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "gc.auto=0"]
    command = ["git", *name, *arguments]
    subprocess.run(command, cwd=root, env=os.environ | alone, check=True, capture_output=True)


def two_branches(root: Path, files: int, size: int) -> None:
    """Create a repository whose branches `one` (checked out) and `two` differ in `files` files of
    `size` bytes."""
    root.mkdir()
    (root / "same.py").write_text("value = 0  # on both\n" * 20)
    # What a file is before git has written it: a text that is known already, however it is timed.
    (root / "empty.py").touch()
    git(root, "init", "-q", "-b", "one")
    for branch in ("one", "two"):
        if branch == "two":
            git(root, "checkout", "-q", "-b", branch)
        chance = random.Random(branch)
        for number in range(files):
            path = root / f"f{number % 20}" / f"file{number}.py"
            path.parent.mkdir(exist_ok=True)
            words = iter(chance.choices(CODE, k=1200))
            lines = [
                f"{branch}_{number}.{a}({b}, {c})  # {d} {e}\n"
                for a, b, c, d, e in zip(*[words] * 5, strict=False)
            ]
            path.write_text("".join(lines)[:size])
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", branch)
    git(root, "checkout", "-q", "one")
