"""A summary in progress, and the summaries of its parts, as HTML. All text is escaped here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

from engine.rag.summarize import CACHED_SOURCE, SummaryDelta, SummaryTask, TaskResult
from ui.eta import Eta
from ui.web import html
from ui.web.progress import AnswerProgress

if TYPE_CHECKING:
    from engine.records import Piece, Step

PREVIEW_CHARS = 200  # of a part's summary while it is collapsed


@dataclass
class SummaryProgress:
    """The state of one summary."""

    name: str  # of the document
    answer: AnswerProgress = field(default_factory=AnswerProgress)  # `pieces`: the current task's
    eta: Eta = field(default_factory=Eta)
    pieces: list[Piece] = field(default_factory=list)  # the summary so far
    parts: list[tuple[str, str]] = field(default_factory=list)  # title and summary, in order

    @property
    def part_count(self) -> int:
        """Parts of the document, as far as is known."""
        return self.eta.task.sections if self.eta.task else 0

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    def add(self, event: SummaryTask | Step | TaskResult | SummaryDelta) -> None:
        """Record an event that precedes the Summary."""
        if isinstance(event, SummaryTask):
            self.eta.begin(event)
            self.answer.pieces = []
        elif isinstance(event, TaskResult):
            self.eta.end()
            self.answer.pieces = []
            if not event.task.prompt.merges:
                self.parts.append((event.task.title, " ".join(event.texts)))
        elif isinstance(event, SummaryDelta):
            self.pieces += event.pieces
        else:
            self.eta.step(event)
            self.answer.add(event)


def streaming_summary(progress: SummaryProgress) -> str:
    """The summary so far, a progress bar, and the text of the current task."""
    answer, eta = progress.answer, progress.eta
    value = f' value="{eta.fraction:.3f}"' if eta.task is not None else ""
    bar = f'<progress max="1"{value} aria-label="progress"></progress>'
    status = f'<div class="sum-pace"><span>{escape(str(eta))}</span>{bar}</div>'
    appends = eta.task is not None and eta.task.prompt.final  # to the summary
    pieces = [
        piece._replace(source="model") if piece.source == CACHED_SOURCE else piece
        for piece in progress.pieces
    ]
    if appends:
        pieces += [*_separator(progress.text, answer.pieces), *answer.pieces]
    body = html.written(pieces) if pieces else ""
    if answer.pieces and not appends:
        body += f'<div class="sum-now">{html.written(answer.pieces)}</div>'
    return (
        f'<article class="turn" aria-busy="true"><h2 class="asked">{escape(progress.name)}</h2>'
        f'<div class="said">{status}{body}</div></article>'
    )


def parts(found: Sequence[tuple[str, str]], part_count: int = 0) -> str:
    """The summary of each part, collapsed at first. `part_count`: the document's parts."""
    if not found or (len(found) == 1 and part_count <= 1):
        return ""
    done = len(found)
    count = f"{done} of {part_count} parts" if part_count > done else f"{done} parts"
    rows = "".join(
        f'<details class="source sum-part" id="sum-part-{number}"><summary><b>{number}</b> '
        f'<span class="where">{escape(title or "continued")}</span> '
        f'<span class="quote">{escape(" ".join(text.split())[:PREVIEW_CHARS])}</span></summary>'
        f'<div class="passage" dir="auto" tabindex="0">{escape(text)}</div></details>'
        for number, (title, text) in enumerate(found, 1)
    )
    heading = f'<h3 class="sum-parts">{count}, summarized separately</h3>'
    return f'{heading}<div class="sources">{rows}</div>'


def _separator(before: str, pieces: Sequence[Piece]) -> list[Piece]:
    """A space between the summary so far and the pieces, if one is needed."""
    if not pieces or not before or before[-1].isspace():
        return []
    return [pieces[0]._replace(text=" ", span=None)]
