"""A pdf's text by page, extracted by pypdfium2, and pictures of its pages with passages marked.

Headings come from its outline or large lines. Pages without text may be recognized (OCR).
"""

from __future__ import annotations

import re
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pypdfium2
import pypdfium2.raw as pdfium

from index.documents.formats.blocks import ParsedDocument, replace_invalid
from index.documents.formats.headings import Heading, clean_title

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_PAGES = 5000
PASSWORD_ERROR = 4  # FPDF_ERR_PASSWORD
HEADING_SCALE = 1.15  # times the usual font size; a larger line is a heading
HEADING_LEVELS = 4  # font sizes; text in the largest ones is a heading
MAX_HEADING_CHARS = 120
PAGE_BREAK = "\n\n"

LIGATURES = {0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl", 0xAD: ""}
# pdfium marks the hyphen of a word that is split over two lines by U+FFFE or U+0002.
SPLIT_WORD = re.compile(r"(?<=[^\W\d_A-Z])[\ufffe\x02]\s*(?=[^\W\d_A-Z])")
HYPHEN = re.compile(r"[\ufffe\x02]")


PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
PICTURE_PIXELS = 1000  # pixels; the width of a page's picture
MAX_PICTURE_PIXELS = 2000  # pixels; its height
SCAN_PIXELS = 1000  # pixels; a scan's width. More finds less text on sparse pages
MARK = (255, 229, 154)  # red, green and blue where the page is white


@dataclass(frozen=True, slots=True)
class _Line:
    start: int
    text: str
    size: float  # points; the font's size


def read(
    data: bytes, max_chars: int, recognize: Callable[[NDArray[np.uint8]], str] | None = None
) -> ParsedDocument:
    """Read the text, pages and headings of a pdf.

    `recognize`: the text of a picture of a page that has no text, as pixels (height, width, 3) in
    blue, green and red. Raises ValueError with a remedy, or PdfiumError.
    """
    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if error.err_code == PASSWORD_ERROR:
            raise ValueError("needs a password; save it without one") from error
        raise
    if len(document) > MAX_PAGES:
        raise ValueError(f"has {len(document)} pages, over {MAX_PAGES}; split it")
    texts: list[str] = []
    pages: list[tuple[int, int]] = []
    lines: list[_Line] = []
    at = 0
    for number in range(len(document)):
        text = _page_text(document, number, at, lines)
        if recognize and not text.strip():
            text = replace_invalid(recognize(_pixels(document[number], SCAN_PIXELS)))
        pages.append((at, at + len(text)))
        texts.append(text)
        at += len(text) + len(PAGE_BREAK)
        if at > max_chars:
            raise ValueError(f"over {max_chars >> 20} million characters; split it")
    text = PAGE_BREAK.join(texts)
    headings = _outline_headings(document, text, pages) or _large_lines(lines)
    return ParsedDocument(text, tuple(pages), tuple(headings))


def has_scanned_pages(data: bytes, parsed: ParsedDocument) -> bool:
    """Return whether a page without text shows a picture."""
    document, kinds = pypdfium2.PdfDocument(data), [pdfium.FPDF_PAGEOBJ_IMAGE]
    spans = enumerate(parsed.pages)
    empty = (number for number, (start, stop) in spans if not parsed.text[start:stop].strip())
    return any(any(document[number].get_objects(filter=kinds)) for number in empty)


def picture(data: bytes, number: int, marks: Sequence[tuple[str, float]]) -> bytes:
    """Draw a page, counted from 0, as a PNG.

    Each mark is a text that is marked there, and the share of the page's letters that precede it.
    Raises ValueError with a remedy, or PdfiumError.
    """
    import numpy as np

    document = pypdfium2.PdfDocument(data)
    if not 0 <= number < len(document):
        raise ValueError(f"has no page {number + 1}; add it again")
    page = document[number]
    width, height = page.get_size()
    scale = min(PICTURE_PIXELS / width, MAX_PICTURE_PIXELS / height)
    pixels = page.render(scale=scale, rev_byteorder=True, draw_annots=False).to_numpy()[..., :3]
    pixels = pixels.copy()
    words = page.get_textpage()
    try:
        letters = _letters(words)
        for mark in marks:
            for left, bottom, right, top in _boxes(words, letters, *mark):
                rows = slice(
                    max(0, int((height - top) * scale)), int((height - bottom) * scale) + 1
                )
                columns = slice(max(0, int(left * scale)), int(right * scale) + 1)
                pixels[rows, columns] = pixels[rows, columns] * (np.array(MARK) / 255)
    finally:
        words.close()
    return _png(pixels)


def _pixels(page: pypdfium2.PdfPage, width: int) -> NDArray[np.uint8]:
    """Draw a page as pixels (height, width, 3) in blue, green and red."""
    import numpy as np

    scale = min(width / page.get_width(), 2 * width / page.get_height())
    return np.ascontiguousarray(page.render(scale=scale).to_numpy()[..., :3])


def _letters(words: pypdfium2.PdfTextPage) -> list[tuple[str, int]]:
    """Return the letters and digits of a page, and their indices.

    Blanks and hyphens depend on the layout and are left out.
    """
    found = []
    for index in range(words.count_chars()):
        code = pdfium.FPDFText_GetUnicode(words.raw, index)
        letters = chr(code).translate(LIGATURES).lower()
        found += [(letter, index) for letter in letters if letter.isalnum()]
    return found


def _boxes(
    words: pypdfium2.PdfTextPage, letters: list[tuple[str, int]], text: str, share: float
) -> list[tuple[float, float, float, float]]:
    """Return the rectangles (left, bottom, right, top) of a text.

    Of its occurrences, the nearest to a `share` of the page's letters counts.
    """
    wanted = "".join(letter for letter in text.lower() if letter.isalnum())
    page = "".join(letter for letter, _ in letters)
    places = (
        [match.start() for match in re.finditer(f"(?={re.escape(wanted)})", page)] if wanted else []
    )
    if not places:
        return []
    at = min(places, key=lambda place: abs(place - share * len(page)))
    first, last = letters[at][1], letters[at + len(wanted) - 1][1]
    count = words.count_rects(first, last - first + 1)
    return [words.get_rect(index) for index in range(count)]


def _png(pixels: NDArray[np.uint8]) -> bytes:
    """Pixels, of shape (height, width, 3), as a PNG file (RFC 2083)."""
    import numpy as np

    height, width, _ = pixels.shape
    rows = np.zeros((height, 1 + 3 * width), np.uint8)  # each row begins with its filter: none
    rows[:, 1:] = pixels.reshape(height, 3 * width)

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits each of RGB
    body = zlib.compress(rows.tobytes(), 6)
    return PNG_SIGNATURE + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def _page_text(document: pypdfium2.PdfDocument, number: int, at: int, lines: list[_Line]) -> str:
    """Return the text of a page that starts at position `at`; append its lines to `lines`."""
    page = document[number]
    try:
        words = page.get_textpage()
        try:
            raw = words.get_text_range()
            texts, start = [], 0  # `start` counts UTF-16 code units, as pdfium does
            for line in raw.split("\r\n"):
                text = _clean_line(line)
                if text:
                    lines.append(_Line(at, text, _font_size(words, start + len(line) // 2)))
                texts.append(text)
                at += len(text) + 1
                start += len(line.encode("utf-16-le")) // 2 + 2
        finally:
            words.close()
    finally:
        page.close()
    return "\n".join(texts)


def _clean_line(line: str) -> str:
    """Clean a line: join split words, and drop ligatures and trailing blanks."""
    line = HYPHEN.sub("-", SPLIT_WORD.sub("", line))
    line = replace_invalid(line.translate(LIGATURES))
    return line.replace("\r", " ").replace("\n", " ").rstrip()


def _font_size(words: pypdfium2.PdfTextPage, place: int) -> float:
    """Return the font size in points at an index of the page's text; 0 if unknown."""
    letter = pdfium.FPDFText_GetCharIndexFromTextIndex(words.raw, place)
    return round(float(pdfium.FPDFText_GetFontSize(words.raw, letter)), 1) if letter >= 0 else 0.0


def _outline_headings(
    document: pypdfium2.PdfDocument, text: str, pages: list[tuple[int, int]]
) -> list[Heading]:
    """Return the outline's entries, each at the line of its page with the same words.

    An entry whose words are not found is at the top of its page.
    """
    headings = []
    for entry in document.get_toc():
        title = clean_title(replace_invalid(entry.get_title() or ""))
        target = entry.get_dest()
        number = target.get_index() if target else None
        if not title or number is None or not 0 <= number < len(pages):
            continue
        start, stop = pages[number]
        words = r"\s+".join(map(re.escape, title.split()))
        # Up to 12 characters for a section number that the outline does not have.
        line = re.compile(rf"^.{{0,12}}{words}", re.IGNORECASE | re.MULTILINE)
        match = line.search(text, start, stop)
        headings.append(Heading(match.start() if match else start, entry.level + 1, title))
    return sorted(headings, key=lambda heading: heading.start)


def _large_lines(lines: list[_Line]) -> list[Heading]:
    """Short lines in a font clearly larger than that of most of the text."""
    sizes: Counter[float] = Counter()
    for line in lines:
        sizes[line.size] += len(line.text)
    if not sizes:
        return []
    usual = sizes.most_common(1)[0][0]
    large = sorted((size for size in sizes if size > usual * HEADING_SCALE), reverse=True)
    levels = {size: level for level, size in enumerate(large[:HEADING_LEVELS], start=1)}
    return [
        Heading(line.start, levels[line.size], clean_title(line.text))
        for line in lines
        if line.size in levels
        and len(line.text) < MAX_HEADING_CHARS
        and any(map(str.isalpha, line.text))
    ]
