"""The workspace index of one client, built for its folders and the model's tokenizer.

It is up to date with the client's open documents. Runs on the event loop. What reads, writes or
waits runs in threads of this client's own, so that others never wait for them; requests that come
meanwhile are combined.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from index.workspace import file_filter
from index.workspace.workspace import Workspace
from lsp_server.protocol.text_sync import OpenDocument, OpenDocuments, path_of
from lsp_server.shared_engine import NotReady, SharedEngine

log = logging.getLogger(__name__)

INDEX_DEBOUNCE_S = 0.4  # seconds; in this time a document is updated at most once
MAX_THREADS = 4  # threads for opening, refreshing, updating and closing: one of each at a time
MAX_CHANGED_PATHS = 10_000  # paths reported by the client; after more, everything is scanned


class _ClientLeft(Exception):
    """The end of a build that nobody waits for any more."""


class WorkspaceIndex:
    """A workspace that follows a client.

    `spawn` runs coroutines in the background; `on_update` is called after the index changed.
    """

    def __init__(
        self,
        shared_engine: SharedEngine,
        documents: OpenDocuments,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        on_update: Callable[[], None],
    ) -> None:
        self._shared_engine, self._documents = shared_engine, documents
        self._spawn, self._on_update = spawn, on_update
        self._workspace: Workspace | None = None
        self._roots: list[Path] = []
        self._gitignore = True
        self._dirty: dict[str, None] = {}  # URIs of documents that were opened or changed
        self._closed_paths: set[str] = set()  # paths of documents that were closed
        self._changed_paths: set[str] = set()  # paths of files that changed on disk
        self._timer: asyncio.TimerHandle | None = None
        self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="index")
        self._open_lock = asyncio.Lock()  # held while the index is built
        self._open_is_due = self._must_rebuild = False
        self._refresh_lock = asyncio.Lock()  # held while files are read again
        self._update_lock = asyncio.Lock()  # keeps updates of documents in order
        self._reading = threading.Lock()  # held by the thread that reads files, and at the end
        self._closed = False

    @property
    def workspace(self) -> Workspace | None:
        """The index; None unless it was built for the tokenizer of the model in use."""
        engine, own = self._shared_engine.engine, self._workspace
        fits = own and engine and own.encoder.fingerprint == engine.encoder.fingerprint
        return own if fits else None

    def why_secret(self, path: str, text: str) -> str | None:
        """Say why a text of a file, which need not be indexed, may hold secrets.

        None if it does not seem to.
        """
        if self.workspace is not None:
            return self.workspace.why_secret(path, text)
        return file_filter.why_secret(path, text, self._roots)

    def why_secret_in(self, name: str, text: str) -> str | None:
        """Say why a text of a file, named from the top of a repository, may hold secrets.

        None if it does not seem to in any of the workspace folders. Without a text, that of the
        file there is judged.
        """
        for root in self._roots:
            why = self.why_secret(str(root / name), text or _text_of(root / name))
            if why is None:
                return None
        return why if self._roots else self.why_secret(name, text)

    def why_private(self, path: str, text: str) -> str | None:
        """Say why a text is not indexed although its file is open; None for other texts.

        It may hold secrets, or git ignores the file.
        """
        if self.workspace is not None:
            return self.workspace.why_private(path, text)
        ignored = file_filter.why_ignored(path, self._roots) if self._gitignore else None
        return file_filter.why_secret(path, text, self._roots) or ignored

    @property
    def roots(self) -> list[Path]:
        """The workspace folders."""
        return self._roots

    def is_busy(self) -> bool:
        """Return whether the index is being built."""
        return self._open_lock.locked()

    def set_roots(self, uris: list[str]) -> None:
        """Set the workspace folders by URI; only existing file: folders count."""
        roots = [Path(path) for path in map(path_of, uris) if path and _is_folder(path)]
        if roots != self._roots:
            self._roots = roots
            self._rebuild()

    def configure(self, gitignore: bool) -> None:
        """Set whether .gitignore applies."""
        if gitignore != self._gitignore:
            self._gitignore = gitignore
            self._rebuild()

    def open_soon(self) -> None:
        """Open the index in the background."""
        if not self._open_is_due:
            self._open_is_due = True
            self._spawn(self.open())

    def _rebuild(self) -> None:
        self._must_rebuild = True
        self.open_soon()

    async def open(self) -> None:
        """Open an index of the roots for the tokenizer in use, unless there is one."""
        async with self._open_lock:
            self._open_is_due = False
            engine, old = self._shared_engine.engine, self._workspace
            if engine is None or self._closed:
                return
            if self.workspace is not None and not self._must_rebuild:
                self._schedule_update()
                return
            self._must_rebuild = False
            self._workspace = None
            if old:
                await self._run(self._end, old)
            workspace = engine.open_workspace(self._roots, self._gitignore)
            self._workspace = workspace
            self._closed_paths.clear()
            self._dirty = dict.fromkeys(document.uri for document in self._documents)
            await self._run(self._build, workspace)
        await self._update_index()
        self._on_update()

    async def _run(self, work: Callable[..., None], *args: Any) -> None:
        """Run `work` in a thread of this client."""
        await asyncio.get_running_loop().run_in_executor(self._threads, work, *args)

    def _build(self, workspace: Workspace) -> None:
        with self._reading, contextlib.suppress(_ClientLeft):
            if self._closed:
                return
            try:
                workspace.watch()
                workspace.build(self._report)
            except OSError as error:
                log.warning("the workspace is not indexed: %s", error)

    def _report(self, what: str, done: int, total: int) -> None:
        """Pass on progress. Raises _ClientLeft."""
        if self._closed:
            raise _ClientLeft
        self._shared_engine.report(what, done, total)

    def _end(self, workspace: Workspace) -> None:
        with self._reading:
            workspace.close()

    async def reindex(self) -> dict[str, int]:
        """Index open documents and scan all files again; return the number of files and tokens."""
        await self.open()
        await self._update_index()
        workspace = self.workspace
        if workspace is None:
            raise NotReady(
                self._shared_engine.message or "no model is loaded, so there is no index"
            )
        async with self._refresh_lock:
            await self._run(self._scan, workspace)
        self._on_update()
        return {"files": len(workspace.documents), "tokens": workspace.size}

    def _scan(self, workspace: Workspace) -> None:
        with self._reading, contextlib.suppress(_ClientLeft):
            if not self._closed:
                workspace.scan(self._report)

    def on_change(self, document: OpenDocument) -> None:
        """Index the text of a document that was opened or changed, soon."""
        self._dirty[document.uri] = None
        self._schedule_update()

    def on_close(self, uri: str) -> None:
        """Index the file of a document that was closed: from disk, or as another URI has it."""
        self._dirty.pop(uri, None)
        if path := path_of(uri):
            self._closed_paths.add(path)
            self._dirty |= dict.fromkeys(
                document.uri for document in self._documents if document.path == path
            )
            self._schedule_update()

    def refresh(self, paths: list[str]) -> None:
        """Read files again that have changed on disk, as the client reports."""
        if self.workspace is None or not paths:
            return
        if not self._changed_paths:  # else that is under way
            self._spawn(self._refresh())
        self._changed_paths.update(paths)
        if len(self._changed_paths) > MAX_CHANGED_PATHS:
            self._changed_paths = {str(root) for root in self._roots}

    async def _refresh(self) -> None:
        """Read the files again that the client has reported."""
        async with self._refresh_lock:
            paths, self._changed_paths = self._changed_paths, set()
            if (workspace := self.workspace) is not None and not self._closed:
                await self._run(self._read_again, workspace, paths)

    def _read_again(self, workspace: Workspace, paths: set[str]) -> None:
        with self._reading:
            if not self._closed:
                workspace.refresh(paths)

    def _schedule_update(self) -> None:
        if self._timer is None and self.workspace is not None:
            self._timer = asyncio.get_running_loop().call_later(INDEX_DEBOUNCE_S, self._flush)

    def _flush(self) -> None:
        self._timer = None
        self._spawn(self._update_index())

    async def _update_index(self) -> None:
        """Index the files of closed documents, and the current text of those that changed."""
        async with self._update_lock:
            workspace = self.workspace
            if workspace is None or self._closed:
                return
            closed, self._closed_paths = self._closed_paths, set()
            for path in closed:  # also if it is open again: its versions begin again
                await self._run(workspace.update, path, None)
            dirty, self._dirty = self._dirty, {}
            for uri in dirty:
                document = self._documents.get(uri) if uri in self._documents else None
                if document and document.path:
                    text, version = document.text.text, document.version
                    await self._run(workspace.update, document.path, text, version)

    async def close(self) -> None:
        """Save the index, in a thread. A build is abandoned."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._workspace:
            await self._run(self._end, self._workspace)
        self._threads.shutdown(wait=False)


def _is_folder(path: str) -> bool:
    try:
        return Path(path).is_dir()
    except OSError:  # too long a name, or no permission
        return False


def _text_of(path: Path) -> str:
    """Read a file's text; "" where it has none that can be read."""
    try:
        return file_filter.read(path)
    except file_filter.Skipped:
        return ""
