"""An edit as a unified diff, and in one line; and a diff that was given as an edit."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pathlib import Path

from engine.editing.edits import EditRefused

HUNK = re.compile(r"@@(?: .*)?$", re.M)  # the line above a hunk
PATCH = re.compile(r"(?:diff --git .*\n(?:.+\n)*?)?(?:--- .*\n\+\+\+ .*\n)?@@")  # its first lines
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


def is_patch(text: str) -> bool:
    """Return whether a text is a unified diff with a change."""
    return (
        PATCH.match(text) is not None
        and re.search(r"^(?:\+|-)(?!\+\+ |-- )", text, re.M) is not None
    )


def patched(lines: Sequence[str], patch: Sequence[str]) -> list[str]:
    """Return the lines of a file with the hunks of a diff, each in its only place.

    Raises EditRefused where a hunk has none, or several. Line numbers do not count, as models guess
    them.
    """
    heads = [at for at, line in enumerate(patch) if HUNK.match(line)]
    found: list[str] = []
    done = 0
    for at, stop in zip(heads, [*heads[1:], len(patch)], strict=True):
        hunk = [line or " " for line in patch[at + 1 : stop] if not line.startswith("\\")]
        while hunk and not hunk[-1].strip():
            hunk.pop()
        if number := next((n for n, line in enumerate(hunk, at + 2) if line[0] not in " +-"), 0):
            raise EditRefused(
                f"line {number} of the update is none of the diff's: a diff of one file is applied"
            )
        old, new = ([line[1:] for line in hunk if line[0] in " " + sign] for sign in "-+")
        places = [n for n in range(len(lines)) if [*lines[n : n + len(old)]] == old]
        if len(places) != 1 or places[0] < done or not old:
            where = "several places" if len(places) > 1 else "no place"
            raise EditRefused(
                f"the hunk at line {at + 1} of the update fits in {where}: "
                "repeat lines of the file, as they are, before and after the change"
            )
        found += [*lines[done : places[0]], *new]
        done = places[0] + len(old)
    return [*found, *lines[done:]]


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
