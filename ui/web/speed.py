"""The tab *Speed*: one request with and without speculation, side by side.

comparison.py runs and renders the benchmark, speed_examples.py has the requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from time import perf_counter
from typing import TYPE_CHECKING

import gradio as gr

from engine.records import RequestError
from ui.api.jobs import QueueFull
from ui.web import html
from ui.web.comparison import Benchmark, headline_html, run_benchmark, run_html
from ui.web.documents import QUIET, Updates
from ui.web.speed_examples import EXAMPLES, MAX_ANSWER_TOKENS, make_request

if TYPE_CHECKING:
    from ui.web.state import PageState

REPEATS = (1, 3, 5)
ORDERS = (("with speculation", True), ("plain", False))
FRAME_S = 0.05  # seconds between two frames of a replay
QUEUE_FULL = "Too many requests are waiting: try again in a moment."
NOTE = (
    "Both run on the same model, one after the other, and nothing of one run is cached for the "
    "next. The time of decoding is compared; the time to read the prompt is shown separately."
)
Render = tuple[str, str, str]  # headline, run with speculation, plain run


class SpeedTab:
    """The tab's components and event handlers, created in the current block."""

    def __init__(self, page: PageState) -> None:
        self.page = page
        self._build_request()
        self._build_options()
        self._build_result()
        self._wire()

    def _build_request(self) -> None:
        example = EXAMPLES["edit"]
        with gr.Column(elem_classes="tight"):
            self.kind = gr.Radio(
                [(one.name, key) for key, one in EXAMPLES.items()],
                value="edit",
                label="Request",
                elem_id="speed-kind",
            )
            self.expectation = gr.HTML(html.note(example.expectation), elem_id="speed-told")
        self.text = gr.Textbox(
            example.text,
            label="Text, this one or your own",
            lines=8,
            max_lines=8,
            elem_id="speed-text",
            elem_classes="mono-box",
        )
        with gr.Row():
            self.prompt = gr.Textbox(
                example.prompt,
                label=example.prompt_label,
                lines=1,
                max_lines=4,
                scale=4,
                elem_id="speed-asked",
            )
            self.lines = gr.Textbox(
                example.lines,
                label="Lines",
                max_lines=1,
                scale=1,
                min_width=110,
                elem_id="speed-lines",
            )

    def _build_options(self) -> None:
        with gr.Row():
            self.order = gr.Radio(
                ORDERS, value=True, label="First", min_width=240, elem_id="speed-first"
            )
            self.repeats = gr.Radio(
                [("once", 1), *((f"{n} times, medians", n) for n in REPEATS[1:])],
                value=1,
                label="Run each",
                min_width=240,
                elem_id="speed-repeats",
            )
            self.max_tokens = gr.Slider(
                32,
                MAX_ANSWER_TOKENS,
                value=256,
                step=32,
                label="Max tokens of the answer",
                visible=False,
                min_width=240,
                elem_id="speed-most",
            )
        with gr.Row(elem_classes="edit-bar"):
            self.go = gr.Button("Compare", variant="primary", elem_id="speed-go", scale=0)
            self.stop = gr.Button(
                "Stop", variant="stop", elem_id="speed-stop", scale=0, interactive=False
            )
            self.again = gr.Button(
                "Replay both at once", elem_id="speed-replay", scale=0, interactive=False
            )

    def _build_result(self) -> None:
        self.benchmark = gr.State(Benchmark())
        with gr.Column(elem_classes="tight"):
            gr.HTML(html.note(NOTE), elem_id="speed-note")
            self.message = gr.HTML(elem_id="speed-message")
            self.headline = gr.HTML(elem_id="speed-head")
            with gr.Row(elem_classes="lanes"):
                self.speculative = gr.HTML(elem_id="speed-drafted", min_width=300)
                self.plain = gr.HTML(elem_id="speed-plain", min_width=300)
        self.result = [self.headline, self.speculative, self.plain]

    def _wire(self) -> None:
        buttons = [self.go, self.stop]
        request = [self.kind, self.text, self.prompt, self.lines, self.max_tokens]
        example = [self.expectation, self.text, self.prompt, self.lines, self.max_tokens]
        self.kind.change(self._on_kind, [self.kind], example, **QUIET)
        gr.on(
            [self.go.click, self.prompt.submit],
            self._compare,
            [*request, self.order, self.repeats],
            [self.benchmark, self.message, *self.result, *buttons, self.again],
            trigger_mode="once",
            **QUIET,
        ).then(lambda: self._busy(False), None, buttons, **QUIET)
        self.again.click(
            self._replay,
            [self.benchmark],
            [*self.result, *buttons],
            trigger_mode="once",
            **QUIET,
        ).then(lambda: self._busy(False), None, buttons, **QUIET)
        self.stop.click(self._stop, queue=False, **QUIET)

    # -- event handlers ----------------------------------------------------------------------------

    def _on_kind(self, kind: str) -> Updates:
        """Show the example of another kind of request."""
        example = EXAMPLES.get(kind, EXAMPLES["edit"])
        return {
            self.expectation: html.note(example.expectation),
            self.text: gr.update(value=example.text, visible=bool(example.text)),
            self.prompt: gr.update(
                value=example.prompt,
                label=example.prompt_label,
                visible=bool(example.prompt_label),
            ),
            self.lines: gr.update(value=example.lines, visible=bool(example.lines)),
            self.max_tokens: gr.update(visible=not example.lines),
        }

    async def _compare(
        self,
        kind: str,
        text: str,
        prompt: str,
        lines: str,
        max_tokens: int,
        speculative_first: bool,
        repeats: int,
        request: gr.Request,
    ) -> AsyncIterator[Updates]:
        session = str(request.session_hash)
        benchmark = Benchmark()
        cleared = dict.fromkeys((self.message, *self.result), "")
        yield self._busy(True) | cleared | {self.again: gr.update(interactive=False)}
        try:
            compared = make_request(kind, text or "", prompt or "", lines or "", max_tokens)
            repeats = repeats if repeats in REPEATS else 1
            states = run_benchmark(self.page, compared, bool(speculative_first), repeats, session)
            async with aclosing(states):
                async for benchmark in states:
                    current = dict(zip(self.result, render(benchmark), strict=True))
                    yield current | {self.message: run_number(benchmark)}
            replayable = gr.update(interactive=bool(benchmark.pairs))
            yield {self.message: "", self.benchmark: benchmark, self.again: replayable}
        except (RequestError, RuntimeError) as error:
            yield {self.message: html.note(str(error), "error")}
        except QueueFull:
            yield {self.message: html.note(QUEUE_FULL, "error")}

    async def _replay(self, benchmark: Benchmark, request: gr.Request) -> AsyncIterator[Updates]:
        yield self._busy(True)
        frames = replay(self.page, benchmark, str(request.session_hash))
        async with aclosing(frames):
            async for frame in frames:
                yield dict(zip(self.result, frame, strict=True))

    def _stop(self, request: gr.Request) -> None:
        self.page.stop(f"{request.session_hash}-speed")

    def _busy(self, busy: bool) -> Updates:
        return {
            self.go: gr.update(interactive=not busy),
            self.stop: gr.update(interactive=busy),
        }


def render(benchmark: Benchmark, seconds: float | None = None) -> Render:
    """Render the current state; in a replay, that after so many seconds of decoding."""
    sides = (benchmark.speculative, benchmark.plain)
    speculative, plain = (runs[-1] if runs else None for runs in sides)
    if seconds is not None:
        speculative, plain = (run and run.at(seconds) for run in (speculative, plain))
    waiting = not benchmark.stopped
    return (
        headline_html(benchmark, speculative, plain),
        run_html(speculative, True, waiting),
        run_html(plain, False, waiting),
    )


def run_number(benchmark: Benchmark) -> str:
    number = len(benchmark.speculative) + len(benchmark.plain)
    return html.note(f"Run {number} of {2 * benchmark.repeats}")


async def replay(page: PageState, benchmark: Benchmark, session: str) -> AsyncGenerator[Render]:
    """Replay the last run of each mode, in real time and side by side, until it is stopped."""
    sides = (benchmark.speculative, benchmark.plain)
    runs = [side[-1] for side in sides if side and side[-1].marks]
    if not runs:
        return
    start, length_s = perf_counter(), max(run.marks[-1].decode_s for run in runs)
    with page.stoppable(f"{session}-speed") as cancellation:
        while (elapsed_s := perf_counter() - start) < length_s and not cancellation.cancelled:
            yield render(benchmark, elapsed_s)
            await asyncio.sleep(FRAME_S)
        yield render(benchmark)
