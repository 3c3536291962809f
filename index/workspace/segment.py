"""Indexed documents, and the segments that hold their tokens.

A segment is either an automaton that still grows (the active segment) or an immutable suffix array
(`Frozen`). Deleting a document only marks it. `select_merge` picks the segments to compact; the
workspace decides when. Nothing here does file I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from index._core import Automaton, Frozen
from index.records import Span
from index.workspace.file_filter import Stamp
from index.workspace.token_cache import Encoder, Ids

MAX_SEGMENT_TOKENS = 1 << 25  # tokens of a merged segment; sorting takes up to 20 bytes for each
MAX_DEAD_SHARE = 1 / 3  # share of a segment's tokens; above it the segment is rewritten
EXTEND_TOKENS = 1024  # tokens appended per call; each call holds the GIL

ARRAYS = ("text", "starts", "order", "ranks", "keys", "followed", "tops")  # the arrays of `Frozen`

Core = Automaton | Frozen
PathIds = Callable[[str], tuple[int, int]]  # path -> (id of the path, id of its folder)


@dataclass(slots=True, eq=False)
class IndexedDocument:
    """One text as it was indexed. The text is immutable: a changed file is another document."""

    path: str
    version: int  # the editor's, 0 for a file
    changed: int  # sequence number; larger is newer
    digest: bytes  # the text's digest
    stamp: Stamp | None  # None for a buffer, or if the file must be read again
    starts: NDArray[np.int32] | None  # see `Encoded`
    size: int  # tokens
    place: tuple[Core, int] = field(init=False)  # the index that holds the tokens, and the
    # document's number in it
    alive: bool = True

    @property
    def tokens(self) -> Ids:
        return tokens_of(*self.place)

    def delete(self) -> None:
        """Hide the text from all further queries."""
        self.alive = False
        core, number = self.place
        core.kill(number)

    def span(self, start: int, stop: int, encoder: Encoder) -> Span | None:
        """Return the text that the tokens start:stop cover; None if there are none."""
        stop = min(stop, self.size)
        if start >= stop:
            return None
        if self.starts is None:
            starts, stops = encoder.places(self.tokens[:stop])
            return Span(self.path, int(starts[start]), int(stops[stop - 1]), self.version)
        first, last = int(self.starts[start]), int(self.starts[stop - 1])
        end = min(max(int(self.starts[stop]), last + 1), int(self.starts[-1]))
        return Span(self.path, first, end, self.version)


class Segment:
    """Documents whose tokens one automaton or suffix array holds, deleted ones included."""

    def __init__(self, core: Core, documents: list[IndexedDocument]) -> None:
        self.core = core
        self.documents = documents
        self.name: str | None = None  # the name on disk

    @property
    def frozen(self) -> bool:
        return isinstance(self.core, Frozen)

    @property
    def size(self) -> int:
        """Tokens, deleted documents included."""
        return self.core.size

    @property
    def living(self) -> int:
        """Tokens of live documents."""
        return self.core.living

    def add(self, document: IndexedDocument, ids: Ids, path_ids: PathIds) -> None:
        """Append to the active segment. Readers may see the document before it is complete."""
        assert isinstance(self.core, Automaton)
        document.place = (self.core, len(self.documents))
        self.documents.append(document)
        self.core.open(document.changed, *path_ids(document.path))
        for start in range(0, len(ids), EXTEND_TOKENS):
            self.core.extend(ids[start : start + EXTEND_TOKENS])


def tokens_of(core: Core, number: int) -> Ids:
    """Return the tokens of a document, live or deleted."""
    if isinstance(core, Automaton):
        return core.tokens(number)
    starts, text = core.starts, core.text  # views
    stop = starts[number + 1] if number + 1 < len(starts) else len(text) - 1
    return text[int(starts[number]) + 1 : int(stop)]


def freeze(
    documents: Sequence[IndexedDocument], tokens: Iterable[Ids], ids: Sequence[tuple[int, int]]
) -> Segment:
    """Make a frozen segment of documents, in the order of `changed`.

    `ids` are those of their paths and folders. The documents still point to their old segment until
    `move_in`.
    """
    return Segment(Frozen(list(tokens), *_labels(documents, ids)), list(documents))


def arrays_of(core: Frozen) -> dict[str, NDArray[Any]]:
    """Return views of the arrays that make up a frozen segment; `map_arrays` is the inverse."""
    return {name: getattr(core, name) for name in ARRAYS}


def map_arrays(
    arrays: dict[str, NDArray[Any]],
    documents: Sequence[IndexedDocument],
    ids: Sequence[tuple[int, int]],
) -> Frozen:
    """Make a frozen segment on such arrays, which are neither copied nor read.

    Without the last three, as older versions saved them, all are read. ValueError if they are
    inconsistent.
    """
    given: Any = [arrays.get(name) for name in ARRAYS]
    return Frozen.mapped(*given, *_labels(documents, ids))


def _labels(documents: Sequence[IndexedDocument], ids: Sequence[tuple[int, int]]) -> Any:
    """Return `changed`, path ids and folder ids as arrays."""
    both = np.array(ids, np.int32).reshape(-1, 2)
    changed = np.array([document.changed for document in documents], np.int64)
    return changed, np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1])


def move_in(segment: Segment, ids: Sequence[tuple[int, int]], path_ids: PathIds) -> None:
    """Point the documents to their new segment.

    It catches up with those that were deleted or renamed while it was built.
    """
    for number, document in enumerate(segment.documents):
        if not document.alive:
            segment.core.kill(number)
            continue
        document.place = (segment.core, number)
        if (now := path_ids(document.path)) != ids[number]:
            segment.core.label(number, document.changed, *now)


def select_merge(segments: Sequence[Segment]) -> list[Segment]:
    """Select the segments to merge next, but not the active one, the last; [] for none.

    Size-tiered compaction: starting with the smallest, a segment joins if it is at most twice as
    large as the ones before it together. That keeps O(log n) segments and rewrites a token
    O(log n) times.
    """
    group: list[Segment] = []
    total = 0
    for segment in sorted(segments[:-1], key=lambda segment: segment.living):
        if group and segment.living <= 2 * total and segment.living + total <= MAX_SEGMENT_TOKENS:
            group.append(segment)
        elif len(group) > 1:
            break
        else:
            group = [segment]
            total = 0
        total += segment.living
    if len(group) > 1:
        return group
    for segment in segments[:-1]:
        if not segment.frozen or segment.size - segment.living > MAX_DEAD_SHARE * segment.size:
            return [segment]
    return []
