"""An edit as a unified diff, as JSON, and in one line."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from ui.cli.answer_view import Tally, figures
from ui.terminal import visible

if TYPE_CHECKING:
    from engine.editing.outcome import Outcome
    from engine.records import Done

NO_NEWLINE = "\n\\ No newline at end of file\n"
LINE_STYLES = {"+": "green", "-": "red", "@": "cyan", "\\": "dim"}


def diff(old: str, new: str, path: Path) -> str:
    """A unified diff that `git apply` and `patch -p1` accept in the current folder."""
    name = _name_in_diff(path)
    before, after = _header("a/" + name), _header("b/" + name)
    head: list[str] = []
    body: list[str] = []
    for line in difflib.unified_diff(_lines(old), _lines(new), before, after, lineterm=""):
        if line[0] in " +-" and len(head) == 2:
            body.append(line if line.endswith("\n") else line + NO_NEWLINE)
        else:
            (head if len(head) < 2 else body).append(line + "\n")
    return "".join(head + body)


def print_diff(text: str) -> None:
    """Print a diff on a terminal, in colour unless NO_COLOR is set."""
    lines = _lines(text)
    body = [line for line in lines[2:] if line[0] in " +-"]
    if all(line.endswith("\r\n") for line in body):  # CR is shown only if line ends are mixed
        lines = [line.replace("\r\n", "\n") for line in lines]
    shown = Text()
    for number, line in enumerate(lines):
        shown.append(visible(line), "bold" if number < 2 else LINE_STYLES.get(line[0], ""))
    Console(highlight=False).print(shown, end="", soft_wrap=True)


def summary(old: str, new: str) -> str:
    """How many lines were added and removed."""
    matcher = difflib.SequenceMatcher(None, _lines(old), _lines(new), autojunk=False)
    codes = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    removed, added = sum(c[2] - c[1] for c in codes), sum(c[4] - c[3] for c in codes)
    return f"{added} line{'s' * (added != 1)} added, {removed} removed"


def edit_as_json(
    path: Path, old: str, outcome: Outcome, done: Done, refusal: str, tally: Tally
) -> dict[str, Any]:
    """An edit with its figures. If it was refused, `error` says why and there is no text."""
    from engine.editing.edits import changes

    new = outcome.text
    return {
        "path": str(path),
        "changed": new != old,
        "reason": done.reason,
        "error": refusal or None,
        "rule": outcome.rule or None,
        "warnings": outcome.warnings,
        "text": None if refusal else new,
        "diff": diff(old, new, path),
        "edits": [change._asdict() for change in changes(old, new)],
    } | figures(done, tally)


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)  # git ends lines at "\n" only


def _name_in_diff(path: Path) -> str:
    """Relative to the current folder if the file is inside it, else to `/` (`patch -d /`)."""
    absolute = Path.cwd() / path
    try:
        return absolute.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return absolute.as_posix().lstrip("/")


def _header(name: str) -> str:
    """A file name as git writes it: special characters quoted, a tab behind one with blanks."""
    if re.search(r'["\\\x00-\x1f\x7f]', name):
        quoted = re.sub(r'(["\\])', r"\\\1", name)
        return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda c: f"\\{ord(c[0]):03o}", quoted) + '"'
    return name + "\t" if " " in name else name
