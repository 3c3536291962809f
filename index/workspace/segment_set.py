"""The living documents and the segments that hold them.

Readers take the snapshot and ask it, without a lock: segments in it only grow, and documents in
them only die. Writers hold the lock. A merge builds without it and moves the documents in with it.
No files, no texts, no threads of its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Container, Sequence

from index._core import Automaton, Segments
from index.workspace.segment import Document, Segment, frozen, move_in, to_merge, tokens_of
from index.workspace.token_cache import Ids

YOUNG = 1 << 15  # tokens of the young segment, dead ones included, after which it is closed


class Living:
    """Documents by path, in a young segment, which is the last one, and frozen ones."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.documents: dict[str, Document] = {}
        self.changed = 0  # of the newest document
        self.edition = 0  # another one whenever what is saved should be
        self._numbers: dict[str, tuple[int, int]] = {}
        self._folders: dict[str, int] = {}
        self._renew([Segment(Automaton(), [])])

    @property
    def segments(self) -> list[Segment]:
        return self.snapshot[0]

    def next(self) -> int:
        """The `changed` of a new document."""
        with self.lock:
            self.changed += 1
            return self.changed

    def number(self, path: str) -> tuple[int, int]:
        """The numbers of a path and of its folder."""
        known = self._numbers.get(path)
        if known is None:
            with self.lock:
                folder = self._folders.setdefault(os.path.dirname(path), len(self._folders))
                known = self._numbers.setdefault(path, (len(self._numbers), folder))
        return known

    def near(self, path: str) -> tuple[int, int]:
        """The same, -1 where no document has that path or that folder."""
        return self._numbers.get(path) or (-1, self._folders.get(os.path.dirname(path), -1))

    def inside(self, paths: Collection[str]) -> list[str]:
        """The documents of these files and below these folders."""
        folders = tuple(f"{path}/" for path in paths)
        return [one for one in self.documents if one in paths or one.startswith(folders)]

    def put(self, document: Document, ids: Ids) -> None:
        """A document comes, in place of the one of its path."""
        with self.lock:
            if document.size > YOUNG // 2:
                self.put_frozen([document], [ids])
                return
            self.forget(document.path)
            self.documents[document.path] = document
            young = self.segments[-1]
            young.add(document, ids, self.number)
            if young.size > YOUNG:
                self.close_young()

    def put_frozen(
        self, documents: Sequence[Document], tokens: Sequence[Ids], but: Container[str] = ()
    ) -> None:
        """Documents by rising `changed` come, in a segment of their own, but for those whose paths
        are in `but` when they do."""
        numbers = [self.number(document.path) for document in documents]
        new = frozen(documents, tokens, numbers)  # the work, without the lock
        with self.lock:
            for document in documents:
                document.alive = document.path not in but
                if document.alive:
                    self.forget(document.path)
                    self.documents[document.path] = document
            move_in(new, numbers, self.number)
            self._renew([*self.segments[:-1], new, self.segments[-1]])

    def forget(self, path: str) -> None:
        """The document of this path dies, if there is one."""
        with self.lock:
            document = self.documents.pop(path, None)
            if document:
                document.die()

    def rename(self, document: Document, path: str) -> None:
        """The document has this path now, in place of the one that had it."""
        with self.lock:
            del self.documents[document.path]
            self.forget(path)
            document.path = path
            self.documents[path] = document
            core, number = document.place
            core.label(number, document.changed, *self.number(path))

    def close_young(self) -> None:
        """Its documents are going to be frozen; a new one takes what comes."""
        with self.lock:
            if self.segments[-1].documents:
                self._renew([*self.segments, Segment(Automaton(), [])])

    def merge(self) -> None:
        """Make segments one until all is well. For one thread at a time."""
        while self._merge_some():
            pass

    def _merge_some(self) -> bool:
        with self.lock:
            group = to_merge(self.segments)
            documents = [one for segment in group for one in segment.documents if one.alive]
            documents.sort(key=lambda document: document.changed)
            places = [document.place for document in documents]
            numbers = [self.number(document.path) for document in documents]
        if not group:
            return False
        new = frozen(documents, [tokens_of(*place) for place in places], numbers)
        with self.lock:
            move_in(new, numbers, self.number)
            kept = [segment for segment in self.segments if segment not in group]
            self._renew([*kept[:-1], *([new] if documents else []), kept[-1]])
        return True

    def take(self, segments: Sequence[Segment]) -> None:
        """Frozen segments come whole, as they were saved; their documents have their places."""
        with self.lock:
            for segment in segments:
                for document in segment.documents:
                    if document.alive:
                        self.documents[document.path] = document
                        self.changed = max(self.changed, document.changed)
            self._renew([*segments, *self.segments])

    def _renew(self, segments: list[Segment]) -> None:
        self.edition += 1
        self.snapshot = (segments, Segments([segment.core for segment in segments]))
