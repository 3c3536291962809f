"""What the index tells: Span, WorkspaceMatch, Stats. Light to import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from index.workspace.segment import Document, Segment
    from index.workspace.token_cache import Encoder, Ids


@dataclass(frozen=True, slots=True)
class Span:
    """Code points `start:stop` of the text that was indexed as `path` at `version`."""

    path: str
    start: int
    stop: int
    version: int = 0


@dataclass(frozen=True, slots=True)
class WorkspaceMatch:
    """One occurrence of the longest suffix of a tail that a living document continues. It stays
    good when the document dies."""

    length: int  # tokens of the tail that it repeats
    count: int  # such occurrences in the whole workspace
    prob: float  # share of the newest 64 of them that continue with the same token
    document: Document
    segment: Segment
    number: int  # of the document in the segment
    end: int  # token after the repeated ones
    encoder: Encoder

    @property
    def path(self) -> str:
        return self.document.path

    def continuation(self, n: int) -> Ids:
        """The n tokens that follow, fewer where the document ends."""
        return self.segment.core.continuation(self.number, self.end, n)

    def span(self, start: int, stop: int) -> Span | None:
        """Where the tokens start:stop of the continuation were copied from; None for none."""
        return self.document.span(self.end + start, self.end + stop, self.encoder)


@dataclass(frozen=True, slots=True)
class Stats:
    """What an index holds."""

    files: int  # living documents
    tokens: int  # of them
    segments: int
    nbytes: int  # memory of the segments, mapped files included
    dead: float  # share of the tokens that are held
    hits: int  # texts whose ids were found in the cache
    misses: int  # texts that were tokenised
    disk: int  # bytes of the saved index
    cache: int  # bytes of the cache of ids
