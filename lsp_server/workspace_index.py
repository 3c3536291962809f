"""The workspace index of one client, built for its folders and the model's tokenizer and kept up to
date with its open documents. Runs on the event loop; building and updating happen in threads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from index.workspace.workspace import Workspace
from lsp_server.protocol.text_sync import Document, Documents, path_of
from lsp_server.shared_engine import NotReady, SharedEngine

log = logging.getLogger(__name__)

INDEX_DEBOUNCE_S = 0.4  # at most one update per document in this time


class WorkspaceIndex:
    """A workspace that follows a client. `spawn` runs coroutines in the background; `on_update` is
    called after the index changed."""

    def __init__(
        self,
        shared_engine: SharedEngine,
        documents: Documents,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        on_update: Callable[[], None],
    ) -> None:
        self._shared_engine, self._documents = shared_engine, documents
        self._spawn, self._on_update = spawn, on_update
        self._workspace: Workspace | None = None
        self._roots: list[Path] = []
        self._gitignore = True
        self._dirty: dict[str, Document] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._open_lock = asyncio.Lock()  # held while the index is built or closed
        self._update_lock = asyncio.Lock()  # keeps updates of documents in order
        self._closed = False

    @property
    def workspace(self) -> Workspace | None:
        """The index; None unless it was built for the tokenizer of the model in use."""
        engine, own = self._shared_engine.engine, self._workspace
        fits = own and engine and own.encoder.fingerprint == engine.encoder.fingerprint
        return own if fits else None

    def is_busy(self) -> bool:
        """Whether the index is being built."""
        return self._open_lock.locked()

    def set_roots(self, uris: list[str]) -> None:
        """Set the workspace folders by URI; only existing file: folders count."""
        roots = [Path(path) for path in map(path_of, uris) if path and Path(path).is_dir()]
        if roots != self._roots:
            self._roots = roots
            self._spawn(self.open(rebuild=True))

    def configure(self, gitignore: bool) -> None:
        """Set whether .gitignore applies."""
        if gitignore != self._gitignore:
            self._gitignore = gitignore
            self._spawn(self.open(rebuild=True))

    async def open(self, rebuild: bool = False) -> None:
        """Open an index of the roots for the tokenizer in use, unless there is one."""
        async with self._open_lock:
            engine, old = self._shared_engine.engine, self._workspace
            if engine is None or self._closed:
                return
            fits = old is not None and old.encoder.fingerprint == engine.encoder.fingerprint
            if fits and not rebuild:
                self._schedule_update()
                return
            self._workspace = None
            if old:
                await asyncio.to_thread(old.close)
            workspace = engine.open_workspace(self._roots, self._gitignore)
            self._workspace = workspace
            for document in self._documents:
                self._dirty[document.uri] = document
            await asyncio.to_thread(self._build, workspace)
        await self._update_index()
        self._on_update()

    def _build(self, workspace: Workspace) -> None:
        try:
            workspace.watch()
            workspace.build(self._shared_engine.report)
        except OSError as error:
            log.warning("the workspace is not indexed: %s", error)

    async def reindex(self) -> dict[str, int]:
        """Index open documents and scan all files again. Returns the number of files and tokens."""
        await self.open()
        await self._update_index()
        workspace = self.workspace
        if workspace is None:
            raise NotReady(
                self._shared_engine.message or "no model is loaded, so there is no index"
            )
        await asyncio.to_thread(workspace.scan)
        self._on_update()
        return {"files": len(workspace.documents), "tokens": workspace.size}

    def on_change(self, document: Document) -> None:
        """A document was opened or changed: index its text soon."""
        self._dirty[document.uri] = document
        self._schedule_update()

    def on_close(self, uri: str) -> None:
        """A document was closed: index the file on disk again."""
        self._dirty.pop(uri, None)
        if path := path_of(uri):
            self._spawn(self._reload(path))

    def refresh(self, paths: list[str]) -> None:
        """The client reports that these files changed on disk."""
        if self.workspace and paths:
            self._spawn(asyncio.to_thread(self.workspace.refresh, paths))

    def _schedule_update(self) -> None:
        if self._timer is None and self.workspace is not None:
            self._timer = asyncio.get_running_loop().call_later(INDEX_DEBOUNCE_S, self._flush)

    def _flush(self) -> None:
        self._timer = None
        self._spawn(self._update_index())

    async def _update_index(self) -> None:
        """Index the current text of the changed documents."""
        async with self._update_lock:
            workspace = self.workspace
            if workspace is None or self._closed:
                return
            dirty, self._dirty = self._dirty, {}
            for document in dirty.values():
                if document.path and document.uri in self._documents:
                    text, version = document.text.text, document.version
                    await asyncio.to_thread(workspace.update, document.path, text, version)

    async def _reload(self, path: str) -> None:
        """Index a file from disk, unless it is open again."""
        async with self._update_lock:
            if self.workspace and all(one.path != path for one in self._documents):
                await asyncio.to_thread(self.workspace.update, path, None)

    async def close(self) -> None:
        """Save the index, in a thread."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._workspace:
            await asyncio.to_thread(self._workspace.close)
