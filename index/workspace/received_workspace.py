"""An index of texts that another machine sends: in memory only, named as that machine names them.

Nothing is read from this machine's disk, and nothing written to it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from index.workspace.roots import FileText
from index.workspace.segment import IndexedDocument
from index.workspace.token_cache import Encoder
from index.workspace.workspace import Workspace


class ReceivedWorkspace(Workspace):
    """A workspace without folders, to which texts are given. Writers take turns."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(None, encoder)

    def key(self, path: Path | str) -> str:
        """Return the name itself: paths of another machine mean nothing here."""
        return os.fspath(path)

    def put(self, texts: Sequence[FileText]) -> None:
        """Add texts, in place of those with the same names."""
        self._add(self._encode(list(texts)))
        self._compactor.request()

    def copy(self, document: IndexedDocument, path: str) -> None:
        """Add the text of a document under another name too."""
        made = IndexedDocument(
            path=path,
            version=0,
            changed=self._segments.next_change(),
            digest=document.digest,
            stamp=None,
            starts=document.starts,
            size=document.size,
        )
        self._segments.add(made, np.array(document.tokens))
        self._compactor.request()

    def drop(self, paths: Iterable[str]) -> None:
        """Delete texts: no query finds them any more."""
        for path in paths:
            self._segments.delete(path)
        self._compactor.request()

    def purge(self) -> None:
        """Rewrite every segment that holds deleted texts, so that memory has none of them."""
        with self._merge_lock:
            self._segments.purge()
        self.token_cache.clear()
