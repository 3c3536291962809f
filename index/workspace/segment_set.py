"""The live documents of an index and the segments that hold them.

Readers query `snapshot` without a lock: its segments only grow, and their documents are only
deleted. Writers hold `lock`. A merge builds the new segment without the lock and swaps it in with
it. No threads, and no I/O but by `to_disk`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Container, Sequence

from index._core import Automaton, Segments
from index.workspace.segment import (
    IndexedDocument,
    Segment,
    freeze,
    move_in,
    select_merge,
    tokens_of,
)
from index.workspace.token_cache import Ids

PathIdList = Sequence[tuple[int, int]]

ACTIVE_SEGMENT_TOKENS = 1 << 15  # tokens, deleted ones included; a larger active segment is sealed


class SegmentSet:
    """Documents by path, in frozen segments and one active segment, which is the last."""

    def __init__(self, to_disk: Callable[[Segment, PathIdList], Segment] | None = None) -> None:
        """Start with an empty active segment.

        `to_disk` puts a new frozen segment, given the ids of its documents' paths and folders, on a
        mapped file, or returns it as it is.
        """
        self._to_disk = to_disk or (lambda segment, ids: segment)
        self.lock = threading.RLock()
        self.documents: dict[str, IndexedDocument] = {}
        self.changed = 0  # sequence number of the newest document
        self.generation = 0  # increases with every change worth saving
        self.closed = False
        self._path_ids: dict[str, tuple[int, int]] = {}
        self._folder_ids: dict[str, int] = {}
        self._publish([Segment(Automaton(), [])])

    @property
    def segments(self) -> list[Segment]:
        return self.snapshot[0]

    def next_change(self) -> int:
        """Return the `changed` of a new document."""
        with self.lock:
            self.changed += 1
            return self.changed

    def path_ids(self, path: str) -> tuple[int, int]:
        """Return the ids of a path and of its folder, assigned on first use."""
        known = self._path_ids.get(path)
        if known is None:
            with self.lock:
                folder = self._folder_ids.setdefault(_folder(path), len(self._folder_ids))
                known = self._path_ids.setdefault(path, (len(self._path_ids), folder))
        return known

    def known_path_ids(self, path: str) -> tuple[int, int]:
        """Return the ids of a path and of its folder, -1 for what no document has used."""
        return self._path_ids.get(path) or (-1, self._folder_ids.get(_folder(path), -1))

    def below(self, paths: Collection[str]) -> list[str]:
        """Return the documents at these paths or below them."""
        folders = tuple(f"{path}/" for path in paths)
        if not any(path.startswith(folders) for path in self._folder_ids):  # there are fewer
            return [path for path in paths if path in self.documents]
        return [path for path in self.documents if path in paths or path.startswith(folders)]

    def add(self, document: IndexedDocument, ids: Ids) -> None:
        """Add a document, replacing the one with the same path."""
        with self.lock:
            if document.size > ACTIVE_SEGMENT_TOKENS // 2:
                self.add_frozen([document], [ids])
                return
            self.delete(document.path)
            self.documents[document.path] = document
            active = self.segments[-1]
            active.add(document, ids, self.path_ids)
            if active.size > ACTIVE_SEGMENT_TOKENS:
                self.seal()

    def add_frozen(
        self,
        documents: Sequence[IndexedDocument],
        tokens: Sequence[Ids],
        excluded: Container[str] = (),
    ) -> None:
        """Add documents, in the order of `changed`, as one frozen segment.

        Those whose paths are in `excluded` once the segment is built are dropped.
        """
        ids = [self.path_ids(document.path) for document in documents]
        new = self._to_disk(freeze(documents, tokens, ids), ids)  # slow, so without the lock
        with self.lock:
            for document in documents:
                document.alive = document.path not in excluded
                if document.alive:
                    self.delete(document.path)
                    self.documents[document.path] = document
            move_in(new, ids, self.path_ids)
            self._publish([*self.segments[:-1], new, self.segments[-1]])

    def delete(self, path: str) -> None:
        """Delete the document with this path, if there is one."""
        with self.lock:
            document = self.documents.pop(path, None)
            if document:
                document.delete()

    def rename(self, document: IndexedDocument, path: str) -> None:
        """Move a document to another path, replacing the document there."""
        with self.lock:
            del self.documents[document.path]
            self.delete(path)
            document.path = path
            self.documents[path] = document
            core, number = document.place
            core.label(number, document.changed, *self.path_ids(path))

    def seal(self) -> None:
        """Start a new active segment; the next merge freezes the old one."""
        with self.lock:
            if self.segments[-1].documents:
                self._publish([*self.segments, Segment(Automaton(), [])])

    def merge(self) -> None:
        """Merge and freeze segments until none is due. One caller at a time."""
        while group := self._due():
            self._replace(group)

    def purge(self) -> None:
        """Rewrite the segments that hold deleted text. One caller at a time."""
        self.seal()
        self.merge()
        for segment in self.segments[:-1]:
            if segment.living < segment.size:
                self._replace([segment])

    def close(self) -> None:
        """Freeze what is not frozen, so that all can be saved.

        A merge on another thread is abandoned: its result is dropped.
        """
        with self.lock:
            self.closed = True
        self.seal()
        for segment in self.segments[:-1]:
            if not segment.frozen:
                self._replace([segment])

    def _due(self) -> list[Segment]:
        with self.lock:
            return [] if self.closed else select_merge(self.segments)

    def _replace(self, group: Sequence[Segment]) -> None:
        """Replace segments by one frozen segment of their live documents."""
        with self.lock:
            closed = self.closed
            documents = [text for segment in group for text in segment.documents if text.alive]
            documents.sort(key=lambda document: document.changed)
            places = [document.place for document in documents]
            ids = [self.path_ids(document.path) for document in documents]
        new = freeze(documents, [tokens_of(*place) for place in places], ids)
        if not closed:
            new = self._to_disk(new, ids)
        with self.lock:
            if self.closed != closed:
                return
            move_in(new, ids, self.path_ids)
            rest = [segment for segment in self.segments if segment not in group]
            self._publish([*rest[:-1], *([new] if documents else []), rest[-1]])

    def attach(self, segments: Sequence[Segment]) -> None:
        """Add complete frozen segments, as loaded from disk."""
        with self.lock:
            for segment in segments:
                for document in segment.documents:
                    if document.alive:
                        self.documents[document.path] = document
                        self.changed = max(self.changed, document.changed)
            self._publish([*segments, *self.segments])

    def detach(self, segments: Sequence[Segment]) -> None:
        """Drop attached segments and the documents that they still hold."""
        with self.lock:
            for segment in segments:
                for document in segment.documents:
                    if document.alive and self.documents.get(document.path) is document:
                        self.delete(document.path)
            self._publish([segment for segment in self.segments if segment not in segments])

    def _publish(self, segments: list[Segment]) -> None:
        self.generation += 1
        self.snapshot = (segments, Segments([segment.core for segment in segments]))


def _folder(path: str) -> str:
    """Return the start of the paths of a folder's files; "" for a buffer without a file."""
    return path[: path.rfind(os.sep) + 1]
