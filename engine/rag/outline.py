"""A document's outline: its title and its chapters, from its headings; no model runs.

A text without headings may have numbered ones, such as "§ 3 Rent", "Article 3", "3. Rent" or
"第三条". The chapters are the headings of the highest level that divides the document.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from index.documents.formats.headings import Heading, clean_title

if TYPE_CHECKING:
    from index.documents.documents import Document

MAX_CHAPTERS = 60  # chapters; neighbours of more are joined
PART_CHARS, MAX_PARTS = 4000, 12  # characters of a part, parts; for a text without chapters
MAX_CHAPTER_SHARE = 0.6  # share of the text; a longer chapter is divided by the next level
MAX_NUMBERED_CHARS = 80  # characters of a numbered heading
NUMBERED = re.compile(
    r"[ \t]*(?:(?P<mark>(?:§+|Art\.|(?:Article|Artikel|Artículo|Articolo|Section|Clause|Chapter|"
    r"Kapitel|Abschnitt|Chapitre|Part|Teil|Annex|Annexe|Anlage|Appendix)\b)[ \t]*[\dIVXA-F]+\b|"
    r"第[〇零一二三四五六七八九十百\d]+[章节節条條编編])|(?P<number>\d{1,2})[.)]?(?=[ \t]))"
    r"[.:)]?[ \t]*(?P<title>[^\n]*)",
    re.IGNORECASE,
)
SENTENCE_END = (".", "!", "?", ";", ",", ":", "。", "！", "？", "；", "，", "：")
EMPTY_LINE = re.compile(r"\n[ \t\r]*\n")
CONTENTS = re.compile(
    r"\W*(table of contents|contents|inhalt(sverzeichnis)?|table des matières|sommaire|índice|"
    r"目\s*录|目\s*錄|目\s*次)\W*",
    re.IGNORECASE,
)


class Chapter(NamedTuple):
    """Code points `start:stop` of a document, with the heading.

    `title` is "" for the text before the first chapter, and for the parts of a text without
    chapters.
    """

    start: int
    stop: int
    title: str


@dataclass(frozen=True, slots=True)
class Outline:
    """A document's title and chapters.

    `title` is "" if the document has none. The chapters are in order and do not overlap; all but
    blank text and tables of contents is in one of them.
    """

    title: str
    chapters: tuple[Chapter, ...]


def find_outline(document: Document) -> Outline:
    """Find the title and the chapters of a document."""
    text = document.text
    headings = document.headings
    chapters = _chapters(text, headings)
    if not chapters:
        after = headings[0].start + 1 if headings else 0
        headings = (*headings[:1], *numbered_headings(text, after))
        chapters = _chapters(text, headings)
    parts = _joined(chapters) if chapters else _parts(text)
    return Outline(_title(document.headings), tuple(parts))


def numbered_headings(text: str, start: int = 0) -> Iterator[Heading]:
    """Lines from `start` on that are numbered like headings. Plain numbers must count from 1."""
    at, expected = 0, 1
    for line in text.split("\n"):
        match = NUMBERED.match(line) if at >= start else None
        at += len(line) + 1
        if match is None:
            continue
        own = line.strip()
        is_short = len(own) <= MAX_NUMBERED_CHARS and not own.endswith(SENTENCE_END)
        if match["number"]:
            if not is_short or int(match["number"]) != expected or not match["title"].strip():
                continue
            expected += 1
        yield Heading(at - len(line) - 1, 1, clean_title(own if is_short else match["mark"]))


def _chapters(text: str, headings: Sequence[Heading]) -> list[Chapter]:
    """Return the text before the first chapter, and the chapters.

    None if no level divides the text.
    """
    found: list[Chapter] = []
    for level in sorted({heading.level for heading in headings}):
        chapters = _divided(text, [heading for heading in headings if heading.level <= level])
        if len(chapters) < 2:
            continue
        if found and len(chapters) > MAX_CHAPTERS:
            break
        found = chapters
        longest = max(chapter.stop - chapter.start for chapter in chapters)
        if longest <= MAX_CHAPTER_SHARE * len(text):
            break
    return found


def _title(headings: Sequence[Heading]) -> str:
    """Return the first heading, if no other has its level or a higher one."""
    first = headings[:1]
    is_title = all(heading.level > first[0].level for heading in headings[1:])
    return first[0].title if first and is_title else ""


def _divided(text: str, headings: Sequence[Heading]) -> list[Chapter]:
    """Return the chapters that start at headings.

    One without text of its own is left out; the first heading is the document's title if no other
    has its level.
    """
    chapters: list[Chapter] = []
    has_title = len(headings) > 1 and bool(_title(headings))
    borders = [(0, "")] if has_title else [(0, ""), (headings[0].start, headings[0].title)]
    borders += [(heading.start, heading.title) for heading in headings[1:]]
    stops = [start for start, _ in borders[1:]] + [len(text)]
    for (start, title), stop in zip(borders, stops, strict=True):
        begins_with_heading = bool(title) or (has_title and not text[: headings[0].start].strip())
        body = text[start:stop].strip()
        if begins_with_heading:
            body = body.partition("\n")[2]
        if any(map(str.isalnum, body)) and not CONTENTS.fullmatch(title):
            chapters.append(Chapter(start, stop, title))
    return chapters


def _joined(chapters: Sequence[Chapter]) -> Iterator[Chapter]:
    """Join neighbours, with all their titles, to at most MAX_CHAPTERS chapters."""
    count = min(MAX_CHAPTERS, len(chapters))
    for n in range(count):
        group = chapters[len(chapters) * n // count : len(chapters) * (n + 1) // count]
        titles = [chapter.title for chapter in group if chapter.title]
        yield Chapter(group[0].start, group[-1].stop, "; ".join(titles))


def _parts(text: str) -> Iterator[Chapter]:
    """Divide a text without chapters between paragraphs, in parts of about the same length."""
    count = min(MAX_PARTS, len(text) // PART_CHARS + 1)
    start = 0
    for n in range(1, count + 1):
        found = EMPTY_LINE.search(text, max(start, len(text) * n // count)) if n < count else None
        stop = found.end() if found else len(text)
        if text[start:stop].strip():
            yield Chapter(start, stop, "")
        start = stop
