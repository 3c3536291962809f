"""Files and their tokens: what can be copied, and where it came from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """Where copied text came from: code points `start:stop` of `path` as it was at `version`."""

    path: str
    start: int
    stop: int
    version: int = 0
