"""A scripted typist: function bodies of a real file are removed and typed again.

Each keystroke cancels the pending request, changes the document and requests a completion, as an
editor does. Nothing is accepted. The indentation of a new line belongs to the keystroke before it.
"""

from __future__ import annotations

import ast
import random
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.latency.lsp_client import Client, PendingRequest

SEED = 20261121
JITTER = 0.5  # share of the mean by which intervals vary


@dataclass(frozen=True)
class Stretch:
    """A part of a text to remove and type again."""

    text: str  # the whole
    start: int
    stop: int

    @property
    def removed(self) -> str:
        return self.text[: self.start] + self.text[self.stop :]

    def strokes(self) -> list[str]:
        """Return the text of each keystroke; a line break includes the next line's indentation."""
        return re.findall(r"\n[\n ]*|[^\n]", self.text[self.start : self.stop])


@dataclass(frozen=True)
class Press:
    """One keystroke and the response to it. Times are in seconds of one clock."""

    stretch: int
    at: float
    until: float  # when the next one was due
    answered: float | None  # None if cancelled
    offered: str  # "" for nothing
    follows: str  # what is typed next

    @property
    def in_time(self) -> bool:
        return self.answered is not None and self.answered <= self.until

    @property
    def agrees(self) -> bool:
        """Return whether the first line offered is typed next."""
        line, next_line = (_first_line(one) for one in (self.offered, self.follows))
        return bool(line and next_line) and next_line.startswith(line)

    @property
    def useful(self) -> bool:
        """Return whether at least the next keystroke is offered."""
        return bool(self.offered) and self.offered[:1] == self.follows[:1]


def _first_line(text: str) -> str:
    return text.strip("\n").split("\n")[0].strip()


def position(text: str, offset: int) -> dict[str, int]:
    """Return the LSP position of an offset, in UTF-16; lines end in "\\n" only."""
    start = text.rfind("\n", 0, offset) + 1
    column = len(text[start:offset].encode("utf-16-le")) // 2
    return {"line": text.count("\n", 0, offset), "character": column}


def bodies(text: str, least: int) -> list[Stretch]:
    """Find function bodies without docstrings of at least `least` keystrokes."""
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)

    def offset(line: int, column: int) -> int:  # ast counts lines from 1 and bytes of UTF-8
        start = starts[line - 1]
        return start + len(text[start : starts[line]].encode()[:column].decode())

    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        if body:
            first, last = body[0], body[-1]
            assert last.end_lineno and last.end_col_offset is not None
            start = offset(first.lineno, first.col_offset)
            stretch = Stretch(text, start, offset(last.end_lineno, last.end_col_offset))
            if len(stretch.strokes()) >= least:
                found.append(stretch)
    return sorted(found, key=lambda one: one.start)


def sample_stretches(text: str, count: int, least: int) -> list[Stretch]:
    """Return a fixed sample of `count` bodies. Raises ValueError if the file has too few."""
    found = bodies(text, least)
    if len(found) < count:
        raise ValueError(f"{len(found)} function bodies of {least} keystrokes, {count} needed")
    return random.Random(SEED).sample(found, count)


def intervals(per_minute: float, seed: int = SEED) -> Iterator[float]:
    """Yield an endless sequence of seconds between keystrokes, on average 60 / per_minute."""
    chance, mean = random.Random(seed), 60 / per_minute
    while True:
        yield mean * chance.uniform(1 - JITTER, 1 + JITTER)


class Typist:
    """Types into one document of a client."""

    def __init__(self, client: Client, uri: str, text: str) -> None:
        self._client, self._uri, self._version = client, uri, 1
        client.open(uri, text)

    def type(
        self, number: int, stretch: Stretch, keys: int, waits: Iterator[float]
    ) -> tuple[float, list[Press]]:
        """Remove a body and type its first `keys` keystrokes.

        Returns the seconds of the first completion at that place, and the keystrokes. The last
        response is awaited.
        """
        offset = stretch.start
        self._change({"text": stretch.removed})
        first = self._complete(stretch.removed, offset).wait()
        asked: PendingRequest | None = None
        made: list[tuple[PendingRequest, float, float, str]] = []
        due = time.perf_counter() + next(waits)
        for stroke in stretch.strokes()[:keys]:
            time.sleep(max(0.0, due - time.perf_counter()))
            at, due = time.perf_counter(), due + next(waits)
            if asked and not asked.done.is_set():
                self._client.cancel(asked)
            text = stretch.removed[: stretch.start] + stretch.text[stretch.start : offset]
            here = position(text, offset)
            self._change({"range": {"start": here, "end": here}, "text": stroke})
            offset += len(stroke)
            asked = self._complete(text + stroke, offset)
            made.append((asked, at, due, stretch.text[offset : stretch.stop]))
        presses = []
        for asked, at, until, follows in made:
            answer = asked.wait()
            items = [] if answer.cancelled else answer.result["items"]
            offered = items[0]["insertText"] if items else ""
            answered = None if answer.cancelled else answer.at
            presses.append(Press(number, at, until, answered, offered, follows))
        return first.seconds, presses

    def _change(self, change: dict[str, Any]) -> None:
        self._version += 1
        self._client.change(self._uri, self._version, change)

    def _complete(self, text: str, offset: int) -> PendingRequest:
        return self._client.complete(self._uri, position(text, offset))


# -- figures -----------------------------------------------------------------------------------


def until_offered(presses: Sequence[Press]) -> list[float]:
    """Seconds from each keystroke to the first suggestion that an editor shows.

    That is the keystroke's own, or, if it was cancelled or too late, that of a later keystroke.
    Keystrokes with an empty response are left out, as are those with no later suggestion in their
    stretch.
    """
    waits = []
    for number, press in enumerate(presses):
        if press.in_time and not press.offered:
            continue
        seen = (
            later.answered - press.at
            for later in presses[number:]
            if later.stretch == press.stretch
            and later.answered is not None
            and later.offered
            and (later.in_time or _is_last(later, presses))
        )
        if (wait := next(seen, None)) is not None:
            waits.append(wait)
    return waits


def _is_last(press: Press, presses: Sequence[Press]) -> bool:
    return all(one.at <= press.at for one in presses if one.stretch == press.stretch)


def summary(presses: Sequence[Press]) -> dict[str, float | None]:
    """Return the figures of all keystrokes at one speed."""
    answered = [(one, one.answered - one.at) for one in presses if one.answered is not None]
    offered = [one for one in presses if one.offered]
    return {
        **spread("first_suggestion_s", until_offered(presses)),
        **spread("own_suggestion_s", [wait for one, wait in answered if one.offered]),
        **spread("answer_s", [wait for _, wait in answered]),
        "answered_before_next": share(one.in_time for one in presses),
        "offered": share(bool(one.offered) for one in presses),
        "offered_agrees": share(one.agrees for one in offered),
        "offered_next_key": share(one.useful for one in offered),
    }


def spread(name: str, values: Sequence[float]) -> dict[str, float | None]:
    """Median and 95th percentile; None if there are no values."""
    p50, p95 = np.percentile(values, [50, 95]).tolist() if len(values) else (None, None)
    return {f"{name}_p50": p50, f"{name}_p95": p95}


def share(values: Iterator[bool]) -> float | None:
    known = [*values]
    return sum(known) / len(known) if known else None


def wasted(before: dict[str, Any], after: dict[str, Any]) -> float | None:
    """Return the share of the model's time spent on cancelled requests.

    `before` and `after` are two answers to `draftline.stats`.
    """

    def spent(*names: str) -> float:
        new, old = after["answers"], before["answers"]
        return sum(float(new.get(name, 0)) - float(old.get(name, 0)) for name in names)

    whole = spent("reading", "writing")
    return spent("wasted") / whole if whole else None
