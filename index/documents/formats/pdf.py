"""The text of a pdf by page, with its headings, form fields and notes.

xberg reads it; pypdfium2 has the outline, the fields and notes of pages, and the pictures of pages
that have no text, which may be recognized (OCR).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import pypdfium2
import pypdfium2.raw as pdfium

from index.documents.formats import ParsedDocument, library, page_notes
from index.documents.formats.headings import Heading, clean_title, find_headings
from index.documents.formats.page_picture import pixels

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from xberg._xberg import PageContent

MAX_PAGES = 5000
PASSWORD_ERROR = 4  # FPDF_ERR_PASSWORD
PAGE_BREAK = "\n\n"
SCAN_PIXELS = 1000  # pixels; a scan's width. More finds less text on sparse pages
MAX_HEADING_CHARS = 120
HEADING_SCALE = 1.05  # times the usual size
LIGATURES = {0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl", 0xAD: ""}
SPLIT_NAME = re.compile(r"(?<=[^\W\d_]-) (?=[A-Z])")  # Anglo- Saxon
SPLIT_WORD = re.compile(r"(?<=[^\W\d_A-Z])[\u2010\xad\ufffe]\s+(?=[^\W\d_A-Z])")


def read(
    data: bytes, max_chars: int, recognize: Callable[[NDArray[np.uint8]], str] | None = None
) -> ParsedDocument:
    """Read the text, pages and headings of a pdf.

    `recognize`: the text of a picture of a page that has no text, as pixels (height, width, 3) in
    blue, green and red. Raises ValueError with a remedy, PdfiumError or RuntimeError.
    """
    document = _open(data)
    found = {page.page_number: page for page in library.extract("pdf", data).pages or ()}
    marks = _heading_marks(found.values())
    texts: list[str] = []
    pages: list[tuple[int, int]] = []
    at = 0
    for number in range(len(document)):
        page = _page(document, number)
        text = _page_text(document, page, found.get(number + 1), marks) if page else ""
        if page and recognize and not text:
            text = recognize(pixels(page, SCAN_PIXELS))
        texts.append(text)
        pages.append((at, at + len(text)))
        at += len(text) + len(PAGE_BREAK)
        if at > max_chars:
            raise ValueError(f"over {max_chars >> 20} million characters; split it")
    text = PAGE_BREAK.join(texts)
    headings = _outline_headings(document, text, pages) or find_headings("md", text)
    return ParsedDocument(text, tuple(pages), tuple(headings))


def has_scanned_pages(data: bytes, parsed: ParsedDocument) -> bool:
    """Return whether a page without text shows a picture."""
    document, kinds = pypdfium2.PdfDocument(data), [pdfium.FPDF_PAGEOBJ_IMAGE]
    spans = enumerate(parsed.pages)
    empty = (number for number, (start, stop) in spans if not parsed.text[start:stop].strip())
    pages = filter(None, (_page(document, number) for number in empty))
    return any(any(page.get_objects(filter=kinds)) for page in pages)


def _open(data: bytes) -> pypdfium2.PdfDocument:
    if b"%PDF-" not in data[:1024]:
        raise ValueError("not a pdf file; give it the suffix of its real format")
    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if error.err_code == PASSWORD_ERROR:
            raise ValueError("needs a password; save it without one") from error
        raise
    if len(document) > MAX_PAGES:
        raise ValueError(f"has {len(document)} pages, over {MAX_PAGES}; split it")
    document.init_forms()
    return document


def _page(document: pypdfium2.PdfDocument, number: int) -> pypdfium2.PdfPage | None:
    """Return a page; None for one that is listed and missing, in whose place xberg has another."""
    try:
        return document[number]
    except pypdfium2.PdfiumError:
        return None


def _heading_marks(pages: Iterable[PageContent]) -> dict[float, str]:
    """Return the Markdown of headings by their size, where larger than most of the text."""
    blocks = [block for page in pages if page.hierarchy for block in page.hierarchy.blocks]
    sizes: Counter[float] = Counter()
    for block in blocks:
        sizes[block.font_size] += len(block.text)
    usual = sizes.most_common(1)[0][0] if sizes else 0
    return {
        block.font_size: "#" * int(block.level[1:]) + " "
        for block in blocks
        if block.level != "body" and block.font_size > HEADING_SCALE * usual
    }


def _page_text(
    document: pypdfium2.PdfDocument,
    page: pypdfium2.PdfPage,
    found: PageContent | None,
    marks: dict[float, str],
) -> str:
    """Return the text of a page: xberg's, or pdfium's where xberg has none."""
    text = found.content.strip() if found else ""
    for block in found.hierarchy.blocks if found and found.hierarchy else ():
        # xberg takes some headings for sentences, such as those that begin with an article.
        mark = marks.get(block.font_size, "") if block.level == "body" else ""
        if mark and len(block.text) < MAX_HEADING_CHARS:
            line = re.compile(f"^(?={re.escape(block.text)}$)", re.MULTILINE)
            text = line.sub(mark, text, count=1)
    text = text or page.get_textpage().get_text_range().replace("\r\n", "\n")
    text = library.plain("\n\n".join([text, "\n".join(page_notes.read(document, page))]))
    return SPLIT_NAME.sub("", SPLIT_WORD.sub("", text.translate(LIGATURES))).strip()


def _outline_headings(
    document: pypdfium2.PdfDocument, text: str, pages: list[tuple[int, int]]
) -> list[Heading]:
    """Return the outline's entries, each at the line of its page with the same words.

    An entry whose words are not found is at the top of its page.
    """
    headings = []
    for entry in document.get_toc():
        title = clean_title(entry.get_title() or "")
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
