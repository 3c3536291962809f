"""The tab *Summarize*: a whole document in a few sentences, part by part, with the places.

How a summary is made is decided in engine.rag.summarize; what was finished is kept there, so that one
that was stopped goes on. How it looks is in telling.py and shown.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import gradio as gr
from gradio.utils import get_upload_folder

from engine.rag.response_cache import response_cache
from engine.rag.summarize import CACHED_SOURCE, Summary, summarize
from engine.rag.summary_plan import (
    SENTENCES,
    SENTENCES_PER_SECTION,
    SummaryLength,
    SummaryOptions,
    SummaryStyle,
)
from engine.records import RequestError
from index.documents.documents import DocumentError
from ui.api.jobs import Full
from ui.web import export, html, summary_html
from ui.web.documents import QUIET, Parts, panel
from ui.web.streaming import EVERY, Waiting
from ui.web.summary_html import Telling
from ui.web.transcript import Entry, figures_of, passages

if TYPE_CHECKING:
    from index.documents.documents import Document
    from ui.api.batch_job import Walk
    from ui.web.state import Page

HERE = Path(__file__).parent
STYLES = {"prose": "text", "bullets": "list"}
FIRST = "Drop a document, then summarize it: all of it is read, part by part, whatever its length."
NEXT = "Summarize the chosen document: all of it is read, part by part, whatever its length."
NONE = "No document is chosen: drop one, or pick one of the list."
FULL = "Too many requests wait already: try again in a moment."
STOPPED = "Stopped after {} of {} parts. Summarize again to go on: what is finished is kept."
KNOWN = "All of it was finished before: nothing had to be read."
MOST = 20  # summaries of a session


class Made(NamedTuple):
    """A summary with those of the parts."""

    entry: Entry
    parts: tuple[tuple[str, str], ...]
    of: int


@dataclass
class Summaries:
    """The last one of each document, in a session."""

    made: dict[str, Made] = field(default_factory=dict)

    def put(self, id: str, made: Made) -> None:
        self.made.pop(id, None)
        self.made[id] = made
        while len(self.made) > MOST:
            del self.made[next(iter(self.made))]


def add(page: Page) -> None:
    """Put the tab's parts where the caller is."""
    Summarize(page)


class Summarize:
    """The tab's parts and what they do."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.folder = Path(get_upload_folder())
        with gr.Row(elem_classes="sides"):
            with gr.Column(scale=2, min_width=280, elem_classes="side"):
                self.panel = panel(page, "sum", one=True)
            with gr.Column(scale=5, min_width=280):
                self._build()
        self._wire()

    def _build(self) -> None:
        with gr.Row():
            self.length = gr.Radio(
                list(SENTENCES),
                value="medium",
                label="Length",
                info=f"{SENTENCES['short']} sentences, {SENTENCES['medium']}, or {SENTENCES_PER_SECTION} of every part",
                elem_id="sum-length",
            )
            self.style = gr.Radio(
                [(text, one) for one, text in STYLES.items()],
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
        script = (HERE / "summarize_parts.js").read_text("utf-8")
        self.parts = gr.HTML(elem_id="sum-parts", js_on_load=script)
        self.summaries = gr.State(Summaries())  # shared by the events of a session

    def _wire(self) -> None:
        given = [self.panel.chosen, self.length, self.style, self.summaries]
        out = [self.note, self.answer, self.parts, self.start, self.stop, *self.files]
        streaming: Any = {"api_visibility": "private", "show_progress": "hidden"}
        self.start.click(self._summarize, given, out, **streaming)
        self.stop.click(self._stop, **QUIET)
        chosen: Any = [self.panel.chosen, self.summaries]
        self.panel.chosen.change(self._chosen, chosen, out, **QUIET)

    # -- events ------------------------------------------------------------------------------------

    async def _summarize(
        self,
        chosen: list[str],
        length: SummaryLength,
        style: SummaryStyle,
        summaries: Summaries,
        request: gr.Request,
    ) -> AsyncIterator[Parts]:
        """Summarize the document that is chosen."""
        running = _running(request)
        if running in self.page.running:
            return
        waiting = self.page.running[running] = Waiting()  # before anything is waited for
        told: Telling | None = None
        document: Document | None = None
        try:
            document = await asyncio.to_thread(self._document, chosen, request)
            told = Telling(document.name)
            yield self._begun(told)
            choices = SummaryOptions(length, style)
            summary: Summary | None = None
            async with aclosing(self._follow(document, choices, told, waiting, request)) as steps:
                async for step in steps:
                    summary = step
                    now = {self.answer: summary_html.running(told)} | self._busy()
                    yield now | {self.parts: summary_html.parts(told.parts, told.of)}
            if summary is not None:
                made = await asyncio.to_thread(self._made, document, told, summary)
                summaries.put(document.id, made)
            yield self._shown(document.id, summaries, request) | {self.note: ""}
        except (RequestError, DocumentError, Full, RuntimeError) as error:
            said = html.note(FULL if isinstance(error, Full) else str(error), "error")
            id = document.id if document else ""
            yield self._shown(id, summaries, request) | {self.note: said}
        finally:
            if self.page.running.get(running) is waiting:
                del self.page.running[running]

    def _stop(self, request: gr.Request) -> None:
        self.page.stop(_running(request))

    def _chosen(self, chosen: list[str], summaries: Summaries, request: gr.Request) -> Any:
        """Another document: its last summary, if there is one."""
        if _running(request) in self.page.running:
            return gr.skip()
        return self._shown(chosen[0] if chosen else "", summaries, request) | {self.note: ""}

    # -- one summary -------------------------------------------------------------------------------

    async def _follow(
        self,
        document: Document,
        choices: SummaryOptions,
        told: Telling,
        waiting: Waiting,
        request: gr.Request,
    ) -> AsyncGenerator[Summary | None]:
        """Take the events in; None where there is something new to see, at the end the Summary."""
        engine, running = self.page.engine, _running(request)

        def work(walk: Walk) -> Iterator[Any]:
            known = response_cache(engine)
            return summarize(
                engine,
                document,
                choices,
                known,
                walk.stopped,
                client=walk.client,
                attach=walk.attach,
            )

        told.live.costs = self.page.costs()
        walk = self.page.jobs.walk(work, f"page {request.session_hash}")
        self.page.running[running] = walk
        if waiting.cancelled:
            walk.cancel()
        last = perf_counter()
        try:
            async for event in walk:
                if isinstance(event, Summary):
                    yield event
                    return
                told.add(event)
                if perf_counter() - last >= EVERY:
                    yield None
                    last = perf_counter()
                    await asyncio.sleep(0)
        finally:
            walk.cancel()
            if self.page.running.get(running) is walk:
                del self.page.running[running]

    def _document(self, chosen: list[str], request: gr.Request) -> Document:
        """The one that is chosen. In a thread."""
        for one in self.page.library(request.username).list():
            if chosen and one.id == chosen[0]:
                return one
        raise RequestError(NONE)

    def _made(self, document: Document, told: Telling, summary: Summary) -> Made:
        """What is kept of it. In a thread."""
        told.live.ended = perf_counter()
        # What was kept from an earlier run has no colours: then none are shown.
        drafted = told.text == summary.text and not any(one.source == CACHED_SOURCE for one in told.pieces)
        notes = []
        if not told.live.passes and summary.whole:
            notes.append(KNOWN)
        if not summary.whole:
            notes.append(STOPPED.format(summary.done, summary.total))
        entry = Entry(
            asked=document.name,
            text=summary.text,
            citations=summary.citations,
            passages=passages(summary.citations, lambda id: document.text),
            covered=summary.covered,
            pieces=tuple(told.pieces) if drafted else (),
            stopped=not summary.whole,
            notes=tuple(notes),
            model=self.page.model,
            figures=figures_of(told.live) if told.live.passes else {},
            passes=tuple(told.live.passes[-html.BARS :]),
        )
        found = tuple((one.title, one.text) for one in summary.sections)
        return Made(entry, found, told.of)

    # -- what is shown -----------------------------------------------------------------------------

    def _begun(self, told: Telling) -> Parts:
        return {
            self.note: "",
            self.answer: summary_html.running(told),
            self.parts: "",
            **self._busy(),
        } | {one: gr.update(visible=False) for one in self.files}

    def _busy(self) -> Parts:
        """Told with every step: another event may have come late."""
        return {self.start: gr.update(interactive=False), self.stop: gr.update(visible=True)}

    def _shown(self, id: str, summaries: Summaries, request: gr.Request) -> Parts:
        """Everything as it is when nothing runs."""
        made = summaries.made.get(id)
        out: Parts = {
            self.answer: self._first(request),
            self.parts: "",
            self.start: gr.update(interactive=True),
            self.stop: gr.update(visible=False),
        } | {one: gr.update(visible=False) for one in self.files}
        if made is None:
            return out
        entry = made.entry
        out[self.answer] = html.written(entry, f"sum-{id[:12]}")
        out[self.parts] = summary_html.parts(made.parts, made.of)
        for button, name, make in zip(
            self.files,
            ("summary.md", "summary.json"),
            (export.as_markdown, export.as_json),
            strict=True,
        ):
            path = export.write(self.folder, name, make([entry], "Summary"))
            out[button] = gr.update(value=path, visible=True)
        return out

    def _first(self, request: gr.Request) -> str:
        try:
            some = bool(self.page.library(request.username).list())
        except DocumentError as error:
            return html.note(str(error), "error")
        return html.note(NEXT if some else FIRST, "hint")


def _running(request: gr.Request) -> str:
    return f"{request.session_hash}-sum"
