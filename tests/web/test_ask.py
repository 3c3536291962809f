"""The Ask tab and the document panel without a browser: the updates of the event handlers, and what
is left when they are stopped, closed or refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from engine import Config, Engine
from tests.support.questions import GUIDE, WORD, make_model
from tests.support.server import answers_pause, endless, wait_until
from ui.api.jobs import Jobs
from ui.web.ask import (
    NO_DOCUMENTS,
    NONE_SELECTED,
    QUEUE_FULL,
    TRUNCATED,
    UNCHANGED,
    AskTab,
)
from ui.web.documents import DocumentPanel
from ui.web.state import PageState

QUESTION = "Which variable turns the debugger on?"
BROWSER = "b" * 32
OPTIONS = (0.0, 1.0, 0, 384, True, True)  # the defaults of More
LONG = (0.0, 1.0, 0, 20_000, True, False)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Answers everything with WORD."""
    model = make_model(tmp_path_factory.mktemp("models") / "word")
    with Engine(Config(model=str(model), threads=2, library=False)) as engine:
        yield engine


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Its answers pause until they are stopped."""
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
    """One browser's session with the tab, as Gradio keeps it."""

    def __init__(self, engine: Engine, places: int = 4, user: str | None = None) -> None:
        self.page = PageState(engine, Jobs(engine, places))
        with gr.Blocks():
            self.tab = AskTab(self.page)
        self.request = gr.Request(username=user, session_hash="s1")
        self.seen: dict[Any, Any] = {}

    def ids(self) -> list[str]:
        return [one.id for one in self.page.library(self.request.username).list()]

    def add(self, text: str = GUIDE, name: str = "guide.md") -> None:
        self.page.library(self.request.username).add_data(name, text.encode())

    def steps(self, what: str, question: str = "", *choice: Any) -> AsyncGenerator[Any]:
        handler: Callable[..., AsyncGenerator[Any]] = getattr(self.tab, what)
        return handler(question, BROWSER, self.ids(), self.request, *(choice or OPTIONS))

    async def run(self, what: str, question: str = "", *choice: Any) -> list[dict[Any, Any]]:
        """All updates of a handler."""
        found = []
        async for step in self.steps(what, question, *choice):
            found.append(step)
            self.seen |= step
        return found

    def ask(self, question: str = QUESTION, *choice: Any) -> list[dict[Any, Any]]:
        return asyncio.run(self.run("_ask", question, *choice))

    def again(self, *choice: Any) -> list[dict[Any, Any]]:
        return asyncio.run(self.run("_regenerate", "", *choice))

    @property
    def answer(self) -> str:
        return str(self.seen[self.tab.answer])

    @property
    def note(self) -> str:
        return str(self.seen[self.tab.note])

    def entries(self) -> list[Any]:
        history = self.page.histories.of(self.request.username, BROWSER, "s1")
        return [one.entry for one in history.list()]

    def idle(self) -> bool:
        """Whether the tab accepts another question."""
        ask, stop = self.seen[self.tab.ask], self.seen[self.tab.stop]
        return bool(ask["interactive"] and not stop["visible"] and not self.page.running)


def test_an_answer_streams_and_is_cited(engine: Engine) -> None:
    browser = Browser(engine)
    browser.add()
    steps = browser.ask()
    assert steps[0][browser.tab.stop]["visible"] and not steps[0][browser.tab.ask]["interactive"]
    assert steps[0][browser.tab.question] == ""
    phases = [step[browser.tab.answer] for step in steps if browser.tab.answer in step]
    assert "searching" in phases[0] and "waiting" in phases[1]
    assert f">{WORD}<sup>1</sup>" in browser.answer and "guide.md" in browser.answer
    assert f"<mark>{WORD}</mark>" in browser.answer and "All words" in browser.answer
    assert browser.idle()
    (kept,) = browser.entries()
    assert kept.text == WORD == "".join(piece.text for piece in kept.pieces)
    assert kept.figures["tokens"] == sum(kept.tokens_per_pass) > 0
    paths = [Path(browser.seen[button]["value"]) for button in browser.tab.files]
    assert WORD in paths[0].read_text() and json.loads(paths[1].read_text())["entries"]


def test_a_reload_restores_the_history_of_this_browser_only(engine: Engine) -> None:
    browser = Browser(engine)
    browser.add()
    browser.ask()
    again = gr.Request(session_hash="s2")
    shown = browser.tab._load(BROWSER, again)
    assert shown[browser.tab.answer] == browser.answer
    assert browser.tab._load("c" * 32, again)[browser.tab.answer] == ""
    assert (
        browser.tab._load(BROWSER, gr.Request(username="ben", session_hash="s2"))[
            browser.tab.answer
        ]
        == ""
    )
    file = Path(shown[browser.tab.files[0]]["value"])
    assert file.exists()
    browser.tab._clear(BROWSER, again)
    assert browser.entries() == [] and not file.exists()


def test_without_matching_passages_the_model_is_not_asked(engine: Engine) -> None:
    browser = Browser(engine)
    browser.add()
    browser.ask("Who won the championship of Bolivia?")
    assert "say nothing about this" in browser.answer and "<sup>" not in browser.answer
    (kept,) = browser.entries()
    assert not kept.found and browser.idle()


def test_hints_and_missing_documents(engine: Engine) -> None:
    browser = Browser(engine)
    assert NO_DOCUMENTS in browser.tab._hint(browser.request)
    browser.ask()
    assert NO_DOCUMENTS in browser.note and browser.seen[browser.tab.question] == QUESTION
    browser.add()
    assert NO_DOCUMENTS not in browser.tab._hint(browser.request)
    browser.ids = lambda: []  # type: ignore[method-assign]
    browser.ask()
    assert NONE_SELECTED in browser.note and browser.idle() and not browser.entries()


def test_a_refused_question_stays_in_the_box(engine: Engine) -> None:
    browser = Browser(engine, places=1)
    browser.add()
    browser.ask("   ")
    assert "empty" in browser.note
    browser.page.jobs.queue_size = 0
    browser.ask()
    assert QUEUE_FULL in browser.note and browser.seen[browser.tab.question] == QUESTION
    assert browser.idle() and not browser.entries()


def test_follow_up_questions_are_optional(engine: Engine) -> None:
    browser = Browser(engine)
    browser.add()
    browser.ask()
    assert not browser.seen[browser.tab.earlier]
    browser.ask("and its name?")  # says nothing by itself
    assert WORD in browser.answer and QUESTION in browser.seen[browser.tab.earlier]
    browser.ask("and its frobnication?", *OPTIONS[:4], False, True)
    assert not browser.entries()[-1].found


def test_regenerating_replaces_the_answer(engine: Engine) -> None:
    browser = Browser(engine)
    browser.again()
    assert not browser.seen
    browser.add()
    browser.ask("What turns the debugger on?")
    browser.ask()
    first = browser.answer
    browser.again()
    assert UNCHANGED in browser.note and len(browser.entries()) == 2
    assert browser.answer != first and browser.tab.question not in browser.again()[0]
    steps = browser.again(0.5, *OPTIONS[1:])
    assert steps[0] == {browser.tab.settings[2]: 1}
    assert UNCHANGED not in browser.note and len(browser.entries()) == 2


def test_a_truncated_answer_says_so(engine: Engine) -> None:
    browser = Browser(engine)
    browser.add()
    browser.ask(QUESTION, 0.0, 1.0, 0, 3, True, False)
    (kept,) = browser.entries()
    assert kept.text == WORD[:3] and TRUNCATED.format(3) in browser.answer


def test_speculation_does_not_change_the_answer(engine: Engine) -> None:
    browser = Browser(engine)
    browser.add()
    browser.ask()
    browser.ask(QUESTION, *OPTIONS[:5], False)
    with_it, without = browser.entries()
    assert with_it.text == without.text and with_it.citations == without.citations


def test_stop_keeps_the_partial_answer(talker: Engine) -> None:
    browser = Browser(talker)
    browser.add()

    async def stopped() -> None:
        async with contextlib.aclosing(browser.steps("_ask", QUESTION, *LONG)) as steps:
            async for step in steps:
                browser.seen |= step
                if "writing" in browser.answer:
                    browser.tab._stop(browser.request)
                    assert [one async for one in browser.steps("_ask", QUESTION)] == []

    asyncio.run(stopped())
    (kept,) = browser.entries()
    assert kept.text and kept.stopped and "Stopped" in browser.answer and browser.idle()


def test_stopped_while_searching_nothing_is_asked(talker: Engine) -> None:
    browser = Browser(talker)
    browser.add()

    async def stopped() -> None:
        async for step in browser.steps("_ask", QUESTION):
            browser.seen |= step
            browser.tab._stop(browser.request)

    asyncio.run(stopped())
    assert not browser.entries() and browser.idle()
    assert browser.seen[browser.tab.question] == QUESTION


def test_closing_the_tab_cancels_and_keeps_the_partial_answer(talker: Engine) -> None:
    browser = Browser(talker)
    browser.add()

    async def closed() -> None:
        async with contextlib.aclosing(browser.steps("_ask", QUESTION, *LONG)) as steps:
            async for step in steps:
                if "writing" in str(step.get(browser.tab.answer)):
                    break
        assert not browser.page.running
        while browser.page.jobs.open:
            await asyncio.sleep(0.01)

    asyncio.run(closed())
    (kept,) = browser.entries()
    assert kept.text and kept.stopped
    wait_until(lambda: not browser.page.jobs.open)


# -- documents ---------------------------------------------------------------------------------


def test_a_broken_file_does_not_affect_the_others(engine: Engine, uploads: Path) -> None:
    browser = Browser(engine, user="ann")
    shelf = browser.tab.panel
    files: list[dict[str, str]] = [{"name": "late.md", "error": "over 64 MiB; split it"}]
    for number, (name, data) in enumerate(
        [("guide.md", GUIDE.encode()), ("bad.pdf", b"no"), ("other.txt", b"words")]
    ):
        (uploads / str(number)).mkdir()
        (uploads / str(number) / name).write_bytes(data)
        files.append({"name": name, "path": str(uploads / str(number) / name)})
    arriving = shelf._batch.value

    async def taken() -> list[dict[Any, Any]]:
        event = gr.EventData(None, {"files": files})
        return [one async for one in shelf._add([], arriving, event, browser.request)]

    last = asyncio.run(taken())[-1]
    names = [one.name for one in browser.page.library("ann").list()]
    assert sorted(names) == ["guide.md", "other.txt"] and not browser.page.library("ben").list()
    assert "2 added, 2 not" in last[shelf._uploads]
    assert "late.md: over 64 MiB" in last[shelf._uploads] and "bad.pdf: " in last[shelf._uploads]
    assert last[shelf.selected] == browser.ids() and "2 of 2 selected" in last[shelf._list]
    assert [*uploads.iterdir()] == []
    assert shelf._dismiss(arriving) == ""


def test_select_deselect_and_remove(engine: Engine) -> None:
    browser = Browser(engine)
    browser.add()
    browser.add("# Notes\n\nwords", "notes.md")
    shelf, request = browser.tab.panel, browser.request
    guide, notes = browser.ids()

    def event(**data: Any) -> gr.EventData:
        return gr.EventData(None, data)

    parts = shelf._select([], event(id=guide, on=False), request)
    assert parts[shelf.selected] == [notes]
    parts = shelf._select(parts[shelf._deselected], event(id=guide, on=True), request)
    assert parts[shelf.selected] == [guide, notes]
    parts = shelf._select_all(parts[shelf._deselected], event(on=False), request)
    assert parts[shelf.selected] == []
    browser.add("# New\n\nwords", "new.md")
    new = browser.ids()[-1]
    assert shelf._refresh(parts[shelf._deselected], request)[shelf.selected] == [new]
    shelf._set_whole([], event(id=guide, whole=True), request)
    assert [one.whole for one in browser.page.library(None).list()] == [True, False, False]
    parts = shelf._remove([], event(id=notes), request)
    assert parts[shelf.selected] == browser.ids() == [guide, new]
    for handler in (shelf._select, shelf._select_all, shelf._set_whole, shelf._remove):
        handler([], event(id=["no", "text"]), request)
    assert browser.ids() == [guide, new]


def test_a_single_selection(engine: Engine) -> None:
    browser = Browser(engine)
    with gr.Blocks():
        shelf = DocumentPanel(browser.page, "sum", single=True)
    browser.add()
    browser.add("# Notes\n\nwords", "notes.md")
    guide, notes = browser.ids()
    assert shelf._refresh([], browser.request)[shelf.selected] == [notes]
    parts = shelf._select([], gr.EventData(None, {"id": guide, "on": True}), browser.request)
    assert parts[shelf.selected] == [guide]
    browser.add("# New\n\nwords", "new.md")
    parts = shelf._refresh(parts[shelf._deselected], browser.request)
    assert parts[shelf.selected] == browser.ids()[-1:]
