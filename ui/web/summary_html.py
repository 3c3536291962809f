"""A summary in progress as HTML. All text is escaped here."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

from engine.rag.summarize import SummaryBody
from engine.records import Step
from ui.web import html
from ui.web.progress import AnswerProgress


@dataclass
class SummaryProgress:
    """The state of one summary."""

    name: str  # the document's name
    answer: AnswerProgress = field(default_factory=AnswerProgress)  # the overall statement
    body: str = ""  # the rest of the summary

    def add(self, event: SummaryBody | Step) -> None:
        """Record an event that precedes the Summary."""
        if isinstance(event, SummaryBody):
            self.body = event.text
        else:
            self.answer.add(event)


def streaming_summary(progress: SummaryProgress) -> str:
    """Show what the model writes, and the rest of the summary."""
    answer = progress.answer
    statement = html.written(answer.pieces) if answer.pieces else ""
    body = f'<div class="answer" dir="auto">{escape(progress.body)}</div>' if progress.body else ""
    return (
        f'<article class="turn" aria-busy="true"><h2 class="asked">{escape(progress.name)}</h2>'
        f'<div class="said">{html.status(answer)}{statement}{body}</div></article>'
    )
