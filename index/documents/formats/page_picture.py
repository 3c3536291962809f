"""Pictures of a pdf's pages, drawn by pypdfium2, with passages marked."""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pypdfium2
import pypdfium2.raw as pdfium

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PICTURE_PIXELS = 1000  # pixels; the width of a page's picture
MAX_PICTURE_PIXELS = 2000  # pixels; its height
MARK = (255, 229, 154)  # red, green and blue where the page is white


def picture(data: bytes, number: int, marks: Sequence[tuple[str, float]]) -> bytes:
    """Draw a page, counted from 0, as a PNG.

    Each mark is a text that is marked there, and the share of the page's letters that precede it.
    Raises ValueError with a remedy, or PdfiumError.
    """
    from PIL import Image, ImageChops, ImageDraw

    document = pypdfium2.PdfDocument(data)
    if not 0 <= number < len(document):
        raise ValueError(f"has no page {number + 1}; add it again")
    page = document[number]
    width, height = page.get_size()
    scale = min(PICTURE_PIXELS / width, MAX_PICTURE_PIXELS / height)
    drawn = page.render(scale=scale, draw_annots=False).to_pil().convert("RGB")
    color = Image.new("RGB", drawn.size, "white")
    pen, words = ImageDraw.Draw(color), page.get_textpage()
    letters = _letters(words)
    for mark in marks:
        for left, bottom, right, top in _boxes(words, letters, *mark):
            corners = left, height - top, right, height - bottom
            pen.rectangle([place * scale for place in corners], MARK)
    file = io.BytesIO()
    ImageChops.multiply(drawn, color).save(file, "PNG")
    return file.getvalue()


def pixels(page: pypdfium2.PdfPage, width: int) -> NDArray[np.uint8]:
    """Draw a page as pixels (height, width, 3) in blue, green and red."""
    import numpy as np

    scale = min(width / page.get_width(), 2 * width / page.get_height())
    return np.ascontiguousarray(page.render(scale=scale).to_numpy()[..., :3])


def _letters(words: pypdfium2.PdfTextPage) -> list[tuple[str, int]]:
    """Return the letters and digits of a page, and their indices."""
    codes = (pdfium.FPDFText_GetUnicode(words.raw, at) for at in range(words.count_chars()))
    return [(letter, at) for at, code in enumerate(codes) for letter in _compared(chr(code))]


def _compared(text: str) -> str:
    """Return the letters and digits of a text; blanks and hyphens depend on the layout."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).lower()))


def _boxes(
    words: pypdfium2.PdfTextPage, letters: list[tuple[str, int]], text: str, share: float
) -> list[tuple[float, float, float, float]]:
    """Return the rectangles (left, bottom, right, top) of a text.

    Of its occurrences, the nearest to a `share` of the page's letters counts.
    """
    wanted, page = _compared(text), "".join(letter for letter, _ in letters)
    places = [at for at in range(len(page)) if page.startswith(wanted, at)] if wanted else []
    if not places:
        return []
    at = min(places, key=lambda place: abs(place - share * len(page)))
    first, last = letters[at][1], letters[at + len(wanted) - 1][1]
    return [words.get_rect(index) for index in range(words.count_rects(first, last - first + 1))]
