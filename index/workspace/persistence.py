"""The index on disk: frozen segments and a table of their files, as arrays in a `SegmentStore`.

Loading restores what was saved; the next scan detects by their stamps which files changed since.
Open buffers and the active segment are not saved: their files are read again.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from index._core import Frozen
from index.workspace.array_file import Arrays
from index.workspace.file_filter import Stamp
from index.workspace.roots import RootFiles
from index.workspace.segment import IndexedDocument, Segment, tokens_of
from index.workspace.segment_set import SegmentSet
from index.workspace.segment_store import (
    Part,
    SavedState,
    SegmentStore,
    new_name,
    open_state,
)

log = logging.getLogger(__name__)

UNKNOWN_STAMP = Stamp(-1, -1, -1, -1, -1)  # of a file that must be read again
SAVE_INTERVAL_S = 10  # between saves in the background
RETRY_INTERVAL_S = 60  # after a save that failed
TOKENIZER = "tokenizer"  # in the metadata: the fingerprint
UNUSED_INDEX_S = 90 * 24 * 3600  # after which an index that nobody loaded is deleted


class SavedIndex:
    """The saved index of some roots for one tokenizer."""

    def __init__(self, folder: Path, roots: Sequence[Path], fingerprint: str) -> None:
        names = b"\0".join(os.fsencode(root) for root in roots)
        key = hashlib.sha256(names + b"\0" + fingerprint.encode()).hexdigest()
        self.folder, self.fingerprint = folder, fingerprint
        self._store = SegmentStore(folder / key[:32], key)
        self._saved_generation = 0
        self._due_at = 0.0  # monotonic time of the next save in the background
        self._failing = False

    def load(self, segments: SegmentSet, files: RootFiles) -> None:
        """Load the saved index if there is a usable one."""
        saved = self._store.load()
        self._store.sweep()
        if saved is None:
            return
        try:
            loaded = _segments(saved, segments)
            rejected = _rejected(saved)
        except (ValueError, KeyError, IndexError, TypeError) as error:
            log.warning("%s: %s; rebuilding the index", self._store.folder, error)
            return
        files.rejected = rejected
        segments.attach(loaded)
        self._saved_generation = segments.generation
        with suppress(OSError):
            os.utime(self._store.folder / "table")  # marks it as in use

    def is_due(self, segments: SegmentSet) -> bool:
        """Whether anything changed since the last save."""
        return segments.generation != self._saved_generation

    def seconds_until_due(self) -> float:
        """Seconds until the next save in the background."""
        return max(0.0, self._due_at - time.monotonic())

    def save(self, segments: SegmentSet, files: RootFiles, buffers: Collection[str]) -> None:
        """Save the frozen segments if they changed and no other process keeps this index. A full
        disk is logged."""
        self._due_at = time.monotonic() + SAVE_INTERVAL_S
        if not self.is_due(segments) or not self._store.acquire():
            return
        with segments.lock:
            generation = segments.generation
            kept = [
                segment
                for segment in segments.segments
                if segment.frozen and any(_is_saved(one, buffers) for one in segment.documents)
            ]
            documents = [
                (at, document.place[1], document)
                for at, segment in enumerate(kept)
                for document in segment.documents
                if _is_saved(document, buffers)
            ]
        try:
            parts = [_part(segment) for segment in kept]
            meta = {TOKENIZER: self.fingerprint}
            self._store.save(SavedState(meta, _table(documents, files.rejected.copy()), parts))
            self._saved_generation = generation
            self._failing = False
            self._delete_unused()
        except OSError as error:
            if not self._failing:
                log.warning("cannot save the index, retrying: %s", error)
            self._failing = True
            self._due_at = time.monotonic() + RETRY_INTERVAL_S

    def clear(self) -> None:
        """Delete it. PermissionError if another process keeps it."""
        folder = self._store.folder
        if not self._store.acquire():
            raise PermissionError(f"{folder}: in use by another process; stop that one first")
        self._store.clear()
        self._saved_generation = 0

    def nbytes(self) -> int:
        """Bytes on disk."""
        return self._store.nbytes()

    def close(self) -> None:
        """Let other processes save this index."""
        self._store.close()

    def _delete_unused(self) -> None:
        """Delete the indexes of folders that were not opened for a long time."""
        for table in self.folder.glob("*/table"):
            if table.parent.is_symlink():
                continue
            with suppress(OSError), SegmentStore(table.parent, "") as store:
                if time.time() - table.stat().st_mtime > UNUSED_INDEX_S and store.acquire():
                    store.clear()


def open_shared(folder: Path, fingerprint: str) -> list[Segment]:
    """The segments of a saved index that is only read: another user's, or a copy. Raises OSError,
    or ValueError if it is damaged or was made with a tokenizer other than `fingerprint`."""
    saved = open_state(folder)
    made_with = str(saved.meta.get(TOKENIZER, "unknown"))
    if made_with != fingerprint:
        raise ValueError(
            f"{folder}: made with tokenizer {made_with[:12]}, the model has {fingerprint[:12]}: "
            "index the folder again with this model"
        )
    try:
        return _segments(saved, SegmentSet())
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise ValueError(f"{folder}: damaged ({error}): copy it again") from error


def _is_saved(document: IndexedDocument, buffers: Collection[str]) -> bool:
    return document.alive and document.path not in buffers


def _part(segment: Segment) -> Part:
    core = segment.core
    assert isinstance(core, Frozen)
    arrays: Arrays = {
        "text": core.text,
        "starts": core.starts,
        "order": core.order,
        "ranks": core.ranks,
    }
    offsets = [document.starts for document in segment.documents]
    if any(one is not None for one in offsets):
        each = [np.zeros(0, np.int32) if one is None else one for one in offsets]
        arrays["offsets"] = np.concatenate(each)
        arrays["offset_ends"] = np.cumsum([len(one) for one in each]).astype(np.int64)
    segment.name = segment.name or new_name()
    return Part(segment.name, arrays)


def _table(
    documents: Sequence[tuple[int, int, IndexedDocument]], rejected: dict[str, tuple[Stamp, str]]
) -> Arrays:
    """The file table: live documents, then rejected files with segment -1."""
    stamps = [document.stamp or UNKNOWN_STAMP for _, _, document in documents]
    stamps += [stamp for stamp, _ in rejected.values()]
    digests = b"".join(document.digest for _, _, document in documents)
    return {
        **_pack_strings("path", [one.path for _, _, one in documents] + list(rejected)),
        **_pack_strings("reason", [reason for _, reason in rejected.values()]),
        "segment": np.array([at for at, _, _ in documents] + [-1] * len(rejected), np.int32),
        "number": np.array([number for _, number, _ in documents], np.int32),
        "changed": np.array([document.changed for _, _, document in documents], np.int64),
        "digest": np.frombuffer(digests, np.uint8).reshape(len(documents), 16),
        "stamp": np.array(stamps, np.int64).reshape(len(stamps), len(Stamp._fields)),
    }


def _pack_strings(name: str, texts: Sequence[str]) -> Arrays:
    data = [os.fsencode(text) for text in texts]
    return {
        name: np.frombuffer(b"".join(data), np.uint8),
        f"{name}_ends": np.cumsum([len(one) for one in data]).astype(np.int64),
    }


def _unpack_strings(table: Arrays, name: str) -> list[str]:
    data = table[name].tobytes()
    ends = table[f"{name}_ends"].tolist()
    return [os.fsdecode(data[a:b]) for a, b in pairwise([0, *ends])]


def _segments(saved: SavedState, path_ids: SegmentSet) -> list[Segment]:
    """The segments with their live documents. Raises an error if table and parts disagree."""
    table = saved.table
    segments = []
    for part in saved.parts:
        arrays = part.arrays
        core = Frozen.mapped(arrays["text"], arrays["starts"], arrays["order"], arrays["ranks"])
        segment = Segment(core, [])
        segment.name = part.name
        segments.append(segment)
    columns = (table["segment"].tolist(), table["number"].tolist(), table["changed"].tolist())
    by_place: dict[tuple[int, int], IndexedDocument] = {}
    paths, stamps = _unpack_strings(table, "path"), table["stamp"].tolist()
    for row, (at, number, changed) in enumerate(zip(*columns, strict=False)):
        stamp = Stamp(*stamps[row])
        segment = segments[at]
        document = IndexedDocument(
            path=paths[row],
            version=0,
            changed=changed,
            digest=table["digest"][row].tobytes(),
            stamp=None if stamp == UNKNOWN_STAMP else stamp,
            starts=_offsets(saved.parts[at].arrays, number),
            size=len(tokens_of(segment.core, number)),
        )
        document.place = (segment.core, number)
        if by_place.setdefault((at, number), document) is not document:
            raise ValueError("two files share a document")
    for at, segment in enumerate(segments):
        for number in range(segment.core.documents):
            known = by_place.pop((at, number), None)
            if known:
                segment.core.label(number, known.changed, *path_ids.path_ids(known.path))
            else:
                segment.core.kill(number)
                known = IndexedDocument("", 0, 0, b"", None, None, 0, alive=False)
            segment.documents.append(known)
    if by_place:
        raise ValueError("a file names a missing document")
    return segments


def _offsets(arrays: Arrays, number: int) -> Any:
    """`IndexedDocument.starts`; None if the document has none."""
    if "offset_ends" not in arrays:
        return None
    ends = arrays["offset_ends"]
    found = arrays["offsets"][int(ends[number - 1]) if number else 0 : int(ends[number])]
    return found if len(found) else None


def _rejected(saved: SavedState) -> dict[str, tuple[Stamp, str]]:
    """By path: stamp and reason of the files that were rejected for their contents."""
    table = saved.table
    paths, reasons = _unpack_strings(table, "path"), _unpack_strings(table, "reason")
    stamps = [Stamp(*row) for row in table["stamp"].tolist()]
    first = len(paths) - len(reasons)
    return dict(zip(paths[first:], zip(stamps[first:], reasons, strict=True), strict=True))
