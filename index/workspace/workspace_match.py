"""WorkspaceMatch: where a suffix of the context occurs in the workspace."""

from __future__ import annotations

from dataclasses import dataclass

from index.records import Span
from index.workspace.segment import IndexedDocument, Segment
from index.workspace.token_cache import Encoder, Ids


@dataclass(frozen=True, slots=True)
class WorkspaceMatch:
    """An occurrence of the longest matching suffix. Stays valid when its document is deleted."""

    length: int  # matching tokens
    count: int  # occurrences in the whole workspace
    prob: float  # share of the newest 64 occurrences that continue with the same token
    document: IndexedDocument
    segment: Segment
    number: int  # the document's number in the segment
    end: int  # token after the match
    encoder: Encoder

    @property
    def path(self) -> str:
        return self.document.path

    def continuation(self, n: int) -> Ids:
        """Return the next n tokens of the document, fewer at its end."""
        return self.segment.core.continuation(self.number, self.end, n)

    def span(self, start: int, stop: int) -> Span | None:
        """Return the text that tokens start:stop of the continuation cover; None if none."""
        return self.document.span(self.end + start, self.end + stop, self.encoder)
