"""An edit as a unified diff, and in one line."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

NO_NEWLINE = "\n\\ No newline at end of file\n"


def diff(old: str, new: str, path: Path) -> str:
    """Write a unified diff that `git apply` and `patch -p1` accept in the current folder."""
    name = _name_in_diff(path)
    before, after = _header("a/" + name), _header("b/" + name)
    head: list[str] = []
    body: list[str] = []
    for line in difflib.unified_diff(lines_of(old), lines_of(new), before, after, lineterm=""):
        if line[0] in " +-" and len(head) == 2:
            body.append(line if line.endswith("\n") else line + NO_NEWLINE)
        else:
            (head if len(head) < 2 else body).append(line + "\n")
    return "".join(head + body)


def summary(old: str, new: str) -> str:
    """Count the lines that were added and removed, for the user."""
    matcher = difflib.SequenceMatcher(None, lines_of(old), lines_of(new), autojunk=False)
    codes = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    removed, added = sum(c[2] - c[1] for c in codes), sum(c[4] - c[3] for c in codes)
    return f"{added} line{'s' * (added != 1)} added, {removed} removed"


def lines_of(text: str) -> list[str]:
    """Split a text into lines with their ends; git ends them at "\\n" only."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _name_in_diff(path: Path) -> str:
    """Make a path relative to the current folder, or to `/` if it is outside (`patch -d /`)."""
    absolute = Path.cwd() / path
    try:
        return absolute.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return absolute.as_posix().lstrip("/")


def _header(name: str) -> str:
    """Write a file name as git does: special characters quoted, a tab after one with blanks."""
    if re.search(r'["\\\x00-\x1f\x7f]', name):
        quoted = re.sub(r'(["\\])', r"\\\1", name)
        return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda c: f"\\{ord(c[0]):03o}", quoted) + '"'
    return name + "\t" if " " in name else name
