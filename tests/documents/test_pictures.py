"""Pictures of a pdf's pages: what is marked in them, and what cannot be drawn."""

from __future__ import annotations

import io
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from index.documents.documents import DocumentError, Documents
from index.documents.formats import parser as parser_module
from index.documents.formats.parser import DocumentParser
from tests.support.sample_documents import pdf, pdf_of_forms

LINES = [f"the {word} line is like the others" for word in ("first", "second", "third", "fourth")]
PAGES = ["# Another page\n" + LINES[1], "\n".join(LINES)]


def pixels(png: bytes) -> NDArray[np.int16]:
    with Image.open(io.BytesIO(png)) as picture:
        assert picture.format == "PNG" and picture.mode == "RGB"
        return np.asarray(picture, np.int16)


def test_the_marked_words_are_marked_and_nothing_else() -> None:
    """Also words that the page has several times: the marks follow each other down the page."""
    with Documents() as library:
        document = library.add_data("a.pdf", pdf(PAGES))
        plain = pixels(library.picture(document.id, 2, []))
        starts = [document.text.index(line, document.pages[1][0]) for line in LINES]
        rows, columns = [], []
        for start in starts:
            at = document.text.index("like", start)
            marked = pixels(library.picture(document.id, 2, [(at, at + 4)]))
            changed = np.argwhere((marked != plain).any(axis=2))
            assert np.all(marked <= plain), "it is darker, and what is written stays"
            rows.append((changed[:, 0].min(), changed[:, 0].max()))
            columns.append((changed[:, 1].min(), changed[:, 1].max()))
        assert all(above[1] < below[0] for above, below in pairwise(rows))
        width = plain.shape[1]
        assert all(0 < right - left < width / 10 for left, right in columns)
        whole = pixels(library.picture(document.id, 2, [(0, len(document.text))]))
        assert 0 < (whole != plain).any(axis=2).sum() < plain.size / 6


def test_what_has_no_picture() -> None:
    with Documents() as library:
        paper = library.add_data("a.pdf", pdf(PAGES))
        notes = library.add_data("a.md", b"# Notes")
        for id, page in ((paper.id, 0), (paper.id, 3), (notes.id, 1), ("none", 1)):
            with pytest.raises(KeyError):
                library.picture(id, page, [])
        library.remove(paper.id)
        with pytest.raises(KeyError):
            library.picture(paper.id, 1, [])


def test_a_page_that_takes_too_long_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parser_module, "TIMEOUT_S", 1.0)
    with (
        DocumentParser() as parser,
        pytest.raises(DocumentError, match=r"^a\.pdf: [^\n]+; [^\n]+$"),
    ):
        parser.picture("a.pdf", pdf_of_forms(12, 12), 0, [])


@pytest.mark.parametrize("data", [b"", b"no pdf", pdf(PAGES)[:300]])
def test_a_damaged_file_is_an_error(data: bytes) -> None:
    with (
        DocumentParser() as parser,
        pytest.raises(DocumentError, match=r"^a\.pdf: [^\n]+; [^\n]+$"),
    ):
        parser.picture("a.pdf", data, 0, [("words", 0.5)])
