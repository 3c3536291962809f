"""The tab *Ask*: questions about documents, answered in the documents' words, with citations.

engine.rag.answer selects the text for the prompt and finds the citations; html.py renders answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import gradio as gr
from gradio.utils import get_upload_folder

from engine.memory import give_back_memory
from engine.rag.answer import (
    CitedAnswer,
    PreparedQuestion,
    Turn,
    cite_answer,
    prepare,
    second_question,
    with_verdict,
)
from engine.records import Request, RequestError
from index.documents.documents import DocumentError
from ui.api.jobs import QueueFull
from ui.web import export, html, sampling_options
from ui.web.documents import QUIET, DocumentPanel, Updates, reload_events
from ui.web.empty import BEFORE_LOAD, SAMPLES_SCRIPT, empty_conversation
from ui.web.history import BROWSER_ID, WITH_BROWSER_ID, History, HistoryEntry
from ui.web.progress import SEARCHING, WAITING, AnswerProgress, cut
from ui.web.streaming import stream_answer
from ui.web.transcript import Entry, figures_of, find_passages

if TYPE_CHECKING:
    from engine.aio import Cancellation
    from index.documents.documents import Document
    from ui.web.state import PageState

MAX_QUESTION_CHARS = 4000
MIN_TYPED_CHARS, PAUSE_S = 12, 0.5  # characters of a question, seconds between reading ahead
NO_DOCUMENTS = "There are no documents yet: add some, then ask."
NONE_SELECTED = "No document is selected: tick the documents to ask."
UNCHANGED = "The same text again, as always at temperature 0: raise it in Answer settings."
TRUNCATED = "Cut off at {} tokens: raise the limit in Answer settings."
STOPPED = "Stopped: the answer is incomplete."
INTERRUPTED = "Interrupted: ask again."
ENDED = "The model ended here: the answer is incomplete. Answer again asks for all of it."
QUEUE_FULL = "Too many questions are waiting: ask again in a moment."
EXPORTS: tuple[tuple[str, Callable[[list[Entry]], str]], ...] = (
    ("answers.md", export.as_markdown),
    ("answers.json", export.as_json),
)


class Question(NamedTuple):
    """A question and its options."""

    text: str
    selected: list[str]  # ids of documents
    options: sampling_options.SamplingOptions
    history: History
    replaces: HistoryEntry | None = None  # the entry that is regenerated
    number: int = 0  # that of its own entry

    @property
    def earlier(self) -> list[HistoryEntry]:
        return [entry for entry in self.history.list() if entry.number != self.number]

    @property
    def topic(self) -> int:
        return self.replaces.topic if self.replaces else self.history.topic

    def turns(self) -> list[Turn]:
        """Return the earlier questions and answers that this one may refer to."""
        before = [it.entry for it in self.earlier if it.topic == self.topic and it.entry.found]
        return [Turn(entry.title, entry.text) for entry in before if entry.text]

    def unchanged(self, entry: Entry) -> bool:
        """Return whether regenerating gave the same answer, as greedy decoding always does."""
        text = self.replaces.entry.text if self.replaces else None
        return entry.text == text and self.options.temperature == 0


class Retrieved(NamedTuple):
    """A prepared question, and the documents in its prompt by id."""

    prepared: PreparedQuestion
    documents: dict[str, Document]


class AskTab:
    """The tab's components and event handlers, created in the current block."""

    def __init__(self, page: PageState) -> None:
        self.page = page
        self.folder = Path(get_upload_folder())
        with gr.Row(elem_classes="sides"):
            with gr.Column(scale=2, min_width=280, elem_classes="side"):
                self.panel = DocumentPanel(page, "ask")
            with gr.Column(scale=5, min_width=280, elem_classes="talk"):
                self._build()
        self._wire()

    def _build(self) -> None:
        self.hint = gr.HTML(  # style.css hides it next to an answer
            BEFORE_LOAD, elem_id="ask-hint", js_on_load=SAMPLES_SCRIPT
        )
        self.earlier = gr.HTML(elem_id="ask-earlier")
        with gr.Column(elem_classes="latest"):
            self.answer = gr.HTML(elem_id="ask-answer")
            self._build_buttons()
            self.sources = gr.HTML(elem_id="ask-sources")
        with gr.Column(elem_classes="composer"):
            self.note = gr.HTML(elem_id="ask-note")
            with gr.Row(elem_classes="box"):
                self.question = gr.Textbox(
                    label="Question",
                    show_label=False,
                    container=False,
                    placeholder="Ask about your documents",
                    lines=1,
                    max_lines=6,
                    max_length=MAX_QUESTION_CHARS,
                    autofocus=True,
                    elem_id="ask-question",
                    min_width=120,
                )
                self.ask = gr.Button("Ask", variant="primary", scale=0, elem_id="ask-ask")
                self.stop = gr.Button(
                    "Stop", variant="stop", scale=0, visible=False, elem_id="ask-stop"
                )
            with gr.Accordion("Answer settings", open=False, elem_id="ask-more"):
                self.settings = sampling_options.components()
        self.browser = gr.Textbox(visible=False)  # the browser's id

    def _build_buttons(self) -> None:
        """Create what can be done with an answer, between it and its sources."""
        with gr.Row(elem_classes="buttons quiet"):
            self.again = gr.Button("Answer again", visible=False, size="sm", elem_id="ask-again")
            self.new = gr.Button("New question", visible=False, size="sm", elem_id="ask-new")
            self.files = [
                gr.DownloadButton(
                    f"Save as {format}", visible=False, size="sm", elem_id=f"ask-{name}"
                )
                for name, format in (("md", "Markdown"), ("json", "JSON"))
            ]
            self.clear = gr.Button("Delete answers", visible=False, size="sm", elem_id="ask-clear")

    def _wire(self) -> None:
        shown = [self.note, self.answer, self.sources, self.earlier, self.question]
        buttons = [self.ask, self.stop, self.again, self.new, self.clear, *self.files]
        outputs = [*shown, self.settings[2], *buttons]
        inputs = [self.question, self.browser, self.panel.selected, *self.settings]
        streaming: Any = QUIET | {"js": WITH_BROWSER_ID}
        gr.on([self.ask.click, self.question.submit], self._ask, inputs, outputs, **streaming)
        self.again.click(self._regenerate, inputs, outputs, **streaming)
        typed: Any = streaming | {"trigger_mode": "always_last"}
        self.question.input(self._read_ahead, inputs, **typed)
        self.stop.click(self._stop, **QUIET)
        for event, handler in (
            (self.new.click, self._begin_topic),
            (self.clear.click, self._clear),
        ):
            event(handler, self.browser, outputs, js=BROWSER_ID, **QUIET)
        load, *_ = reload_events()
        loaded = [self.browser, self.hint, *outputs]
        load(self._load, self.browser, loaded, js=BROWSER_ID, **QUIET)
        self.panel.selected.change(self._hint, outputs=self.hint, **QUIET)
        self.hint.sample(self.panel.add_sample, *self.panel.refreshed, **QUIET)

    # -- event handlers ----------------------------------------------------------------------------

    async def _ask(
        self,
        text: str,
        browser_id: str,
        selected: list[str],
        request: gr.Request,
        *settings: Any,
    ) -> AsyncIterator[Updates]:
        history = self._history(browser_id, request)
        options = sampling_options.options_of(settings)
        question = Question(_sanitized(text), selected, options, history)
        async with aclosing(self._run(question, request)) as updates:
            async for update in updates:
                yield update

    async def _regenerate(
        self,
        text: str,
        browser_id: str,
        selected: list[str],
        request: gr.Request,
        *settings: Any,
    ) -> AsyncIterator[Updates]:
        """Ask the last question again, with the next seed if the answer is sampled."""
        history = self._history(browser_id, request)
        entries = history.list()
        if not entries:
            return
        options = sampling_options.options_of(settings)
        if options.temperature > 0:
            options = options._replace(seed=options.seed + 1)
            yield {self.settings[2]: options.seed}
        last = entries[-1]
        question = Question(last.entry.title, selected, options, history, last)
        async with aclosing(self._run(question, request)) as updates:
            async for update in updates:
                yield update

    async def _read_ahead(
        self,
        text: str,
        browser_id: str,
        selected: list[str],
        request: gr.Request,
        *settings: Any,
    ) -> None:
        """Let the model read, while a question is typed, the passages that it seems to need.

        The prompt of the whole question begins alike. The engine does it while it is idle.
        """
        read = getattr(self.page.engine, "read_ahead", None)  # that of another machine has none
        if read is None or self.page.running or len(text) < MIN_TYPED_CHARS:
            return
        history = self._history(browser_id, request)
        options = sampling_options.options_of(settings)
        question = Question(_sanitized(text), selected, options, history)
        with suppress(RequestError, DocumentError, RuntimeError):  # said when the question is sent
            retrieved = await asyncio.to_thread(self._retrieve, question, request)
            if retrieved.prepared.request:
                await asyncio.to_thread(read, retrieved.prepared.request)
        await asyncio.sleep(PAUSE_S)  # until then what else is typed waits

    def _stop(self, request: gr.Request) -> None:
        self.page.stop(_run_name(request))

    def _begin_topic(self, browser_id: str, request: gr.Request) -> Updates:
        history = self._history(browser_id, request)
        history.begin_topic()
        return self._idle(history) | {self.note: ""}

    def _clear(self, browser_id: str, request: gr.Request) -> Updates:
        history = self._history(browser_id, request)
        history.clear()
        export.remove(self.folder, history.key)
        return self._idle(history) | {self.note: ""}

    def _load(self, browser_id: str, request: gr.Request) -> Updates:
        """Show the history after a reload, unless a running answer updates the page anyway."""
        busy = _run_name(request) in self.page.running
        updates: Updates = {} if busy else self._idle(self._history(browser_id, request))
        return updates | {self.browser: browser_id, self.hint: self._hint(request)}

    def _hint(self, request: gr.Request) -> str:
        try:
            documents = self.page.library(request.username).list()
        except DocumentError as error:
            return html.note(str(error), "error")
        return empty_conversation(documents)

    # -- one answer --------------------------------------------------------------------------------

    async def _run(self, question: Question, request: gr.Request) -> AsyncGenerator[Updates]:
        """Answer a question, and add it to the history even if the tab is closed midway."""
        name = _run_name(request)
        if name in self.page.running:
            return
        progress = AnswerProgress(phase=SEARCHING)
        retrieved: Retrieved | None = None
        entry: Entry | None = None
        note = ""
        begun = Entry(question.text, "", notes=(INTERRUPTED,))  # is left if the server ends
        own = question.replaces or question.history.add(begun)
        question = question._replace(number=own.number)
        try:
            with self.page.stoppable(name) as cancellation:
                yield self._starting(question, progress)
                retrieved = await asyncio.to_thread(self._retrieve, question, request)
                await asyncio.to_thread(give_back_memory)  # the texts of all documents took it
                if not cancellation.cancelled:
                    if prompt := retrieved.prepared.request:
                        steps = self._stream(prompt, question, progress, cancellation, request)
                        async with aclosing(steps):
                            async for progress in steps:
                                extract = retrieved.prepared.extract
                                answer = html.streaming_answer(question.text, progress, extract)
                                yield self._busy() | {self.answer: answer}
                    cited = await asyncio.to_thread(cite_answer, retrieved.prepared, progress.text)
                    second = second_question(retrieved.prepared, cited, self.page.engine.folder)
                    if second and progress.done and progress.done.reason == "stop":
                        verdict = AnswerProgress()
                        steps = self._stream(second, question, verdict, cancellation, request)
                        async with aclosing(steps):
                            async for _ in steps:
                                pass
                        cited = with_verdict(cited, verdict.text)
                    entry = await asyncio.to_thread(self._entry, retrieved, progress, cited)
                    note = html.note(UNCHANGED) if question.unchanged(entry) else ""
        except (RequestError, DocumentError, QueueFull, RuntimeError) as error:
            note = html.note(QUEUE_FULL if isinstance(error, QueueFull) else str(error), "error")
        finally:
            if entry is None and retrieved is not None and progress.text:
                cited = cite_answer(retrieved.prepared, progress.text)
                entry = self._entry(retrieved, progress, cited)
            if entry is not None:
                question.history.add(entry, question.number)
            elif not question.replaces:
                question.history.remove(question.number)
        unanswered = entry is None and not question.replaces
        restored = {self.question: question.text} if unanswered else {}
        yield self._idle(question.history) | {self.note: note} | restored

    def _stream(
        self,
        prompt: Request,
        question: Question,
        progress: AnswerProgress,
        cancellation: Cancellation,
        request: gr.Request,
    ) -> AsyncGenerator[AnswerProgress]:
        progress.phase = WAITING
        client = f"page {request.session_hash}"
        speculation = question.options.speculation
        return stream_answer(self.page, lambda: prompt, client, cancellation, progress, speculation)

    def _retrieve(self, question: Question, request: gr.Request) -> Retrieved:
        """Select text of the documents for the prompt. Blocking."""
        library, options = self.page.library(request.username), question.options
        documents = {document.id: document for document in library.list()}
        ids = [id for id in documents if id in question.selected]
        if not ids:
            raise RequestError(NONE_SELECTED if documents else NO_DOCUMENTS)
        prepared = prepare(
            question.text,
            library,
            ids,
            self.page.engine,
            self.page.engine.context,
            whole={id for id in ids if documents[id].whole},
            earlier=question.turns(),
            max_tokens=options.max_tokens,
            temperature=options.temperature,
            top_p=options.top_p,
            seed=options.seed,
        )
        used = {source.document for source in prepared.sources}
        return Retrieved(prepared, {id: documents[id] for id in used})

    def _entry(self, retrieved: Retrieved, progress: AnswerProgress, answer: CitedAnswer) -> Entry:
        """Return the answer with its citations."""
        prepared = retrieved.prepared
        if prepared.request is None:
            return Entry(
                title=prepared.question,
                text=prepared.not_found,
                rewritten=prepared.rewritten,
                found=False,
                notes=prepared.notes,
            )
        passages, cited = find_passages(answer.evidence, answer.citations, retrieved.documents)
        reason = progress.done.reason if progress.done else "cancelled"
        notes = list(prepared.notes)
        if reason == "length":
            notes.append(TRUNCATED.format(progress.tokens))
        elif reason != "stop":
            notes.append(STOPPED if reason == "cancelled" else ENDED)
        return Entry(
            title=prepared.question,
            text=answer.text,
            citations=answer.citations,
            passages=passages,
            cited_passages=cited,
            covered=answer.covered,
            doubts=answer.doubts,
            words_found=answer.words_found,
            words_missing=answer.words_missing,
            rewritten=prepared.rewritten,
            pieces=tuple(cut(progress.pieces, answer.text)),
            stopped=reason == "cancelled",
            notes=tuple(notes),
            model=self.page.model_name,
            figures=figures_of(progress),
            tokens_per_pass=tuple(progress.tokens_per_pass[-html.MAX_BARS :]),
        )

    # -- updates of the components -----------------------------------------------------------------

    def _starting(self, question: Question, progress: AnswerProgress) -> Updates:
        return {
            self.note: "",
            self.answer: html.streaming_answer(question.text, progress),
            self.sources: "",
            self.earlier: html.conversation(question.earlier, question.topic, "ask"),
            **self._busy(),
        } | ({} if question.replaces else {self.question: ""})

    def _busy(self) -> Updates:
        """Part of every update: that of an earlier event may arrive late."""
        return {
            self.ask: gr.update(visible=False),
            self.stop: gr.update(visible=True),
        } | {button: gr.update(visible=False) for button in (self.again, self.new, self.clear)}

    def _idle(self, history: History) -> Updates:
        """Return the tab while nothing is running."""
        entries, topic = history.list(), history.topic
        last, before = entries[-1:], entries[:-1]
        answer, sources = html.latest_answer(last[0], topic, "ask") if last else ("", "")
        updates: Updates = {
            self.answer: answer,
            self.sources: sources,
            self.earlier: html.conversation(before, last[0].topic, "ask") if last else "",
            self.ask: gr.update(visible=True),
            self.stop: gr.update(visible=False),
            self.again: gr.update(visible=bool(entries)),
            self.new: gr.update(visible=bool(entries) and last[0].topic == topic),
            self.clear: gr.update(visible=bool(entries)),
        }
        for button, (name, render) in zip(self.files, EXPORTS, strict=True):
            path = None
            if entries:
                text = render([entry.entry for entry in entries])
                path = export.write(self.folder, name, text, history.key)
            updates[button] = gr.update(value=path, visible=bool(entries))
        return updates

    def _history(self, browser_id: str, request: gr.Request) -> History:
        return self.page.histories.of(request.username, browser_id, request.session_hash)


def _sanitized(text: str) -> str:
    """Return the question as valid Unicode; a browser may send lone surrogates."""
    return (text or "")[:MAX_QUESTION_CHARS].encode("utf-8", "replace").decode("utf-8").strip()


def _run_name(request: gr.Request) -> str:
    return f"{request.session_hash}-ask"
