"""Result types of the index that need nothing else of it: Span and Stats."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """Code points `start:stop` of the text that was indexed as `path` at `version`."""

    path: str
    start: int
    stop: int
    version: int = 0


@dataclass(frozen=True, slots=True)
class Stats:
    """Size and cache statistics of an index."""

    files: int  # live documents
    tokens: int  # live documents' tokens
    segments: int
    nbytes: int  # memory of the segments, mapped files included
    dead: float  # share of the stored tokens that belong to deleted documents
    hits: int  # texts whose ids were in the token cache
    misses: int  # texts that were tokenized
    disk: int  # bytes of the saved index
    cache: int  # bytes of the token cache on disk
