"""A finished answer or summary: its text, its sources and its figures.

Plain values that stay valid when a document is removed. html.py renders them, export.py exports
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from engine.rag.citations import Citation
    from engine.rag.evidence import Evidence
    from engine.records import Piece
    from ui.web.progress import AnswerProgress

CONTEXT_CHARS = 600  # of a document, kept on each side of a quote


class Quote(NamedTuple):
    """The text of a document that a citation refers to, and what surrounds it."""

    before: str
    text: str
    after: str


@dataclass(frozen=True, slots=True)
class Entry:
    """An answer to a question, or a summary."""

    title: str  # the question, or the name of the document
    text: str
    citations: tuple[Citation, ...] = ()
    quotes: tuple[Quote, ...] = ()  # one per citation
    covered: float = 0.0  # share of the words that are cited
    evidence: tuple[Evidence, ...] = ()  # passages that were read, best first
    passages: tuple[str, ...] = ()  # the text of each
    supported: bool = True  # by a passage
    rewritten: str = ""  # the question as it was asked, if it referred to an earlier one
    pieces: tuple[Piece, ...] = ()  # the text by draft source
    found: bool = True  # False: no document matches the question, as `text` says
    stopped: bool = False  # by the user
    notes: tuple[str, ...] = ()  # for the user
    model: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    tokens_per_pass: tuple[int, ...] = ()


def quote(citation: Citation, text: str) -> Quote:
    """The quote of a citation from its document's text."""
    start, stop = citation.source_start, citation.source_stop
    first, last = max(0, start - CONTEXT_CHARS), min(len(text), stop + CONTEXT_CHARS)
    before = ("\u2026" if first else "") + text[first:start]
    after = text[stop:last] + ("\u2026" if last < len(text) else "")
    return Quote(before, text[start:stop], after)


def quotes(citations: Sequence[Citation], text_of: Callable[[str], str]) -> tuple[Quote, ...]:
    """The quote of each citation. `text_of` maps a document's id to its text."""
    texts = {id: text_of(id) for id in dict.fromkeys(one.document for one in citations)}
    return tuple(quote(citation, texts[citation.document]) for citation in citations)


def location(citation: Citation) -> str:
    """The document's name, and the page if it has pages."""
    name = " ".join(citation.name.split())
    return name if citation.page is None else f"{name}, page {citation.page}"


def figures_of(progress: AnswerProgress) -> dict[str, float]:
    """The figures of an answer. Tokens per second and the ratio to plain decoding leave prefill
    out; the ratio is estimated from the costs of forward passes on this machine."""
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
