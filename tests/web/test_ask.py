"""The Ask tab and the document panel without a browser: the updates from event handlers, and the
state after a request is stopped, closed or refused."""

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
from tests.support.server import TIMEOUT_S, answers_pause, endless, wait_until
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
OPTIONS = (0.0, 1.0, 0, 384, True, True)  # the defaults of the options under "More"
LONG = (0.0, 1.0, 0, 20_000, True, False)


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
    def note(self) -> str:
        return str(self.seen[self.tab.note])

    def entries(self) -> list[Any]:
        history = self.page.histories.of(self.request.username, BROWSER, "s1")
        return [item.entry for item in history.list()]

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
    assert NO_DOCUMENTS in browser.tab._hint(browser.request)
    browser.ask()
    assert NO_DOCUMENTS in browser.note and browser.seen[browser.tab.question] == QUESTION
    browser.add()
    assert NO_DOCUMENTS not in browser.tab._hint(browser.request)
    browser.ids = lambda: []  # type: ignore[method-assign]
    browser.ask()
    assert NONE_SELECTED in browser.note and browser.idle() and not browser.entries()


def test_a_refused_question_stays_in_the_box(engine: Engine) -> None:
    browser = Browser(engine, queue_size=1)
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
    browser.ask("and its name?")  # meaningless without the earlier question
    assert WORD in browser.answer and QUESTION in browser.seen[browser.tab.earlier]
    browser.ask("and its frobnication?", *OPTIONS[:4], False, True)
    assert not browser.entries()[-1].found


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


def test_a_truncated_answer_says_so(engine: Engine) -> None:
    browser = Browser(engine)
    browser.add()
    browser.ask(QUESTION, 0.0, 1.0, 0, 3, True, False)
    (entry,) = browser.entries()
    assert entry.text == WORD[:3] and TRUNCATED.format(3) in browser.answer


def test_speculation_does_not_change_the_answer(engine: Engine) -> None:
    browser = Browser(engine)
    browser.add()
    browser.ask()
    browser.ask(QUESTION, *OPTIONS[:5], False)
    speculative, plain = browser.entries()
    assert speculative.text == plain.text and speculative.citations == plain.citations


def test_stop_keeps_the_partial_answer(endless_engine: Engine) -> None:
    browser = Browser(endless_engine)
    browser.add()

    async def ask_and_stop() -> None:
        async with contextlib.aclosing(browser.steps("_ask", QUESTION, *LONG)) as steps:
            async for step in steps:
                browser.seen |= step
                if "writing" in browser.answer:
                    browser.tab._stop(browser.request)
                    assert [step async for step in browser.steps("_ask", QUESTION)] == []

    asyncio.run(ask_and_stop())
    (entry,) = browser.entries()
    assert entry.text and entry.stopped and "Stopped" in browser.answer and browser.idle()


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
                if "writing" in str(step.get(browser.tab.answer)):
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
