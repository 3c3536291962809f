"""The index on disk: frozen segments and the table of their files, as arrays that `Store` keeps.

What is loaded is what was saved; whether the files still are so, the next scan sees by their
stamps. Open buffers and the young segment are not saved: their files are read again.
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
from index.workspace.roots import Disk
from index.workspace.segment import Document, Segment, tokens_of
from index.workspace.segment_set import Living
from index.workspace.segment_store import Part, Saved, Store, new_name

log = logging.getLogger(__name__)

UNKNOWN = (-1, -1, -1, -1)  # the stamp of a file that must be looked at again
PAUSE = 10  # seconds between saves that nobody asked for
RETRY = 60  # seconds after one that failed
UNUSED = 90 * 24 * 3600  # seconds after which an index that nobody took up is deleted


class Shelf:
    """Where the index of these roots and this tokenizer is kept."""

    def __init__(self, folder: Path, roots: Sequence[Path], fingerprint: str) -> None:
        names = b"\0".join(os.fsencode(root) for root in roots)
        mark = hashlib.sha256(names + b"\0" + fingerprint.encode()).hexdigest()
        self.folder = folder
        self.store = Store(folder / mark[:32], mark)
        self._saved = 0  # `Living.edition` at that time
        self._next = 0.0  # monotonic seconds: not before, unless asked
        self._failing = False

    def load(self, living: Living, disk: Disk) -> None:
        """Take up what was saved, if anything usable was."""
        saved = self.store.load()
        if saved is None:
            return
        try:
            segments = _segments(saved, living)
            passed = _passed(saved)
        except (ValueError, KeyError, IndexError, TypeError) as error:
            log.warning("%s: %s; the index is built again", self.store.folder, error)
            return
        disk.passed = passed
        living.take(segments)
        self._saved = living.edition
        with suppress(OSError):
            os.utime(self.store.folder / "table")  # it is in use

    def is_due(self, living: Living) -> bool:
        """Whether there is something to save."""
        return living.edition != self._saved

    def pause(self) -> float:
        """Seconds until the next save that nobody asks for."""
        return max(0.0, self._next - time.monotonic())

    def save(self, living: Living, disk: Disk, buffers: Collection[str]) -> None:
        """Keep the frozen segments, where they are others than last time. Another process may be
        the one that does; a full disk is logged."""
        self._next = time.monotonic() + PAUSE
        if not self.is_due(living) or not self.store.acquire():
            return
        with living.lock:
            edition = living.edition
            segments = [
                segment
                for segment in living.segments
                if segment.frozen and any(_is_kept(one, buffers) for one in segment.documents)
            ]
            documents = [
                (at, document.place[1], document)
                for at, segment in enumerate(segments)
                for document in segment.documents
                if _is_kept(document, buffers)
            ]
        try:
            parts = [_part(segment) for segment in segments]
            self.store.save(Saved({}, _table(documents, disk.passed.copy()), parts))
            self._saved = edition
            self._failing = False
            self._delete_unused()
        except OSError as error:
            if not self._failing:
                log.warning("%s; the index is not saved until this is mended", error)
            self._failing = True
            self._next = time.monotonic() + RETRY

    def _delete_unused(self) -> None:
        """The indexes of folders that were not opened for long hold text that nobody needs."""
        for table in self.folder.glob("*/table"):
            with suppress(OSError), Store(table.parent, "") as store:  # another one may be first
                if time.time() - table.stat().st_mtime > UNUSED and store.acquire():
                    store.clear()

    def clear(self) -> None:
        """Delete it. PermissionError where another process keeps it."""
        if not self.store.acquire():
            raise PermissionError(f"{self.store.folder}: another process keeps this index; stop it")
        self.store.clear()
        self._saved = 0


def _is_kept(document: Document, buffers: Collection[str]) -> bool:
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
    documents: Sequence[tuple[int, int, Document]], passed: dict[str, tuple[Stamp, str]]
) -> Arrays:
    """The file table: living documents, then files that were passed over, with segment -1."""
    stamps = [document.stamp or UNKNOWN for _, _, document in documents]
    stamps += [stamp for stamp, _ in passed.values()]
    digests = b"".join(document.digest for _, _, document in documents)
    return {
        **_strings("path", [one.path for _, _, one in documents] + list(passed)),
        **_strings("reason", [reason for _, reason in passed.values()]),
        "segment": np.array([at for at, _, _ in documents] + [-1] * len(passed), np.int32),
        "number": np.array([number for _, number, _ in documents], np.int32),
        "changed": np.array([document.changed for _, _, document in documents], np.int64),
        "digest": np.frombuffer(digests, np.uint8).reshape(len(documents), 16),
        "stamp": np.array(stamps, np.int64).reshape(len(stamps), 4),
    }


def _strings(name: str, texts: Sequence[str]) -> Arrays:
    data = [os.fsencode(text) for text in texts]
    return {
        name: np.frombuffer(b"".join(data), np.uint8),
        f"{name}_ends": np.cumsum([len(one) for one in data]).astype(np.int64),
    }


def _texts(table: Arrays, name: str) -> list[str]:
    data = table[name].tobytes()
    ends = table[f"{name}_ends"].tolist()
    return [os.fsdecode(data[a:b]) for a, b in pairwise([0, *ends])]


def _stamp(row: list[int]) -> Stamp:
    size, modified, changed, inode = row
    return size, modified, changed, inode


def _segments(saved: Saved, living: Living) -> list[Segment]:
    """The segments with the documents that live in them. Errors where they do not fit."""
    table = saved.table
    segments = []
    for part in saved.parts:
        arrays = part.arrays
        core = Frozen.mapped(arrays["text"], arrays["starts"], arrays["order"], arrays["ranks"])
        segment = Segment(core, [])
        segment.name = part.name
        segments.append(segment)
    columns = (table["segment"].tolist(), table["number"].tolist(), table["changed"].tolist())
    by_place: dict[tuple[int, int], Document] = {}
    paths, stamps = _texts(table, "path"), table["stamp"].tolist()
    for row, (at, number, changed) in enumerate(zip(*columns, strict=False)):
        stamp = _stamp(stamps[row])
        segment = segments[at]
        document = Document(
            path=paths[row],
            version=0,
            changed=changed,
            digest=table["digest"][row].tobytes(),
            stamp=None if stamp == UNKNOWN else stamp,
            starts=_offsets(saved.parts[at].arrays, number),
            size=len(tokens_of(segment.core, number)),
        )
        document.place = (segment.core, number)
        if by_place.setdefault((at, number), document) is not document:
            raise ValueError("two files at one place")
    for at, segment in enumerate(segments):
        for number in range(segment.core.documents):
            known = by_place.pop((at, number), None)
            if known:
                segment.core.label(number, known.changed, *living.number(known.path))
            else:
                segment.core.kill(number)
                known = Document("", 0, 0, b"", None, None, 0, alive=False)
            segment.documents.append(known)
    if by_place:
        raise ValueError("a file at a place that is not there")
    return segments


def _offsets(arrays: dict[str, Any], number: int) -> Any:
    """`Document.starts`; None where a document has none."""
    if "offset_ends" not in arrays:
        return None
    ends = arrays["offset_ends"]
    found = arrays["offsets"][int(ends[number - 1]) if number else 0 : int(ends[number])]
    return found if len(found) else None


def _passed(saved: Saved) -> dict[str, tuple[Stamp, str]]:
    """By path: stamp and reason of the files that did not count for what they held."""
    table = saved.table
    paths, reasons = _texts(table, "path"), _texts(table, "reason")
    stamps = [_stamp(row) for row in table["stamp"].tolist()]
    first = len(paths) - len(reasons)
    return dict(zip(paths[first:], zip(stamps[first:], reasons, strict=True), strict=True))
