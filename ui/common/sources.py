"""What an answer is copied from, or found in, as lines for people and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.rag.answer import CitedAnswer
    from engine.rag.citations import Citation
    from engine.rag.evidence import Evidence
    from index.documents.documents import Document

MAX_QUOTE_CHARS = 72


def support(answer: CitedAnswer, text_of: Callable[[str], str]) -> str:
    """List what an answer is copied from, or else the passages with its words, one a line.

    Reasons to check the answer come first. `text_of` maps a document's id to its text.
    """
    doubt = "".join(f"{one}\n" for one in answer.doubts)
    if answer.citations:
        return doubt + sources(answer.text, answer.citations, answer.covered, text_of)
    marked = [evidence for evidence in answer.evidence if evidence.marks]
    lines = ["found in:" if marked else "read:"]
    for number, one in enumerate(marked or answer.evidence[:1], 1):
        text = text_of(one.document)
        start = one.marks[0][0] if one.marks else one.start
        place = _location(one.name, one.page, text, start)
        lines.append(f"  [{number}] {place}: {_quote(text[_line_start(text, start) : one.stop])}")
    return doubt + "\n".join(lines) + "\n"


def _line_start(text: str, position: int) -> int:
    """Find where the line begins, or MAX_QUOTE_CHARS / 2 before the position on a long one."""
    return max(text.rfind("\n", 0, position) + 1, position - MAX_QUOTE_CHARS // 2)


def _quote(text: str) -> str:
    """Quote the beginning of a text on one line."""
    quote = " ".join(text[: 4 * MAX_QUOTE_CHARS].split())
    return quote if len(quote) <= MAX_QUOTE_CHARS else quote[: MAX_QUOTE_CHARS - 1] + "\u2026"


def sources(
    answer: str, citations: Sequence[Citation], covered: float, text_of: Callable[[str], str]
) -> str:
    """List the place in a document of each copied passage, one a line.

    `text_of` maps a document's id to its text.
    """
    if not citations:
        return "no passage of this is copied from the documents: check it\n"
    lines = ["copied from:"]
    for number, citation in enumerate(citations, 1):
        text = text_of(citation.document)
        place = _location(citation.name, citation.page, text, citation.source_start)
        quote = _quote(answer[citation.start : citation.stop])
        lines.append(f"  [{number}] {place}: {quote}")
    if covered < 1:
        lines.append(f"not from the documents: {1 - covered:.0%} of the words")
    return "\n".join(lines) + "\n"


def _location(name: str, page: int | None, text: str, position: int) -> str:
    """Name the document, with the page or the line."""
    name = " ".join(name.split())
    if page is not None:
        return f"{name}, page {page}"
    return f"{name}, line {text.count(chr(10), 0, position) + 1}"


def citations_as_json(
    answer: str, citations: Sequence[Citation], text_of: Callable[[str], str]
) -> list[dict[str, Any]]:
    """Describe citations for JSON, with the passage's text in the answer and in the document."""
    return [
        dataclasses.asdict(citation)
        | {
            "text": answer[citation.start : citation.stop],
            "quote": text_of(citation.document)[citation.source_start : citation.source_stop],
        }
        for citation in citations
    ]


def evidence_as_json(
    evidence: Sequence[Evidence], text_of: Callable[[str], str]
) -> list[dict[str, Any]]:
    """Describe passages for JSON, with their text."""
    return [
        dataclasses.asdict(passage)
        | {"text": text_of(passage.document)[passage.start : passage.stop]}
        for passage in evidence
    ]


def documents_as_json(documents: Sequence[Document]) -> list[dict[str, Any]]:
    return [
        {"id": document.id, "name": document.name, "kind": document.kind} for document in documents
    ]
