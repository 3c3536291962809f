"""The Speed tab: one request with and without speculation, side by side.

What runs and how it is compared stands in race.py, what is asked in examples.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from time import perf_counter
from typing import TYPE_CHECKING, Any

import gradio as gr

from engine.records import RequestError
from ui.api.jobs import Full
from ui.web import html
from ui.web.comparison import Race, headline, lane, raced
from ui.web.speed_examples import KINDS, MOST_TOKENS, request_of
from ui.web.streaming import Waiting

if TYPE_CHECKING:
    from ui.web.state import Page

REPEATS = (1, 3, 5)
FIRST = (("with speculation", True), ("plain", False))
FRAME = 0.05  # seconds between two pictures of a replay
NOTE = (
    "Both run on the same model, one after the other, and nothing of one run is remembered in the "
    "next. Compared is the time of writing; the reading of the prompt is told apart."
)


def pictures(race: Race, seconds: float | None = None) -> tuple[str, str, str]:
    """Headline and both sides; as they were after so many seconds of writing."""
    drafted, plain = (side[-1] if side else None for side in (race.drafted, race.plain))
    if seconds is not None:
        drafted, plain = (run and run.at(seconds) for run in (drafted, plain))
    waiting = not race.stopped
    return (
        headline(race, drafted, plain),
        lane(drafted, True, waiting),
        lane(plain, False, waiting),
    )


def status(race: Race) -> str:
    """Which run it is."""
    now = len(race.drafted) + len(race.plain)
    return html.note(f"Run {now} of {2 * race.repeats}")


async def replayed(page: Page, race: Race, session: str) -> AsyncGenerator[tuple[str, str, str]]:
    """Both last runs from one start, as fast as each was; until it is stopped."""
    runs = [side[-1] for side in (race.drafted, race.plain) if side and side[-1].marks]
    if not runs:
        return
    name, waiting = f"{session}-speed", Waiting()
    page.running[name] = waiting
    began, long = perf_counter(), max(run.marks[-1][0] for run in runs)
    try:
        while (passed := perf_counter() - began) < long and not waiting.cancelled:
            yield pictures(race, passed)
            await asyncio.sleep(FRAME)
        yield pictures(race)
    finally:
        if page.running.get(name) is waiting:
            del page.running[name]


def add(page: Page) -> None:
    """Put the tab's parts where the caller is."""
    private: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
    first = KINDS["edit"]
    kept = gr.State(Race())
    with gr.Column(elem_classes="tight"):
        kind = gr.Radio(
            [(one.name, key) for key, one in KINDS.items()],
            value="edit",
            label="What is asked",
            elem_id="speed-kind",
        )
        told = gr.HTML(html.note(first.told), elem_id="speed-told")
    text = gr.Textbox(
        first.text,
        label="Text, this one or your own",
        lines=8,
        max_lines=8,
        elem_id="speed-text",
        elem_classes="mono-box",
    )
    with gr.Row():
        asked = gr.Textbox(
            first.asked, label=first.asks, lines=1, max_lines=4, scale=4, elem_id="speed-asked"
        )
        lines = gr.Textbox(
            first.lines, label="Lines", max_lines=1, scale=1, min_width=110, elem_id="speed-lines"
        )
    with gr.Row():
        order = gr.Radio(FIRST, value=True, label="First", min_width=240, elem_id="speed-first")
        repeats = gr.Radio(
            [("once", 1), *((f"{n} times, medians", n) for n in REPEATS[1:])],
            value=1,
            label="Run each",
            min_width=240,
            elem_id="speed-repeats",
        )
        most = gr.Slider(
            *(32, MOST_TOKENS),
            value=256,
            step=32,
            label="Tokens of the answer, at most",
            visible=False,
            min_width=240,
            elem_id="speed-most",
        )
    with gr.Row(elem_classes="edit-bar"):
        go = gr.Button("Compare", variant="primary", elem_id="speed-go", scale=0)
        stop = gr.Button("Stop", variant="stop", elem_id="speed-stop", scale=0, interactive=False)
        again = gr.Button("Replay both at once", elem_id="speed-replay", scale=0, interactive=False)
    with gr.Column(elem_classes="tight"):
        gr.HTML(html.note(NOTE), elem_id="speed-note")
        message = gr.HTML(elem_id="speed-message")
        head = gr.HTML(elem_id="speed-head")
        with gr.Row(elem_classes="lanes"):
            left = gr.HTML(elem_id="speed-drafted", min_width=300)
            right = gr.HTML(elem_id="speed-plain", min_width=300)

    def on_kind(chosen: str) -> dict[Any, Any]:
        one = KINDS.get(chosen, first)
        return {
            told: html.note(one.told),
            text: gr.update(value=one.text, visible=bool(one.text)),
            asked: gr.update(value=one.asked, label=one.asks, visible=bool(one.asks)),
            lines: gr.update(value=one.lines, visible=bool(one.lines)),
            most: gr.update(visible=not one.lines),
        }

    def busy(now: bool) -> dict[Any, Any]:
        return {
            go: gr.update(interactive=not now),
            stop: gr.update(interactive=now),
        }

    async def on_go(
        chosen: str,
        given: str,
        question: str,
        range_: str,
        tokens: int,
        drafted_first: bool,
        times: int,
        request: gr.Request,
    ) -> AsyncIterator[dict[Any, Any]]:
        session = str(request.session_hash)
        race = Race()
        yield (
            busy(True)
            | dict.fromkeys((message, head, left, right), "")
            | {again: gr.update(interactive=False)}
        )
        try:
            wanted = request_of(chosen, given or "", question or "", range_ or "", tokens)
            times = times if times in REPEATS else 1
            async with aclosing(raced(page, wanted, bool(drafted_first), times, session)) as races:
                async for race in races:
                    out = dict(zip((head, left, right), pictures(race), strict=True))
                    yield out | {message: status(race)}
            done = bool(race.pairs)
            yield {message: "", kept: race, again: gr.update(interactive=done)}
        except (RequestError, RuntimeError) as error:
            yield {message: html.note(str(error), "error")}
        except Full:
            said = "too many requests wait here: try again soon"
            yield {message: html.note(said, "error")}

    async def on_replay(race: Race, request: gr.Request) -> AsyncIterator[dict[Any, Any]]:
        yield busy(True)
        async with aclosing(replayed(page, race, str(request.session_hash))) as all_shots:
            async for shots in all_shots:
                yield dict(zip((head, left, right), shots, strict=True))

    def on_stop(request: gr.Request) -> None:
        page.stop(f"{request.session_hash}-speed")

    buttons = [go, stop]
    kind.change(on_kind, [kind], [told, text, asked, lines, most], **private)
    gr.on(
        [go.click, asked.submit],
        on_go,
        [kind, text, asked, lines, most, order, repeats],
        [kept, message, head, left, right, *buttons, again],
        trigger_mode="once",
        **private,
    ).then(lambda: busy(False), None, buttons, **private)
    again.click(
        on_replay, [kept], [head, left, right, *buttons], trigger_mode="once", **private
    ).then(lambda: busy(False), None, buttons, **private)
    stop.click(on_stop, queue=False, **private)
