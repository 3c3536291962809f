"""A finished answer or summary: its text, its sources and its figures.

Plain values that stay valid when a document is removed. html.py renders them, export.py exports
them, history.py stores them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.rag.citations import Citation, page_at
from engine.records import Piece

if TYPE_CHECKING:
    from engine.rag.evidence import Evidence
    from index.documents.documents import Document
    from ui.web.progress import AnswerProgress

CONTEXT_CHARS = 600  # characters on each side of a copy that is in no evidence
Marks = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class EvidencePassage:
    """A passage that an answer rests on.

    It starts at code point `start` of its document; `marks` are code points of `text`: the answer's
    words, in order.
    """

    document: str
    name: str
    page: int | None  # from 1; None if the document has no pages
    line: int | None  # from 1; None if the document has pages; both are of the longest mark
    start: int
    text: str
    marks: Marks
    is_code: bool = False

    @property
    def location(self) -> str:
        """The document's name, and the page or line."""
        name = " ".join(self.name.split())
        return f"{name}, line {self.line}" if self.page is None else f"{name}, page {self.page}"

    def quote(self, citation: Citation) -> str:
        """Return the document's text that a citation of this passage points to."""
        return self.text[citation.source_start - self.start : citation.source_stop - self.start]


@dataclass(frozen=True, slots=True)
class Entry:
    """An answer to a question, or a summary."""

    title: str  # the question, or the name of the document
    text: str
    citations: tuple[Citation, ...] = ()
    passages: tuple[EvidencePassage, ...] = ()  # best first
    cited_passages: tuple[int, ...] = ()  # the index of the passage of each citation
    covered: float = 0.0  # share of the words that are cited
    doubts: tuple[str, ...] = ()  # reasons to check it
    words_found: tuple[str, ...] = ()  # words of the question in it, or in the sentences around it
    words_missing: tuple[str, ...] = ()  # the others
    rewritten: str = ""  # the question that was searched, if it referred to earlier ones
    pieces: tuple[Piece, ...] = ()  # the text by draft source
    found: bool = True  # False: no document matches the question, as `text` says
    stopped: bool = False  # whether the user stopped it
    notes: tuple[str, ...] = ()  # notes to the user
    model: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    tokens_per_pass: tuple[int, ...] = ()


def find_passages(
    evidence: Sequence[Evidence], citations: Sequence[Citation], documents: Mapping[str, Document]
) -> tuple[tuple[EvidencePassage, ...], tuple[int, ...]]:
    """Return the passages of the evidence, and of citations that are in none of it.

    The second result has the index of its passage for each citation. `documents`: by id.
    """
    spans = [(item.document, item.start, item.stop, list(item.marks)) for item in evidence]
    indices = []
    for citation in citations:
        first, last = citation.source_start, citation.source_stop
        fitting = (
            index
            for index, (id, start, stop, _) in enumerate(spans)
            if id == citation.document and start <= first and last <= stop
        )
        index = next(fitting, len(spans))
        if index == len(spans):
            end = min(len(documents[citation.document].text), last + CONTEXT_CHARS)
            spans.append((citation.document, max(0, first - CONTEXT_CHARS), end, []))
        spans[index][3].append((first, last))
        indices.append(index)
    passages = (_passage(documents[id], start, stop, marks) for id, start, stop, marks in spans)
    return tuple(passages), tuple(indices)


def _passage(
    document: Document, start: int, stop: int, marks: list[tuple[int, int]]
) -> EvidencePassage:
    """Make the passage around `marks`, code points of the document in any order."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(marks):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        else:
            merged.append((first, last))
    at = max(merged, key=lambda mark: mark[1] - mark[0])[0] if merged else start
    page = page_at(document.pages, at)
    line = 1 + document.text.count("\n", 0, at) if page is None else None
    shown = tuple((first - start, last - start) for first, last in merged)
    text, is_code = document.text[start:stop], document.kind == "code"
    return EvidencePassage(document.id, document.name, page, line, start, text, shown, is_code)


def figures_of(progress: AnswerProgress) -> dict[str, float]:
    """Return the figures of an answer.

    Tokens per second and the ratio to plain decoding leave prefill out; the ratio is estimated from
    the costs of forward passes on this machine.
    """
    figures: dict[str, float] = {
        "seconds": round(progress.elapsed_s, 3),
        "tokens": progress.tokens,
        "passes": len(progress.tokens_per_pass),
        "tokens_per_second": round(progress.tokens_per_second, 2),
        "ratio_to_plain": round(progress.speedup, 3),
    }
    if progress.done is not None:
        usage = progress.done.usage
        figures |= {
            "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": usage.cached_tokens,
            "drafted": usage.drafted,
            "accepted": usage.accepted,
        }
    return figures
