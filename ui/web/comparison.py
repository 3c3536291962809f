"""A benchmark of one request with and without speculation: running, comparing and rendering it.

Both modes use the same model, so they run one after the other, and nothing of one run is cached for
the next. Only decoding is compared. Prefill, which speculation does not affect and which the second
run finds in the KV cache, is reported separately.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from html import escape
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from engine.records import Piece, Request, Step
from ui.web import html
from ui.web.progress import AnswerProgress
from ui.web.streaming import stream_answer

if TYPE_CHECKING:
    from ui.web.state import PageState

LABELS = {True: "with speculation", False: "plain"}
MAX_POINTS = 160  # points of a curve


class Mark(NamedTuple):
    """The state of a run after a forward pass."""

    decode_s: float
    tokens: int
    chars: int


@dataclass
class BenchmarkRun(AnswerProgress):
    """One answer, with the times at which it progressed."""

    speculation: bool = True
    marks: list[Mark] = field(default_factory=list)  # one per forward pass

    def add(self, step: Step) -> None:
        super().add(step)
        if step.prefill is None:
            _, tokens, chars = self.marks[-1] if self.marks else Mark(0.0, 0, 0)
            self.marks.append(
                Mark(self.decode_s, tokens + step.accepted + 1, chars + len(step.text))
            )

    @property
    def complete(self) -> bool:
        return self.done is not None and self.done.reason in ("stop", "length")

    @property
    def measured_decode_s(self) -> float:
        """Including the time for drafting."""
        return self.done.usage.decode_seconds if self.done else self.decode_s

    @property
    def completion_tokens(self) -> int:
        return self.done.usage.completion_tokens if self.done else self.tokens

    @property
    def rate(self) -> float:
        """Tokens per second while decoding."""
        seconds = self.measured_decode_s
        return self.completion_tokens / seconds if seconds else 0.0

    def at(self, seconds: float) -> BenchmarkRun:
        """Return the run as it was after so many seconds of decoding; itself at its end."""
        passed = bisect_right(self.marks, seconds, key=lambda mark: mark.decode_s)
        if passed == len(self.marks):
            return self
        mark = self.marks[passed - 1] if passed else Mark(0.0, 0, 0)
        left = mark.chars
        pieces: list[Piece] = []
        for piece in self.pieces:
            if left > 0:
                pieces.append(piece._replace(text=piece.text[:left]))
            left -= len(piece.text)
        return dataclasses.replace(
            self,
            phase="replaying",
            pieces=pieces,
            tokens_per_pass=self.tokens_per_pass[:passed],
            marks=self.marks[:passed],
            decode_s=mark.decode_s,
            done=None,
        )


@dataclass
class Benchmark:
    """The runs so far. `disturbed`: other requests ran at the same time."""

    repeats: int = 1
    speculative: list[BenchmarkRun] = field(default_factory=list)
    plain: list[BenchmarkRun] = field(default_factory=list)
    disturbed: bool = False
    stopped: bool = False

    @property
    def pairs(self) -> list[tuple[BenchmarkRun, BenchmarkRun]]:
        """Complete runs with and without speculation."""
        pairs = zip(self.speculative, self.plain, strict=False)
        return [pair for pair in pairs if pair[0].complete and pair[1].complete]

    @property
    def equal(self) -> bool:
        """Return whether all complete answers have the same text."""
        runs = (*self.speculative, *self.plain)
        return len({run.text for run in runs if run.complete}) <= 1

    @property
    def speedup(self) -> float:
        """The ratio of the median decoding rates."""
        rates = [median(run.rate for run in side) for side in zip(*self.pairs, strict=True)]
        return rates[0] / rates[1] if rates and rates[1] else 0.0


def run_order(speculative_first: bool, repeats: int) -> list[bool]:
    """Return whether each run speculates: in pairs, of which every other one is reversed."""
    pair = [speculative_first, not speculative_first]
    return [
        speculation
        for index in range(repeats)
        for speculation in (pair if index % 2 == 0 else pair[::-1])
    ]


async def run_benchmark(
    page: PageState, request: Request, speculative_first: bool, repeats: int, session: str
) -> AsyncGenerator[Benchmark]:
    """Run it, and yield its state as it progresses. Raises as `stream_answer` does."""
    benchmark, client = Benchmark(repeats), f"page {session} speed"
    with page.stoppable(f"{session}-speed") as cancellation:
        for speculation in run_order(speculative_first, repeats):
            run = BenchmarkRun(speculation=speculation)
            (benchmark.speculative if speculation else benchmark.plain).append(run)
            steps = stream_answer(
                page, lambda: request, client, cancellation, run, speculation, isolated=True
            )
            async with aclosing(steps):
                async for _ in steps:
                    benchmark.disturbed = benchmark.disturbed or page.jobs.open > 1
                    yield benchmark
            benchmark.stopped = cancellation.cancelled
            if benchmark.stopped:
                break
    yield benchmark


# -- rendering -------------------------------------------------------------------------------------


def run_html(run: BenchmarkRun | None, speculation: bool, waiting: bool) -> str:
    """Return one side of the comparison: figures, tokens per pass and text."""
    label = LABELS[speculation]
    if run is None:
        status = "waits for the other run: there is one model" if waiting else ""
        head = f'<h2>{label}</h2><p class="rate"><b>\u2013</b></p>'
        return f'<div class="lane">{head}<p class="note">{status}</p></div>'
    rows = [("phase", f"{run.phase} {run.detail}".strip())]
    passes = len(run.tokens_per_pass)
    if passes:
        rows += [
            ("decoding", f"{run.measured_decode_s:.2f} s"),
            ("tokens", str(run.completion_tokens)),
            ("passes", f"{passes}, {run.completion_tokens / passes:.1f} tokens each"),
        ]
    if run.done:
        usage = run.done.usage
        prefilled = usage.prompt_tokens - usage.cached_tokens
        tokens = f"{prefilled} of {usage.prompt_tokens} tokens read"
        rows.append(("prompt", f"{tokens} in {usage.prefill_seconds:.2f} s, not counted"))
    items = "".join(f"<div><dt>{key}</dt><dd>{escape(value)}</dd></div>" for key, value in rows)
    rate = f"<b>{run.rate:.0f}</b> tokens/s" if passes else "<b>\u2013</b>"
    text = html.colored(run.pieces, streaming=run.done is None)
    has_legend = speculation and run.pieces
    legend = html.legend(piece.source for piece in run.pieces) if has_legend else ""
    return (
        f'<div class="lane"><h2>{label}</h2><p class="rate">{rate}</p>'
        f'<div class="figures"><dl>{items}</dl>{html.plot(run.tokens_per_pass)}</div>'
        f'<div class="mono{" growing" * (run.done is None)}" tabindex="0" role="group" '
        f'aria-label="text, {label}">{text}</div>{legend}</div>'
    )


def headline_html(
    benchmark: Benchmark, speculative: BenchmarkRun | None, plain: BenchmarkRun | None
) -> str:
    """Return the result so far, and the curves of the given runs."""
    out = []
    if count := len(benchmark.pairs):
        how = f"medians of {count} runs each" if count > 1 else "one run each: repeat for medians"
        out.append(
            f'<p class="verdict"><b>{benchmark.speedup:.2f}\u00d7</b> as fast '
            f"<span>({how}, decoding only)</span></p>"
        )
        if benchmark.equal:
            out.append('<p class="equal">\u2713 Both texts are equal, letter for letter.</p>')
        else:
            out.append(
                html.note("The texts differ: this is a bug in Draftline: report it", "error")
            )
        if not any(run.drafted for run in benchmark.speculative):
            out.append(html.note("Nothing was drafted, so there was nothing to gain."))
    elif benchmark.stopped:
        out.append(html.note("Stopped before both runs were complete: nothing to compare."))
    if benchmark.disturbed:
        out.append(html.note("Other requests ran at the same time: the times are too long."))
    out.append(curves_html(speculative, plain))
    if len(benchmark.pairs) > 1:
        out.append(table_html(benchmark.pairs))
    return f'<div class="race">{"".join(out)}</div>'


def table_html(pairs: Sequence[tuple[BenchmarkRun, BenchmarkRun]]) -> str:
    """Return the figures of each pair."""
    rows = "".join(
        f"<tr><th scope=row>{number}</th><td>{a.rate:.1f}</td><td>{b.rate:.1f}</td>"
        f"<td>{a.measured_decode_s:.2f}</td><td>{b.measured_decode_s:.2f}</td>"
        f"<td>{a.rate / b.rate if b.rate else 0:.2f}\u00d7</td></tr>"
        for number, (a, b) in enumerate(pairs, 1)
    )
    return (
        '<table class="runs"><thead><tr><th scope=col>run</th>'
        "<th scope=col>tokens/s, speculation</th><th scope=col>plain</th>"
        "<th scope=col>seconds, speculation</th><th scope=col>plain</th>"
        f"<th scope=col>ratio</th></tr></thead><tbody>{rows}</tbody></table>"
    )


def curves_html(speculative: BenchmarkRun | None, plain: BenchmarkRun | None) -> str:
    """Tokens over seconds of decoding, both runs in one plot."""
    runs = [run for run in (speculative, plain) if run and run.marks]
    if not runs:
        return ""
    max_tokens = max(run.marks[-1].tokens for run in runs)
    max_s = max(run.marks[-1].decode_s for run in runs) or 1.0
    css_classes = {True: "drafted", False: "plain"}
    lines = "".join(
        f'<polyline class="{css_classes[run.speculation]}" '
        f'points="{_points(run, max_s, max_tokens)}"/>'
        for run in runs
    )
    label = f"tokens over seconds of decoding: up to {max_tokens} tokens, {max_s:.1f} seconds"
    keys = "".join(
        f'<span class="key {css_classes[run.speculation]}">{LABELS[run.speculation]}</span>'
        for run in runs
    )
    return (
        f'<figure class="curves"><svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" '
        f'aria-label="{label}"><title>{label}</title>{lines}</svg>'
        f"<figcaption>{keys}<span>height: {max_tokens} tokens, width: {max_s:.1f} s of decoding"
        "</span></figcaption></figure>"
    )


def _points(run: BenchmarkRun, max_s: float, max_tokens: int) -> str:
    step = max(1, len(run.marks) // MAX_POINTS)
    marks = [Mark(0.0, 0, 0), *run.marks[::step], run.marks[-1]]
    return " ".join(
        f"{100 * mark.decode_s / max_s:.2f},{100 - 100 * mark.tokens / max_tokens:.2f}"
        for mark in marks
    )
