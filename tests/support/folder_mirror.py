"""A mirror of a folder that is fed only by what `Watch` tells, and patience."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from index.workspace.file_filter import JUNK_FOLDERS
from index.workspace.watch import Watch

NEVER = 1e6  # seconds
PATIENCE = 120  # seconds that anything may take on a busy machine


def on_disk(path: Path) -> dict[Path, bytes]:
    """The files at or below a path; links and junk folders are not entered."""
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
    """What the files of a folder hold, as far as it was told."""

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.realpath(root))
        self.batches: list[set[Path] | None] = []
        self.threads: set[int] = set()
        self.failing = 0  # calls that are to fail
        self.overlapping = 0  # calls while another one ran
        self.pause = 0.0  # seconds that a call takes
        self.files = on_disk(self.root)
        self._busy = threading.Lock()

    def __call__(self, batch: set[Path] | None) -> None:
        self.overlapping += self._busy.locked()
        with self._busy:
            time.sleep(self.pause)
            self.batches.append(batch)
            self.threads.add(threading.get_ident())
            if self.failing:
                self.failing -= 1
                raise RuntimeError("the mirror fell")
            files = {}
            if batch is not None:
                kept = (each for each in self.files if batch.isdisjoint((each, *each.parents)))
                files = {each: self.files[each] for each in kept}
            for path in batch or [self.root]:
                files.update(on_disk(path))
            self.files = files

    def settles(self) -> None:
        """It becomes what is on disk."""
        wait_for(lambda: self.files == on_disk(self.root), self._difference)

    def told(self) -> set[Path | None]:
        """All that was told, once everything up to now has been."""
        mark = None
        while not any(mark in (batch or ()) for batch in list(self.batches)):
            before = self.batches.count(None)  # such a batch may have swallowed the mark
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


def wait_for(done: Callable[[], bool], why: Callable[[], str] = lambda: "waited in vain") -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, why()
        time.sleep(0.005)


def watched(root: Path, **options: float) -> tuple[Mirror, Watch]:
    """A mirror and its watch, not started; by itself it never looks at everything."""
    mirror = Mirror(root)
    options = {"quiet": 0.02, "most": 0.1, "scan_every": NEVER, "poll_every": 0.2, **options}
    return mirror, Watch([root], mirror, **options)
