"""The Summarize tab without a browser (progress, stopping), and batches in the queue."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import Config, Engine
from engine.rag.summarize import Summary, SummaryBody, summarize
from engine.records import Piece, Request, Step
from tests.support.questions import make_model
from tests.support.server import TIMEOUT_S, occupied
from tests.web.test_page import HOSTILE, RenderedText
from ui.api.jobs import Jobs, QueueFull
from ui.web import summarize as tab_of
from ui.web.history import MAX_SUMMARIES, History
from ui.web.state import PageState
from ui.web.summarize import SummarizeTab, SummaryProgress, streaming_summary

WORD = "FLASK_DEBUG"
TEXT = f"The variable {WORD} is mentioned once.\n\n" + "\n\n".join(
    f"# Part {n}\n\n" + f"And a few words of part {n}. " * 40 for n in range(4)
)
ME = gr.Request(session_hash="me")
BROWSER = "b" * 32
TEXTS = st.text(st.sampled_from("ab <>&\"'`${}\n")) | st.just(HOSTILE)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("chain") / "model"
    make_model(folder, WORD)
    with Engine(Config(model=str(folder), dtype="f32", threads=1, library=False)) as engine:
        yield engine


@pytest.fixture
def page(engine: Engine, tmp_path: Path, home: Path) -> Iterator[PageState]:
    page = PageState(engine, Jobs(engine, 2))
    path = tmp_path / f"{tmp_path.name}.md"
    path.write_text(TEXT + f"\n\n{tmp_path}\n")
    page.library(None).add(path, path.name)
    yield page
    page.jobs.close()
    page.close()


def build_tab(page: PageState) -> SummarizeTab:
    with gr.Blocks(), gr.Tab("Summarize"):
        return SummarizeTab(page)


def start_summary(tab: SummarizeTab, style: Any = "prose") -> AsyncIterator[Any]:
    selected = [document.id for document in tab.page.library(None).list()]
    return tab._summarize(selected, BROWSER, "long", style, ME)


async def all_updates(tab: SummarizeTab, style: Any = "prose") -> list[Any]:
    return [update async for update in start_summary(tab, style)]


def summary_of(page: PageState) -> Any:
    """That of the only document."""
    (document,) = page.library(None).list()
    return page.histories.of(None, BROWSER, None).summary(document.id)


def test_a_summary_streams_and_is_cited(page: PageState) -> None:
    async def run() -> None:
        tab = build_tab(page)
        first, *_, last = await all_updates(tab)
        assert first[tab.start]["interactive"] is False and first[tab.stop]["visible"] is True
        assert last[tab.start]["interactive"] is True and last[tab.stop]["visible"] is False
        assert last[tab.note] == ""
        summary = summary_of(page)
        assert WORD in summary.text and summary.citations and not summary.stopped
        assert last[tab.answer].count('class="cite"') == len(summary.citations)
        for button, name in zip(tab.files, (".md", ".json"), strict=True):
            path = Path(last[button]["value"])
            assert path.suffix == name and WORD in path.read_text()
        assert not page.running
        await wait_until_idle(page)
        await all_updates(tab, "bullets")
        bullets = summary_of(page)
        assert bullets.text.count("\n- ") >= 4
        assert bullets.figures == {}, "nothing was generated"

    asyncio.run(run())


async def wait_until_idle(page: PageState) -> None:
    """Wait until the batch has released its queue slot."""
    async with asyncio.timeout(180):
        while page.jobs.open:
            await asyncio.sleep(0.01)


class PausedSummaries:
    """Pauses each summary after its first pass, or its first event of another kind, until `resume`
    is set."""

    def __init__(self) -> None:
        self.resume = threading.Event()
        self.after: type[Any] = Step

    def summarize(self, *args: Any, **options: Any) -> Iterator[Any]:
        for event in summarize(*args, **options):
            yield event
            if isinstance(event, self.after):
                self.resume.wait(180)


@pytest.fixture
def paused(monkeypatch: pytest.MonkeyPatch) -> PausedSummaries:
    """Summaries on the page pause, however fast the model is."""
    paused = PausedSummaries()
    monkeypatch.setattr(tab_of, "summarize", paused.summarize)
    monkeypatch.setattr(tab_of, "MIN_REFRESH_S", 0.0)  # each event is shown
    return paused


def test_a_stopped_summary_lacks_only_the_statement(
    page: PageState, paused: PausedSummaries
) -> None:
    paused.after = SummaryBody  # the first pass may write all of the statement

    async def run() -> None:
        tab = build_tab(page)
        last: Any = None
        async for last in start_summary(tab):
            if "Part 3" in last[tab.answer]:
                tab._stop(ME)
                paused.resume.set()
        summary = summary_of(page)
        assert summary.stopped and "Part 3" in summary.text
        assert tab_of.STOPPED in last[tab.answer]
        assert not page.running
        await wait_until_idle(page)
        await all_updates(tab)
        whole = summary_of(page)
        assert not whole.stopped and whole.text.endswith(summary.text)

    asyncio.run(run())


def test_closing_the_page_frees_its_slot_and_loses_nothing(
    page: PageState, paused: PausedSummaries
) -> None:
    async def run() -> None:
        tab = build_tab(page)
        steps = start_summary(tab)
        async for update in steps:
            if "Part 3" in update[tab.answer]:
                break
        assert page.jobs.open == len(page.running) == 1
        await steps.aclose()  # type: ignore[attr-defined]
        paused.resume.set()
        assert not page.running
        await wait_until_idle(page)
        (document,) = page.library(None).list()
        reloaded = tab._on_select([document.id], BROWSER, gr.Request(session_hash="another"))
        assert "Part 3" in reloaded[tab.answer] and tab_of.STOPPED in reloaded[tab.answer]
        assert reloaded[tab.start]["value"] == "Continue"
        other = tab._on_select([document.id], "o" * 32, gr.Request(session_hash="another"))
        assert tab_of.HAS_DOCUMENTS in other[tab.answer]

    asyncio.run(run())


def test_errors_are_shown(page: PageState) -> None:
    async def run() -> None:
        tab = build_tab(page)
        *_, last = [update async for update in tab._summarize([], BROWSER, "short", "prose", ME)]
        assert tab_of.NONE_SELECTED in last[tab.note] and last[tab.start]["interactive"] is True
        page.jobs.queue_size = 0
        last = (await all_updates(tab))[-1]
        assert tab_of.QUEUE_FULL in last[tab.note] and 'class="error"' in last[tab.note]
        assert last[tab.stop]["visible"] is False and not page.running

    asyncio.run(run())


def test_selecting_a_document_shows_its_last_summary(page: PageState) -> None:
    async def run() -> None:
        tab = build_tab(page)
        await all_updates(tab)
        (document,) = page.library(None).list()
        assert WORD in tab._on_select([document.id], BROWSER, ME)[tab.answer]
        assert tab_of.HAS_DOCUMENTS in tab._on_select(["other"], BROWSER, ME)[tab.answer]

    asyncio.run(run())


def test_only_the_last_summaries_are_kept() -> None:
    history = History()
    for number in range(MAX_SUMMARIES + 3):
        history.put_summary(str(number), number)  # type: ignore[arg-type]
    kept = [history.summary(str(number)) for number in range(MAX_SUMMARIES + 3)]
    assert kept == [None] * 3 + list(range(3, MAX_SUMMARIES + 3))


# -- rendering -------------------------------------------------------------------------------------


@given(TEXTS, TEXTS, TEXTS)
def test_summaries_are_escaped(name: str, statement: str, body: str) -> None:
    progress = SummaryProgress(name)
    progress.add(SummaryBody(body, ()))
    progress.add(Step((Piece(statement, "model"),)))
    shown = RenderedText(streaming_summary(progress)).shown
    assert name in shown and body in shown


def test_each_event_can_be_shown(page: PageState) -> None:
    (document,) = page.library(None).list()
    progress = SummaryProgress("x")
    for event in summarize(page.engine, document):
        if isinstance(event, Summary):
            assert event.text.endswith(progress.body)
        else:
            progress.add(event)
        RenderedText(streaming_summary(progress))


# -- batches in the queue --------------------------------------------------------------------------


def test_a_batch_takes_one_slot_and_raises_its_error(engine: Engine) -> None:
    async def run() -> None:
        jobs = Jobs(engine, 1)

        def work(stream: Any, client: str) -> Iterator[int]:
            yield 1
            while not stream.cancelled:
                time.sleep(0.001)
            yield 2
            raise RuntimeError("it broke")

        stream = jobs.submit_batch(work, "me")
        with pytest.raises(QueueFull):
            jobs.submit_batch(work, "me")
        with pytest.raises(QueueFull):
            jobs.submit(lambda: Request("chat"), "me")
        seen = []
        with pytest.raises(RuntimeError, match="it broke"):
            async for value in stream:
                seen.append(value)
                jobs.cancel()
        assert seen == [1, 2] and jobs.open == 0
        jobs.close()

    asyncio.run(run())


def test_a_cancelled_batch_does_not_wait_for_its_turn(engine: Engine) -> None:
    request = Request("chat", messages=({"role": "user", "content": "x"},), max_tokens=4)
    cancelled = threading.Event()

    async def run() -> None:
        jobs = Jobs(engine, 2)

        def work(stream: Any, client: str) -> Iterator[str]:
            assert cancelled.wait(TIMEOUT_S)
            for _ in range(2):
                with occupied(engine, yields=False):  # the job cannot run before it is attached
                    job = engine.submit(request, client=client)
                    stream.attach(job)
                yield job.result().reason

        stream = jobs.submit_batch(work, "me")
        stream.cancel()
        cancelled.set()
        assert [reason async for reason in stream] == ["cancelled", "cancelled"]
        jobs.close()

    asyncio.run(run())
