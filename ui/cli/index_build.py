"""The build of `draftline index`, with a progress bar on a terminal and one line elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from index.records import Stats
from index.workspace.workspace import Workspace
from ui.common.errors import say
from ui.common.terminal import plural

REFRESH_S = 0.25  # seconds between two drawings of the progress bar
WIDE_COLUMNS = 80  # characters; terminals as wide as this show all figures


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
    """A context manager that shows a build's progress on stderr.

    It is a bar on a terminal, else one line at the end.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.phase = "looking at files"
        self._workspace = workspace
        self._started = time.monotonic()
        self._done = self._total = 0  # files
        self._reported_at = self._started
        self._remaining_s = 0.0  # seconds, at _reported_at
        self._loaded_bytes = self._read_bytes = 0  # before the first file was read, and since
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
        """Take the index's progress, in files; called from another thread."""
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
