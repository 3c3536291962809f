"""The tab *Ask*: questions about documents, answered in their words, with the places.

What is shown to the model and what is cited is decided in engine.rag.answer; how an answer looks, in
shown.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import gradio as gr
from gradio.utils import get_upload_folder

from engine.rag.answer import PreparedQuestion, Turn, cite_answer, prepare
from engine.records import Request, RequestError
from index.documents.documents import DocumentError
from ui.api.jobs import Full
from ui.web import export, html, sampling_options
from ui.web.documents import QUIET, Parts, panel, reloads
from ui.web.history import BROWSER, WITH_BROWSER, History, Numbered
from ui.web.streaming import SEARCHING, WAITING, Live, Waiting, follow
from ui.web.transcript import Entry, figures_of, passages

if TYPE_CHECKING:
    from ui.web.state import Page

LONGEST = 4000  # characters of a question
FIRST = "Drop a few documents, then ask: the answer comes from their text, with the places."
NEXT = "Ask about your documents: the answer comes from their text, with the places."
NONE = "No document is ticked: tick those that are asked."
SAME = "The same text again: at temperature 0 it always is. Set one in More for another."
CUT = "Cut off at {} tokens: allow more of them in More."
FULL = "Too many questions wait already: ask again in a moment."


class Found(NamedTuple):
    """What is asked, with the texts of the documents that are shown to the model."""

    prepared: PreparedQuestion
    texts: dict[str, str]


class Wanted(NamedTuple):
    """A question, and what is chosen for it."""

    asked: str
    chosen: list[str]  # ids of documents
    choice: sampling_options.Settings
    history: History
    last: Numbered | None = None  # the entry that is written anew

    @property
    def before(self) -> list[Numbered]:
        """What was asked before."""
        return [one for one in self.history.list() if one != self.last]

    def turns(self) -> list[Turn]:
        """Of it, what the model is told."""
        found = [one.entry for one in self.before if one.entry.found]
        return [Turn(one.asked, one.text) for one in found] if self.choice.remember else []

    def same(self, entry: Entry) -> bool:
        """Whether the new answer is the old one, as it must be without chance."""
        text = self.last.entry.text if self.last else None
        return entry.text == text and self.choice.temperature == 0


def add(page: Page) -> None:
    """Put the tab's parts where the caller is."""
    Ask(page)


class Ask:
    """The tab's parts and what they do."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.folder = Path(get_upload_folder())
        with gr.Row(elem_classes="sides"):
            with gr.Column(scale=2, min_width=280, elem_classes="side"):
                self.panel = panel(page, "ask")
            with gr.Column(scale=5, min_width=280):
                self._build()
        self._wire()

    def _build(self) -> None:
        self.question = gr.Textbox(
            label="Question",
            placeholder="What do the documents say about \u2026?",
            lines=1,
            max_lines=6,
            max_length=LONGEST,
            elem_id="ask-question",
        )
        with gr.Row(elem_classes="buttons"):
            self.ask = gr.Button("Ask", variant="primary", elem_id="ask-ask")
            self.stop = gr.Button("Stop", variant="stop", visible=False, elem_id="ask-stop")
            self.again = gr.Button("Regenerate", visible=False, elem_id="ask-again")
        with gr.Accordion("More", open=False, elem_id="ask-more"):
            self.settings = sampling_options.parts()
        self.note = gr.HTML(elem_id="ask-note")
        self.hint = gr.HTML(elem_id="ask-hint")  # style.css hides it beside an answer
        self.answer = gr.HTML(elem_id="ask-answer")
        with gr.Row(elem_classes="buttons"):
            self.files = [
                gr.DownloadButton(
                    f"Export as {name}", visible=False, size="sm", elem_id=f"ask-{name}"
                )
                for name in ("md", "json")
            ]
            self.clear = gr.Button("Clear history", visible=False, size="sm", elem_id="ask-clear")
        self.earlier = gr.HTML(elem_id="ask-earlier")
        self.browser = gr.Textbox(visible=False)

    def _wire(self) -> None:
        running = [self.note, self.answer, self.earlier, self.question, self.settings[2]]
        running += [self.ask, self.stop, self.again, self.clear, *self.files]
        given = [self.question, self.browser, self.panel.chosen, *self.settings]
        streaming: Any = QUIET | {"js": WITH_BROWSER}
        gr.on([self.ask.click, self.question.submit], self._ask, given, running, **streaming)
        self.again.click(self._again, given, running, **streaming)
        self.stop.click(self._stop, **QUIET)
        self.clear.click(self._clear, self.browser, running, js=BROWSER, **QUIET)
        opened = [self.browser, self.hint, *running]
        loaded, *_ = reloads()
        loaded(self._open, self.browser, opened, js=BROWSER, **QUIET)
        self.panel.chosen.change(self._hint, outputs=self.hint, **QUIET)

    # -- events ------------------------------------------------------------------------------------

    async def _ask(
        self,
        question: str,
        browser: str,
        chosen: list[str],
        request: gr.Request,
        *given: Any,
    ) -> AsyncIterator[Parts]:
        """A new question."""
        history = self._history(browser, request)
        wanted = Wanted(_clean(question), chosen, sampling_options.of(given), history)
        async with aclosing(self._run(wanted, request)) as steps:
            async for step in steps:
                yield step

    async def _again(
        self,
        question: str,
        browser: str,
        chosen: list[str],
        request: gr.Request,
        *given: Any,
    ) -> AsyncIterator[Parts]:
        """The last question once more, with another seed where that makes a difference."""
        history = self._history(browser, request)
        entries = history.list()
        if not entries:
            return
        choice = sampling_options.of(given)
        if choice.temperature > 0:
            choice = choice._replace(seed=choice.seed + 1)
            yield {self.settings[2]: choice.seed}
        last = entries[-1]
        wanted = Wanted(last.entry.asked, chosen, choice, history, last)
        async with aclosing(self._run(wanted, request)) as steps:
            async for step in steps:
                yield step

    def _stop(self, request: gr.Request) -> None:
        self.page.stop(_running(request))

    def _clear(self, browser: str, request: gr.Request) -> Parts:
        history = self._history(browser, request)
        history.clear()
        export.forget(self.folder, history.key)
        return self._shown(history) | {self.note: ""}

    def _open(self, browser: str, request: gr.Request) -> Parts:
        """What was asked before, after a reload; an answer under way shows it itself."""
        busy = _running(request) in self.page.running
        parts: Parts = {} if busy else self._shown(self._history(browser, request))
        return parts | {self.browser: browser, self.hint: self._hint(request)}

    def _hint(self, request: gr.Request) -> str:
        """What to do first."""
        try:
            some = bool(self.page.library(request.username).list())
        except DocumentError as error:
            return html.note(str(error), "error")
        return html.note(NEXT if some else FIRST, "hint")

    # -- one answer --------------------------------------------------------------------------------

    async def _run(self, wanted: Wanted, request: gr.Request) -> AsyncGenerator[Parts]:
        """Ask, show, keep."""
        running = _running(request)
        if running in self.page.running:
            return
        waiting = self.page.running[running] = Waiting()
        live = Live(phase=SEARCHING)
        found: Found | None = None
        entry: Entry | None = None
        said = ""
        try:
            yield self._begun(wanted, live)
            found = await asyncio.to_thread(self._find, wanted, request)
            if found.prepared.request is not None and not waiting.cancelled:
                async with aclosing(
                    self._follow(found.prepared.request, wanted, live, request)
                ) as it:
                    async for live in it:
                        yield self._busy() | {self.answer: html.writing(wanted.asked, live)}
            if not waiting.cancelled:
                entry = await asyncio.to_thread(self._entry, found, live)
                said = html.note(SAME) if wanted.same(entry) else ""
        except (RequestError, DocumentError, Full, RuntimeError) as error:
            said = html.note(FULL if isinstance(error, Full) else str(error), "error")
        finally:  # also where the tab was closed meanwhile
            if self.page.running.get(running) is waiting:
                del self.page.running[running]
            if entry is None and found is not None and live.text:
                entry = self._entry(found, live)
            if entry is not None:
                wanted.history.add(entry, wanted.last.number if wanted.last else None)
        back = {self.question: wanted.asked} if entry is None and not wanted.last else {}
        yield self._shown(wanted.history) | {self.note: said} | back

    def _follow(
        self, asked: Request, wanted: Wanted, live: Live, request: gr.Request
    ) -> AsyncGenerator[Live]:
        client = f"page {request.session_hash}"
        speculation = wanted.choice.speculation
        live.phase = WAITING
        return follow(self.page, lambda: asked, client, _running(request), speculation, live)

    def _find(self, wanted: Wanted, request: gr.Request) -> Found:
        """Look for what answers it. In a thread."""
        library, choice = self.page.library(request.username), wanted.choice
        here = {one.id: one for one in library.list()}
        ids = [one for one in here if one in wanted.chosen]
        if not ids:
            raise RequestError(NONE if here else FIRST)
        prepared = prepare(
            wanted.asked,
            library,
            ids,
            self.page.engine,
            self.page.engine.context,
            whole={one for one in ids if here[one].whole},
            earlier=wanted.turns(),
            max_tokens=choice.max_tokens,
            temperature=choice.temperature,
            top_p=choice.top_p,
            seed=choice.seed,
        )
        texts = {one.document: here[one.document].text for one in prepared.sources}
        return Found(prepared, texts)

    def _entry(self, found: Found, live: Live) -> Entry:
        """What is kept of it."""
        prepared = found.prepared
        if prepared.request is None:
            return Entry(prepared.question, prepared.not_found, found=False, notes=prepared.notes)
        answer = cite_answer(prepared, live.text)
        reason = live.done.reason if live.done else "cancelled"
        notes = list(prepared.notes)
        if reason == "length":
            notes.append(CUT.format(live.tokens))
        if reason == "cancelled":
            notes.append("Stopped: this is what was written until then.")
        return Entry(
            asked=prepared.question,
            text=answer.text,
            citations=answer.citations,
            passages=passages(answer.citations, found.texts.__getitem__),
            covered=answer.covered,
            pieces=tuple(live.pieces),
            stopped=reason == "cancelled",
            notes=tuple(notes),
            model=self.page.model,
            figures=figures_of(live),
            passes=tuple(live.passes[-html.BARS :]),
        )

    # -- what is shown -----------------------------------------------------------------------------

    def _begun(self, wanted: Wanted, live: Live) -> Parts:
        return {
            self.note: "",
            self.answer: html.writing(wanted.asked, live),
            self.earlier: html.earlier(reversed(wanted.before), "ask"),
            **self._busy(),
        } | ({} if wanted.last else {self.question: ""})

    def _busy(self) -> Parts:
        """Told with every step: another event may have come late."""
        return {
            self.ask: gr.update(interactive=False),
            self.stop: gr.update(visible=True),
            self.again: gr.update(visible=False),
            self.clear: gr.update(visible=False),
        }

    def _shown(self, history: History) -> Parts:
        """Everything as it is when nothing runs."""
        entries = history.list()
        some = bool(entries)
        parts: Parts = {
            self.answer: "",
            self.earlier: html.earlier(reversed(entries[:-1]), "ask"),
            self.ask: gr.update(interactive=True),
            self.stop: gr.update(visible=False),
            self.again: gr.update(visible=some),
            self.clear: gr.update(visible=some),
        }
        if entries:
            number, last = entries[-1]
            parts[self.answer] = html.written(last, f"ask-{number}")
        for button, name, make in zip(
            self.files, ("answers.md", "answers.json"), MAKERS, strict=True
        ):
            text = make([one.entry for one in entries])
            path = export.write(self.folder, name, text, history.key) if some else None
            parts[button] = gr.update(value=path, visible=some)
        return parts

    def _history(self, browser: str, request: gr.Request) -> History:
        return self.page.histories.of(request.username, browser, request.session_hash)


MAKERS: tuple[Callable[[list[Entry]], str], ...] = (export.as_markdown, export.as_json)


def _clean(text: str) -> str:
    """A question as text that can be written; a browser may send half of a character."""
    return (text or "")[:LONGEST].encode("utf-8", "replace").decode("utf-8").strip()


def _running(request: gr.Request) -> str:
    return f"{request.session_hash}-ask"
