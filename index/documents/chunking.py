"""A document cut into chunks along its structure: pages, headings, paragraphs, lines, sentences.

Chunks do not overlap, and every character that is not blank is in exactly one of them. No chunk
crosses the border of a page. Sizes are in characters; no tokenizer is known here.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from index.documents.formats import Parsed
from index.documents.formats.headings import Heading

SIZE = 1000  # characters of a chunk, at most
LEAST = 200  # a heading starts a new chunk where the one before it has as many
PATH = " > "  # between a heading and the one above it
DEEPEST = 6  # headings in a path, the innermost
TITLES = 8  # one after another, with nothing under them, stay together

EMPTY_LINE = re.compile(r"\n(?:[ \t\r]*\n)+")
# Where a long paragraph is cut, best first: after a line that ends a sentence, any line, a
# sentence, a word.
CUTS = (
    re.compile(r"(?<=[.!?:;])[ \t\r]*\n"),
    re.compile(r"\n"),
    re.compile(r"(?<=[.!?;:])[\"')\]]*\s+|(?<=[\u3002\uff01\uff1f\uff1b])"),
    re.compile(r"\s+"),
)
FILLED = 0.9  # of the size, by pieces that are equal: so that borders near them fit
WORDY = re.compile(r"[^\W_]")  # what no line under a title has
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
    heading: str  # the headings it stands under, outermost first, with " > " between


def chunks(document: str, parsed: Parsed, size: int = SIZE) -> list[Chunk]:
    """All chunks of a document, in order."""
    text = parsed.text
    titles = _Titles(text, parsed.headings)
    found: list[Chunk] = []
    for page, (first, last) in enumerate(parsed.pages or ((0, len(text)),), start=1):
        for start, stop in _packed(text, first, last, titles, size):
            found.append(
                Chunk(
                    document=document,
                    number=len(found),
                    text=text[start:stop],
                    start=start,
                    stop=stop,
                    page=page if parsed.pages else None,
                    heading=titles.path(start, stop),
                )
            )
    return found


class _Titles:
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
            self._paths.append(PATH.join(each.title for each in above[-DEEPEST:]))

    def within(self, start: int, stop: int) -> list[int]:
        """The places of the headings there."""
        return self.starts[bisect_left(self.starts, start) : bisect_left(self.starts, stop)]

    def alone(self, start: int, stop: int) -> bool:
        """Whether there are headings only, with nothing under them yet."""
        places = self.within(start, stop) if stop - start <= 2 * LEAST else []
        if not 0 < len(places) < TITLES or places[0] != start:
            return False
        return all(
            sum(bool(WORDY.search(line)) for line in self._text[at:end].split("\n")) <= 1
            for at, end in zip(places, [*places[1:], stop], strict=True)
        )

    def path(self, start: int, stop: int) -> str:
        """What the first words there that are no heading stand under."""
        number = bisect_right(self.starts, start) - 1
        for inner in self.within(start + 1, stop):
            if self._text[start:inner].strip() and not self.alone(start, inner):
                break
            number, start = number + 1, inner
        return self._paths[number] if number >= 0 else ""


def _packed(
    text: str, first: int, last: int, titles: _Titles, size: int
) -> Iterator[tuple[int, int]]:
    """Places of chunks: as many blocks in one as fit, but a section begins a new one."""
    begin = end = first
    headed = set(titles.within(first, last))
    for start, stop in _blocks(text, first, last, titles, size):
        full = stop - begin > size
        if end > begin and (full or (start in headed and len(text[begin:end].strip()) >= LEAST)):
            yield from _trimmed(text, begin, end)
            begin = start
        end = stop
    yield from _trimmed(text, begin, end)


def _blocks(
    text: str, first: int, last: int, titles: _Titles, size: int
) -> Iterator[tuple[int, int]]:
    """Paragraphs, one after another without a gap; a heading stays with the one below it."""
    borders = {match.end() for match in EMPTY_LINE.finditer(text, first, last)}
    begin = first
    for border in sorted({*borders, *titles.within(first, last), last}):
        if border > begin and (border == last or not titles.alone(begin, border)):
            yield from _split(text, begin, border, size)
            begin = border


def _split(text: str, start: int, stop: int, size: int, how: int = 0) -> Iterator[tuple[int, int]]:
    """Pieces of at most `size` characters, of about the same length."""
    if stop - start <= size:
        yield start, stop
        return
    if how == len(CUTS):
        yield from ((at, min(at + size, stop)) for at in range(start, stop, size))
        return
    length = (stop - start) / ceil((stop - start) / size / FILLED)  # of each, were they equal
    begin = end = start
    number = 1
    for border in (*(match.end() for match in CUTS[how].finditer(text, start, stop)), stop):
        crumb = end - begin < LEAST and border - end > size  # such as a heading
        near = (end + border) / 2 > start + number * length
        if (near or border - begin > size) and end > begin and not crumb:
            yield from _split(text, begin, end, size, how + 1)
            begin = end
            number += 1
        end = border
    if end > begin:
        yield from _split(text, begin, end, size, how + 1)


def _trimmed(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Without empty lines around it; the first line keeps its indentation."""
    stop = start + len(text[start:stop].rstrip())
    if stop > start:
        blank = BLANK_LINES.match(text, start, stop)
        yield (blank.end() if blank else start), stop
