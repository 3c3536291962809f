"""The index of one client: built for its folders and the model's tokens, told of its buffers.

All of it runs on the event loop, but for the threads that build and update. What is found in it is
the drafters' and the completions' business.
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

QUIET = 0.4  # s after the last change until a buffer is indexed


class Indexing:
    """A workspace that follows a client. `spawn` does work beside everything else, `told` is called
    when the figures changed."""

    def __init__(
        self,
        shared_engine: SharedEngine,
        documents: Documents,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        told: Callable[[], None],
    ) -> None:
        self._shared_engine, self._documents = shared_engine, documents
        self._spawn, self._told = spawn, told
        self._workspace: Workspace | None = None
        self._roots: list[Path] = []
        self._gitignore = True
        self._dirty: dict[str, Document] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._opening = asyncio.Lock()  # one builds or closes the index at a time
        self._telling = asyncio.Lock()  # and one tells it of buffers, in their order
        self._closed = False

    @property
    def workspace(self) -> Workspace | None:
        """The index, where it is one of the tokens of the model in use."""
        engine, own = self._shared_engine.engine, self._workspace
        fits = own and engine and own.encoder.fingerprint == engine.encoder.fingerprint
        return own if fits else None

    def is_busy(self) -> bool:
        """Whether it is being built."""
        return self._opening.locked()

    def set_roots(self, uris: list[str]) -> None:
        """The folders of the workspace, by URI; others than file: are none."""
        roots = [Path(path) for path in map(path_of, uris) if path and Path(path).is_dir()]
        if roots != self._roots:
            self._roots = roots
            self._spawn(self.open(anew=True))

    def configure(self, gitignore: bool) -> None:
        """Whether .gitignore counts."""
        if gitignore != self._gitignore:
            self._gitignore = gitignore
            self._spawn(self.open(anew=True))

    async def open(self, anew: bool = False) -> None:
        """An index of the roots for the tokenizer in use."""
        async with self._opening:
            engine, old = self._shared_engine.engine, self._workspace
            if engine is None or self._closed:
                return
            fits = old is not None and old.encoder.fingerprint == engine.encoder.fingerprint
            if fits and not anew:
                self._later()
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
        self._told()

    def _build(self, workspace: Workspace) -> None:
        try:
            workspace.watch()
            workspace.build(self._shared_engine.report)
        except OSError as error:
            log.warning("the workspace is not indexed: %s", error)

    async def reindex(self) -> dict[str, int]:
        """Read everything again; files and tokens."""
        await self.open()
        workspace = self.workspace
        if workspace is None:
            raise NotReady(
                self._shared_engine.message or "no model is loaded, so there is no index"
            )
        await asyncio.to_thread(workspace.scan)
        self._told()
        return {"files": len(workspace.documents), "tokens": workspace.size}

    def touch(self, document: Document) -> None:
        """A buffer is open or changed: soon it is indexed as it is."""
        self._dirty[document.uri] = document
        self._later()

    def close_buffer(self, uri: str) -> None:
        """A buffer was closed: what the disk says counts again."""
        self._dirty.pop(uri, None)
        if path := path_of(uri):
            self._spawn(self._forget(path))

    def refresh(self, paths: list[str]) -> None:
        """The client says that these files changed on disk."""
        if self.workspace and paths:
            self._spawn(asyncio.to_thread(self.workspace.refresh, paths))

    def _later(self) -> None:
        if self._timer is None and self.workspace is not None:
            self._timer = asyncio.get_running_loop().call_later(QUIET, self._flush)

    def _flush(self) -> None:
        self._timer = None
        self._spawn(self._update_index())

    async def _update_index(self) -> None:
        """Index buffers as they are now. Their text is shared, so that this copies nothing."""
        async with self._telling:
            workspace = self.workspace
            if workspace is None:
                return
            dirty, self._dirty = self._dirty, {}
            for document in dirty.values():
                if document.path and document.uri in self._documents:
                    text, version = document.text.text, document.version
                    await asyncio.to_thread(workspace.update, document.path, text, version)

    async def _forget(self, path: str) -> None:
        """A buffer is closed, and the file counts again."""
        async with self._telling:
            if self.workspace and all(one.path != path for one in self._documents):
                await asyncio.to_thread(self.workspace.update, path, None)

    def close(self) -> None:
        """Save it. May block."""
        self._closed = True
        if self._workspace:
            self._workspace.close()
