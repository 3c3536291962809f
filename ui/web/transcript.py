"""What the page keeps of an answer or a summary: its text, its sources, what it took.

Plain values, which stay good when a document is removed. How they look is shown.py's business, and
export.py's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from engine.rag.citations import Citation
    from engine.records import Piece
    from ui.web.streaming import Live

AROUND = 600  # characters of a document that are kept on each side of a passage


class Quoted(NamedTuple):
    """The words of a document that a citation names, and the text around them."""

    before: str
    quote: str
    after: str


@dataclass(frozen=True, slots=True)
class Entry:
    """An answer to a question, or a summary."""

    asked: str  # the question, or what was summarised
    text: str
    citations: tuple[Citation, ...] = ()
    passages: tuple[Quoted, ...] = ()  # one for each citation
    covered: float = 0.0  # share of the words that are cited
    pieces: tuple[Piece, ...] = ()  # the text, by where it was drafted from
    found: bool = True  # False: the documents say nothing about it; `text` tells so
    stopped: bool = False  # by the user, before its end
    notes: tuple[str, ...] = ()  # for a person: what was not done as asked
    model: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    passes: tuple[int, ...] = ()  # tokens that each pass gave


def passage(citation: Citation, text: str) -> Quoted:
    """What a citation names in its document's text."""
    start, stop = citation.source_start, citation.source_stop
    first, last = max(0, start - AROUND), min(len(text), stop + AROUND)
    before = ("\u2026" if first else "") + text[first:start]
    after = text[stop:last] + ("\u2026" if last < len(text) else "")
    return Quoted(before, text[start:stop], after)


def passages(citations: Sequence[Citation], text_of: Callable[[str], str]) -> tuple[Quoted, ...]:
    """Of each citation. `text_of`: id -> the document's text, asked for once a document."""
    texts = {one: text_of(one) for one in dict.fromkeys(each.document for each in citations)}
    return tuple(passage(one, texts[one.document]) for one in citations)


def place(citation: Citation) -> str:
    """A document's name, and the page where it has pages."""
    name = " ".join(citation.name.split())
    return name if citation.page is None else f"{name}, page {citation.page}"


def figures_of(live: Live) -> dict[str, float]:
    """What an answer took. Tokens a second and the ratio are of the writing; the ratio is estimated
    from what passes cost on this machine."""
    found: dict[str, float] = {
        "seconds": round(live.elapsed, 3),
        "tokens": live.tokens,
        "passes": len(live.passes),
        "tokens_per_second": round(live.speed, 2),
        "ratio_to_plain": round(live.ratio, 3),
    }
    if live.done is not None:
        usage = live.done.usage
        found |= {
            "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": usage.cached_tokens,
            "drafted": usage.drafted,
            "accepted": usage.accepted,
        }
    return found
