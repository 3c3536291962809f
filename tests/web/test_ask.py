"""The Ask tab and the document panel without a browser: the updates from event handlers, and the
state after a request is stopped, closed or refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from engine import Config, Engine
from engine.rag.answer import DENIED, CitedAnswer, PreparedQuestion, prepare, with_verdict
from engine.records import Event, Request
from engine.worker import Job
from tests.conftest import tiny_model
from tests.support.questions import GUIDE, WORD, make_model
from tests.support.server import TIMEOUT_S, answers_pause, endless, wait_until
from ui.api.jobs import Jobs
from ui.web import ask
from ui.web.ask import (
    ENDED,
    INTERRUPTED,
    NO_DOCUMENTS,
    NONE_SELECTED,
    QUEUE_FULL,
    TRUNCATED,
    UNCHANGED,
    AskTab,
)
from ui.web.documents import DocumentPanel
from ui.web.empty import SAMPLE, SAMPLE_QUESTIONS
from ui.web.html import NEW_TOPIC
from ui.web.state import PageState
from ui.web.transcript import Entry

QUESTION = "Which variable turns the debugger on?"
BROWSER = "b" * 32
OPTIONS = (0.0, 1.0, 0, 384, True)  # the defaults of "Answer settings"
LONG = (0.0, 1.0, 0, 20_000, False)
SHORT = (0.0, 1.0, 0, 6, True)
INDEPENDENT = [
    "When does the lease end?",
    "How much is the rent for heating and hot water?",
    "May the tenant keep a dog?",
    "Who is the landlord?",
    "Who is the tenant?",
    "How high is the deposit?",
    "When is the rent due?",
    "To which account is the rent paid?",
    "How many keys does the tenant get?",
    "Who pays for small repairs?",
    "May the flat be sublet?",
    "What is the notice period?",
    "How large is the flat?",
    "On which floor is the flat?",
    "May the tenant smoke in the flat?",
    "Who cleans the stairs?",
    "When may the landlord enter the flat?",
    "What happens if the tenant loses a key?",
    "Is there a cellar?",
    "When may the rent be raised?",
]


def answer_of(entry: Entry) -> Entry:
    """The entry without what depends on time."""
    return replace(entry, figures={}, tokens_per_pass=(), pieces=())


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine that always answers WORD."""
    model = make_model(tmp_path_factory.mktemp("models") / "word")
    with Engine(Config(model=str(model), threads=2, library=False)) as engine:
        yield engine


@pytest.fixture(scope="module")
def endless_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine whose answers pause until they are stopped."""
    model = endless(tmp_path_factory.mktemp("models") / "endless")
    config = Config(model=str(model), threads=2, library=False)
    with Engine(config) as engine, answers_pause(engine):
        yield engine


@pytest.fixture(autouse=True)
def uploads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path / "uploads"))
    (tmp_path / "uploads").mkdir()
    return tmp_path / "uploads"


class Browser:
    """A browser session with the tab, as Gradio represents it."""

    def __init__(self, engine: Engine, queue_size: int = 4, user: str | None = None) -> None:
        self.page = PageState(engine, Jobs(engine, queue_size))
        with gr.Blocks():
            self.tab = AskTab(self.page)
        self.request = gr.Request(username=user, session_hash="s1")
        self.seen: dict[Any, Any] = {}

    def ids(self) -> list[str]:
        return [document.id for document in self.page.library(self.request.username).list()]

    def add(self, text: str = GUIDE, name: str = "guide.md") -> None:
        self.page.library(self.request.username).add_data(name, text.encode())

    def steps(self, handler_name: str, question: str = "", *options: Any) -> AsyncGenerator[Any]:
        handler: Callable[..., AsyncGenerator[Any]] = getattr(self.tab, handler_name)
        return handler(question, BROWSER, self.ids(), self.request, *(options or OPTIONS))

    async def run(
        self, handler_name: str, question: str = "", *options: Any
    ) -> list[dict[Any, Any]]:
        """Run a handler; returns all its updates."""
        updates = []
        async for step in self.steps(handler_name, question, *options):
            updates.append(step)
            self.seen |= step
        return updates

    def ask(self, question: str = QUESTION, *options: Any) -> list[dict[Any, Any]]:
        return asyncio.run(self.run("_ask", question, *options))

    def regenerate(self, *options: Any) -> list[dict[Any, Any]]:
        return asyncio.run(self.run("_regenerate", "", *options))

    @property
    def answer(self) -> str:
        return str(self.seen[self.tab.answer])

    @property
    def sources(self) -> str:
        return str(self.seen[self.tab.sources])

    @property
    def note(self) -> str:
        return str(self.seen[self.tab.note])

    def entries(self) -> list[Any]:
        history = self.page.histories.of(self.request.username, BROWSER, "s1")
        return [item.entry for item in history.list()]

    def idle(self) -> bool:
        """Whether the tab accepts another question."""
        ask, stop = self.seen[self.tab.ask], self.seen[self.tab.stop]
        return bool(ask["visible"] and not stop["visible"] and not self.page.running)


def test_an_answer_streams_and_is_cited(engine: Engine) -> None:
    browser = Browser(engine)
    browser.add()
    steps = browser.ask()
    assert steps[0][browser.tab.stop]["visible"] and not steps[0][browser.tab.ask]["visible"]
    assert steps[0][browser.tab.question] == ""
    phases = [step[browser.tab.answer] for step in steps if browser.tab.answer in step]
    assert "Looking for" in phases[0] and "Waiting" in phases[1]
    extracts = [phase.partition('class="extract"')[2] for phase in phases]
    assert extracts[0] == "" and WORD in extracts[1], "what fits the question, before the answer"
    assert not any(
        one and 'class="answer"' in phase for one, phase in zip(extracts, phases, strict=True)
    )
    assert "extract" not in browser.answer
    assert f">{WORD}<sup>1</sup>" in browser.answer and "guide.md" in browser.sources
    assert f"<mark>{WORD}</mark>" in browser.sources and "All words" in browser.answer
    assert browser.idle()
    (entry,) = browser.entries()
    assert entry.text == WORD == "".join(piece.text for piece in entry.pieces)
    assert entry.figures["tokens"] == sum(entry.tokens_per_pass) > 0
    paths = [Path(browser.seen[button]["value"]) for button in browser.tab.files]
    assert WORD in paths[0].read_text() and json.loads(paths[1].read_text())["entries"]


def test_a_reload_restores_the_history_of_this_browser_only(engine: Engine) -> None:
    browser = Browser(engine)
    browser.add()
    browser.ask()
    reloaded = gr.Request(session_hash="s2")
    shown = browser.tab._load(BROWSER, reloaded)
    assert shown[browser.tab.answer] == browser.answer
    assert browser.tab._load("c" * 32, reloaded)[browser.tab.answer] == ""
    assert (
        browser.tab._load(BROWSER, gr.Request(username="ben", session_hash="s2"))[
            browser.tab.answer
        ]
        == ""
    )
    file = Path(shown[browser.tab.files[0]]["value"])
    assert file.exists()
    browser.tab._clear(BROWSER, reloaded)
    assert browser.entries() == [] and not file.exists()


def test_without_matching_passages_the_model_is_not_run(engine: Engine) -> None:
    browser = Browser(engine)
    browser.add()
    browser.ask("Who won the championship of Bolivia?")
    assert "say nothing about this" in browser.answer and "<sup>" not in browser.answer
    (entry,) = browser.entries()
    assert not entry.found and browser.idle()


def test_hints_and_missing_documents(engine: Engine) -> None:
    browser = Browser(engine)
    assert 'name="sample"' in browser.tab._hint(browser.request)
    browser.ask()
    assert NO_DOCUMENTS in browser.note and browser.seen[browser.tab.question] == QUESTION
    browser.add()
    hint = browser.tab._hint(browser.request)
    assert 'name="sample"' not in hint and ">Other?</button>" in hint
    browser.ids = lambda: []  # type: ignore[method-assign]
    browser.ask()
    assert NONE_SELECTED in browser.note and browser.idle() and not browser.entries()


def test_an_answer_that_the_model_denies_has_a_warning(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model always says WORD, which stands for no here."""
    verdicts: list[str] = []

    def denied(answer: CitedAnswer, verdict: str) -> CitedAnswer:
        verdicts.append(verdict)
        return with_verdict(answer, "no")

    monkeypatch.setattr("engine.rag.answer.MIN_JUDGE_BYTES", 0)
    monkeypatch.setattr("ui.web.ask.with_verdict", denied)
    browser = Browser(engine)
    browser.add()
    browser.ask()
    assert len(verdicts) == 1 and verdicts[0] and DENIED in browser.answer


def test_the_sample_answers_its_questions(engine: Engine) -> None:
    """The model is asked each of them, since a passage matches."""
    browser = Browser(engine)
    added = asyncio.run(browser.tab.panel.add_sample([], browser.request))
    assert added[browser.tab.panel.selected] == browser.ids() and len(browser.ids()) == 1
    hint = browser.tab._hint(browser.request)
    for question in SAMPLE_QUESTIONS:
        assert f">{question}</button>" in hint
        browser.ask(question)
        assert browser.entries()[-1].found


def test_a_refused_question_stays_in_the_box(engine: Engine) -> None:
    browser = Browser(engine, queue_size=1)
    browser.add()
    browser.ask("   ")
    assert "empty" in browser.note
    browser.page.jobs.queue_size = 0
    browser.ask()
    assert QUEUE_FULL in browser.note and browser.seen[browser.tab.question] == QUESTION
    assert browser.idle() and not browser.entries()


def test_a_new_question_refers_to_nothing(engine: Engine) -> None:
    browser = Browser(engine)
    browser.add()
    browser.ask()
    assert not browser.seen[browser.tab.earlier] and browser.seen[browser.tab.new]["visible"]
    browser.ask("and its name?")  # meaningless without the earlier question
    assert WORD in browser.answer and QUESTION in browser.seen[browser.tab.earlier]
    browser.seen |= browser.tab._begin_topic(BROWSER, browser.request)
    assert NEW_TOPIC in browser.sources and not browser.seen[browser.tab.new]["visible"]
    browser.ask("and its frobnication?")
    assert not browser.entries()[-1].found and len(browser.entries()) == 3
    assert browser.seen[browser.tab.earlier].endswith(NEW_TOPIC)


def test_independent_questions_are_answered_as_in_a_fresh_session(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The model's weights are random, so that any change of the prompt changes its answer."""
    model = tiny_model(tmp_path_factory.mktemp("models") / "random", context=4096)
    with Engine(Config(model=str(model), threads=2, library=False)) as engine:
        browser = Browser(engine)
        browser.add(SAMPLE.read_text("utf-8"), "lease.md")
        for question in INDEPENDENT:
            browser.ask(question, *SHORT)
        entries = browser.entries()
        browser.ask("And from when on?", *SHORT)
        assert browser.entries()[-1].rewritten == f"And from when on? ({INDEPENDENT[-1]})"
        for question, entry in zip(INDEPENDENT, entries, strict=True):
            browser.tab._clear(BROWSER, browser.request)
            browser.ask(question, *SHORT)
            assert [answer_of(entry)] == [*map(answer_of, browser.entries())], question
        assert len({entry.text for entry in entries}) > len(entries) / 2


def test_regenerating_replaces_the_answer(engine: Engine) -> None:
    browser = Browser(engine)
    browser.regenerate()
    assert not browser.seen
    browser.add()
    browser.ask("What turns the debugger on?")
    browser.ask()
    first = browser.answer
    browser.regenerate()
    assert UNCHANGED in browser.note and len(browser.entries()) == 2
    assert browser.answer != first and browser.tab.question not in browser.regenerate()[0]
    steps = browser.regenerate(0.5, *OPTIONS[1:])
    assert steps[0] == {browser.tab.settings[2]: 1}
    assert UNCHANGED not in browser.note and len(browser.entries()) == 2


def test_what_a_server_that_ends_was_writing_is_interrupted(endless_engine: Engine) -> None:
    """A new server finds the question, and says so; it is asked again by a button."""
    browser = Browser(endless_engine)
    browser.add()

    async def ask_and_look() -> None:
        async with contextlib.aclosing(browser.steps("_ask", QUESTION, *LONG)) as steps:
            async for step in steps:
                if "Writing" in str(step.get(browser.tab.answer)):
                    browser.seen |= browser.tab._load(BROWSER, gr.Request(session_hash="s2"))
                    break
            assert INTERRUPTED in browser.answer and QUESTION in browser.answer
            assert browser.seen[browser.tab.again]["visible"]

    asyncio.run(ask_and_look())
    (entry,) = browser.entries()
    assert entry.text and INTERRUPTED not in entry.notes, "the server went on"


def test_passages_are_read_while_the_question_is_typed(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Request] = []
    monkeypatch.setattr(Engine, "read_ahead", lambda self, request: read.append(request))
    monkeypatch.setattr(ask, "PAUSE_S", 0.0)
    browser = Browser(engine)

    def typed(text: str) -> None:
        inputs = text, BROWSER, browser.ids(), browser.request
        asyncio.run(browser.tab._read_ahead(*inputs, *OPTIONS))

    typed(QUESTION)
    assert not read, "there are no documents"
    browser.add()
    typed(QUESTION[:3])
    with browser.page.stoppable("another"):
        typed(QUESTION)
    assert not read
    typed(QUESTION[:-3])
    (request,) = read
    assert WORD in request.messages[-1]["content"] and not browser.entries()


def test_a_truncated_answer_says_so(engine: Engine) -> None:
    browser = Browser(engine)
    browser.add()
    browser.ask(QUESTION, 0.0, 1.0, 0, 3, False)
    (entry,) = browser.entries()
    assert entry.text == WORD[:3] and TRUNCATED.format(3) in browser.answer


def test_speculation_does_not_change_the_answer(engine: Engine) -> None:
    browser = Browser(engine)
    browser.add()
    browser.ask()
    browser.ask(QUESTION, *OPTIONS[:4], False)
    speculative, plain = browser.entries()
    assert speculative.text == plain.text and speculative.citations == plain.citations


def test_stop_keeps_the_partial_answer(endless_engine: Engine) -> None:
    browser = Browser(endless_engine)
    browser.add()

    async def ask_and_stop() -> None:
        async with contextlib.aclosing(browser.steps("_ask", QUESTION, *LONG)) as steps:
            async for step in steps:
                browser.seen |= step
                if "Writing" in browser.answer:
                    browser.tab._stop(browser.request)
                    assert [step async for step in browser.steps("_ask", QUESTION)] == []

    asyncio.run(ask_and_stop())
    (entry,) = browser.entries()
    assert entry.text and entry.stopped and "Stopped" in browser.answer and browser.idle()


def test_a_model_that_ends_midway_leaves_what_it_wrote(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = Browser(engine)
    browser.add()
    put = Job.put

    def put_and_fail(job: Job, event: Event) -> None:
        put(job, event)
        if event.text:
            raise ValueError("a broken kernel")

    monkeypatch.setattr(Job, "put", put_and_fail)
    browser.ask(QUESTION, *OPTIONS[:4], False)
    assert "The model failed, try again: " in browser.note and "a broken kernel" in browser.note
    (entry,) = browser.entries()
    assert WORD.startswith(entry.text) and entry.notes == (ENDED,) and browser.idle()
    assert ENDED in browser.answer and 'class="sources"' in browser.sources


def test_a_document_that_is_removed_while_it_is_asked_about(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its text is found there is one line; what was read stays."""
    browser = Browser(engine)
    browser.add()
    library = browser.page.library(None)

    async def ask_and_remove() -> None:
        async for step in browser.steps("_ask", QUESTION):
            browser.seen |= step
            if "Waiting" in browser.answer and library.list():
                library.remove(library.list()[0].id)

    asyncio.run(ask_and_remove())
    (entry,) = browser.entries()
    assert entry.text == WORD and f"<mark>{WORD}</mark>" in browser.sources
    browser.add()

    def remove_and_prepare(*arguments: Any, **options: Any) -> PreparedQuestion:
        library.remove(browser.ids()[0])
        return prepare(*arguments, **options)

    monkeypatch.setattr(ask, "prepare", remove_and_prepare)
    browser.ask()
    assert "removed while it was asked about: ask again" in browser.note and browser.idle()
    assert len(browser.entries()) == 1 and browser.seen[browser.tab.question] == QUESTION


def test_a_stop_while_searching_prevents_the_request(endless_engine: Engine) -> None:
    browser = Browser(endless_engine)
    browser.add()

    async def ask_and_stop() -> None:
        async for step in browser.steps("_ask", QUESTION):
            browser.seen |= step
            browser.tab._stop(browser.request)

    asyncio.run(ask_and_stop())
    assert not browser.entries() and browser.idle()
    assert browser.seen[browser.tab.question] == QUESTION


def test_closing_the_tab_cancels_and_keeps_the_partial_answer(endless_engine: Engine) -> None:
    browser = Browser(endless_engine)
    browser.add()

    async def ask_and_close() -> None:
        async with contextlib.aclosing(browser.steps("_ask", QUESTION, *LONG)) as steps:
            async for step in steps:
                if "Writing" in str(step.get(browser.tab.answer)):
                    break
        assert not browser.page.running
        async with asyncio.timeout(TIMEOUT_S):
            while browser.page.jobs.open:
                await asyncio.sleep(0.01)

    asyncio.run(ask_and_close())
    (entry,) = browser.entries()
    assert entry.text and entry.stopped
    wait_until(lambda: not browser.page.jobs.open)


# -- documents ---------------------------------------------------------------------------------


def test_a_broken_file_does_not_affect_the_others(engine: Engine, uploads: Path) -> None:
    browser = Browser(engine, user="ann")
    panel = browser.tab.panel
    files: list[dict[str, str]] = [{"name": "late.md", "error": "over 64 MiB; split it"}]
    for number, (name, data) in enumerate(
        [("guide.md", GUIDE.encode()), ("bad.pdf", b"no"), ("other.txt", b"words")]
    ):
        (uploads / str(number)).mkdir()
        (uploads / str(number) / name).write_bytes(data)
        files.append({"name": name, "path": str(uploads / str(number) / name)})
    batch = panel._batch.value

    async def add() -> list[dict[Any, Any]]:
        event = gr.EventData(None, {"files": files})
        return [step async for step in panel._add([], batch, event, browser.request)]

    last = asyncio.run(add())[-1]
    names = [document.name for document in browser.page.library("ann").list()]
    assert sorted(names) == ["guide.md", "other.txt"] and not browser.page.library("ben").list()
    assert "2 added, 2 not" in last[panel._uploads]
    assert "late.md: over 64 MiB" in last[panel._uploads] and "bad.pdf: " in last[panel._uploads]
    assert last[panel.selected] == browser.ids() and "2 of 2 selected" in last[panel._list]
    assert [*uploads.iterdir()] == []
    assert panel._dismiss(batch) == ""


def test_select_deselect_and_remove(engine: Engine) -> None:
    browser = Browser(engine)
    browser.add()
    browser.add("# Notes\n\nwords", "notes.md")
    panel, request = browser.tab.panel, browser.request
    guide, notes = browser.ids()

    def event(**data: Any) -> gr.EventData:
        return gr.EventData(None, data)

    updates = panel._select([], event(id=guide, on=False), request)
    assert updates[panel.selected] == [notes]
    updates = panel._select(updates[panel._deselected], event(id=guide, on=True), request)
    assert updates[panel.selected] == [guide, notes]
    updates = panel._select_all(updates[panel._deselected], event(on=False), request)
    assert updates[panel.selected] == []
    browser.add("# New\n\nwords", "new.md")
    new = browser.ids()[-1]
    assert panel._refresh(updates[panel._deselected], request)[panel.selected] == [new]
    panel._set_whole([], event(id=guide, whole=True), request)
    assert [document.whole for document in browser.page.library(None).list()] == [
        True,
        False,
        False,
    ]
    updates = panel._remove([], event(id=notes), request)
    assert updates[panel.selected] == browser.ids() == [guide, new]
    for handler in (panel._select, panel._select_all, panel._set_whole, panel._remove):
        handler([], event(id=["no", "text"]), request)
    assert browser.ids() == [guide, new]


def test_selecting_a_single_document(engine: Engine) -> None:
    browser = Browser(engine)
    with gr.Blocks():
        panel = DocumentPanel(browser.page, "sum", single=True)
    browser.add()
    browser.add("# Notes\n\nwords", "notes.md")
    guide, notes = browser.ids()
    assert panel._refresh([], browser.request)[panel.selected] == [notes]
    updates = panel._select([], gr.EventData(None, {"id": guide, "on": True}), browser.request)
    assert updates[panel.selected] == [guide]
    browser.add("# New\n\nwords", "new.md")
    updates = panel._refresh(updates[panel._deselected], browser.request)
    assert updates[panel.selected] == browser.ids()[-1:]
