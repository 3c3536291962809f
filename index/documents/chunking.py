"""Splits a document into chunks along its structure: pages, headings, paragraphs, sentences.

Chunks do not overlap, together hold every non-blank character, and never cross a page border.
Sizes are in characters, since no tokenizer is known here.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import chain
from math import ceil

from index.documents.formats import ParsedDocument
from index.documents.formats.headings import Heading
from index.documents.tables import find_tables, head_at

MAX_CHUNK_CHARS = 1000
MIN_SECTION_CHARS = 200  # characters; a heading starts a new chunk only after as many
PATH_SEPARATOR = " > "  # between a heading and the one above it
MAX_PATH_DEPTH = 6  # headings; a longer path keeps the innermost ones
MAX_SEARCH_CHARS = 256 << 10  # characters; other threads wait for one search for a break
MAX_STACKED_TITLES = 8  # headings; as many with nothing between them stay together

EMPTY_LINE = re.compile(r"\n[ \t\r\n]*\n")  # a repeated group would take memory for each line
# Where a long paragraph is split, best first: after a line that ends a sentence, after any line,
# after a sentence, after a word.
BREAKS = (
    re.compile(r"(?<=[.!?:;])[ \t\r]*\n"),
    re.compile(r"\n"),
    re.compile(r"(?<=[.!?;:])[\"')\]]*\s+|(?<=[\u3002\uff01\uff1f\uff1b])"),
    re.compile(r"\s+"),
)
FILL = 0.9  # share of the maximum size; equal pieces aim for it, so that a near break fits
LETTER = re.compile(r"[^\W_]")
BLANK_LINES = re.compile(r"\s*\n")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Code points `start:stop` of a document's text, which are `text`."""

    document: str  # its id
    number: int  # from 0
    text: str
    start: int
    stop: int
    page: int | None  # from 1; only a pdf has pages
    heading: str  # the path of headings above it, outermost first, joined by " > "
    table_head: str = ""  # the rows that name the columns of the table that it starts inside of


def split_chunks(
    document: str, kind: str, parsed: ParsedDocument, size: int = MAX_CHUNK_CHARS
) -> list[Chunk]:
    """Return the chunks of a document in order, of at most `size` characters each."""
    text = parsed.text
    tables = find_tables(kind, text)
    outline = _Outline(text, parsed.headings)
    chunks: list[Chunk] = []
    for page, (first, last) in enumerate(parsed.pages or ((0, len(text)),), start=1):
        for start, stop in _packed(text, first, last, outline, size):
            chunks.append(
                Chunk(
                    document=document,
                    number=len(chunks),
                    text=text[start:stop],
                    start=start,
                    stop=stop,
                    page=page if parsed.pages else None,
                    heading=outline.path(start, stop),
                    table_head=head_at(tables, text, start),
                )
            )
    return chunks


class _Outline:
    """The headings of a text."""

    def __init__(self, text: str, headings: tuple[Heading, ...]) -> None:
        self._text = text
        self.starts = [heading.start for heading in headings]
        self._paths: list[str] = []
        above: list[Heading] = []
        for heading in headings:
            while above and above[-1].level >= heading.level:
                above.pop()
            above.append(heading)
            path = PATH_SEPARATOR.join(each.title for each in above[-MAX_PATH_DEPTH:])
            self._paths.append(path)

    def within(self, start: int, stop: int) -> list[int]:
        """Return where the headings in `start:stop` start."""
        return self.starts[bisect_left(self.starts, start) : bisect_left(self.starts, stop)]

    def only_titles(self, start: int, stop: int) -> bool:
        """Return whether `start:stop` holds a few headings and nothing below them."""
        starts = self.within(start, stop) if stop - start <= 2 * MIN_SECTION_CHARS else []
        if not 0 < len(starts) < MAX_STACKED_TITLES or starts[0] != start:
            return False
        return all(
            sum(bool(LETTER.search(line)) for line in self._text[at:end].split("\n")) <= 1
            for at, end in zip(starts, [*starts[1:], stop], strict=True)
        )

    def path(self, start: int, stop: int) -> str:
        """Return the headings above the first words in `start:stop` that are no headings."""
        number = bisect_right(self.starts, start) - 1
        for inner in self.within(start + 1, stop):
            if self._text[start:inner].strip() and not self.only_titles(start, inner):
                break
            number, start = number + 1, inner
        return self._paths[number] if number >= 0 else ""


Spans = Iterator[tuple[int, int]]  # (start, stop)


def _packed(text: str, first: int, last: int, outline: _Outline, size: int) -> Spans:
    """Chunks: as many blocks as fit into each; a section starts a new one."""
    begin = end = first
    section_starts = set(outline.within(first, last))
    for start, stop in _blocks(text, first, last, outline, size):
        full = stop - begin > size
        new_section = start in section_starts and len(text[begin:end].strip()) >= MIN_SECTION_CHARS
        if end > begin and (full or new_section):
            yield from _trimmed(text, begin, end)
            begin = start
        end = stop
    yield from _trimmed(text, begin, end)


def _blocks(text: str, first: int, last: int, outline: _Outline, size: int) -> Spans:
    """Paragraphs without gaps between them; headings belong to the paragraph below."""
    borders = (match.end() for match in EMPTY_LINE.finditer(text, first, last))
    begin = first
    for border in merge(borders, outline.within(first, last), (last,)):
        if border > begin and (border == last or not outline.only_titles(begin, border)):
            for start, stop in _searchable(text, begin, border):
                yield from split_text(text, start, stop, size)
            begin = border


def _searchable(text: str, start: int, stop: int) -> Spans:
    """Yield a paragraph in parts of at most MAX_SEARCH_CHARS, cut after a line or a word."""
    while stop - start > MAX_SEARCH_CHARS:
        half, most = start + MAX_SEARCH_CHARS // 2, start + MAX_SEARCH_CHARS
        cut = text.rfind("\n", half, most) + 1 or text.rfind(" ", half, most) + 1 or most
        yield start, cut
        start = cut
    yield start, stop


def split_text(text: str, start: int, stop: int, size: int, method: int = 0) -> Spans:
    """Pieces of at most `size` characters and about equal length, split at BREAKS[method]."""
    if stop - start <= size:
        yield start, stop
        return
    if method == len(BREAKS):
        yield from ((at, min(at + size, stop)) for at in range(start, stop, size))
        return
    length = (stop - start) / ceil((stop - start) / size / FILL)  # the length of equal pieces
    begin = end = start
    number = 1
    borders = (match.end() for match in BREAKS[method].finditer(text, start, stop))
    for border in chain(borders, (stop,)):
        past_middle = (end + border) / 2 > start + number * length
        too_short = end - begin < MIN_SECTION_CHARS and border - end > size  # such as a heading
        if (past_middle or border - begin > size) and end > begin and not too_short:
            yield from split_text(text, begin, end, size, method + 1)
            begin = end
            number += 1
        end = border
    if end > begin:
        yield from split_text(text, begin, end, size, method + 1)


def _trimmed(text: str, start: int, stop: int) -> Spans:
    """`start:stop` without the blank lines around it; the first line keeps its indentation."""
    stop = start + len(text[start:stop].rstrip())
    if stop > start:
        blank = BLANK_LINES.match(text, start, stop)
        yield (blank.end() if blank else start), stop
