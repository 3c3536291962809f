"""Recorded typing: parts of a sample file, and the keys, slips, pauses and jumps that type them.

The recordings are in bench/common/samples/sessions; bench/latency/record.py says how they were
made. At other speeds the time between keys changes, pauses do not.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.common.tasks import CODE, FOLDER, source
from bench.latency.places import STROKE

SESSIONS = FOLDER / "sessions"
RECORDED_WORDS = 60  # words of five keys a minute, in the recordings


@dataclass(frozen=True)
class Part:
    """A part of the finished file that is typed in one go."""

    start: int  # code points, in the finished file
    text: str


@dataclass(frozen=True)
class Step:
    """A moment of a session: `seconds` after the one before, a part has the text `typed`.

    In a pause nothing is typed. A part begins with a jump to it, which takes no time, and a pause.
    """

    part: int
    typed: str
    seconds: float
    is_pause: bool

    def wait(self, words: float) -> float:
        """Return the seconds before this step at a speed in words a minute."""
        return self.seconds if self.is_pause else self.seconds * RECORDED_WORDS / words


@dataclass(frozen=True)
class Session:
    """The typing of one file's parts, in order."""

    name: str
    file: str  # below samples/code
    whole: str  # the finished file
    parts: tuple[Part, ...]
    steps: tuple[Step, ...]

    def head(self, parts: int) -> Session:
        """Return the session of the first parts alone; itself for 0."""
        if not parts:
            return self
        steps = tuple(step for step in self.steps if step.part < parts)
        return replace(self, parts=self.parts[:parts], steps=steps)

    def text(self, part: int, typed: str) -> str:
        """Return the file while a part is typed: those before it are whole, later ones empty."""
        pieces, end = [], 0
        for number, one in sorted(enumerate(self.parts), key=lambda each: each[1].start):
            shown = one.text if number < part else typed if number == part else ""
            pieces += [self.whole[end : one.start], shown]
            end = one.start + len(one.text)
        return "".join(pieces) + self.whole[end:]

    def start(self, part: int) -> int:
        """Return where a part starts in the file while it is typed."""
        own = self.parts[part].start
        return own - sum(len(one.text) for one in self.parts[part + 1 :] if one.start < own)

    def follows(self, part: int, typed: str) -> str:
        """Return what is still to be typed of a part; "" behind a slip."""
        text = self.parts[part].text
        return text[len(typed) :] if text.startswith(typed) else ""

    @cached_property
    def characters(self) -> int:
        return sum(len(one.text) for one in self.parts)


def read_session(path: Path) -> Session:
    """Read a recording. Raises ValueError if it does not type what its file has."""
    record: dict[str, Any] = json.loads(path.read_text("utf-8"))
    whole, parts, steps = source(record["file"]), list[Part](), list[Step]()
    for number, part in enumerate(record["parts"]):
        typed = ""
        steps += [Step(number, typed, 0.0, True), Step(number, typed, part["jump"], True)]
        for stroke in part["strokes"]:
            if "pause" in stroke:
                steps.append(Step(number, typed, stroke["pause"], True))
                continue
            keys = STROKE.findall(stroke.get("keys", "")) or [""] * stroke["erase"]
            for key, milliseconds in zip(keys, stroke["ms"], strict=True):
                typed = typed + key if key else typed[:-1]
                steps.append(Step(number, typed, milliseconds / 1000, False))
        parts.append(Part(part["start"], typed))
        if not whole.startswith(typed, part["start"]):
            raise ValueError(f"{path.name}, part {number}: types what {record['file']} has not")
    return Session(path.stem, record["file"], whole, tuple(parts), tuple(steps))


@contextmanager
def sample_workspace() -> Iterator[Path]:
    """Copy the sample files to a folder, those of the sessions without what is typed in them."""
    with TemporaryDirectory() as name:
        folder = Path(name).resolve()
        shutil.copytree(CODE, folder, dirs_exist_ok=True)
        for session in read_sessions(0):
            (folder / session.file).write_text(session.text(0, ""), "utf-8")
        yield folder


def read_sessions(count: int) -> list[Session]:
    """Read at most `count` recordings, of as many languages as possible; all for 0."""
    return [read_session(path) for path in sorted(SESSIONS.glob("*.json"))[: count or None]]
