"""Addresses of pictures: a page of a document with the words of an answer marked.

Relative to the page. The picture is drawn when a browser requests it, so that nothing is kept.
"""

from __future__ import annotations

from threading import Semaphore
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlencode

if TYPE_CHECKING:
    from index.documents.documents import Documents
    from ui.web.transcript import EvidencePassage

PATH = "page.png"
MAX_MARKS = 50
MAX_PARALLEL = 2  # pages that are drawn at the same time, each in a process of its own
drawing = Semaphore(MAX_PARALLEL)


def address(passage: EvidencePassage) -> str:
    """Return the URL of the page that a passage is on."""
    marks = [(passage.start + a, passage.start + b) for a, b in passage.marks[:MAX_MARKS]]
    query = {
        "document": passage.document,
        "page": str(passage.page),
        "marks": " ".join(f"{first}-{last}" for first, last in marks),
    }
    return f"{PATH}?{urlencode(query)}"


def draw(library: Documents, query: str) -> bytes:
    """Draw the picture, a PNG, that the query of an address means.

    Blocking. Raises KeyError or ValueError if it means none, DocumentError if the page cannot be
    drawn.
    """
    fields = {name: values[0] for name, values in parse_qs(query).items()}
    marks = [part.split("-") for part in fields.get("marks", "").split()[:MAX_MARKS]]
    spans = [(int(first), int(last)) for first, last in marks]
    with drawing:
        return library.picture(fields["document"], int(fields["page"]), spans)
