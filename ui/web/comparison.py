"""One request with and without speculation: the runs, what is compared of them, how it looks.

Both run on one model, so one after the other; nothing of one run is remembered in the next. What is
compared is writing alone; the reading of the prompt, which speculation does not touch and which
the second run finds done, is told apart.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from html import escape
from statistics import median
from typing import TYPE_CHECKING

from engine.records import Piece, Request, Step
from ui.api.jobs import Answer
from ui.web import html
from ui.web.streaming import Live, follow

if TYPE_CHECKING:
    from ui.web.state import Page

NAMES = {True: "with speculation", False: "plain"}
POINTS = 160  # of a curve


@dataclass
class Run(Live):
    """One answer, and how far it was when."""

    speculation: bool = True
    marks: list[tuple[float, int, int]] = field(default_factory=list)  # seconds, tokens, characters

    def add(self, step: Step) -> None:
        super().add(step)
        if step.prefill is None:
            before = self.marks[-1] if self.marks else (0.0, 0, 0)
            length = before[2] + len(step.text)
            self.marks.append((self.seconds, before[1] + step.accepted + 1, length))

    @property
    def whole(self) -> bool:
        """It came to its end."""
        return self.done is not None and self.done.reason in ("stop", "length")

    @property
    def writing(self) -> float:
        """Seconds of writing, with all that drafting took."""
        return self.done.usage.decode_seconds if self.done else self.seconds

    @property
    def count(self) -> int:
        """Tokens of the answer."""
        return self.done.usage.completion_tokens if self.done else self.tokens

    @property
    def rate(self) -> float:
        """Tokens a second of writing."""
        return self.count / self.writing if self.writing else 0.0

    def at(self, seconds: float) -> Run:
        """What it was after so many seconds of writing; itself at its end."""
        passed = bisect_right(self.marks, seconds, key=lambda mark: mark[0])
        if passed == len(self.marks):
            return self
        time, _, length = self.marks[passed - 1] if passed else (0.0, 0, 0)
        pieces: list[Piece] = []
        for piece in self.pieces:
            if length > 0:
                pieces.append(piece._replace(text=piece.text[:length]))
            length -= len(piece.text)
        return dataclasses.replace(
            self,
            phase="replaying",
            pieces=pieces,
            passes=self.passes[:passed],
            marks=self.marks[:passed],
            seconds=time,
            done=None,
        )


@dataclass
class Race:
    """The runs so far; `busy`: requests of others ran meanwhile."""

    repeats: int = 1
    drafted: list[Run] = field(default_factory=list)
    plain: list[Run] = field(default_factory=list)
    busy: bool = False
    stopped: bool = False

    @property
    def pairs(self) -> list[tuple[Run, Run]]:
        """Runs with and without speculation that came to their ends."""
        pairs = zip(self.drafted, self.plain, strict=False)
        return [pair for pair in pairs if pair[0].whole and pair[1].whole]

    @property
    def equal(self) -> bool:
        """Whether all whole answers are the same text."""
        return len({run.text for run in (*self.drafted, *self.plain) if run.whole}) <= 1

    @property
    def ratio(self) -> float:
        """How many times as fast writing is with speculation: the medians' ratio."""
        rates = [median(run.rate for run in side) for side in zip(*self.pairs, strict=True)]
        return rates[0] / rates[1] if rates and rates[1] else 0.0


def order(drafted_first: bool, repeats: int) -> list[bool]:
    """With speculation or without: each pair in turn, the next one the other way round."""
    pair = [drafted_first, not drafted_first]
    return [one for number in range(repeats) for one in (pair if number % 2 == 0 else pair[::-1])]


async def raced(
    page: Page, request: Request, drafted_first: bool, repeats: int, session: str
) -> AsyncGenerator[Race]:
    """Run it all; the race again and again as it goes. Errors as of `follow`."""
    race, running = Race(repeats), f"{session}-speed"
    for speculation in order(drafted_first, repeats):
        run = Run(speculation=speculation)
        (race.drafted if speculation else race.plain).append(run)
        client = f"page {session} speed"
        following = follow(page, lambda: request, client, running, speculation, run, afresh=True)
        async with aclosing(following) as steps:
            async for _ in steps:
                race.busy = race.busy or page.jobs.open > 1
                yield race
                one = page.running.get(running)
                race.stopped = race.stopped or (isinstance(one, Answer) and one.cancelled)
        if race.stopped:
            break
    yield race


# -- how it looks ----------------------------------------------------------------------------------


def lane(run: Run | None, speculation: bool, waiting: bool) -> str:
    """One side: figures, the tokens of each pass, the text."""
    name = NAMES[speculation]
    if run is None:
        said = "waits for its turn: there is one model" if waiting else ""
        head = f'<h3>{name}</h3><p class="rate"><b>\u2013</b></p>'
        return f'<div class="lane">{head}<p class="note">{said}</p></div>'
    rows = [("phase", f"{run.phase} {run.detail}".strip())]
    if run.passes:
        each = run.count / len(run.passes)
        rows += [
            ("writing", f"{run.writing:.2f} s"),
            ("tokens", str(run.count)),
            ("passes", f"{len(run.passes)}, {each:.1f} tokens each"),
        ]
    if run.done:
        usage = run.done.usage
        read = f"{usage.prompt_tokens - usage.cached_tokens} of {usage.prompt_tokens} tokens read"
        rows.append(("prompt", f"{read} in {usage.prefill_seconds:.2f} s, not counted"))
    items = "".join(f"<div><dt>{key}</dt><dd>{escape(value)}</dd></div>" for key, value in rows)
    rate = f"<b>{run.rate:.0f}</b> tokens/s" if run.passes else "<b>\u2013</b>"
    text = html.coloured(run.pieces, writing=run.done is None)
    legend = html.legend(one.source for one in run.pieces) if speculation and run.pieces else ""
    return (
        f'<div class="lane"><h3>{name}</h3><p class="rate">{rate}</p>'
        f'<div class="figures"><dl>{items}</dl>{html.plot(run.passes)}</div>'
        f'<div class="mono{" growing" * (run.done is None)}" tabindex="0" role="group" '
        f'aria-label="text, {name}">{text}</div>{legend}</div>'
    )


def headline(race: Race, drafted: Run | None, plain: Run | None) -> str:
    """What came out so far, and both curves."""
    out = []
    if race.pairs:
        many = len(race.pairs)
        how = f"medians of {many} runs each" if many > 1 else "one run each: several say more"
        out.append(
            f'<p class="verdict"><b>{race.ratio:.2f}\u00d7</b> as fast '
            f"<span>({how}, writing only)</span></p>"
        )
        if race.equal:
            out.append('<p class="equal">\u2713 Both texts are equal, letter for letter.</p>')
        else:
            said = "The texts differ: a fault of Draftline, please report it"
            out.append(html.note(said, "error"))
        if not any(run.drafted for run in race.drafted):
            out.append(html.note("Nothing was drafted here, so nothing could be gained."))
    elif race.stopped:
        out.append(html.note("Stopped before both had ended: nothing to compare."))
    if race.busy:
        out.append(html.note("Others asked the model meanwhile: times are longer than alone."))
    out.append(curves(drafted, plain))
    if len(race.pairs) > 1:
        out.append(table(race.pairs))
    return f'<div class="race">{"".join(out)}</div>'


def table(pairs: Sequence[tuple[Run, Run]]) -> str:
    """Every pair's figures."""
    rows = "".join(
        f"<tr><th scope=row>{number}</th><td>{a.rate:.1f}</td><td>{b.rate:.1f}</td>"
        f"<td>{a.writing:.2f}</td><td>{b.writing:.2f}</td>"
        f"<td>{a.rate / b.rate if b.rate else 0:.2f}\u00d7</td></tr>"
        for number, (a, b) in enumerate(pairs, 1)
    )
    return (
        '<table class="runs"><thead><tr><th scope=col>run</th>'
        "<th scope=col>tokens/s, speculation</th><th scope=col>plain</th>"
        "<th scope=col>seconds, speculation</th><th scope=col>plain</th>"
        f"<th scope=col>ratio</th></tr></thead><tbody>{rows}</tbody></table>"
    )


def curves(drafted: Run | None, plain: Run | None) -> str:
    """Tokens over seconds of writing, both runs in one picture."""
    runs = [run for run in (drafted, plain) if run and run.marks]
    if not runs:
        return ""
    most = max(run.marks[-1][1] for run in runs)
    long = max(run.marks[-1][0] for run in runs) or 1.0
    kinds = {True: "drafted", False: "plain"}
    lines = "".join(
        f'<polyline class="{kinds[run.speculation]}" points="{_points(run, long, most)}"/>'
        for run in runs
    )
    told = f"tokens over seconds of writing: up to {most} tokens, {long:.1f} seconds"
    keys = "".join(
        f'<span class="key {kinds[run.speculation]}">{NAMES[run.speculation]}</span>'
        for run in runs
    )
    return (
        f'<figure class="curves"><svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" '
        f'aria-label="{told}"><title>{told}</title>{lines}</svg>'
        f"<figcaption>{keys}<span>{most} tokens high, {long:.1f} s of writing wide</span>"
        "</figcaption></figure>"
    )


def _points(run: Run, long: float, most: int) -> str:
    step = max(1, len(run.marks) // POINTS)
    marks = [(0.0, 0, 0), *run.marks[::step], run.marks[-1]]
    return " ".join(f"{100 * s / long:.2f},{100 - 100 * t / most:.2f}" for s, t, _ in marks)
