"""A typist: replays a recorded session with a program that completes, and takes what is right.

Each key cancels the pending request, changes the document and requests a completion, as an editor
does. Where the recording has a pause, the typist takes the lines on the screen that come next, and
goes on behind them. All times are those of one clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from bench.common.stats import over_tasks, ratio_of_sums
from bench.latency.sessions import Session, Step
from engine.editing.edits import common_prefix

READING_S = 0.25  # seconds on the screen before a suggestion is taken
MIN_TAKEN_CHARS = 3  # characters of a suggestion that is worth a key
CANCELLED_S = 0.04  # seconds within which a cancelled request is to end
LAST_ANSWER_S = 120.0  # seconds to wait for the last answers
Row = dict[str, Any]  # the figures of one session at one speed


@dataclass(frozen=True)
class Answer:
    """What became of a request."""

    text: str  # "" for nothing, and if it was cancelled
    first: float  # when its first characters were there
    at: float  # when it ended


# Waits for at most as many seconds. Returns None if the request has not ended.
Asked = Callable[[float], Answer | None]


class Completer(Protocol):
    """A program that completes, and an editor's buffer of one document."""

    def open(self, file: str, text: str) -> None:
        """Show a document."""

    def move(self, offset: int) -> None:
        """Move the cursor without typing."""

    def press(self, start: int, stop: int, new: str) -> Asked:
        """Replace text, and request a completion behind the new one."""

    def leave(self) -> list[float]:
        """Close the document; return the seconds that each of the editor's own requests took."""

    def cpu_seconds(self) -> float:
        """Return the processor seconds used so far."""


@dataclass(frozen=True)
class Clock:
    """The clock of a replay, in seconds."""

    now: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], object] = time.sleep


WALL_CLOCK = Clock()


@dataclass(frozen=True)
class Press:
    """One change of the text and the answer to it."""

    part: int
    new: str
    follows: str  # what is typed next; "" behind a slip
    at: float
    until: float = math.inf  # the next change or jump
    answer: Answer | None = None  # None: it has not ended

    @property
    def ended_in_time(self) -> bool:
        return self.answer is not None and self.answer.at <= self.until

    @property
    def shown(self) -> str:
        """The suggestion that was on the screen before the next key."""
        return self.answer.text if self.answer and self.ended_in_time else ""

    @property
    def cancelled_in_time(self) -> bool:
        limit = self.until + CANCELLED_S
        return self.answer is not None and not self.ended_in_time and self.answer.at <= limit

    def continues(self, before: Press) -> bool:
        """Return whether this shows the rest of what the press before it showed."""
        typed = self.new + self.shown
        parts = self.part == before.part and bool(self.shown and before.shown)
        return parts and (typed.startswith(before.shown) or before.shown.startswith(typed))


@dataclass(frozen=True)
class Replay:
    """A session that was typed once."""

    presses: list[Press]
    taken: int  # characters of suggestions
    seconds: float
    cpu_seconds: float
    late: float  # seconds by which the latest key was late
    own: list[float]  # seconds of the editor's own requests


def replay(
    session: Session, words: float, completer: Completer, clock: Clock = WALL_CLOCK
) -> Replay:
    """Type a session at a speed in words a minute."""
    completer.open(session.file, session.text(0, ""))
    cpu, began = completer.cpu_seconds(), clock.now()
    made: list[tuple[Press, Asked]] = []
    ends: list[float] = []  # when the next change or jump came
    part, typed, taken, late, at, number = -1, "", 0, 0.0, began, 0
    asked: Asked | None = None
    while number < len(session.steps):
        step, number = session.steps[number], number + 1
        due = at + step.wait(words)
        clock.sleep(max(0.0, due - clock.now()))
        at = clock.now()
        late, after = max(late, at - due), typed
        if step.part != part:
            ends += [at] * (asked is not None)
            part, typed, after, asked = step.part, "", "", None
            completer.move(session.start(part))
        elif not step.is_pause:
            after = step.typed
        elif asked and (answer := asked(0.0)) and at - answer.at >= READING_S:
            text = agreeing_lines(answer.text, session.follows(part, typed))
            if len(text.strip()) >= MIN_TAKEN_CHARS:
                after, taken = typed + text, taken + len(text)
                number = covered(session.steps, number, part, after)
        if after != typed:
            ends += [at] * (asked is not None)
            same, start = common_prefix(typed, after), session.start(part)
            asked = completer.press(start + same, start + len(typed), after[same:])
            made.append((Press(part, after[same:], session.follows(part, after), at), asked))
            typed = after
    ends += [at] * (asked is not None)
    presses = [
        replace(press, until=until, answer=request(LAST_ANSWER_S))
        for (press, request), until in zip(made, ends, strict=True)
    ]
    cpu = completer.cpu_seconds() - cpu
    return Replay(presses, taken, at - began, cpu, late, completer.leave())


def agreeing_lines(offered: str, follows: str) -> str:
    """Return what may be taken of a suggestion: all of it, or the lines that come next."""
    lines = offered.split("\n")
    for count in range(len(lines), 0, -1):
        text = "\n".join(lines[:count])
        is_whole = count == len(lines) or follows[len(text) : len(text) + 1] in ("", "\n")
        if is_whole and follows.startswith(text):
            return text
    return ""


def covered(steps: Sequence[Step], number: int, part: int, typed: str) -> int:
    """Return the number of the first step that text typed ahead does not cover.

    `number`: the next step's. A pause behind the last key that is covered remains.
    """
    last = number
    for later in range(number, len(steps)):
        if steps[later].part != part:
            break
        if not steps[later].is_pause and typed.startswith(steps[later].typed):
            last = later + 1
    return last


# -- figures -----------------------------------------------------------------------------------


def row(session: Session, words: float, made: Replay) -> Row:
    """Return the figures of one session at one speed."""
    presses, whole = made.presses, waits(made.presses, "at")
    new = [
        wait
        for wait, one, before in zip(whole, presses, [None, *presses], strict=False)
        if not (before and one.continues(before))
    ]
    missed = [one for one in presses if not one.ended_in_time]
    shown = [one for one in presses if one.shown and one.follows]
    return {
        "session": session.name,
        "words": words,
        "keys": len(presses),
        **spread("first_s", waits(presses, "first")),
        **spread("whole_s", whole),
        **spread("new_whole_s", new),
        "shown_before_next": share(bool(one.shown) for one in presses),
        "cancelled_in_time": share(one.cancelled_in_time for one in missed),
        "in_time_or_cancelled": share(
            one.ended_in_time or one.cancelled_in_time for one in presses
        ),
        "agrees": share(bool(agreeing_lines(one.shown, one.follows).strip()) for one in shown),
        "accepted_characters": made.taken,
        "accepted_share": made.taken / session.characters,
        "cpu_s": made.cpu_seconds,
        "cpu_s_per_minute": 60 * made.cpu_seconds / made.seconds,
        "late_key_ms": 1000 * made.late,
        "own_request_ms": 1000 * max(made.own) if made.own else None,
    }


def waits(presses: Sequence[Press], which: str) -> list[float | None]:
    """Return the seconds from each key until a suggestion is on the screen, its own or a later one.

    None where the program says in time that it has nothing, or has nothing more for the part.
    `which`: "first" or "at", times of an Answer.
    """
    found: list[float | None] = []
    part, next_shown = -1, None
    for one in reversed(presses):
        if one.part != part:
            part, next_shown = one.part, None
        if one.answer and one.shown:
            next_shown = getattr(one.answer, which)
        is_empty = one.ended_in_time and not one.shown
        found.append(None if next_shown is None or is_empty else next_shown - one.at)
    return found[::-1]


def spread(name: str, values: Sequence[float | None]) -> dict[str, float | None]:
    """Median and 90th percentile; None if there are no values."""
    known = [value for value in values if value is not None]
    p50, p90 = np.percentile(known, [50, 90]).tolist() if known else (None, None)
    return {f"{name}_p50": p50, f"{name}_p90": p90}


def share(values: Iterator[bool]) -> float | None:
    known = [*values]
    return sum(known) / len(known) if known else None


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return each figure's median over sessions with its interval, and the longest stalls.

    The processor seconds of an accepted character are the sum of all sessions' over that of their
    characters, likewise with an interval.
    """
    figures: dict[str, Any] = {}
    for name in rows[0]:
        values = [one[name] for one in rows if one[name] is not None]
        if name.endswith("_ms"):
            figures[f"{name}_max"] = max(values, default=None)
        elif name not in ("session", "words", "cpu_s"):
            figures[name] = [*over_tasks(values)] if values else None
    work = [(one["cpu_s"], one["accepted_characters"]) for one in rows]
    accepts = any(characters for _, characters in work)
    figures["cpu_s_per_accepted_character"] = [*ratio_of_sums(work)] if accepts else None
    return figures
