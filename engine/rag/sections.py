"""Splits a document into sections that fit into a prompt.

A section ends before a heading or page if one starts in its second half, else after a paragraph,
else where the token budget ends.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.prompts.fim import window
from engine.rag.citations import page_at

if TYPE_CHECKING:
    from index.documents.documents import Document

EMPTY_LINE = re.compile(r"\n[ \t\r\n]*\n")


@dataclass(frozen=True, slots=True)
class Section:
    """Code points `start:stop` of a document. `title`: its heading and pages, "" for neither."""

    start: int
    stop: int
    title: str


def split_sections(
    document: Document, max_tokens: int, encode: Callable[[str], list[int]]
) -> list[Section]:
    """Sections of at most `max_tokens` that cover the document in order; blank ones are dropped."""
    text = document.text
    borders = sorted(
        {one.start for one in document.headings} | {start for start, _ in document.pages}
    )
    paragraphs = [found.end() for found in EMPTY_LINE.finditer(text)]
    sections: list[Section] = []
    start = 0
    while start < len(text):
        stop = max(start + 1, window(text, start, 0, max_tokens, encode)[1])
        if stop < len(text):
            half = (start + stop) // 2
            stop = _last(borders, half, stop) or _last(paragraphs, half, stop) or stop
        if text[start:stop].strip():
            sections.append(Section(start, stop, _title(document, start, stop)))
        start = stop
    return sections


def _last(positions: Sequence[int], above: int, maximum: int) -> int | None:
    """The last of the sorted positions in `above < position <= maximum`."""
    at = bisect_right(positions, maximum) - 1
    return positions[at] if at >= 0 and positions[at] > above else None


def _title(document: Document, start: int, stop: int) -> str:
    """The heading at or above the section's start, else its first one; and its pages."""
    names = []
    first = start + len(document.text[start:stop]) - len(document.text[start:stop].lstrip())
    at = bisect_right(document.headings, first, key=lambda one: one.start)
    if at or (document.headings and document.headings[0].start < stop):
        names.append(document.headings[max(0, at - 1)].title)
    page = page_at(document.pages, first)
    if page is not None:
        last = bisect_left([start for start, _ in document.pages], stop)
        names.append(f"page {page}" if page >= last else f"pages {page} to {last}")
    return ", ".join(names)
