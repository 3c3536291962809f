"""Live output of `draftline index`: a build with a progress bar, and --watch.

Live lines are for terminals only. Elsewhere there is one line for a build, and one for each batch
of changes.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from index.records import Stats
from index.workspace.watch import Watch
from index.workspace.workspace import Workspace
from ui.common.errors import say
from ui.common.terminal import one_line, plural, relative_to_cwd, write_json, write_line

REFRESH_S = 0.25  # of the progress bar
WIDE_COLUMNS = 80  # terminals as wide as this show all figures
TERMINAL_REFRESH_S = 1.0  # of the age of the last change


@dataclass(frozen=True, slots=True)
class Build:
    """A finished build."""

    stats: Stats
    seconds: float
    loaded: int  # files that the saved index held unchanged


def build(workspace: Workspace, save: Callable[[], None] | None = None) -> Build:
    """Build the index, then call `save`, with a progress bar on a terminal.

    The work is done in another thread, which Ctrl-C does not wait for.
    NotADirectoryError if a root is not a folder.
    """
    bar = BuildProgress(workspace)

    def work() -> None:
        workspace.build(bar.report)
        if save:
            bar.phase = "saving"
            save()

    started = time.monotonic()
    with bar:
        done = ThreadPoolExecutor(1).submit(work)
        while not wait([done], timeout=REFRESH_S).done:
            bar.draw()
    done.result()
    stats = workspace.stats()
    loaded = max(0, stats.files - stats.hits - stats.misses)  # the other files were encoded
    return Build(stats, time.monotonic() - started, loaded)


class BuildProgress:
    """The progress of a build on stderr: a bar on a terminal, else one line at the end. A context
    manager."""

    def __init__(self, workspace: Workspace) -> None:
        self.phase = "looking at files"
        self._workspace = workspace
        self._started = time.monotonic()
        self._done = self._total = 0  # files
        self._reported_at = self._started
        self._remaining_s = 0.0  # at _reported_at
        self._loaded_bytes = self._read_bytes = 0  # of files: before the first was read, and since
        self._mb_per_s = 0.0
        self._console = Console(stderr=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(None),
            TextColumn("{task.fields[at]}"),
        )
        self._bar = Progress(*columns, console=self._console, transient=True, expand=True)
        self._task = self._bar.add_task(self.phase, total=None, at="")

    def report(self, _: str, done: int, total: int) -> None:
        """The index's callback, in files; called from another thread."""
        self._done, self._total = done, total
        self._reported_at = time.monotonic()
        self._remaining_s = (self._reported_at - self._started) * (total - done) / done
        self.phase = "indexing"

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._console.is_terminal:
            self._bar.stop()
        elif not kind and self._done:
            files, tokens = plural(self._total, "file"), plural(self._workspace.size, "token")
            say(f"read {files} in {time.monotonic() - self._started:.1f} s; {tokens} in all")

    def draw(self) -> None:
        """Draw the bar; call it every REFRESH_S."""
        self._measure()
        self._bar.update(
            self._task,
            description=self.phase,
            completed=self._done,
            total=self._total or None,
            at=self._figures() if self._done else "",
        )

    def _figures(self) -> str:
        done, total, tokens, rate = self._done, self._total, self._workspace.size, self._mb_per_s
        left = max(0.0, self._remaining_s - (time.monotonic() - self._reported_at))
        if self._console.width < WIDE_COLUMNS:
            return f"{done}/{total}, {tokens / 1e6:.1f} M, {rate:.1f} MB/s, {left:.0f} s"
        files = f"{done:,} of {plural(total, 'file')}"
        return f"{files}, {tokens / 1e6:.1f} M tokens, {rate:.1f} MB/s, {left:.0f} s left"

    def _measure(self) -> None:
        """Update the reading rate. Files without a stamp, which were just written, do not count."""
        documents = self._workspace.documents
        held = sum(document.stamp[0] for document in documents if document.stamp)
        if not self._done:
            self._loaded_bytes = held
        elif held - self._loaded_bytes > self._read_bytes:
            self._read_bytes = held - self._loaded_bytes
            self._mb_per_s = self._read_bytes / (time.monotonic() - self._started) / 1e6


# -- watch -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to a file in the index."""

    path: str
    kind: str  # new, changed, gone


class ChangeLog:
    """Refreshes the index, and queues what each refresh changed."""

    def __init__(self, workspace: Workspace) -> None:
        self.batches: queue.SimpleQueue[list[Change]] = queue.SimpleQueue()
        self._workspace = workspace
        self._known: dict[str, int] | None = None  # path -> sequence number of its document
        self._lock = threading.Lock()

    def refresh(self, paths: set[Path] | None) -> None:
        """Refresh these paths, or all if None."""
        self._workspace.refresh(paths)
        self.compare()

    def compare(self) -> None:
        """Queue what has changed in the index since the last call; the first queues nothing."""
        with self._lock:
            now = {document.path: document.changed for document in self._workspace.documents}
            before, self._known = self._known, now
        if before is None:
            return
        changes = [Change(path, "gone") for path in before.keys() - now.keys()]
        for path, number in now.items():
            if before.get(path) != number:
                changes.append(Change(path, "changed" if path in before else "new"))
        if changes:
            self.batches.put(sorted(changes, key=lambda change: change.path))


def watch(workspace: Workspace, on_build: Callable[[Build], None], as_json: bool) -> NoReturn:
    """Build, call `on_build`, and follow the disk until Ctrl-C; then save."""
    log = ChangeLog(workspace)
    ready = False
    try:
        # Watching starts before reading, so that no change is missed.
        with Watch(workspace.roots, log.refresh) as watching:
            built = build(workspace, workspace.compact)
            log.compare()
            ready = True
            on_build(built)
            if as_json or not all(one and one.isatty() for one in (sys.stdout, sys.stderr)):
                _print_changes(workspace, log, as_json)
            _show_changes(workspace, log, watching)
    finally:
        if ready:  # else the saved index stays as it is
            workspace.close()


def _print_changes(workspace: Workspace, log: ChangeLog, as_json: bool) -> NoReturn:
    """Print one line for each batch, or one JSON object for each change."""
    while True:
        changes = log.batches.get()
        files, tokens = len(workspace.documents), workspace.size
        if as_json:
            for change in changes:
                fields = {"path": change.path, "change": change.kind, "time": time.time()}
                write_json(fields | {"files": files, "tokens": tokens})
        else:
            figures = f"{plural(files, 'file')}, {plural(tokens, 'token')}"
            write_line(one_line(f"{time.strftime('%H:%M:%S')}  {summary(changes)}; {figures}"))


def _show_changes(workspace: Workspace, log: ChangeLog, watching: Watch) -> NoReturn:
    """Show the last batch on one live line on stderr."""
    changes: list[Change] = []
    changed_at = 0.0
    console = Console(stderr=True)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            parts = [plural(len(workspace.documents), "file"), plural(workspace.size, "token")]
            parts += ["polled"] * bool(watching.polling)
            line = ", ".join([*parts, "no change yet; Ctrl-C ends"])
            if changes:
                age = format_age(time.monotonic() - changed_at)
                line = ", ".join([*parts, f"{age} ago: "])
                line += summary(changes, console.width - len(line))
            live.update(Text(one_line(line), no_wrap=True, overflow="ellipsis"), refresh=True)
            try:
                changes = log.batches.get(timeout=TERMINAL_REFRESH_S)
            except queue.Empty:
                continue
            changed_at = time.monotonic()


def summary(changes: list[Change], room: int = 0) -> str:
    """`changed a.py`, or how many files of each kind and the first path. A path that is longer than
    `room` characters is shortened from the left."""
    kinds = Counter(change.kind for change in changes)
    many = len(changes) > 1
    prefix = ", ".join(f"{number:,} {kind}" for kind, number in kinds.items()) + ": "
    prefix, path = prefix if many else f"{changes[0].kind} ", relative_to_cwd(changes[0].path)
    room -= len(prefix) + 5 * many
    if 0 < room < len(path):
        path = "\u2026" + path[1 - room :]
    return f"{prefix}{path}{', ...' if many else ''}"


def format_age(seconds: float) -> str:
    """An age in whole hours, minutes or seconds."""
    for unit, name in ((3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds // unit:.0f} {name}"
    return f"{seconds:.0f} s"
