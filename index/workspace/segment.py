"""Documents, and the segments of the index that hold their tokens.

A segment is an automaton that grows (the young one) or a frozen one. Documents die where they are;
segments that grew small, old or hollow are made one anew from what lives in them. Which, is said
here; when, in `index.workspace.workspace`. Nothing here reads or writes files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from index._core import Automaton, Frozen
from index.records import Span
from index.workspace.file_filter import Stamp
from index.workspace.token_cache import Encoder, Ids

LARGEST = 1 << 24  # tokens of a segment that others are merged into
HOLLOW = 1 / 3  # of a segment's tokens: dead, so that it is made anew
PIECE = 1024  # tokens added at once: the interpreter is not kept longer

Core = Automaton | Frozen
Number = Callable[[str], tuple[int, int]]  # path -> numbers of the path and of its folder


@dataclass(slots=True, eq=False)
class Document:
    """One text as it was indexed. Its text never changes; a changed file is another document."""

    path: str
    version: int  # the editor's, 0 for a file
    changed: int  # by it documents are ordered: later is newer
    digest: bytes  # of the text
    stamp: Stamp | None  # of the file; None: a buffer's text, or the file must be looked at again
    starts: NDArray[np.int32] | None  # as in `Encoded`
    size: int  # tokens
    place: tuple[Core, int] = field(init=False)  # what holds its tokens, its number there
    alive: bool = True

    @property
    def tokens(self) -> Ids:
        return tokens_of(*self.place)

    def die(self) -> None:
        """Its text is found no more."""
        self.alive = False
        core, number = self.place
        core.kill(number)

    def span(self, start: int, stop: int, encoder: Encoder) -> Span | None:
        """Where the tokens start:stop stand in the text; None for none."""
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
    """Documents whose tokens one automaton holds, dead ones too."""

    def __init__(self, core: Core, documents: list[Document]) -> None:
        self.core = core
        self.documents = documents
        self.name: str | None = None  # on disk

    @property
    def frozen(self) -> bool:
        return isinstance(self.core, Frozen)

    @property
    def size(self) -> int:
        """Tokens, the dead ones included."""
        return self.core.size

    @property
    def living(self) -> int:
        """Tokens of the living documents."""
        return self.core.living

    def add(self, document: Document, ids: Ids, number: Number) -> None:
        """Append to a young segment. Readers may meet the document while it grows."""
        assert isinstance(self.core, Automaton)
        document.place = (self.core, len(self.documents))
        self.documents.append(document)
        self.core.open(document.changed, *number(document.path))
        for start in range(0, len(ids), PIECE):
            self.core.extend(ids[start : start + PIECE])


def tokens_of(core: Core, number: int) -> Ids:
    """Of a document, dead or not."""
    if isinstance(core, Automaton):
        return core.tokens(number)
    starts, text = core.starts, core.text  # views: nothing is copied
    stop = starts[number + 1] if number + 1 < len(starts) else len(text) - 1
    return text[int(starts[number]) + 1 : int(stop)]


def frozen(
    documents: Sequence[Document], tokens: Iterable[Ids], numbers: Sequence[tuple[int, int]]
) -> Segment:
    """A frozen segment of documents by rising `changed`, with the numbers of their paths. The
    documents are not told; `move_in` does that."""
    labels = np.array(numbers, np.int32).reshape(-1, 2)
    core = Frozen(
        list(tokens),
        np.array([document.changed for document in documents], np.int64),
        np.ascontiguousarray(labels[:, 0]),
        np.ascontiguousarray(labels[:, 1]),
    )
    return Segment(core, list(documents))


def move_in(segment: Segment, numbers: Sequence[tuple[int, int]], number: Number) -> None:
    """The documents of a new segment now live there; those that died or were renamed while it was
    made do so there too."""
    for at, document in enumerate(segment.documents):
        if not document.alive:
            segment.core.kill(at)
            continue
        document.place = (segment.core, at)
        if (known := number(document.path)) != numbers[at]:
            segment.core.label(at, document.changed, *known)


def to_merge(segments: Sequence[Segment]) -> list[Segment]:
    """The segments that should be made one, the young one (the last) aside; none: all is well.

    From the smallest up, each joins where it is at most twice as large as those before it together.
    So there are few segments, and a token is seldom built again.
    """
    group: list[Segment] = []
    total = 0
    for segment in sorted(segments[:-1], key=lambda segment: segment.living):
        if group and segment.living <= 2 * total and segment.living + total <= LARGEST:
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
        if not segment.frozen or segment.size - segment.living > HOLLOW * segment.size:
            return [segment]
    return []
