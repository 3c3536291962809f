"""An edit on a terminal, and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from engine.editing.diff import diff, lines_of
from ui.common.answer_view import Tally, figures
from ui.common.terminal import visible

if TYPE_CHECKING:
    from engine.editing.outcome import Outcome
    from engine.records import Done

LINE_STYLES = {"+": "green", "-": "red", "@": "cyan", "\\": "dim"}


def print_diff(text: str) -> None:
    """Print a diff on a terminal, in colour unless NO_COLOR is set."""
    lines = lines_of(text)
    body = [line for line in lines[2:] if line[0] in " +-"]
    if all(line.endswith("\r\n") for line in body):  # CR is shown only if line ends are mixed
        lines = [line.replace("\r\n", "\n") for line in lines]
    shown = Text()
    for number, line in enumerate(lines):
        shown.append(visible(line), "bold" if number < 2 else LINE_STYLES.get(line[0], ""))
    Console(highlight=False).print(shown, end="", soft_wrap=True)


def edit_as_json(
    path: Path, old: str, outcome: Outcome, done: Done, refusal: str, tally: Tally
) -> dict[str, Any]:
    """Describe an edit with its figures, for JSON.

    If it was refused, `error` says why and there is no text.
    """
    from engine.editing.edits import changes

    new = outcome.text
    return {
        "path": str(path),
        "changed": new != old,
        "reason": done.reason,
        "error": refusal or None,
        "rule": outcome.rule or None,
        "warnings": outcome.warnings,
        "seen": outcome.seen if new != old and not refusal else None,
        "text": None if refusal else new,
        "diff": diff(old, new, path),
        "edits": [change._asdict() for change in changes(old, new)],
    } | figures(done, tally)
