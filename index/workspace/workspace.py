"""The workspace: what can be copied from, as it is this second.

Files of the roots, and open buffers in place of them, in a few segments that are asked as one. A
change kills the old text and adds the new one. A thread of its own merges segments and saves them.
Readers never wait: they ask the segments as these are.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from index._core import Tree
from index.records import Span, Stats, WorkspaceMatch
from index.workspace.compactor import Tender
from index.workspace.file_filter import File
from index.workspace.persistence import Shelf
from index.workspace.roots import Change, Disk, Progress
from index.workspace.segment import Document
from index.workspace.segment_set import Living
from index.workspace.token_cache import Encoded, Encoder, Ids, Tokens, digest

if TYPE_CHECKING:
    from index.workspace.watch import Watch

BATCH = 1 << 21  # characters that are read at once
MANY = 2000  # files that are read at once
FEW = 1 << 14  # tokens of changed files that the young segment takes
BULK = 1 << 20  # tokens that are frozen at once when many files are read


class Workspace:
    """The living texts of some folders and of the buffers handed in. A document is named by its
    absolute path, or by what its buffer was called. Any thread may call; a context manager."""

    def __init__(
        self,
        roots: Path | Sequence[Path] | None,
        encoder: Encoder,
        home: Path | None = None,
        gitignore: bool = True,
    ) -> None:
        """`home`: where the index and token ids are kept between starts; None: nowhere.
        `gitignore` False: what git ignores counts, too. Nothing is read before `build`."""
        self.disk = Disk([roots] if isinstance(roots, Path) else roots or [], gitignore)
        self.encoder = encoder
        self.tokens = Tokens(encoder, home and home / "tokens")
        self._shelf: Shelf | None = None
        if home and self.disk.roots:
            self._shelf = Shelf(home / "index", self.disk.roots, encoder.fingerprint)
        self._living = Living()
        self._buffers: dict[str, int] = {}  # open: their versions
        self._reading = threading.RLock()  # one reads the disk at a time
        self._tending = threading.Lock()  # one merges and saves at a time
        self._tender = Tender(self._tend)
        self._watch: Watch | None = None
        self._whole = False  # everything was read once, so that it may be saved

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- asking --------------------------------------------------------------------------------

    def match(
        self, tail: Ids | list[int], k: int = 8, limit: int = 64, near: str | None = None
    ) -> list[WorkspaceMatch]:
        """The longest suffix of the last `limit` tokens of `tail` that a living document continues,
        at its k best occurrences: those in the document `near`, then those in its folder, then in
        what changed last; in a document the later position."""
        segments, core = self._living.snapshot
        path, folder = self._living.near(near) if near else (-1, -1)
        length, count, places = core.match(np.asarray(tail, np.int32), k, limit, path, folder)
        found = []
        for part, number, end, prob in places:
            segment = segments[part]
            document = segment.documents[number]
            found.append(
                WorkspaceMatch(length, count, prob, document, segment, number, end, self.encoder)
            )
        return found

    def tree(self, tail: Ids | list[int], nodes: int = 64, width: int = 8, **how: int) -> Tree:
        """What follows the newest of these occurrences, as one tree; `how` as in index._core."""
        ids = tail if isinstance(tail, list) else np.asarray(tail, np.int32)
        return self._living.snapshot[1].tree(ids, nodes, width, **how)

    def find(self, text: str, most: int = 100) -> list[Span]:
        """Where a text stands in the files, as they are indexed: newest first, `most` places."""
        return self.disk.find(text, self.documents, most)

    @property
    def documents(self) -> list[Document]:
        """The living ones."""
        with self._living.lock:
            return list(self._living.documents.values())

    @property
    def paths(self) -> list[str]:
        """Of the living documents, sorted."""
        return sorted(document.path for document in self.documents)

    @property
    def skipped(self) -> dict[str, str]:
        """By path: why a file of the roots is not in."""
        return self.disk.skipped

    @property
    def size(self) -> int:
        """Tokens of the living documents."""
        return sum(segment.living for segment in self._living.segments)

    @property
    def nbytes(self) -> int:
        """Memory of the segments, mapped files included."""
        return sum(segment.core.nbytes for segment in self._living.segments)

    def stats(self) -> Stats:
        segments = [one for one in self._living.segments if one.size]
        size = sum(one.size for one in segments)
        return Stats(
            files=len(self._living.documents),
            tokens=self.size,
            segments=len(segments),
            nbytes=self.nbytes,
            dead=1 - self.size / size if size else 0.0,
            hits=self.tokens.hits,
            misses=self.tokens.misses,
            disk=self._shelf.store.nbytes() if self._shelf else 0,
            cache=self.tokens.nbytes(),
        )

    # -- changes -------------------------------------------------------------------------------

    def build(self, progress: Progress | None = None) -> None:
        """Take up what was saved, and read what changed since. NotADirectoryError where a root is
        none."""
        self.disk.require_roots()
        if self._shelf and not self._living.documents:
            self._shelf.load(self._living, self.disk)
        self.scan(progress)

    def scan(self, progress: Progress | None = None) -> None:
        """Make the index what the disk says, whatever was missed before."""
        with self._reading:
            found = self.disk.walk()
            with self._living.lock:
                for path in set(self._living.documents) - set(found):
                    self._forget(path)
            self._take(found, progress)
            self._whole = True

    def refresh(self, paths: Collection[Path | str] | None = None) -> None:
        """These files or folders may have changed on disk; None: anything may have."""
        keys = {self.disk.key(path) for path in paths or ()}
        if paths is None or self.disk.is_wide(keys):
            self.scan()
            return
        with self._reading:
            keys = self.disk.with_links(keys)
            found = self.disk.look(keys)
            with self._living.lock:
                for path in set(self._living.inside(keys)) - set(found):
                    self._forget(path)
            self._take(found)

    def update(self, path: Path | str, text: str | None, version: int = 0) -> None:
        """An open buffer has this text, which stands in place of the file's. None: it was closed,
        and the file counts again. A version older than the last one is passed over."""
        key = self.disk.key(path)
        if text is None:
            with self._living.lock:
                open_before = self._buffers.pop(key, None) is not None
                if open_before and key in self._living.documents:
                    self._living.documents[key].version = 0
            if open_before:
                self.refresh([key])
            return
        why = self.disk.why_no_buffer(key, text)
        encoded = None if why else self.tokens.encode_buffer(text)
        mark = b"" if why else digest(text)
        with self._living.lock:
            if version < self._buffers.get(key, version):
                return
            self._buffers[key] = version
            known = self._living.documents.get(key)
            if encoded is None:
                self._living.forget(key)
            elif known and known.digest == mark:
                known.version = version
            else:
                document = self._document(Change(key, text, mark, None), encoded, version)
                self._living.put(document, encoded.ids)
        self._tender.soon()

    def remove(self, path: Path | str) -> None:
        """A file or folder is gone from the disk. Open buffers stay."""
        with self._reading, self._living.lock:
            for one in self._living.inside([self.disk.key(path)]):
                self._forget(one)

    def rename(self, old: Path | str, new: Path | str) -> None:
        """A file or folder has another name: nothing is read for that. Open buffers stay."""
        old, new = self.disk.key(old), self.disk.key(new)
        with self._reading, self._living.lock:
            for path in self._living.inside([old]):
                name = new + path[len(old) :]
                if name in self._buffers:
                    self._forget(path)
                elif path not in self._buffers and path != name:
                    self._living.rename(self._living.documents[path], name)

    def watch(self) -> Watch:
        """Follow the disk until `close`. Called before `build`, nothing is missed."""
        from index.workspace.watch import Watch

        if self._watch is None:
            self._watch = Watch(self.disk.roots, self.refresh)
            self._watch.start()
        return self._watch

    def settle(self) -> None:
        """Merge and save now what is to be merged and saved."""
        with self._tending:
            self._living.merge()
            if self._shelf and self._whole:
                self._shelf.save(self._living, self.disk, self._buffers)
        self.tokens.flush()

    def clear(self) -> None:
        """Delete what is kept on disk: the saved index, and the ids of this tokenizer.
        PermissionError where another process keeps the index."""
        with self._tending:
            if self._shelf:
                self._shelf.clear()
            self._whole = False  # nothing is kept before the next scan
        self.tokens.clear()

    def close(self) -> None:
        """Stop watching, save, and give everything back."""
        if self._watch:
            self._watch.stop()
        self._tender.close()
        if self._shelf:
            self._living.close_young()
            self.settle()
            self._shelf.store.close()
        self.tokens.close()

    # -- how -----------------------------------------------------------------------------------

    def _take(self, found: dict[str, File], progress: Progress | None = None) -> None:
        """Read those of these files that are not known as they are, oldest first."""
        changed = [(path, file) for path, file in found.items() if not self._is_known(path, file)]
        changed.sort(key=lambda one: (one[1].changed, one[0]))
        pending: list[tuple[Document, Ids]] = []
        batch: list[Change] = []
        size = 0  # characters in it
        with ThreadPoolExecutor(1) as freezer:  # while the next ones are tokenised
            done: list[Future[None]] = []
            for at, (path, file) in enumerate(changed, 1):
                new = self._read(path, file)
                batch += new
                size += sum(len(change.text) for change in new)
                last = at == len(changed)
                if not last and size < BATCH and at % MANY:
                    continue
                pending += self._encode(batch)
                batch, size = [], 0
                if last or sum(document.size for document, _ in pending) >= BULK:
                    done.append(freezer.submit(self._put, pending))
                    pending = []
                if progress:
                    progress("indexing the workspace", at, len(changed))
            for each in done:
                each.result()
        self._tender.soon()

    def _read(self, path: str, file: File) -> list[Change]:
        """The new text of a file, if it is new; the old one dies."""
        change = self.disk.read(path, file)
        with self._living.lock:
            known = self._living.documents.get(path)
            if path in self._buffers:
                return []
            if change and known and known.digest == change.digest:
                if known.stamp != change.stamp:
                    known.stamp = change.stamp
                    self._living.edition += 1
                return []
            self._forget(path)
        return [change] if change else []

    def _encode(self, changes: list[Change]) -> list[tuple[Document, Ids]]:
        encoded = self.tokens.encode([change.text for change in changes])
        return [
            (self._document(change, one, 0), one.ids)
            for change, one in zip(changes, encoded, strict=True)
        ]

    def _document(self, change: Change, encoded: Encoded, version: int) -> Document:
        return Document(
            path=change.path,
            version=version,
            changed=self._living.next(),
            digest=change.digest,
            stamp=change.stamp,
            starts=encoded.starts,
            size=len(encoded.ids),
        )

    def _put(self, pending: list[tuple[Document, Ids]]) -> None:
        """New documents of files come; where a buffer was opened meanwhile, it stays."""
        if sum(document.size for document, _ in pending) <= FEW:
            for document, ids in pending:
                with self._living.lock:
                    if document.path not in self._buffers:
                        self._living.put(document, ids)
        else:
            documents, tokens = zip(*pending, strict=True)
            self._living.put_frozen(documents, tokens, self._buffers)

    def _is_known(self, path: str, file: File) -> bool:
        if path in self._buffers:
            return True
        known = self._living.documents.get(path)
        return known.stamp == file.stamp if known else self.disk.is_passed(path, file.stamp)

    def _forget(self, path: str) -> None:
        """A file's document dies; a buffer stays."""
        if path not in self._buffers:
            self._living.forget(path)

    def _tend(self) -> float | None:
        """Merge, and save if that was not done lately; the seconds until it should be."""
        with self._tending:
            self._living.merge()
            if not (self._shelf and self._whole and self._shelf.is_due(self._living)):
                return None
            pause = self._shelf.pause()
        if pause == 0:
            self.settle()
        return pause or None
