"""A document in parts that a model can read at once, cut where its author would cut it.

A part ends before a heading or a page if one is in its second half, else after a paragraph, a
line, or wherever there is no more room. No model and no prompt.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.prompts.fim import window

if TYPE_CHECKING:
    from index.documents.documents import Document

EMPTY_LINE = re.compile(r"\n(?:[ \t\r]*\n)+")


@dataclass(frozen=True, slots=True)
class Section:
    """Code points `start:stop` of a document, and in a few words what stands there."""

    start: int
    stop: int
    title: str


def sections(document: Document, room: int, encode: Callable[[str], list[int]]) -> list[Section]:
    """The document in order, in parts of at most `room` tokens; parts that hold only blanks are
    left out."""
    text = document.text
    best = sorted({one.start for one in document.headings} | {start for start, _ in document.pages})
    good = [found.end() for found in EMPTY_LINE.finditer(text)]
    parts: list[Section] = []
    start = 0
    while start < len(text):
        stop = max(start + 1, window(text, start, 0, room, encode)[1])
        if stop < len(text):
            half = (start + stop) // 2
            stop = _last(best, half, stop) or _last(good, half, stop) or stop
        if text[start:stop].strip():
            parts.append(Section(start, stop, _title(document, start, stop)))
        start = stop
    return parts


def _last(places: Sequence[int], above: int, most: int) -> int | None:
    """The last of the places in `above < place <= most`; None for none."""
    at = bisect_right(places, most) - 1
    return places[at] if at >= 0 and places[at] > above else None


def _title(document: Document, start: int, stop: int) -> str:
    """The heading that a part begins with or stands under, else its first one; and its pages."""
    names = []
    first = start + len(document.text[start:stop]) - len(document.text[start:stop].lstrip())
    at = bisect_right(document.headings, first, key=lambda one: one.start)
    if at or (document.headings and document.headings[0].start < stop):
        names.append(document.headings[max(0, at - 1)].title)
    if document.pages:
        starts = [one for one, _ in document.pages]
        page, last = max(1, bisect_right(starts, first)), bisect_left(starts, stop)
        names.append(f"page {page}" if page >= last else f"pages {page} to {last}")
    return ", ".join(names)
