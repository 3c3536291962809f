"""Files and their tokens: what can be copied, and where it came from.

A workspace is a list of segments, each a frozen automaton over some documents. A change is noted at
once and applied by the next `match`: what changed leaves its segment, which is built again from the
tokens it holds, and becomes a segment of its own; small segments are merged. It reads files only in
`build`; it does not watch them, and writes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from index import files
from index._core import Automaton

Ids = NDArray[np.int32]
Progress = Callable[[str, int, int], None]  # (what, done, of)

SEGMENT = 1 << 18  # tokens of a segment at most, but for a longer document: rebuilt in a blink
BATCH = 1 << 22  # characters handed to the encoder at once


@dataclass(frozen=True, slots=True)
class Span:
    """Where copied text came from: code points `start:stop` of `path` as it was at `version`."""

    path: str
    start: int
    stop: int
    version: int = 0


class Encoder(Protocol):
    """Text to token ids; the engine's tokenizer is one. Ids are int32, nothing is added to them."""

    @property
    def byte_lengths(self) -> NDArray[np.int32]:
        """UTF-8 bytes that each id decodes to, by id; -1 where that is not fixed."""
        ...

    def encode_batch(self, texts: list[str]) -> list[Ids]:
        """The ids of each text."""
        ...

    def encode_with_offsets(self, text: str) -> tuple[Ids, NDArray[np.int64]]:
        """Ids, and where each starts in `text`, in code points."""
        ...


@dataclass(frozen=True)
class Document:
    """One text as it was indexed."""

    path: str
    text: str
    version: int
    changed: int  # by it documents are ordered: later is newer
    tokens: Ids = field(repr=False)
    byte_lengths: NDArray[np.int32] | None  # by id, where they add up to the text;
    starts: NDArray[np.int64] | None  # else the code point at which each token starts

    @cached_property
    def places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The code points that each token covers, also in part: starts and stops."""
        if self.starts is not None:
            after = np.append(self.starts[1:], len(self.text))
            return self.starts, np.minimum(np.maximum(after, self.starts + 1), len(self.text))
        assert self.byte_lengths is not None
        bytes_before = np.concatenate([[0], np.cumsum(self.byte_lengths[self.tokens])])
        data = np.frombuffer(self.text.encode(), np.uint8)
        first = np.append((data & 0xC0) != 0x80, True)  # bytes that start a character
        begun = np.concatenate([[0], np.cumsum(first)])  # characters begun before each byte
        inside = begun[bytes_before] - ~first[bytes_before]
        return inside[:-1].astype(np.int64), begun[bytes_before[1:]].astype(np.int64)

    def span(self, start: int, stop: int) -> Span | None:
        """Where the tokens start:stop stand in the text; None for none."""
        stop = min(stop, len(self.tokens))
        if start >= stop:
            return None
        starts, stops = self.places
        return Span(self.path, int(starts[start]), int(stops[stop - 1]), self.version)


@dataclass(frozen=True, slots=True)
class WorkspaceMatch:
    """One occurrence of the longest suffix of a tail that a living document continues."""

    length: int  # tokens of the tail that it repeats
    count: int  # such occurrences in the whole workspace
    document: Document
    end: int  # token after the repeated ones

    @property
    def path(self) -> str:
        return self.document.path

    def continuation(self, n: int) -> Ids:
        """The n tokens that follow, fewer where the document ends; a view."""
        return self.document.tokens[self.end : self.end + n]

    def span(self, start: int, stop: int) -> Span | None:
        """Where the tokens start:stop of the continuation were copied from; None for none."""
        return self.document.span(self.end + start, self.end + stop)


class Segment:
    """A frozen automaton over documents, in the order they changed."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self.documents = sorted(documents, key=lambda document: document.changed)
        self.size = sum(len(document.tokens) for document in self.documents)
        self.automaton = Automaton()
        for document in self.documents:
            self.automaton.add(document.tokens)
        self.automaton.freeze()


class Workspace:
    """The texts under `root` and those handed in by `update`. One thread may write while others
    read; a reader that meets fresh changes waits until they are applied."""

    def __init__(self, root: Path | None, encoder: Encoder) -> None:
        self.root = root
        self.skipped: dict[str, str] = {}  # by path: why a file of `root` is not in
        self._encoder = encoder
        self._documents: dict[str, Document] = {}
        self._changed = 0
        self._dirty: set[str] = set()  # paths whose segments are not up to date
        self._segments: tuple[Segment, ...] = ()
        self._lock = threading.Lock()

    def build(self, progress: Progress | None = None) -> None:
        """Index the files of `root`, oldest first; they replace what was there."""
        if self.root is None:
            return
        self.skipped = {}
        found = list(files.walk(self.root, self.skipped.__setitem__))
        found.sort(key=lambda file: (file.changed, file.path))
        documents: list[Document] = []
        texts: dict[str, str] = {}
        for done, file in enumerate(found, 1):
            try:
                texts[file.path] = files.read(file.full)
            except files.Skipped as reason:
                self.skipped[file.path] = str(reason)
            if done == len(found) or sum(map(len, texts.values())) >= BATCH:
                documents += self._encode(texts, 0)
                texts = {}
                if progress:
                    progress("indexing the workspace", done, len(found))
        segments = tuple(Segment(part) for part in _parts(documents))
        with self._lock:
            self._documents = {document.path: document for document in documents}
            self._dirty.clear()
            self._segments = segments

    def update(self, path: str, text: str | None, version: int = 0) -> None:
        """`path` now has this text; None: it is gone."""
        documents = [] if text is None else self._encode({path: text}, version)
        with self._lock:
            self._documents.pop(path, None)
            self._documents.update((document.path, document) for document in documents)
            self._dirty.add(path)

    def match(self, tail: Ids | list[int], k: int = 8, limit: int = 64) -> list[WorkspaceMatch]:
        """The longest suffix of the last `limit` tokens of `tail` that a living document continues,
        at its k newest occurrences: the document changed last first, then the later position."""
        segments = self._apply() if self._dirty else self._segments
        tail = np.asarray(tail, np.int32)
        found = [
            (segment, segment.automaton.match(tail, k, limit, followed=True))
            for segment in segments
        ]
        length = max((match.length for _, match in found), default=0)
        if length == 0:
            return []
        best = [(segment, match) for segment, match in found if match.length == length]
        count = sum(match.count for _, match in best)
        matches = [
            WorkspaceMatch(length, count, segment.documents[doc], end)
            for segment, match in best
            for doc, end in zip(match.docs.tolist(), match.ends.tolist(), strict=True)
        ]
        matches.sort(key=lambda match: (match.document.changed, match.end), reverse=True)
        return matches[:k]

    @property
    def paths(self) -> list[str]:
        """Of the living documents, sorted."""
        return sorted(self._documents)

    @property
    def size(self) -> int:
        """Tokens of the living documents."""
        return sum(len(document.tokens) for document in list(self._documents.values()))

    @property
    def nbytes(self) -> int:
        """Memory of the automata."""
        return sum(segment.automaton.nbytes for segment in self._segments)

    def _encode(self, texts: dict[str, str], version: int) -> list[Document]:
        """Documents of texts by path, in their order. Where the bytes of the ids do not add up to
        the text (a tokenizer that normalises), the ids are taken with offsets."""
        by_id = self._encoder.byte_lengths
        documents = []
        encoded = self._encoder.encode_batch(list(texts.values()))
        for (path, text), ids in zip(texts.items(), encoded, strict=True):
            lengths = by_id[ids]
            exact = bool((lengths >= 0).all()) and int(lengths.sum()) == len(text.encode())
            starts = None
            if not exact:
                ids, starts = self._encoder.encode_with_offsets(text)
            self._changed += 1
            known = by_id if exact else None
            documents.append(Document(path, text, version, self._changed, ids, known, starts))
        return documents

    def _apply(self) -> tuple[Segment, ...]:
        """Bring the segments up to date with the documents."""
        with self._lock:
            if not self._dirty:
                return self._segments
            kept: list[Segment] = []
            for segment in self._segments:
                living = [one for one in segment.documents if one.path not in self._dirty]
                if len(living) == len(segment.documents):
                    kept.append(segment)
                elif living:
                    kept.append(Segment(living))
            fresh = [self._documents[path] for path in self._dirty if path in self._documents]
            kept += [Segment(part) for part in _parts(fresh)]
            self._segments = tuple(_merged(kept))
            self._dirty.clear()
            return self._segments


def _parts(documents: list[Document]) -> list[list[Document]]:
    """Documents in runs of at most SEGMENT tokens; a longer one stands alone."""
    parts: list[list[Document]] = []
    room = 0
    for document in documents:
        if not parts or len(document.tokens) > room:
            parts.append([])
            room = SEGMENT
        parts[-1].append(document)
        room -= len(document.tokens)
    return parts


def _merged(segments: list[Segment]) -> list[Segment]:
    """Segments of which each is more than twice as large as the next, unless both together were too
    large for one: so there are few, and a token is seldom built again."""
    while True:
        segments = sorted(segments, key=lambda segment: segment.size)
        for at, (smaller, larger) in enumerate(pairwise(segments)):
            if larger.size <= 2 * smaller.size and larger.size + smaller.size <= SEGMENT:
                both = Segment([*larger.documents, *smaller.documents])
                segments[at : at + 2] = [both]
                break
        else:
            return segments
