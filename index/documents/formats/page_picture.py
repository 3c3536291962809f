"""Pictures of a pdf's pages, drawn by pypdfium2, with passages marked."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pypdfium2
import pypdfium2.raw as pdfium

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LIGATURES = {0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl", 0xAD: ""}
PICTURE_PIXELS = 1000  # pixels; the width of a page's picture
MAX_PICTURE_PIXELS = 2000  # pixels; its height
MARK = (255, 229, 154)  # red, green and blue where the page is white


def picture(data: bytes, number: int, marks: Sequence[tuple[str, float]]) -> bytes:
    """Draw a page, counted from 0, as a PNG.

    Each mark is a text that is marked there, and the share of the page's letters that precede it.
    Raises ValueError with a remedy, or PdfiumError.
    """
    import numpy as np
    from PIL import Image

    document = pypdfium2.PdfDocument(data)
    if not 0 <= number < len(document):
        raise ValueError(f"has no page {number + 1}; add it again")
    page = document[number]
    width, height = page.get_size()
    scale = min(PICTURE_PIXELS / width, MAX_PICTURE_PIXELS / height)
    drawn = page.render(scale=scale, rev_byteorder=True, draw_annots=False).to_numpy()[..., :3]
    drawn = drawn.copy()
    words = page.get_textpage()
    try:
        letters = _letters(words)
        for mark in marks:
            for left, bottom, right, top in _boxes(words, letters, *mark):
                rows = slice(
                    max(0, int((height - top) * scale)), int((height - bottom) * scale) + 1
                )
                columns = slice(max(0, int(left * scale)), int(right * scale) + 1)
                drawn[rows, columns] = drawn[rows, columns] * (np.array(MARK) / 255)
    finally:
        words.close()
    file = io.BytesIO()
    Image.fromarray(drawn).save(file, "PNG")
    return file.getvalue()


def pixels(page: pypdfium2.PdfPage, width: int) -> NDArray[np.uint8]:
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
