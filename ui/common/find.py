"""Find a text in the files of a workspace."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from index.workspace.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Match:
    """Code points `start:stop` of a file; `line` and `column` count from 1, lines as in editors."""

    path: str
    line: int
    column: int
    start: int
    stop: int


def matches(
    workspace: Workspace,
    wanted: str,
    most: int,
    shown: Callable[[str], bool] = lambda path: True,
) -> tuple[list[tuple[Match, str]], bool]:
    """Find at most `most` places of a text, newest file first, each with its first line.

    Returns them, and whether there are more. Only files that are `shown` are searched.
    """
    found: list[tuple[Match, str]] = []
    texts: dict[str, str] = {}
    for span in workspace.find(wanted, most + 1, shown):
        text = texts.setdefault(span.path, "") or _read(span.path)
        texts[span.path] = text
        if text[span.start : span.stop] == wanted:  # else the file has changed since
            found.append(_match(span.path, text, span.start, span.stop))
    return found[:most], len(found) > most


def _read(path: str) -> str:
    """Read a file's text; "" if it is gone."""
    from index.workspace.file_filter import Skipped, read

    try:
        return read(os.path.realpath(path))
    except Skipped:
        return ""


def _match(path: str, text: str, start: int, stop: int) -> tuple[Match, str]:
    """Make the match, and cut out its first line without the line end."""
    from engine.editing.edits import LINE_END

    number, first, last = 1, 0, len(text)
    for end in LINE_END.finditer(text):
        if end.end() > start:
            last = end.start()
            break
        number, first = number + 1, end.end()
    return Match(path, number, start - first + 1, start, stop), text[first : max(last, first)]
