"""The index of a workspace: files under some roots, with open editor buffers in place of them.

A change deletes the old document and adds the new one. A background thread compacts the segments
and saves them. Readers never wait: they query the segments as they are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from index._core import Tree
from index.records import Span, Stats
from index.workspace.compactor import Compactor
from index.workspace.file_filter import FileEntry, is_secret_path
from index.workspace.persistence import SavedIndex
from index.workspace.roots import FileText, Progress, RootFiles
from index.workspace.segment import MAX_SEGMENT_TOKENS, IndexedDocument
from index.workspace.segment_set import SegmentSet
from index.workspace.token_cache import Encoded, Encoder, Ids, TokenCache, digest
from index.workspace.workspace_match import WorkspaceMatch

if TYPE_CHECKING:
    from index.workspace.archive import ArchiveInfo
    from index.workspace.watch import Watch

INDEXING = "indexing the workspace"  # progress's name; it counts files
READ_BATCH_CHARS = 1 << 21
READ_BATCH_FILES = 2000
MAX_ACTIVE_BATCH_TOKENS = 1 << 14  # tokens of changed files that go to the active segment
FREEZE_BATCH_TOKENS = 1 << 20  # tokens frozen at once during a build, or as many as were before
COMMIT_TOKENS = 1 << 22  # tokens; a batch this large is saved at once: a killed build resumes


class Workspace:
    """An index of folders and editor buffers; a context manager, safe to use from any thread.

    A document is named by its absolute path, or by its buffer's name.
    """

    def __init__(
        self,
        roots: str | Path | Sequence[str | Path] | None,
        encoder: Encoder,
        home: Path | None = None,
        gitignore: bool = True,
    ) -> None:
        """Take the roots; nothing is read before `build`.

        `roots`: one folder, several, or none. `home`: where the index and the token ids are saved;
        None saves nothing. `gitignore`: skip what git ignores.
        """
        if isinstance(roots, str | Path):
            roots = [roots]
        self._files = RootFiles([Path(root) for root in roots or ()], gitignore)
        self.encoder = encoder
        self.token_cache = TokenCache(encoder, home and home / "tokens")
        self._saved: SavedIndex | None = None
        if home and self.roots:
            self._saved = SavedIndex(home / "index", self.roots, encoder.fingerprint)
        self._segments = SegmentSet(self._saved.to_disk if self._saved else None)
        self._buffers: dict[str, int] = {}  # versions of the open ones
        self._scan_lock = threading.RLock()  # reading the disk
        self._merge_lock = threading.Lock()
        self._save_lock = threading.Lock()
        self._compactor = Compactor(self._compact_in_background)
        self._watch: Watch | None = None
        self._complete = False  # everything was read once, so it may be saved

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- queries -------------------------------------------------------------------------------

    def match(
        self, tail: Ids | list[int], k: int = 8, limit: int = 64, near: str | None = None
    ) -> list[WorkspaceMatch]:
        """Return the k best occurrences of the longest suffix of `tail` that a document continues.

        Looks at the last `limit` tokens of `tail`. Occurrences in the document `near` come first,
        then those in its folder, then the most recently changed documents; within a document, the
        later position first.
        """
        self._note_use()
        segments, core = self._segments.snapshot
        path, folder = self._segments.known_path_ids(near) if near else (-1, -1)
        length, count, places = core.match(np.asarray(tail, np.int32), k, limit, path, folder)
        found = []
        for part, number, end, prob in places:
            segment = segments[part]
            document = segment.documents[number]
            found.append(
                WorkspaceMatch(length, count, prob, document, segment, number, end, self.encoder)
            )
        return found

    def tree(self, tail: Ids | list[int], nodes: int = 64, width: int = 8, **options: int) -> Tree:
        """Return the continuations of the newest of these occurrences as a tree.

        See `index._core.Segments.tree` for `options`.
        """
        self._note_use()
        ids = tail if isinstance(tail, list) else np.asarray(tail, np.int32)
        return self._segments.snapshot[1].tree(ids, nodes, width, **options)

    def find(
        self, text: str, limit: int = 100, shown: Callable[[str], bool] = lambda path: True
    ) -> list[Span]:
        """Find a text in files unchanged since they were indexed, newest first.

        Only files that are `shown` count.
        """
        self._note_use()
        return self._files.find(text, self.documents, limit, shown)

    def key(self, path: Path | str) -> str:
        """Return the name of the document at a path: absolute, with links to folders resolved."""
        return self._files.key(path)

    def has(self, path: str) -> bool:
        """Return whether a live document has this name."""
        return path in self._segments.documents

    def why_secret(self, path: str, text: str) -> str | None:
        """Return why a text of a file, or of none, may hold secrets.

        None if it does not seem to, or if it is indexed all the same.
        """
        return self._files.why_secret(self.key(path), text)

    def why_private(self, path: str, text: str) -> str | None:
        """Return why a text is not indexed although somebody has opened it.

        It may hold secrets, or git ignores its file. None for other texts.
        """
        key = self.key(path)
        return self._files.why_secret(key, text) or self._files.why_ignored(key)

    @property
    def roots(self) -> tuple[Path, ...]:
        """The indexed folders as real paths."""
        return self._files.roots

    @property
    def documents(self) -> list[IndexedDocument]:
        """The live documents."""
        with self._segments.lock:
            return list(self._segments.documents.values())

    @property
    def paths(self) -> list[str]:
        """Names of the live documents, sorted."""
        return sorted(document.path for document in self.documents)

    @property
    def skipped(self) -> dict[str, str]:
        """Files under the roots that are not indexed, and why."""
        return self._files.skipped

    @property
    def size(self) -> int:
        """Tokens of the live documents."""
        return sum(segment.living for segment in self._segments.segments)

    @property
    def nbytes(self) -> int:
        """Memory of the segments, mapped files included."""
        return sum(segment.core.nbytes for segment in self._segments.segments)

    def stats(self) -> Stats:
        segments = [segment for segment in self._segments.segments if segment.size]
        size = sum(segment.size for segment in segments)
        return Stats(
            files=len(self._segments.documents),
            tokens=self.size,
            segments=len(segments),
            nbytes=self.nbytes,
            dead=1 - self.size / size if size else 0.0,
            hits=self.token_cache.hits,
            misses=self.token_cache.misses,
            disk=self._saved.nbytes() if self._saved else 0,
            cache=self.token_cache.nbytes(),
        )

    @property
    def save_failed(self) -> bool:
        """Return whether the last try to save the index failed; the log says why."""
        return self._saved is not None and self._saved.has_failed

    # -- changes -------------------------------------------------------------------------------

    def build(self, progress: Progress | None = None) -> None:
        """Load the saved index and read what changed since.

        Blocks until everything is indexed; readers get answers of the saved index from the start.
        NotADirectoryError if a root is not a folder.
        """
        self._files.require_roots()
        if self._saved and not self._segments.documents:
            with self._merge_lock:  # nothing is merged that was not verified
                self._saved.load(self._segments, self._files)
                self._saved.verify(self._segments, self._files)
        self.scan(progress)

    def scan(self, progress: Progress | None = None) -> None:
        """Compare the index with all files on disk and read those that changed. Blocks."""
        with self._scan_lock:
            found = self._files.walk()
            with self._segments.lock:
                for path in set(self._segments.documents) - set(found):
                    self._delete_file(path)
            self._read_changed(found, progress)
            self._complete = True

    def refresh(self, paths: Collection[Path | str] | None = None) -> None:
        """Read files or folders again that may have changed; None: everything. Blocks."""
        keys = {self.key(path) for path in paths or ()}
        if paths is None or self._files.needs_walk(keys):
            self.scan()
            return
        with self._scan_lock:
            keys = self._files.with_links(keys)
            found = self._files.lookup(keys)
            with self._segments.lock:
                for path in set(self._segments.below(keys)) - set(found):
                    self._delete_file(path)
            self._read_changed(found)

    def update(self, path: Path | str, text: str | None, version: int = 0) -> None:
        """Index an open buffer in place of its file; None closes the buffer and reads the file.

        Versions older than the current one are ignored.
        """
        self._note_use()
        key = self.key(path)
        if text is None:
            with self._segments.lock:
                was_open = self._buffers.pop(key, None) is not None
                if was_open and key in self._segments.documents:
                    self._segments.documents[key].version = 0
            if was_open:
                self.refresh([key])
            return
        skipped = self._files.why_skip_buffer(key, text)
        encoded = None if skipped else self.token_cache.encode_buffer(text)
        new_digest = b"" if skipped else digest(text)
        with self._segments.lock:
            if version < self._buffers.get(key, version):
                return
            self._buffers[key] = version
            known = self._segments.documents.get(key)
            if encoded is None:
                self._segments.delete(key)
            elif known and known.digest == new_digest:
                known.version = version
            else:
                document = self._document(FileText(key, text, new_digest, None), encoded, version)
                self._segments.add(document, encoded.ids)
        self._compactor.request()

    def remove(self, path: Path | str) -> None:
        """Drop a deleted file or folder. Open buffers stay."""
        with self._scan_lock, self._segments.lock:
            for below in self._segments.below([self.key(path)]):
                self._delete_file(below)

    def rename(self, old: Path | str, new: Path | str) -> None:
        """Follow the renaming of a file or folder without reading it.

        Open buffers stay. A file whose new name is that of a secret is dropped.
        """
        old, new = self.key(old), self.key(new)
        with self._scan_lock, self._segments.lock:
            for path in self._segments.below([old]):
                name = new + path[len(old) :]
                if name in self._buffers or is_secret_path(name):
                    self._delete_file(path)
                elif path not in self._buffers and path != name:
                    self._segments.rename(self._segments.documents[path], name)

    def watch(self) -> Watch:
        """Follow changes on disk until `close`. Call it before `build` to miss none."""
        from index.workspace.watch import Watch

        if self._watch is None:
            self._watch = Watch(self.roots, self.refresh)
            self._watch.start()
        return self._watch

    def _note_use(self) -> None:
        """Let the watch look for what the system does not report; it rests while nobody does."""
        if self._watch is not None:
            self._watch.use()

    # -- persistence ---------------------------------------------------------------------------

    def compact(self) -> None:
        """Freeze and merge segments, and save the index, now. Blocks until that is done."""
        with self._merge_lock:
            self._segments.seal()
            self._segments.merge()
        self._save()
        self.token_cache.flush()

    def export(self, path: Path, tokenizer: str) -> ArchiveInfo:
        """Write the index to a new file, which `load_from` reads elsewhere.

        Open buffers and deleted text are left out. `tokenizer`: its name for people. Build first.
        FileExistsError if there is a file, PermissionError if the index cannot be saved, other
        OSErrors leave nothing.
        """
        from index.workspace import archive

        saved = self._need_home()
        with self._merge_lock:
            self._segments.purge()
        self._save()
        with self._save_lock:
            return archive.write(path, saved.state(), self.roots, self.encoder, tokenizer)

    def load_from(self, path: Path, tokenizer: str) -> ArchiveInfo:
        """Replace the saved index by an exported one. Call it before `build`.

        `build` then reads the files that differ from it. BadArchive if the file is refused,
        PermissionError if another process keeps the index, OSError if the file cannot be read or
        the disk is full.
        """
        from index.workspace import archive

        saved, info = archive.read(path, self.roots, self.encoder, tokenizer)
        self._need_home().replace(saved)
        return info

    def _need_home(self) -> SavedIndex:
        if self._saved is None:
            raise ValueError("nothing is saved without a home and roots: give both")
        return self._saved

    def clear(self) -> None:
        """Delete the saved index, and the saved ids of this tokenizer.

        Nothing is saved before the next scan. PermissionError if another process keeps the index.
        """
        with self._save_lock:
            if self._saved:
                self._saved.clear()
            self._complete = False
        self.token_cache.clear()

    def close(self) -> None:
        """Stop watching, save the index as it is, and release its files.

        Does not wait for compaction: a running merge is abandoned, and the next start compacts
        instead. Blocks while changes that the watcher reported are being read, and while the
        segments and token ids that are not on disk yet are written.
        """
        if self._watch:
            self._watch.stop()
        self._compactor.close()
        self._segments.close()
        self._save()
        with self._save_lock:
            if self._saved:
                self._saved.close()
        self.token_cache.close()

    def _save(self) -> None:
        with self._save_lock:
            if self._saved and self._complete:
                self._saved.save(self._segments, self._files, self._buffers)

    def _compact_in_background(self) -> float | None:
        """Merge, and save unless that was done lately; the seconds until a save is due."""
        with self._merge_lock:
            self._segments.merge()
        with self._save_lock:
            if self._segments.closed or not (self._saved and self._complete):
                return None
            if not self._saved.is_due(self._segments):
                return None
            delay = self._saved.seconds_until_due()
            if delay:
                return delay
            self._saved.save(self._segments, self._files, self._buffers)
        self.token_cache.flush()
        return None

    # -- reading files -------------------------------------------------------------------------

    def _read_changed(self, found: dict[str, FileEntry], progress: Progress | None = None) -> None:
        """Index those of these files that changed, oldest first."""
        changed = [(path, file) for path, file in found.items() if not self._is_known(path, file)]
        changed.sort(key=lambda item: (item[1].changed, item[0]))
        pending: list[tuple[IndexedDocument, Ids]] = []
        batch: list[FileText] = []
        batch_chars = pending_tokens = frozen_tokens = 0
        with ThreadPoolExecutor(1) as freezer:  # freezes while the next batch is tokenized
            freezing: Future[None] | None = None
            for at, (path, file) in enumerate(changed, 1):
                new = self._read(path, file)
                batch += new
                batch_chars += sum(len(text.text) for text in new)
                last = at == len(changed)
                if not last and batch_chars < READ_BATCH_CHARS and at % READ_BATCH_FILES:
                    continue
                pending += self._encode(batch)
                pending_tokens = sum(document.size for document, _ in pending)
                batch, batch_chars = [], 0
                if last or pending_tokens >= _batch_tokens(frozen_tokens):
                    if freezing:  # two batches in memory are enough
                        freezing.result()
                    freezing = freezer.submit(self._add, pending)
                    frozen_tokens += pending_tokens
                    pending = []
                if progress:
                    progress(INDEXING, at, len(changed))
            if freezing:
                freezing.result()
        self._compactor.request()

    def _read(self, path: str, file: FileEntry) -> list[FileText]:
        """Return the text of a file if it is new, in which case the old one is deleted."""
        read = self._files.read(path, file)
        with self._segments.lock:
            known = self._segments.documents.get(path)
            if path in self._buffers:
                return []
            if read and known and known.digest == read.digest:
                if known.stamp != read.stamp:
                    known.stamp = read.stamp
                    self._segments.generation += 1
                return []
            self._delete_file(path)
        return [read] if read else []

    def _encode(self, texts: list[FileText]) -> list[tuple[IndexedDocument, Ids]]:
        encoded = self.token_cache.encode([text.text for text in texts])
        return [
            (self._document(text, one, 0), one.ids)
            for text, one in zip(texts, encoded, strict=True)
        ]

    def _document(self, text: FileText, encoded: Encoded, version: int) -> IndexedDocument:
        return IndexedDocument(
            path=text.path,
            version=version,
            changed=self._segments.next_change(),
            digest=text.digest,
            stamp=text.stamp,
            starts=encoded.starts,
            size=len(encoded.ids),
        )

    def _add(self, pending: list[tuple[IndexedDocument, Ids]]) -> None:
        """Add documents of files, except where a buffer was opened in the meantime."""
        if sum(document.size for document, _ in pending) <= MAX_ACTIVE_BATCH_TOKENS:
            for document, ids in pending:
                with self._segments.lock:
                    if document.path not in self._buffers:
                        self._segments.add(document, ids)
        else:
            documents, tokens = zip(*pending, strict=True)
            self._segments.add_frozen(documents, tokens, self._buffers)
            if sum(document.size for document in documents) >= COMMIT_TOKENS:
                self._commit()

    def _commit(self) -> None:
        """Save what a long scan has read so far."""
        with self._save_lock:
            if self._saved:
                self._saved.save(self._segments, self._files, self._buffers)
        self.token_cache.flush()

    def _is_known(self, path: str, file: FileEntry) -> bool:
        if path in self._buffers:
            return True
        known = self._segments.documents.get(path)
        return known.stamp == file.stamp if known else self._files.is_rejected(path, file.stamp)

    def _delete_file(self, path: str) -> None:
        """Delete a file's document, but not an open buffer's."""
        if path not in self._buffers:
            self._segments.delete(path)


def _batch_tokens(frozen: int) -> int:
    """Return the number of tokens to freeze next if so many were frozen: as many.

    So a small build ends soon, and a large one sorts few tokens twice.
    """
    return min(max(frozen, FREEZE_BATCH_TOKENS), MAX_SEGMENT_TOKENS)
