"""The tab *Summarize*: an overall statement, and every chapter in a few sentences, with citations.

engine.rag.summarize makes the summary. html.py renders it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import gradio as gr
from gradio.utils import get_upload_folder

from engine.rag.doubts import UNSUPPORTED
from engine.rag.response_cache import response_cache
from engine.rag.summarize import Summary, SummaryBody, summarize
from engine.rag.summary_plan import LENGTHS, SummaryLength, SummaryOptions, SummaryStyle
from engine.records import RequestError, Step
from index.documents.documents import DocumentError
from ui.api.jobs import QueueFull
from ui.web import export, html
from ui.web.documents import QUIET, DocumentPanel, Updates
from ui.web.history import WITH_BROWSER_ID, History
from ui.web.progress import AnswerProgress
from ui.web.streaming import MIN_REFRESH_S
from ui.web.transcript import Entry, figures_of, find_passages

if TYPE_CHECKING:
    from engine.aio import Cancellation, Stream
    from index.documents.documents import Document
    from ui.web.state import PageState

STYLES = {"prose": "text", "bullets": "list"}
NO_DOCUMENTS = "Drop a document, then summarize it: every chapter is in the summary."
HAS_DOCUMENTS = "Summarize the selected document: every chapter is in the summary."
NONE_SELECTED = "No document is selected: drop one, or pick one from the list."
QUEUE_FULL = "Too many requests are waiting: try again in a moment."
STOPPED = "Stopped before the overall statement: Continue goes on from there."


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


class SummarizeTab:
    """The tab's components and event handlers, created in the current block."""

    def __init__(self, page: PageState) -> None:
        self.page = page
        self.folder = Path(get_upload_folder())
        with gr.Row(elem_classes="sides"):
            with gr.Column(scale=2, min_width=280, elem_classes="side"):
                self.panel = DocumentPanel(page, "sum", single=True)
            with gr.Column(scale=5, min_width=280, elem_classes="talk"):
                self._build()
        self._wire()

    def _build(self) -> None:
        with gr.Row():
            self.length = gr.Radio(
                list(LENGTHS),
                value="medium",
                label="Length",
                info="of what is said about each chapter",
                elem_id="sum-length",
            )
            self.style = gr.Radio(
                [(label, style) for style, label in STYLES.items()],
                value="prose",
                label="Form",
                info="of the summary",
                elem_id="sum-style",
            )
        with gr.Row(elem_classes="buttons"):
            self.start = gr.Button("Summarize", variant="primary", elem_id="sum-start")
            self.stop = gr.Button("Stop", variant="stop", visible=False, elem_id="sum-stop")
        self.note = gr.HTML(elem_id="sum-note")
        self.answer = gr.HTML(elem_id="sum-answer")
        with gr.Row(elem_classes="buttons"):
            self.files = [
                gr.DownloadButton(
                    f"Export as {name}", visible=False, size="sm", elem_id=f"sum-{name}"
                )
                for name in ("md", "json")
            ]
        self.browser = gr.Textbox(visible=False)  # the browser's id

    def _wire(self) -> None:
        inputs = [self.panel.selected, self.browser, self.length, self.style]
        browser: Any = QUIET | {"js": WITH_BROWSER_ID}
        outputs = [self.note, self.answer, self.start, self.stop, *self.files]
        self.start.click(self._summarize, inputs, outputs, **browser)
        self.stop.click(self._stop, **QUIET)
        self.panel.selected.change(self._on_select, inputs[:2], outputs, **browser)

    # -- event handlers ----------------------------------------------------------------------------

    async def _summarize(
        self,
        selected: list[str],
        browser_id: str,
        length: SummaryLength,
        style: SummaryStyle,
        request: gr.Request,
    ) -> AsyncIterator[Updates]:
        name = _run_name(request)
        if name in self.page.running:
            return
        history = self.page.histories.of(request.username, browser_id, request.session_hash)
        document: Document | None = None
        try:
            with self.page.stoppable(name) as cancellation:
                document = await asyncio.to_thread(self._document, selected, request)
                progress = SummaryProgress(document.name)
                yield self._starting(progress)
                choices = SummaryOptions(length, style)
                summary: Summary | None = None
                stored = False
                steps = self._stream(document, choices, progress, cancellation, request)
                async with aclosing(steps):
                    async for summary in steps:  # noqa: B007
                        if progress.body and not stored:  # a reload of the page finds it
                            stored = True
                            history.put_summary(document.id, self._so_far(progress))
                        yield {
                            self.answer: streaming_summary(progress),
                            **self._busy(),
                        }
                if summary is not None:
                    finished = await asyncio.to_thread(self._finished, document, progress, summary)
                    history.put_summary(document.id, finished)
            yield self._idle(document.id, history, request) | {self.note: ""}
        except (RequestError, DocumentError, QueueFull, RuntimeError) as error:
            message = QUEUE_FULL if isinstance(error, QueueFull) else str(error)
            id = document.id if document else ""
            yield self._idle(id, history, request) | {self.note: html.note(message, "error")}

    def _stop(self, request: gr.Request) -> None:
        self.page.stop(_run_name(request))

    def _on_select(self, selected: list[str], browser_id: str, request: gr.Request) -> Any:
        """Show the last summary of the selected document."""
        if _run_name(request) in self.page.running:
            return gr.skip()
        history = self.page.histories.of(request.username, browser_id, request.session_hash)
        return self._idle(selected[0] if selected else "", history, request) | {self.note: ""}

    # -- one summary -------------------------------------------------------------------------------

    async def _stream(
        self,
        document: Document,
        choices: SummaryOptions,
        progress: SummaryProgress,
        cancellation: Cancellation,
        request: gr.Request,
    ) -> AsyncGenerator[Summary | None]:
        """Update `progress`; yields None when it is time to refresh the page, and the summary."""
        engine = self.page.engine

        def work(stream: Stream[Any], client: str) -> Iterator[Any]:
            return summarize(
                engine,
                document,
                choices,
                response_cache(engine),
                lambda: stream.cancelled,
                client=client,
                attach=stream.attach,
            )

        progress.answer.pass_seconds = self.page.pass_seconds()
        client = f"page {request.session_hash}"
        async with aclosing(self.page.jobs.submit_batch(work, client)) as events:
            cancellation.attach(events)
            refreshed = perf_counter()
            async for event in events:
                if isinstance(event, Summary):
                    yield event
                    return
                progress.add(event)
                if perf_counter() - refreshed >= MIN_REFRESH_S:
                    yield None
                    refreshed = perf_counter()
                    await asyncio.sleep(0)

    def _document(self, selected: list[str], request: gr.Request) -> Document:
        """Return the selected document. Blocking."""
        for document in self.page.library(request.username).list():
            if selected and document.id == selected[0]:
                return document
        raise RequestError(NONE_SELECTED)

    def _finished(self, document: Document, progress: SummaryProgress, summary: Summary) -> Entry:
        """Return the summary with its citations. Blocking."""
        answer = progress.answer
        answer.ended = perf_counter()
        passages, cited = find_passages((), summary.citations, {document.id: document})
        return Entry(
            title=document.name,
            text=summary.text,
            citations=summary.citations,
            passages=passages,
            cited_passages=cited,
            covered=summary.covered,
            doubts=() if summary.citations else (UNSUPPORTED,),
            stopped=not summary.whole,
            notes=() if summary.whole else (STOPPED,),
            model=self.page.model_name,
            figures=figures_of(answer) if answer.tokens_per_pass else {},
            tokens_per_pass=tuple(answer.tokens_per_pass[-html.MAX_BARS :]),
        )

    def _so_far(self, progress: SummaryProgress) -> Entry:
        """Return all but the overall statement."""
        model = self.page.model_name
        return Entry(progress.name, progress.body, stopped=True, notes=(STOPPED,), model=model)

    # -- updates of the components -----------------------------------------------------------------

    def _starting(self, progress: SummaryProgress) -> Updates:
        return {
            self.note: "",
            self.answer: streaming_summary(progress),
            **self._busy(),
        } | {button: gr.update(visible=False) for button in self.files}

    def _busy(self) -> Updates:
        """Part of every update: that of an earlier event may arrive late."""
        return {self.start: gr.update(interactive=False), self.stop: gr.update(visible=True)}

    def _idle(self, id: str, history: History, request: gr.Request) -> Updates:
        """Return the tab while nothing is running, with the last summary of a document."""
        summary = history.summary(id)
        label = "Continue" if summary and summary.stopped else "Summarize"
        updates: Updates = {
            self.start: gr.update(interactive=True, value=label),
            self.stop: gr.update(visible=False),
        }
        if summary is None:
            hidden = {button: gr.update(visible=False) for button in self.files}
            return updates | hidden | {self.answer: self._hint(request)}
        updates[self.answer] = html.finished_answer(summary, f"sum-{id[:12]}")
        for button, name, render in zip(
            self.files,
            ("summary.md", "summary.json"),
            (export.as_markdown, export.as_json),
            strict=True,
        ):
            path = export.write(self.folder, name, render([summary], "Summary"))
            updates[button] = gr.update(value=path, visible=True)
        return updates

    def _hint(self, request: gr.Request) -> str:
        try:
            documents = self.page.library(request.username).list()
        except DocumentError as error:
            return html.note(str(error), "error")
        return html.note(HAS_DOCUMENTS if documents else NO_DOCUMENTS, "hint")


def _run_name(request: gr.Request) -> str:
    return f"{request.session_hash}-sum"


def streaming_summary(progress: SummaryProgress) -> str:
    """Render what the model writes, and the rest of the summary, as HTML."""
    answer = progress.answer
    statement = html.written(answer.pieces) if answer.pieces else ""
    body = f'<div class="answer" dir="auto">{escape(progress.body)}</div>' if progress.body else ""
    return (
        f'<article class="turn" aria-busy="true"><h2 class="asked">{escape(progress.name)}</h2>'
        f'<div class="said">{html.status(answer)}{statement}{body}</div></article>'
    )
