"""A running answer, step by step: its text by where it came from, its figures, its phase.

`follow` drives one request for a tab. What it looks like is shown.py's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING

from engine.records import Done, Piece, Request, Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ui.api.jobs import Answer
    from ui.web.state import Page

EVERY = 0.06  # seconds between two pictures of an answer, at least
TICK = 0.5  # seconds between two, at most: the time goes on where nothing else does
WAITING, SEARCHING, READING = "waiting", "searching", "reading"
WRITING, DONE, STOPPED = "writing", "done", "stopped"


@dataclass
class Live:
    """One answer as it is now."""

    costs: Sequence[float] = (1.0,)  # of a pass over 1, 2, ... tokens, to compare
    phase: str = WAITING
    detail: str = ""  # of the phase, for a person
    pieces: list[Piece] = field(default_factory=list)
    passes: list[int] = field(default_factory=list)  # tokens that each pass gave
    drafted: int = 0
    seconds: float = 0.0  # of the passes that wrote
    plain: float = 0.0  # seconds that they would have taken plainly, by what passes cost here
    began: float = field(default_factory=perf_counter)
    ended: float | None = None
    done: Done | None = None

    @property
    def text(self) -> str:
        return self.done.text if self.done else "".join(piece.text for piece in self.pieces)

    @property
    def tokens(self) -> int:
        return sum(self.passes)

    @property
    def elapsed(self) -> float:
        """Seconds since it was asked for."""
        return (self.ended or perf_counter()) - self.began

    @property
    def speed(self) -> float:
        """Tokens a second of writing."""
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def ratio(self) -> float:
        """How many times sooner than plainly, as estimated from what passes cost."""
        return self.plain / self.seconds if self.seconds else 0.0

    def add(self, step: Step) -> None:
        """Take in a forward pass."""
        if step.prefill is not None:
            self.phase, self.detail = READING, "{} of {} tokens".format(*step.prefill)
        else:
            self.phase, self.detail = WRITING, ""
            given = step.accepted + 1
            rows = min(step.drafted, len(self.costs) - 1)
            self.passes.append(given)
            self.drafted += step.drafted
            self.seconds += step.seconds
            self.plain += given * step.seconds * self.costs[0] / self.costs[rows]
        for piece in step.pieces:
            joined = joint(self.pieces[-1], piece) if self.pieces else None
            if joined is None:
                self.pieces.append(piece)
            else:
                self.pieces[-1] = joined

    def end(self, done: Done) -> None:
        """It ended; what a stop string cut off is gone."""
        self.done, self.ended, self.detail = done, perf_counter(), ""
        self.phase = STOPPED if done.reason == "cancelled" else DONE
        left = len(done.text)
        for number, piece in enumerate(self.pieces):
            self.pieces[number] = piece._replace(text=piece.text[:left])
            left -= len(self.pieces[number].text)
        self.pieces = [piece for piece in self.pieces if piece.text]


def joint(one: Piece, other: Piece) -> Piece | None:
    """Two pieces, one after the other, as one; None where their sources differ."""
    if one.source != other.source:
        return None
    before, after = one.span, other.span
    if before is not None and after is not None:
        if (before.path, before.version, before.stop) != (after.path, after.version, after.start):
            return None
        after = replace(before, stop=after.stop)
    elif before is not after:
        return None
    return Piece(one.text + other.text, one.source, after)


class Waiting:
    """Stands for what is about to run: whether it was stopped before."""

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


async def follow(
    page: Page,
    make: Callable[[], Request],
    client: str,
    running: str,
    speculation: bool = True,
    live: Live | None = None,
    afresh: bool = False,
) -> AsyncGenerator[Live]:
    """Ask the engine, and yield the answer now and then, the last time with its `done`.

    `running` names it for `Page.stop`, after which it ends soon, with what is written. If nobody
    takes what is yielded any more, it is cancelled. `afresh`: as in Jobs.ask. Full where too many
    wait; RequestError where it cannot be answered; RuntimeError where the model fails."""
    live = live or Live()
    live.costs = page.costs()
    answer = page.jobs.ask(make, client, speculation, afresh)
    page.running[running] = answer
    try:
        yield live
        await answer.submitted()
        async with aclosing(shown(answer, live)) as pauses:
            async for _ in pauses:
                yield live
        if live.done is not None and live.done.reason == "failed":
            raise RuntimeError(live.done.error)
    finally:
        answer.cancel()
        if page.running.get(running) is answer:
            del page.running[running]


async def shown(answer: Answer, live: Live) -> AsyncGenerator[None]:
    """Take the events in; a pause where there is something new to see, be it only the time."""
    events = aiter(answer)
    last = perf_counter()
    coming = asyncio.ensure_future(anext(events))
    try:
        while live.done is None:
            ended, _ = await asyncio.wait([coming], timeout=TICK)
            if ended:
                event = coming.result()
                if isinstance(event, Done):
                    live.end(event)
                else:
                    live.add(event)
                    coming = asyncio.ensure_future(anext(events))
            if not ended or live.done or perf_counter() - last >= EVERY:
                yield
                last = perf_counter()
                await asyncio.sleep(0)
    finally:
        coming.cancel()
