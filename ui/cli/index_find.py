"""`draftline index --find`: where a text stands, as `path:line:column  the line`.

It shows what the index found, where the file still says so.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.text import Text

from engine.editing.edits import END
from index.workspace.file_filter import Skipped, read
from index.workspace.workspace import Workspace
from ui.cli.index import count, named, one_line, say, show, show_json


@dataclass(frozen=True, slots=True)
class Place:
    """Code points `start:stop` of a file; `line` and `column` count from 1, lines as an editor."""

    path: str
    line: int
    column: int
    start: int
    stop: int


def find(workspace: Workspace, wanted: str, most: int, as_json: bool) -> bool:
    """Show where a text stands, newest file first; whether it does. Closes the workspace."""
    found: list[tuple[Place, str]] = []
    texts: dict[str, str] = {}
    for span in workspace.find(wanted, most + 1):
        if span.path not in texts:
            texts[span.path] = _text(span.path)
        if texts[span.path][span.start : span.stop] == wanted:  # else it changed meanwhile
            found.append(_place(span.path, texts[span.path], span.start, span.stop))
    workspace.close()
    more, found = len(found) > most, found[:most]
    if as_json:
        show_json({"places": [asdict(place) for place, _ in found], "more": more})
    else:
        for place, line in found:
            _show_place(place, line)
        say(count(len(found), "place") + "; there are more: ask for them by --most" * more)
    return bool(found)


def _text(path: str) -> str:
    try:
        return read(path)
    except Skipped:  # gone meanwhile
        return ""


def _place(path: str, text: str, start: int, stop: int) -> tuple[Place, str]:
    """The place, and its first line without the end."""
    number, first, last = 1, 0, len(text)
    for end in END.finditer(text):
        if end.end() > start:
            last = end.start()
            break
        number, first = number + 1, end.end()
    return Place(path, number, start - first + 1, start, stop), text[first : max(last, first)]


def _show_place(place: Place, line: str) -> None:
    """`path:line:column  the line`; to a terminal, what is around the text in a long line."""
    head = f"{named(place.path)}:{place.line}:{place.column}"
    if not sys.stdout or not sys.stdout.isatty():
        show(f"{head}  {line}")
        return
    console = Console(highlight=False)
    room = max(console.width - len(head) - 2, 40)
    at, length = place.column - 1, place.stop - place.start
    first = min(max(at - room // 4, 0), max(len(line) - room, 0))
    shown = Text(one_line(line[first : first + room]))
    shown.stylize("bold red", at - first, at - first + length)
    head_text = Text(one_line(head), "magenta")
    console.print(Text.assemble(head_text, "  ", shown), soft_wrap=True)
