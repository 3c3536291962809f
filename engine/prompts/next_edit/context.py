"""The context of a next edit: data that every format builds its prompts from."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.editing.edits import Change
from engine.records import Request

Count = Callable[[str], int]  # tokens of a prompt, in which marks are one token each


class NoEdit(ValueError):
    """The error that there is no next edit; the message says why, in one line."""


@dataclass(frozen=True, slots=True)
class RecentChange:
    """Whole lines of a file before and after an edit, with some unchanged ones around them."""

    path: str
    original: str
    updated: str
    line: int  # the first one's number, from 1


@dataclass(frozen=True, slots=True)
class EditContext:
    """A cursor in a file and what was edited lately. Texts have "\\n" line ends."""

    path: str  # the path that the prompt shows, as it shows all others
    text: str
    cursor: int  # code points
    changes: tuple[RecentChange, ...] = ()  # oldest first
    related: tuple[tuple[str, str], ...] = ()  # (path, text) of definitions in other files
    undo: Change | None = None  # takes back the latest edit of this file


@dataclass(frozen=True, slots=True)
class NextEditPrompt:
    """A prompt with a format's marks, and the lines that its answer rewrites."""

    text: str
    start: int  # the region's start, in code points of the file
    region: str
    before: str  # the region without the latest edit; equal to it where that is elsewhere
    stop: tuple[str, ...]

    @property
    def end(self) -> int:
        return self.start + len(self.region)

    def request(self, path: str, version: int, max_tokens: int) -> Request:
        """Make the request of an answer of at most so many tokens."""
        return Request(
            "complete",
            self.text,
            path,
            version,
            parse_special=True,
            max_tokens=max_tokens,
            stop=self.stop,
        )


def lines_around(text: str, cursor: int, above: int, below: int) -> tuple[int, int]:
    """Code points (start, stop) of the cursor's line and of so many lines above and below it."""
    start, stop = text.rfind("\n", 0, cursor) + 1, text.find("\n", cursor) + 1 or len(text)
    for _ in range(above):
        start = text.rfind("\n", 0, max(start - 1, 0)) + 1
    for _ in range(below):
        stop = text.find("\n", stop) + 1 or len(text)
    return start, stop


def without_latest(context: EditContext, start: int, stop: int) -> str:
    """Return the lines `start:stop` as they were before the latest edit of this file.

    If the edit is not inside them, they are as they are now.
    """
    text, undo = context.text, context.undo
    if undo is None or not start <= undo.start <= undo.stop <= stop:
        return text[start:stop]
    return text[start : undo.start] + undo.text + text[undo.stop : stop]


def check_reserved(text: str, reserved: re.Pattern[str]) -> None:
    """NoEdit where a text has marks: in a prompt they would count."""
    if found := reserved.search(text):
        raise NoEdit(f"the text has {found[0]}, a mark of this model's prompts")


def within(
    limit: int,
    count: Count,
    changes: Sequence[str],
    related: Sequence[str],
    layout: Callable[[list[str], list[str]], str],
) -> str:
    """Return `layout(changes, related)` with what fits `limit` tokens.

    The newest changes come first, then related files. NoEdit if it does not fit without any.
    """
    left = limit - count(layout([], []))
    if left < 0:
        raise NoEdit("the lines at the cursor are too long for the model")
    shown, files = list[str](), list[str]()
    for change in reversed(changes):
        if (cost := count(change)) > left:
            break
        left -= cost
        shown.insert(0, change)
    for file in related:
        if (cost := count(file)) <= left:
            left -= cost
            files.append(file)
    while count(prompt := layout(shown, files)) > limit and (shown or files):
        del (files or shown)[-1 if files else 0]  # the whole has more tokens than its parts
    return prompt


def ended(text: str) -> str:
    """End a text's last line."""
    return text if text.endswith("\n") else f"{text}\n"
