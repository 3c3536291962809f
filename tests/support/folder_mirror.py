"""A copy of a folder that is updated only by what `Watch` reports, and waiting for conditions."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from index.workspace import watch
from index.workspace.file_filter import JUNK_FOLDERS

NEVER_S = 1e6
TIMEOUT_S = 120  # a backstop; nothing takes that long even on a busy machine

needs_inotify = pytest.mark.skipif(
    not watch.USE_INOTIFY, reason="needs the inotify interface of watchdog 7.1"
)


def on_disk(path: Path) -> dict[Path, bytes]:
    """The contents of the files at or below a path, without those in links and junk folders."""
    try:
        if path.is_symlink() or not path.exists():
            return {}
        if not path.is_dir():
            return {path: path.read_bytes()}
        found = {}
        for inside in path.iterdir():
            if not (inside.name in JUNK_FOLDERS and inside.is_dir()):
                found.update(on_disk(inside))
        return found
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return {}


class Mirror:
    """An `on_change` callback that keeps the contents of a folder's files as they were reported."""

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.realpath(root))
        self.batches: list[set[Path] | None] = []
        self.threads: set[int] = set()
        self.failing = 0  # how many of the next calls raise an error
        self.overlapping = 0  # calls that began during another one
        self.call_s = 0.0  # duration of a call
        self.files = on_disk(self.root)
        self._busy = threading.Lock()

    def __call__(self, batch: set[Path] | None) -> None:
        self.overlapping += self._busy.locked()
        with self._busy:
            time.sleep(self.call_s)
            self.batches.append(batch)
            self.threads.add(threading.get_ident())
            if self.failing:
                self.failing -= 1
                raise RuntimeError("the mirror broke")
            files = {}
            if batch is not None:
                kept = (each for each in self.files if batch.isdisjoint((each, *each.parents)))
                files = {each: self.files[each] for each in kept}
            for path in batch or [self.root]:
                files.update(on_disk(path))
            self.files = files

    def wait_until_equal(self) -> None:
        """Wait until the mirror equals the disk."""
        wait_for(lambda: self.files == on_disk(self.root), self._difference)

    def reported(self) -> set[Path | None]:
        """All reported paths, after waiting for the reports of all changes so far."""
        mark = None
        while not any(mark in (batch or ()) for batch in list(self.batches)):
            before = self.batches.count(None)  # a full scan may replace the report of the mark
            mark = self.root / f"mark-{time.monotonic_ns()}"
            mark.touch()
            wait_for(
                lambda mark=mark, before=before: (
                    any(mark in (batch or ()) for batch in list(self.batches))
                    or self.batches.count(None) > before
                )
            )
        found: set[Path | None] = set()
        for batch in list(self.batches):
            found |= {None} if batch is None else batch
        return {each for each in found if each is None or not each.name.startswith("mark-")}

    def _difference(self) -> str:
        real, mine = on_disk(self.root), self.files
        wrong = sorted(each for each in {*real, *mine} if real.get(each) != mine.get(each))
        return f"{len(wrong)} files differ: {wrong[:5]}"


def wait_for(done: Callable[[], bool], why: Callable[[], str] = lambda: "timed out") -> None:
    start = before = time.monotonic()
    while not done():
        now = time.monotonic()
        assert now - start < TIMEOUT_S, why()
        time.sleep(max(0.005, now - before))  # leaves half of the time to others
        before = time.monotonic()


def watched(root: Path, **options: float) -> tuple[Mirror, watch.Watch]:
    """A mirror and its watch in constant use, not started, without regular full scans."""
    mirror = Mirror(root)
    options = {"quiet_s": 0.02, "max_delay_s": 0.1, "rescan_s": NEVER_S, "poll_s": 0.2, **options}
    watching = watch.Watch([root], mirror, **options)
    heartbeat = watching._heartbeat

    def use() -> None:
        watching.use()
        heartbeat()

    watching._debouncer._heartbeat = use
    watching.use()
    return mirror, watching
