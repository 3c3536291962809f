"""The Summarize tab without a browser: progress, stopping and continuing; and batches in the
queue."""

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
from tests.support.server import occupied
from tests.web.test_page import HOSTILE, Read
from ui.api.jobs import Jobs, QueueFull
from ui.eta import Eta, format_duration
from ui.web import summarize as tab_of
from ui.web import summary_html
from ui.web.state import PageState
from ui.web.summarize import SessionSummaries, SummarizeTab
from ui.web.summary_html import SummaryProgress

SAID = "FLASK_DEBUG"
TEXT = f"The variable {SAID} is told once.\n\n" + "\n\n".join(
    f"# Part {n}\n\n" + f"And a few words of part {n}. " * 40 for n in range(4)
)
ME = gr.Request(session_hash="me")
TEXTS = st.text(st.sampled_from("ab <>&\"'`${}\n")) | st.just(HOSTILE)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("chain") / "model"
    make_model(folder, SAID)
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


def built(page: PageState) -> SummarizeTab:
    with gr.Blocks(), gr.Tab("Summarize"):
        return SummarizeTab(page)


def started(tab: SummarizeTab, kept: SessionSummaries, style: Any = "prose") -> AsyncIterator[Any]:
    chosen = [one.id for one in tab.page.library(None).list()]
    return tab._summarize(chosen, "long", style, kept, ME)


async def all_of(tab: SummarizeTab, kept: SessionSummaries, style: Any = "prose") -> list[Any]:
    return [shown async for shown in started(tab, kept, style)]


def test_a_summary_streams_and_is_cited(page: PageState) -> None:
    async def run() -> None:
        tab, kept = built(page), SessionSummaries()
        first, *_, last = await all_of(tab, kept)
        assert first[tab.start]["interactive"] is False and first[tab.stop]["visible"] is True
        assert last[tab.start]["interactive"] is True and last[tab.stop]["visible"] is False
        assert last[tab.note] == ""
        (made,) = kept.by_id.values()
        assert SAID in made.entry.text and made.entry.citations and not made.entry.stopped
        assert made.part_count == len(made.parts) > 2
        assert last[tab.answer].count('class="cite"') == len(made.entry.citations)
        assert last[tab.parts].count("<details") == made.part_count
        for button, name in zip(tab.files, (".md", ".json"), strict=True):
            path = Path(last[button]["value"])
            assert path.suffix == name and SAID in path.read_text()
        assert not page.running
        await freed(page)
        await all_of(tab, kept, "bullets")
        (listed,) = kept.by_id.values()
        assert listed.entry.text.count("\n- ") + 1 >= made.part_count
        assert listed.entry.figures == {}, "nothing was generated"
        assert listed.entry.notes == (tab_of.CACHED,)

    asyncio.run(run())


async def freed(page: PageState) -> None:
    """Wait until the batch has released its slot of the queue."""
    async with asyncio.timeout(180):
        while page.jobs.open:
            await asyncio.sleep(0.01)


class Held:
    """Pauses summaries after each finished part, until `may_go_on`."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.tasks: list[SummaryTask] = []  # of all summaries, in order

    def summarize(self, *given: Any, **more: Any) -> Iterator[Any]:
        for one in summarize(*given, **more):
            if isinstance(one, SummaryTask):
                self.tasks.append(one)
            yield one
            if isinstance(one, TaskResult):
                self.may_go_on.wait(180)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    """Summaries on the page wait for an event, however fast the model is."""
    held = Held()
    monkeypatch.setattr(tab_of, "summarize", held.summarize)
    monkeypatch.setattr(tab_of, "MIN_REFRESH_S", 0.0)  # each event is shown
    return held


def test_a_stopped_summary_can_be_continued(page: PageState, held: Held) -> None:
    async def run() -> None:
        tab, kept = built(page), SessionSummaries()
        last: Any = None
        async for last in started(tab, kept):
            if last.get(tab.parts):
                tab._stop(ME)
                held.may_go_on.set()
        (made,) = kept.by_id.values()
        assert made.entry.stopped and 0 < len(made.parts) < made.part_count
        assert "go on" in last[tab.answer] and SAID in last[tab.answer]
        assert not page.running
        await freed(page)
        held.tasks.clear()
        await all_of(tab, kept)
        (whole,) = kept.by_id.values()
        assert not whole.entry.stopped and whole.parts[: len(made.parts)] == made.parts
        known = [one.cached for one in held.tasks]
        assert known == sorted(known, reverse=True) and sum(known) == len(made.parts)

    asyncio.run(run())


def test_closing_the_tab_frees_its_slot(page: PageState, held: Held) -> None:
    async def run() -> None:
        tab, kept = built(page), SessionSummaries()
        steps = started(tab, kept)
        for _ in range(3):
            await anext(steps)
        assert page.jobs.open == len(page.running) == 1
        await steps.aclose()  # type: ignore[attr-defined]
        held.may_go_on.set()
        assert not page.running and not kept.by_id
        await freed(page)

    asyncio.run(run())


def test_errors_are_shown(page: PageState) -> None:
    async def run() -> None:
        tab, kept = built(page), SessionSummaries()
        *_, last = [one async for one in tab._summarize([], "short", "prose", kept, ME)]
        assert tab_of.NONE_SELECTED in last[tab.note] and last[tab.start]["interactive"] is True
        page.jobs.queue_size = 0
        last = (await all_of(tab, kept))[-1]
        assert tab_of.QUEUE_FULL in last[tab.note] and 'class="error"' in last[tab.note]
        assert last[tab.stop]["visible"] is False and not page.running

    asyncio.run(run())


def test_selecting_a_document_shows_its_last_summary(page: PageState) -> None:
    async def run() -> None:
        tab, kept = built(page), SessionSummaries()
        await all_of(tab, kept)
        (id,) = kept.by_id
        assert SAID in tab._on_select([id], kept, ME)[tab.answer]
        assert tab_of.HAS_DOCUMENTS in tab._on_select(["other"], kept, ME)[tab.answer]

    asyncio.run(run())


def test_only_the_last_summaries_are_kept() -> None:
    kept = SessionSummaries()
    for number in range(tab_of.MAX_SUMMARIES + 3):
        kept.put(str(number), None)  # type: ignore[arg-type]
    assert list(kept.by_id) == [str(number) for number in range(3, tab_of.MAX_SUMMARIES + 3)]


# -- how it looks ----------------------------------------------------------------------------------


@given(TEXTS, TEXTS, TEXTS)
def test_nothing_in_a_summary_is_markup(name: str, title: str, text: str) -> None:
    told = SummaryProgress(name, pieces=[Piece(text, "model")])
    assert text in Read(summary_html.streaming_summary(told)).shown
    shown = Read(summary_html.parts([(title, text), ("", text)])).shown
    assert text in shown and title in shown


def test_the_streamed_pieces_are_the_summary(page: PageState) -> None:
    (document,) = page.library(None).list()
    told, shares = SummaryProgress("x"), [0.0]
    for event in summarize(page.engine, document, SummaryOptions("medium", section_tokens=300)):
        if isinstance(event, Summary):
            assert told.text == event.text
            assert [text for _, text in told.parts] == [one.text for one in event.sections]
            break
        assert isinstance(event, SummaryTask | Step | TaskResult | SummaryDelta)
        told.add(event)
        shares.append(told.eta.fraction)
        Read(summary_html.streaming_summary(told))
    assert all(after > before - 1e-9 for before, after in pairwise(shares)) and shares[-1] == 1
    assert told.eta.remaining_s is not None and "part " in str(told.eta)


def test_no_estimate_without_progress() -> None:
    assert Eta().remaining_s is None and str(Eta()) == "waiting"
    assert [format_duration(one) for one in (0.2, 61, 150)] == ["1 s", "61 s", "2 min"]


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
            async for one in stream:
                seen.append(one)
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
            cancelled.wait()
            for _ in range(2):
                with occupied(engine, yields=False):  # the job cannot run before it is attached
                    job = engine.submit(request, client=client)
                    stream.attach(job)
                yield job.result().reason

        stream = jobs.submit_batch(work, "me")
        stream.cancel()
        cancelled.set()
        assert [one async for one in stream] == ["cancelled", "cancelled"]
        jobs.close()

    asyncio.run(run())
