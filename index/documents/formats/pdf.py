"""A pdf's text, page by page, by pypdfium2. Headings are its outline's, or its large lines.

No pictures, no text recognition. Only formats/child.py and tests import this.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import pypdfium2
import pypdfium2.raw as pdfium

from index.documents.formats.blocks import Read, clean
from index.documents.formats.headings import Heading, title_of

PAGES = 5000
PASSWORD = 4  # pdfium's code of that error
LARGER = 1.15  # a line of so many times the usual size is a heading
LEVELS = 4  # sizes that make headings, the largest first
BREAK = "\n\n"  # between pages

LIGATURES = {0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl", 0xAD: ""}
SPLIT = re.compile(r"(?<=[^\W\d_A-Z])[\ufffe\x02]\s*(?=[^\W\d_A-Z])")  # a word over two lines
HYPHEN = re.compile(r"[\ufffe\x02]")


@dataclass(frozen=True, slots=True)
class _Line:
    start: int
    title: str
    size: float  # of its letters, in points


def read(data: bytes, longest: int) -> Read:
    """Text, pages, headings. ValueError with a remedy, or pdfium's own error."""
    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if error.err_code == PASSWORD:
            raise ValueError("needs a password; save it without one") from error
        raise
    if len(document) > PAGES:
        raise ValueError(f"has {len(document)} pages, at most {PAGES} are read; split it")
    texts: list[str] = []
    pages: list[tuple[int, int]] = []
    lines: list[_Line] = []
    at = 0
    for number in range(len(document)):
        text = _page(document, number, at, lines)
        pages.append((at, at + len(text)))
        texts.append(text)
        at += len(text) + len(BREAK)
        if at > longest:
            raise ValueError(f"over {longest >> 20} million characters; split it")
    text = BREAK.join(texts)
    return text, pages, _outline(document, text, pages) or _large(lines)


def _page(document: pypdfium2.PdfDocument, number: int, at: int, lines: list[_Line]) -> str:
    """The text of a page that starts at `at`; its lines are added to `lines`."""
    page = document[number]
    try:
        words = page.get_textpage()
        try:
            raw = words.get_text_range()
            text, start = [], 0
            for line in raw.split("\r\n"):
                tidy = _tidy(line)
                if tidy:
                    lines.append(_Line(at, tidy, _size(words, start + len(line) // 2)))
                text.append(tidy)
                at += len(tidy) + 1
                start += len(line.encode("utf-16-le")) // 2 + 2
        finally:
            words.close()
    finally:
        page.close()
    return "\n".join(text)


def _tidy(line: str) -> str:
    """Whole words, no ligatures, nothing at the line's end."""
    line = HYPHEN.sub("-", SPLIT.sub("", line))
    return clean(line.translate(LIGATURES)).replace("\r", " ").replace("\n", " ").rstrip()


def _size(words: pypdfium2.PdfTextPage, place: int) -> float:
    """Of the letter at a place of the text, in points."""
    letter = pdfium.FPDFText_GetCharIndexFromTextIndex(words.raw, place)
    return round(float(pdfium.FPDFText_GetFontSize(words.raw, letter)), 1) if letter >= 0 else 0.0


def _outline(
    document: pypdfium2.PdfDocument, text: str, pages: list[tuple[int, int]]
) -> list[Heading]:
    """The outline's entries, at the line of their page that says the same, else at its top."""
    found = []
    for entry in document.get_toc():
        title = title_of(clean(entry.get_title() or ""))
        target = entry.get_dest()
        number = target.get_index() if target else None
        if not title or number is None or not 0 <= number < len(pages):
            continue
        start, stop = pages[number]
        words = r"\s+".join(map(re.escape, title.split()))
        line = re.compile(rf"^.{{0,12}}{words}", re.IGNORECASE | re.MULTILINE)
        match = line.search(text, start, stop)
        found.append(Heading(match.start() if match else start, entry.level + 1, title))
    return sorted(found, key=lambda heading: heading.start)


def _large(lines: list[_Line]) -> list[Heading]:
    """Short lines in letters clearly larger than most of the text."""
    sizes: Counter[float] = Counter()
    for line in lines:
        sizes[line.size] += len(line.title)
    if not sizes:
        return []
    usual = sizes.most_common(1)[0][0]
    large = sorted((size for size in sizes if size > usual * LARGER), reverse=True)[:LEVELS]
    return [
        Heading(line.start, large.index(line.size) + 1, title_of(line.title))
        for line in lines
        if line.size in large and len(line.title) < 120 and any(map(str.isalpha, line.title))
    ]
