"""Result types of the index: Span, WorkspaceMatch, Stats. Cheap to import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from index.workspace.segment import IndexedDocument, Segment
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
    """One occurrence of the longest matching suffix. Stays valid when its document is deleted."""

    length: int  # matching tokens
    count: int  # occurrences in the whole workspace
    prob: float  # share of the newest 64 occurrences that continue with the same token
    document: IndexedDocument
    segment: Segment
    number: int  # of the document in the segment
    end: int  # token after the match
    encoder: Encoder

    @property
    def path(self) -> str:
        return self.document.path

    def continuation(self, n: int) -> Ids:
        """The next n tokens of the document, fewer at its end."""
        return self.segment.core.continuation(self.number, self.end, n)

    def span(self, start: int, stop: int) -> Span | None:
        """The text that the tokens start:stop of the continuation cover; None if there are none."""
        return self.document.span(self.end + start, self.end + stop, self.encoder)


@dataclass(frozen=True, slots=True)
class Stats:
    """Size and cache statistics of an index."""

    files: int  # live documents
    tokens: int  # of live documents
    segments: int
    nbytes: int  # memory of the segments, mapped files included
    dead: float  # share of the stored tokens that belong to deleted documents
    hits: int  # texts whose ids were in the token cache
    misses: int  # texts that were tokenized
    disk: int  # bytes of the saved index
    cache: int  # bytes of the token cache on disk
