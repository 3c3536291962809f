"""The Summarize tab without a browser (progress, stopping, resuming), and batches in the queue."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import Config, Engine
from engine.rag.summarize import Summary, SummaryDelta, SummaryTask, TaskResult, summarize
from engine.rag.summary_plan import SummaryOptions
from engine.records import Piece, Request, Step
from tests.support.questions import make_model
from tests.support.server import TIMEOUT_S, occupied
from tests.web.test_page import HOSTILE, RenderedText
from ui.api.jobs import Jobs, QueueFull
from ui.eta import Eta, format_duration
from ui.web import summarize as tab_of
from ui.web import summary_html
from ui.web.state import PageState
from ui.web.summarize import SessionSummaries, SummarizeTab
from ui.web.summary_html import SummaryProgress

WORD = "FLASK_DEBUG"
TEXT = f"The variable {WORD} is mentioned once.\n\n" + "\n\n".join(
    f"# Part {n}\n\n" + f"And a few words of part {n}. " * 40 for n in range(4)
)
ME = gr.Request(session_hash="me")
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


def start_summary(
    tab: SummarizeTab, summaries: SessionSummaries, style: Any = "prose"
) -> AsyncIterator[Any]:
    selected = [document.id for document in tab.page.library(None).list()]
    return tab._summarize(selected, "long", style, summaries, ME)


async def all_updates(
    tab: SummarizeTab, summaries: SessionSummaries, style: Any = "prose"
) -> list[Any]:
    return [update async for update in start_summary(tab, summaries, style)]


def test_a_summary_streams_and_is_cited(page: PageState) -> None:
    async def run() -> None:
        tab, summaries = build_tab(page), SessionSummaries()
        first, *_, last = await all_updates(tab, summaries)
        assert first[tab.start]["interactive"] is False and first[tab.stop]["visible"] is True
        assert last[tab.start]["interactive"] is True and last[tab.stop]["visible"] is False
        assert last[tab.note] == ""
        (summary,) = summaries.by_id.values()
        assert WORD in summary.entry.text and summary.entry.citations and not summary.entry.stopped
        assert summary.part_count == len(summary.parts) > 2
        assert last[tab.answer].count('class="cite"') == len(summary.entry.citations)
        assert last[tab.parts].count("<details") == summary.part_count
        for button, name in zip(tab.files, (".md", ".json"), strict=True):
            path = Path(last[button]["value"])
            assert path.suffix == name and WORD in path.read_text()
        assert not page.running
        await wait_until_idle(page)
        await all_updates(tab, summaries, "bullets")
        (bullets,) = summaries.by_id.values()
        assert bullets.entry.text.count("\n- ") + 1 >= summary.part_count
        assert bullets.entry.figures == {}, "nothing was generated"
        assert bullets.entry.notes == (tab_of.CACHED,)

    asyncio.run(run())


async def wait_until_idle(page: PageState) -> None:
    """Wait until the batch has released its queue slot."""
    async with asyncio.timeout(180):
        while page.jobs.open:
            await asyncio.sleep(0.01)


class PausedSummaries:
    """Pauses each summary after each finished part until `resume` is set."""

    def __init__(self) -> None:
        self.resume = threading.Event()
        self.tasks: list[SummaryTask] = []  # of all summaries, in order

    def summarize(self, *args: Any, **options: Any) -> Iterator[Any]:
        for event in summarize(*args, **options):
            if isinstance(event, SummaryTask):
                self.tasks.append(event)
            yield event
            if isinstance(event, TaskResult):
                self.resume.wait(180)


@pytest.fixture
def paused(monkeypatch: pytest.MonkeyPatch) -> PausedSummaries:
    """Summaries on the page pause, however fast the model is."""
    paused = PausedSummaries()
    monkeypatch.setattr(tab_of, "summarize", paused.summarize)
    monkeypatch.setattr(tab_of, "MIN_REFRESH_S", 0.0)  # each event is shown
    return paused


def test_a_stopped_summary_can_be_resumed(page: PageState, paused: PausedSummaries) -> None:
    async def run() -> None:
        tab, summaries = build_tab(page), SessionSummaries()
        last: Any = None
        async for last in start_summary(tab, summaries):
            if last.get(tab.parts):
                tab._stop(ME)
                paused.resume.set()
        (summary,) = summaries.by_id.values()
        assert summary.entry.stopped and 0 < len(summary.parts) < summary.part_count
        assert "go on" in last[tab.answer] and WORD in last[tab.answer]
        assert not page.running
        await wait_until_idle(page)
        paused.tasks.clear()
        await all_updates(tab, summaries)
        (whole,) = summaries.by_id.values()
        assert not whole.entry.stopped and whole.parts[: len(summary.parts)] == summary.parts
        cached = [task.cached for task in paused.tasks]
        assert cached == sorted(cached, reverse=True) and sum(cached) == len(summary.parts)

    asyncio.run(run())


def test_closing_the_tab_frees_its_slot(page: PageState, paused: PausedSummaries) -> None:
    async def run() -> None:
        tab, summaries = build_tab(page), SessionSummaries()
        steps = start_summary(tab, summaries)
        for _ in range(3):
            await anext(steps)
        assert page.jobs.open == len(page.running) == 1
        await steps.aclose()  # type: ignore[attr-defined]
        paused.resume.set()
        assert not page.running and not summaries.by_id
        await wait_until_idle(page)

    asyncio.run(run())


def test_errors_are_shown(page: PageState) -> None:
    async def run() -> None:
        tab, summaries = build_tab(page), SessionSummaries()
        *_, last = [update async for update in tab._summarize([], "short", "prose", summaries, ME)]
        assert tab_of.NONE_SELECTED in last[tab.note] and last[tab.start]["interactive"] is True
        page.jobs.queue_size = 0
        last = (await all_updates(tab, summaries))[-1]
        assert tab_of.QUEUE_FULL in last[tab.note] and 'class="error"' in last[tab.note]
        assert last[tab.stop]["visible"] is False and not page.running

    asyncio.run(run())


def test_selecting_a_document_shows_its_last_summary(page: PageState) -> None:
    async def run() -> None:
        tab, summaries = build_tab(page), SessionSummaries()
        await all_updates(tab, summaries)
        (id,) = summaries.by_id
        assert WORD in tab._on_select([id], summaries, ME)[tab.answer]
        assert tab_of.HAS_DOCUMENTS in tab._on_select(["other"], summaries, ME)[tab.answer]

    asyncio.run(run())


def test_only_the_last_summaries_are_kept() -> None:
    summaries = SessionSummaries()
    for number in range(tab_of.MAX_SUMMARIES + 3):
        summaries.put(str(number), None)  # type: ignore[arg-type]
    assert list(summaries.by_id) == [str(number) for number in range(3, tab_of.MAX_SUMMARIES + 3)]


# -- rendering -------------------------------------------------------------------------------------


@given(TEXTS, TEXTS, TEXTS)
def test_summaries_are_escaped(name: str, title: str, text: str) -> None:
    progress = SummaryProgress(name, pieces=[Piece(text, "model")])
    assert text in RenderedText(summary_html.streaming_summary(progress)).shown
    shown = RenderedText(summary_html.parts([(title, text), ("", text)])).shown
    assert text in shown and title in shown


def test_the_streamed_pieces_are_the_summary(page: PageState) -> None:
    (document,) = page.library(None).list()
    progress, shares = SummaryProgress("x"), [0.0]
    for event in summarize(page.engine, document, SummaryOptions("medium", section_tokens=300)):
        if isinstance(event, Summary):
            assert progress.text == event.text
            assert [text for _, text in progress.parts] == [
                section.text for section in event.sections
            ]
            break
        assert isinstance(event, SummaryTask | Step | TaskResult | SummaryDelta)
        progress.add(event)
        shares.append(progress.eta.fraction)
        RenderedText(summary_html.streaming_summary(progress))
    assert all(after > before - 1e-9 for before, after in pairwise(shares)) and shares[-1] == 1
    assert progress.eta.remaining_s is not None and "part " in str(progress.eta)


def test_no_estimate_without_progress() -> None:
    assert Eta().remaining_s is None and str(Eta()) == "waiting"
    assert [format_duration(seconds) for seconds in (0.2, 61, 150)] == ["1 s", "61 s", "2 min"]


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
