"""A summary while it is made, and its parts, as HTML. Pure functions; all text is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

from engine.rag.summarize import CACHED_SOURCE, SummaryDelta, SummaryTask, TaskResult
from ui.eta import Pace
from ui.web import html
from ui.web.streaming import Live

if TYPE_CHECKING:
    from engine.records import Piece, Step

BEGINNING = 200  # characters of a part's summary that are seen while it is closed


@dataclass
class Telling:
    """One summary as it is now."""

    name: str  # of the document
    live: Live = field(default_factory=Live)  # `pieces`: what is written right now
    pace: Pace = field(default_factory=Pace)
    pieces: list[Piece] = field(default_factory=list)  # of the summary so far
    parts: list[tuple[str, str]] = field(default_factory=list)  # title and text, in order

    @property
    def of(self) -> int:
        """How many parts the document has, as far as is known."""
        return self.pace.task.sections if self.pace.task else 0

    @property
    def text(self) -> str:
        """The summary so far."""
        return "".join(piece.text for piece in self.pieces)

    def add(self, event: SummaryTask | Step | TaskResult | SummaryDelta) -> None:
        """Take in what comes before the end."""
        if isinstance(event, SummaryTask):
            self.pace.begin(event)
            self.live.pieces = []
        elif isinstance(event, TaskResult):
            self.pace.end()
            self.live.pieces = []
            if not event.task.prompt.merges:
                self.parts.append((event.task.title, " ".join(event.texts)))
        elif isinstance(event, SummaryDelta):
            self.pieces += event.pieces
        else:
            self.pace.step(event)
            self.live.add(event)


def running(told: Telling) -> str:
    """The summary so far, how far it is, and what is written right now."""
    live, pace = told.live, told.pace
    known = pace.task is not None
    value = f' value="{pace.share:.3f}"' if known else ""
    bar = f'<progress max="1"{value} aria-label="how much is done"></progress>'
    where = f'<div class="sum-pace"><span>{escape(str(pace))}</span>{bar}</div>'
    grows = pace.task is not None and pace.task.prompt.final
    gap = _gap(told.text, live.pieces)
    so_far = [one._replace(source="model") if one.source == CACHED_SOURCE else one for one in told.pieces]
    pieces = [*so_far, *gap, *live.pieces] if grows else so_far
    body = html.coloured(pieces, writing=grows) if pieces else ""
    if live.pieces and not grows:
        body += f'<div class="sum-now">{html.coloured(live.pieces, writing=True)}</div>'
    seen = {one.source for one in (*told.pieces, *live.pieces)} - {CACHED_SOURCE}
    legend = html.legend(seen) if seen else ""
    return (
        f'<article class="turn" aria-busy="true"><h3 class="asked">{escape(told.name)}</h3>'
        f"{where}{html.figures(live)}{body}{legend}</article>"
    )


def parts(found: Sequence[tuple[str, str]], of: int = 0) -> str:
    """The summaries of the parts, closed until they are asked for. `of`: how many there will be."""
    if not found or (len(found) == 1 and of <= 1):
        return ""
    count = f"{len(found)} of {of} parts" if of > len(found) else f"{len(found)} parts"
    rows = "".join(
        f'<details class="source sum-part" id="sum-part-{number}"><summary><b>{number}</b> '
        f'<span class="where">{escape(title or "from there on")}</span> '
        f'<span class="quote">{escape(" ".join(text.split())[:BEGINNING])}</span></summary>'
        f'<div class="passage" dir="auto" tabindex="0">{escape(text)}</div></details>'
        for number, (title, text) in enumerate(found, 1)
    )
    return f'<h3 class="sum-parts">{count}, each by itself</h3><div class="sources">{rows}</div>'


def _gap(before: str, now: Sequence[Piece]) -> list[Piece]:
    """What keeps the words that are written apart from those before them."""
    if not now or not before or before[-1].isspace():
        return []
    return [now[0]._replace(text=" ", span=None)]
