"""The index on disk: frozen segments and a table of their files, as arrays in a `SegmentStore`.

Loading restores what was saved; the next scan detects by their stamps which files changed since.
Open buffers and the active segment are not saved: their files are read again. Loading looks at the
table only, so that readers get answers at once; `verify` reads all the rest.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from index._core import Frozen
from index.cache_folder import MAX_INDEX_BYTES, UNUSED_INDEX_DAYS
from index.workspace.array_file import Arrays
from index.workspace.file_filter import Stamp
from index.workspace.roots import RootFiles
from index.workspace.segment import IndexedDocument, Segment, arrays_of, map_arrays
from index.workspace.segment_set import PathIdList, SegmentSet
from index.workspace.segment_store import (
    Part,
    SavedState,
    SegmentStore,
    new_name,
    open_state,
)

log = logging.getLogger(__name__)

MAPPED_TOKENS = 1 << 22  # tokens; a segment this large is on disk before it is queried
UNKNOWN_STAMP = Stamp(-1, -1, -1, -1, -1)  # the file must be read again
SAVE_INTERVAL_S = 10  # seconds between saves in the background
RETRY_INTERVAL_S = 60  # seconds after a save that failed
TOKENIZER = "tokenizer"  # the fingerprint's name in the metadata
DAY_S = 24 * 3600


class SavedIndex:
    """The saved index of some roots for one tokenizer."""

    def __init__(self, folder: Path, roots: Sequence[Path], fingerprint: str) -> None:
        names = b"\0".join(os.fsencode(root) for root in roots)
        key = hashlib.sha256(names + b"\0" + fingerprint.encode()).hexdigest()
        self.folder, self._meta = folder, {TOKENIZER: fingerprint}
        self._store = SegmentStore(folder / key[:32], key)
        self._store_lock = threading.Lock()
        self._closed = False
        self._saved_generation = 0
        self._unverified: list[Segment] = []  # loaded segments
        self._due_at = 0.0  # monotonic time of the next save in the background
        self._failing = False

    def load(self, segments: SegmentSet, files: RootFiles) -> None:
        """Load the saved index if there is a usable one, without reading the segments."""
        saved = self._store.load(verify=False)
        self._store.sweep()
        if saved is None:
            return
        try:
            loaded = restore_segments(saved, segments)
            rejected = _rejected(saved.table)
        except (ValueError, KeyError, IndexError, TypeError) as error:
            log.warning("%s: %s; rebuilding the index", self._store.folder, error)
            return
        files.rejected = rejected
        segments.attach(loaded)
        self._unverified = loaded
        self._saved_generation = segments.generation
        with suppress(OSError):
            os.utime(self._store.folder / "table")  # marks it as in use

    def verify(self, segments: SegmentSet, files: RootFiles) -> None:
        """Read all that was loaded.

        If it is damaged, drop it, so that the next scan rebuilds it. Nothing may be merged before.
        """
        loaded, self._unverified = self._unverified, []
        if loaded and not self._store.verify():
            segments.detach(loaded)
            files.rejected = {}

    def to_disk(self, segment: Segment, ids: PathIdList) -> Segment:
        """Put a new frozen segment on a mapped file, so that the system can take its memory back.

        Returns the segment as it is if it is small, if another process keeps the index, or if the
        disk is full, which is logged. `ids`: those of its documents' paths and folders.
        """
        if segment.size < MAPPED_TOKENS:
            return segment
        with self._store_lock:
            try:
                if self._closed or not self._store.acquire():
                    return segment
                part = self._store.put(part_of(segment))
            except OSError as error:
                self._log_failure(error)
                return segment
        mapped = Segment(map_arrays(part.arrays, segment.documents, ids), segment.documents)
        mapped.name = part.name
        return mapped

    def is_due(self, segments: SegmentSet) -> bool:
        """Return whether anything changed since the last save."""
        return segments.generation != self._saved_generation

    @property
    def has_failed(self) -> bool:
        """Return whether the last save failed, which is logged.

        It fails on a full disk, or in a folder that cannot be written; not if another process keeps
        this index, which saves it.
        """
        return self._failing or self._store.is_unusable

    def seconds_until_due(self) -> float:
        """Seconds until the next save in the background."""
        return max(0.0, self._due_at - time.monotonic())

    def save(self, segments: SegmentSet, files: RootFiles, buffers: Collection[str]) -> None:
        """Save the frozen segments if they changed and no other process keeps this index.

        A full disk is logged.
        """
        self._due_at = time.monotonic() + SAVE_INTERVAL_S
        with self._store_lock:
            if self.is_due(segments) and self._store.acquire():
                self._save(segments, files, buffers)

    def _save(self, segments: SegmentSet, files: RootFiles, buffers: Collection[str]) -> None:
        with segments.lock:
            generation = segments.generation
            kept = [
                segment
                for segment in segments.segments
                if segment.frozen and any(_is_saved(text, buffers) for text in segment.documents)
            ]
            documents = [
                (at, document.place[1], document)
                for at, segment in enumerate(kept)
                for document in segment.documents
                if _is_saved(document, buffers)
            ]
        try:
            parts = [part_of(segment) for segment in kept]
            table = table_of(documents, files.rejected.copy())
            self._store.save(SavedState(self._meta, table, parts))
            self._saved_generation = generation
            self._failing = False
            self._delete_unused()
        except OSError as error:
            self._log_failure(error)
            self._due_at = time.monotonic() + RETRY_INTERVAL_S

    def _log_failure(self, error: OSError) -> None:
        if not self._failing:
            log.warning("cannot save the index, retrying: %s", error)
        self._failing = True

    def clear(self) -> None:
        """Delete it. PermissionError if another process keeps it."""
        with self._store_lock:
            self._need_store()
            self._store.clear()
            self._saved_generation = 0

    def state(self) -> SavedState:
        """Return what was saved last.

        PermissionError if another process keeps the index, or if the last save failed.
        """
        with self._store_lock:
            usable = self._store.acquire() and not self._failing
            saved = self._store.load() if usable else None
        if saved is None:
            folder = self._store.folder
            raise PermissionError(
                f"{folder}: not saved: another process uses it, or the disk is full"
            )
        return saved

    def replace(self, saved: SavedState) -> None:
        """Save this in place of the index, before it is loaded.

        PermissionError if another process keeps it, OSError if the disk is full.
        """
        with self._store_lock:
            self._need_store()
            self._store.save(SavedState(self._meta, saved.table, saved.parts))

    def _need_store(self) -> None:
        if not self._store.acquire():
            folder = self._store.folder
            raise PermissionError(f"{folder}: in use by another process; stop that one first")

    def nbytes(self) -> int:
        """Bytes on disk."""
        return self._store.nbytes()

    def close(self) -> None:
        """Let other processes save this index. A merge that still runs writes no more files."""
        with self._store_lock:
            self._closed = True
            self._store.close()

    def _delete_unused(self) -> None:
        """Delete the indexes that were not opened for a long time.

        Beyond MAX_INDEX_BYTES, those that were opened longest ago are deleted, too. One that a
        process keeps stays.
        """
        used: list[tuple[float, Path]] = []
        for table in self.folder.glob("*/table"):
            if not table.parent.is_symlink() and table.parent != self._store.folder:
                with suppress(OSError):
                    used.append((table.stat().st_mtime, table.parent))
        total = self._store.nbytes()
        for at, folder in sorted(used, reverse=True):
            with suppress(OSError), SegmentStore(folder, "") as store:
                size = store.nbytes()
                is_unused = time.time() - at > UNUSED_INDEX_DAYS * DAY_S
                if (is_unused or total + size > MAX_INDEX_BYTES) and store.acquire():
                    store.clear()
                else:
                    total += size


def open_shared(folder: Path, fingerprint: str) -> list[Segment]:
    """Return the segments of a saved index that is only read: another user's, or a copy.

    Raises OSError, or ValueError if it is damaged or was made with a tokenizer other than
    `fingerprint`.
    """
    saved = open_state(folder)
    made_with = str(saved.meta.get(TOKENIZER, "unknown"))
    if made_with != fingerprint:
        raise ValueError(
            f"{folder}: made with tokenizer {made_with[:12]}, the model has {fingerprint[:12]}: "
            "index the folder again with this model"
        )
    try:
        return restore_segments(saved, SegmentSet())
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise ValueError(f"{folder}: damaged ({error}): copy it again") from error


def _is_saved(document: IndexedDocument, buffers: Collection[str]) -> bool:
    return document.alive and document.path not in buffers


def part_of(segment: Segment) -> Part:
    """Return the arrays of a frozen segment, under its name."""
    core = segment.core
    assert isinstance(core, Frozen)
    arrays: Arrays = arrays_of(core)
    offsets = [document.starts for document in segment.documents]
    if any(starts is not None for starts in offsets):
        each = [np.zeros(0, np.int32) if starts is None else starts for starts in offsets]
        arrays["offsets"] = np.concatenate(each)
        arrays["offset_ends"] = np.cumsum([len(starts) for starts in each]).astype(np.int64)
    segment.name = segment.name or new_name()
    return Part(segment.name, arrays)


def table_of(
    documents: Sequence[tuple[int, int, IndexedDocument]], rejected: dict[str, tuple[Stamp, str]]
) -> Arrays:
    """Return the file table: live documents, then rejected files with segment -1."""
    stamps = [document.stamp or UNKNOWN_STAMP for _, _, document in documents]
    stamps += [stamp for stamp, _ in rejected.values()]
    digests = b"".join(document.digest for _, _, document in documents)
    return {
        **pack_strings("path", [one.path for _, _, one in documents] + list(rejected)),
        **pack_strings("reason", [reason for _, reason in rejected.values()]),
        "segment": np.array([at for at, _, _ in documents] + [-1] * len(rejected), np.int32),
        "number": np.array([number for _, number, _ in documents], np.int32),
        "changed": np.array([document.changed for _, _, document in documents], np.int64),
        "digest": np.frombuffer(digests, np.uint8).reshape(len(documents), 16),
        "stamp": np.array(stamps, np.int64).reshape(len(stamps), len(Stamp._fields)),
    }


def unknown_stamps(count: int) -> NDArray[np.int64]:
    """Return the column of stamps for files that must be read again."""
    return np.array([UNKNOWN_STAMP] * count, np.int64).reshape(count, len(Stamp._fields))


def pack_strings(name: str, texts: Sequence[str]) -> Arrays:
    """Strings as two arrays of a table."""
    data = [os.fsencode(text) for text in texts]
    return {
        name: np.frombuffer(b"".join(data), np.uint8),
        f"{name}_ends": np.cumsum([len(encoded) for encoded in data]).astype(np.int64),
    }


def unpack_strings(table: Arrays, name: str, first: int = 0) -> list[str]:
    """Return the strings that `pack_strings` packed under this name, from the `first` one."""
    data = table[name].tobytes()
    ends = [0, *table[f"{name}_ends"].tolist()]
    return [os.fsdecode(data[a:b]) for a, b in pairwise(ends[first:])]


def restore_segments(saved: SavedState, path_ids: SegmentSet) -> list[Segment]:
    """Return the segments with their live documents.

    Raises an error if table and parts disagree.
    """
    table = saved.table
    documents: list[list[IndexedDocument | None]] = []
    sizes: list[list[int]] = []
    for part in saved.parts:
        starts, stop = part.arrays["starts"], len(part.arrays["text"]) - 1
        sizes.append((np.diff(starts.astype(np.int64), append=stop) - 1).tolist())
        documents.append([None] * len(sizes[-1]))
    columns = (table["segment"].tolist(), table["number"].tolist(), table["changed"].tolist())
    paths, stamps = unpack_strings(table, "path"), table["stamp"].tolist()
    digests = table["digest"].tobytes()
    for row, (at, number, changed) in enumerate(zip(*columns, strict=False)):
        if number < 0 or documents[at][number]:
            raise ValueError("two files share a document, or one names none")
        stamp = Stamp(*stamps[row])
        documents[at][number] = IndexedDocument(
            path=paths[row],
            version=0,
            changed=changed,
            digest=digests[16 * row : 16 * row + 16],
            stamp=None if stamp == UNKNOWN_STAMP else stamp,
            starts=_offsets(saved.parts[at].arrays, number),
            size=sizes[at][number],
        )
    segments = []
    for part, known in zip(saved.parts, documents, strict=True):
        some = [document or _dead() for document in known]
        ids = [path_ids.path_ids(text.path) if text.alive else (-1, -1) for text in some]
        segment = Segment(map_arrays(part.arrays, some, ids), some)
        segment.name = part.name
        for number, document in enumerate(some):
            if document.alive:
                document.place = (segment.core, number)
            else:
                segment.core.kill(number)
        segments.append(segment)
    return segments


def _dead() -> IndexedDocument:
    """Make a document that stands for one that was deleted before the save."""
    return IndexedDocument("", 0, 0, b"", None, None, 0, alive=False)


def _offsets(arrays: Arrays, number: int) -> Any:
    """`IndexedDocument.starts`; None if the document has none."""
    if "offset_ends" not in arrays:
        return None
    ends = arrays["offset_ends"]
    found = arrays["offsets"][int(ends[number - 1]) if number else 0 : int(ends[number])]
    return found if len(found) else None


def _rejected(table: Arrays) -> dict[str, tuple[Stamp, str]]:
    """Return the stamp and reason, by path, of the files rejected for their contents."""
    first, reasons = len(table["number"]), unpack_strings(table, "reason")
    paths = unpack_strings(table, "path", first)
    stamps = [Stamp(*row) for row in table["stamp"][first:].tolist()]
    return dict(zip(paths, zip(stamps, reasons, strict=True), strict=True))
