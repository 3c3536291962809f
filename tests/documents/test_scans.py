"""Scanned pages: refused in one line without the extra `ocr`, read with it."""

from __future__ import annotations

import io
from types import SimpleNamespace

import numpy as np
import pypdfium2
import pytest
from numpy.typing import NDArray
from PIL import Image

from index.documents.documents import DocumentError, Documents
from index.documents.formats import library, ocr, parser
from index.documents.formats.pdf import SCAN_PIXELS, read
from tests.support.sample_documents import parse, pdf

PAGES = ["The deposit is two monthly rents.\nPaid on 1 March 2025.", "Dogs need consent."]


def scanned(pages: list[str]) -> bytes:
    """A pdf with a picture of each page and no text."""
    images = [
        page.render(scale=2).to_pil().convert("L") for page in pypdfium2.PdfDocument(pdf(pages))
    ]
    file = io.BytesIO()
    images[0].save(file, "PDF", save_all=True, append_images=images[1:], resolution=144)
    return file.getvalue()


def with_text_first(scan: bytes) -> bytes:
    """A pdf that begins with a page of text."""
    document = pypdfium2.PdfDocument(pdf(["A cover."]))
    document.import_pages(pypdfium2.PdfDocument(scan))
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def test_without_the_extra_a_scan_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ocr, "find_spec", lambda name: None)
    with pytest.raises(DocumentError) as raised:
        parse("scan.pdf", scanned(PAGES))
    assert str(raised.value) == (
        "scan.pdf: contains no text; to read scanned pages, pip install 'draftline[page,ocr]'"
    )


def test_without_the_extra_the_text_of_other_pages_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr, "find_spec", lambda name: None)
    parsed = parse("mixed.pdf", with_text_first(scanned(PAGES)))
    assert parsed.text.strip() == "A cover."
    assert len(parsed.pages) == 3


@pytest.mark.parametrize("size", [(10_000, 20), (20, 10_000), (3000, 4000)])
def test_only_pages_without_text_are_recognized_from_pictures_of_limited_size(
    monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    file = io.BytesIO()
    Image.new("L", size, 255).save(file, "PDF")
    shapes = []
    cover = SimpleNamespace(page_number=1, content="A cover.", hierarchy=None)
    monkeypatch.setattr(library, "extract", lambda *_: SimpleNamespace(pages=[cover]))

    def recognize(pixels: NDArray[np.uint8]) -> str:
        shapes.append(pixels.shape)
        return "recognized"

    parsed = read(with_text_first(file.getvalue()), 1000, recognize)
    assert [parsed.text[start:stop] for start, stop in parsed.pages] == ["A cover.", "recognized"]
    ((height, width, colors),) = shapes
    assert 0 < width <= SCAN_PIXELS and 0 < height <= 2 * SCAN_PIXELS and colors == 3


@pytest.mark.full
def test_with_the_extra_a_scan_is_read_page_by_page() -> None:
    pytest.importorskip("rapidocr")
    with Documents() as documents:
        document = documents.add_data("scan.pdf", scanned(PAGES))
        words = [document.text[start:stop].split() for start, stop in document.pages]
        assert words == [page.split() for page in PAGES]
        (hit,) = documents.search("How high is the deposit?", 1)
        assert hit.chunk.page == 1


@pytest.mark.full
def test_with_the_extra_scanned_pages_among_others_are_read() -> None:
    pytest.importorskip("rapidocr")
    parsed = parse("mixed.pdf", with_text_first(scanned(PAGES)))
    words = [parsed.text[start:stop].split() for start, stop in parsed.pages]
    assert words == [page.split() for page in ["A cover.", *PAGES]]


@pytest.mark.full
def test_recognition_has_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rapidocr")
    monkeypatch.setattr(parser, "SCAN_TIMEOUT_S", 0.1)
    with pytest.raises(DocumentError, match="not parsed within"):
        parse("scan.pdf", scanned(PAGES))


@pytest.mark.full
def test_empty_pages_have_no_text_either_way() -> None:
    pytest.importorskip("rapidocr")
    with pytest.raises(DocumentError, match="contains no text; remove it"):
        parse("empty.pdf", scanned([" "]))
