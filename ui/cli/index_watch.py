"""What `draftline index` does while one looks on: a build with its bar, and following the disk.

A live line only on a terminal; elsewhere one line when a build is done, and one a batch of changes.
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
from ui.cli.index import count, named, one_line, say, show, show_json

TICK = 0.25  # seconds between two looks at how far a build is
WIDE = 80  # columns of a terminal that has room for all words


@dataclass(frozen=True, slots=True)
class Built:
    """A build that is done."""

    stats: Stats
    seconds: float
    loaded: int  # files that were taken up as they were kept


def build(workspace: Workspace, last: Callable[[], None] | None = None) -> Built:
    """Build, then do `last`, with a bar on a terminal. Ctrl-C is heard at once: the work is done in
    another thread, which is not waited for. NotADirectoryError where a root is none."""
    bar = Bar(workspace)

    def work() -> None:
        workspace.build(bar.note)
        if last:
            bar.what = "saving"
            last()

    started = time.monotonic()
    with bar:
        done = ThreadPoolExecutor(1).submit(work)
        while not wait([done], timeout=TICK).done:
            bar.draw()
    done.result()
    stats = workspace.stats()
    loaded = max(0, stats.files - stats.hits - stats.misses)  # each of the others was encoded once
    return Built(stats, time.monotonic() - started, loaded)


class Bar:
    """How far a build is, on stderr, while a context."""

    def __init__(self, workspace: Workspace) -> None:
        self.what = "looking at files"
        self._workspace = workspace
        self._started = time.monotonic()
        self._done = self._of = 0
        self._left = 0.0  # seconds, when it was told last
        self._told = self._started
        self._loaded = self._read = 0  # bytes of files: before anything was read, and since
        self._rate = 0.0  # MB a second, when more was read last
        self._console = Console(stderr=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(None),
            TextColumn("{task.fields[at]}"),
        )
        self._bar = Progress(*columns, console=self._console, transient=True, expand=True)
        self._task = self._bar.add_task(self.what, total=None, at="")

    def note(self, _: str, done: int, of: int) -> None:
        """As the index tells it, in files; from another thread."""
        self._done, self._of = done, of
        self._told = time.monotonic()
        self._left = (self._told - self._started) * (of - done) / done
        self.what = "indexing"

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
            files, tokens = count(self._of, "file"), count(self._workspace.size, "token")
            say(f"read {files} in {time.monotonic() - self._started:.1f} s; {tokens} in all")

    def draw(self) -> None:
        self._look()
        self._bar.update(
            self._task,
            description=self.what,
            completed=self._done,
            total=self._of or None,
            at=self._figures() if self._done else "",
        )

    def _figures(self) -> str:
        done, of, tokens, rate = self._done, self._of, self._workspace.size, self._rate
        left = max(0.0, self._left - (time.monotonic() - self._told))
        if self._console.width < WIDE:
            return f"{done}/{of}, {tokens / 1e6:.1f} M, {rate:.1f} MB/s, {left:.0f} s"
        files = f"{done:,} of {count(of, 'file')}"
        return f"{files}, {tokens / 1e6:.1f} M tokens, {rate:.1f} MB/s, {left:.0f} s left"

    def _look(self) -> None:
        """How much was read by now, but for files that were just written."""
        documents = self._workspace.documents
        held = sum(document.stamp[0] for document in documents if document.stamp)
        if not self._done:
            self._loaded = held
        elif held - self._loaded > self._read:
            self._read = held - self._loaded
            self._rate = self._read / (time.monotonic() - self._started) / 1e6


# -- following the disk ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """What became of a file in the index."""

    path: str
    what: str  # new, changed, gone


class News:
    """Brings the index up to date, batch by batch, and says what that changed."""

    def __init__(self, workspace: Workspace) -> None:
        self.batches: queue.SimpleQueue[list[Change]] = queue.SimpleQueue()
        self._workspace = workspace
        self._known: dict[str, int] | None = None
        self._lock = threading.Lock()

    def take(self, paths: set[Path] | None) -> None:
        """These may have changed; None: anything may have."""
        self._workspace.refresh(paths)
        self.look()

    def look(self) -> None:
        """Note what the index holds; from the second time on, what is different."""
        with self._lock:
            now = {document.path: document.changed for document in self._workspace.documents}
            before, self._known = self._known, now
        if before is None:
            return
        changes = [Change(path, "gone") for path in before.keys() - now.keys()]
        for path, changed in now.items():
            if before.get(path) != changed:
                changes.append(Change(path, "changed" if path in before else "new"))
        if changes:
            self.batches.put(sorted(changes, key=lambda change: change.path))


def follow(workspace: Workspace, built: Callable[[Built], None], as_json: bool) -> NoReturn:
    """Build, hand that to `built`, and follow the disk until Ctrl-C; then save."""
    news = News(workspace)
    ready = False
    try:
        # Watched before it is read: nothing is missed.
        with Watch(workspace.disk.roots, news.take) as watch:
            done = build(workspace, workspace.settle)
            news.look()
            ready = True
            built(done)
            if as_json or not all(one and one.isatty() for one in (sys.stdout, sys.stderr)):
                _print_news(workspace, news, as_json)
            _show_news(workspace, news, watch)
    finally:
        if ready:  # else what was kept before stays
            workspace.close()


def _print_news(workspace: Workspace, news: News, as_json: bool) -> NoReturn:
    """One line a batch, or one JSON object a change."""
    while True:
        changes = news.batches.get()
        files, tokens = len(workspace.documents), workspace.size
        if as_json:
            for change in changes:
                of = {"path": change.path, "change": change.what, "time": time.time()}
                show_json({**of, "files": files, "tokens": tokens})
        else:
            figures = f"{count(files, 'file')}, {count(tokens, 'token')}"
            show(one_line(f"{time.strftime('%H:%M:%S')}  {summary(changes)}; {figures}"))


def _show_news(workspace: Workspace, news: News, watch: Watch) -> NoReturn:
    """One live line on stderr."""
    changes: list[Change] = []
    heard = 0.0
    console = Console(stderr=True)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            parts = [count(len(workspace.documents), "file"), count(workspace.size, "token")]
            parts += ["polled"] * bool(watch.polling)
            line = ", ".join([*parts, "no change yet; Ctrl-C ends"])
            if changes:
                line = ", ".join([*parts, f"{ago(time.monotonic() - heard)} ago: "])
                line += summary(changes, console.width - len(line))
            live.update(Text(one_line(line), no_wrap=True, overflow="ellipsis"), refresh=True)
            try:
                changes = news.batches.get(timeout=1)
            except queue.Empty:
                continue
            heard = time.monotonic()


def summary(changes: list[Change], room: int = 0) -> str:
    """`changed a.py`, or how many of each kind and the first path; of a path that is too long for
    `room` characters, the end."""
    kinds = Counter(change.what for change in changes)
    many = len(changes) > 1
    what = ", ".join(f"{number:,} {kind}" for kind, number in kinds.items()) + ": "
    before, path = what if many else f"{changes[0].what} ", named(changes[0].path)
    room -= len(before) + 5 * many
    if 0 < room < len(path):
        path = "\u2026" + path[1 - room :]
    return f"{before}{path}{', ...' if many else ''}"


def ago(seconds: float) -> str:
    """Of a minute or hour only the number."""
    for unit, name in ((3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds // unit:.0f} {name}"
    return f"{seconds:.0f} s"
