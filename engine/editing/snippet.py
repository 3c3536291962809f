"""The code of an update, without what agents and chat models write around it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from engine.editing.edits import plain
from engine.editing.update_marks import is_mark

FENCE = re.compile(r"(?:```|~~~)[\w+#.-]*\s*$")
# A comment that says nothing but where the file is: `# File: src/app.py`, `// app.ts`.
SUFFIXES = (
    "pyi?|[cm]?[jt]sx?|go|rs|[ch]|cc|cpp|hpp|java|kt|swift|rb|php|cs|sh|lua|sql|s?css|html|vue|"
    "svelte|toml|ya?ml|ini|cfg"
)
PATH = re.compile(
    rf"\s*(#|//|--|;|%|/\*+|<!--)\s*(?:(?:file(?:name)?|path)\s*:\s*)?`?"
    rf"(?:[\w.@~-]+[\\/])*[\w.@-]+\.(?:{SUFFIXES})`?\s*(?:\*+/|-->)?\s*",
    re.IGNORECASE,
)


def snippet(update: str, file: str = "") -> str:
    """Convert an update to its `plain` form, without what is around the code.

    Blank lines around it go, and so do the code fence that chat models put around code, prose
    around that, and the comment with the file's path above it, unless the file has that line.
    """
    lines = _fenced(plain(update).split("\n"), set(plain(file).split("\n")) - {""})
    mark = next(filter(is_mark, lines), "").lstrip()
    first, last = 0, len(lines)
    while True:
        while first < last and not lines[first].strip():
            first += 1
        while first < last and not lines[last - 1].strip():
            last -= 1
        path = PATH.fullmatch(lines[first]) if last - first > 1 and mark else None
        if path and mark.startswith(path[1][0]) and lines[first] not in plain(file).split("\n"):
            first += 1
            continue
        fence = re.match(r"\s*(```+|~~~+)", lines[first]) if last - first > 1 else None
        if not fence or lines[last - 1].strip() != fence[1]:
            return "\n".join(lines[first:last]).rstrip()
        first, last = first + 1, last - 1


def _fenced(lines: list[str], file: set[str]) -> list[str]:
    """Return the lines of the only fenced block among prose, else all lines."""
    fences = [at for at, line in enumerate(lines) if FENCE.match(line)]
    if len(fences) != 2 or lines[fences[1]].strip() != lines[fences[0]][:3]:
        return lines
    first, last = fences[0], fences[1] + 1
    others = lines[:first] + lines[last:]
    is_prose = not any(line in file or is_mark(line) for line in others)
    return lines[first:last] if is_prose and lines[first] not in file else lines


def indented_like(lines: Sequence[str], file: Sequence[str]) -> list[str]:
    """Indent lines of an update with tabs if the file is indented with tabs alone.

    Most models write spaces. A tab is as wide as the lines that both have say, else as the least
    indentation; the space before a comment's `*` is none. An update that has tabs stays as it is.
    """
    tabs = {line.strip(): len(line) - len(line.lstrip("\t")) for line in file if line[:1] == "\t"}
    indented = (line for line in lines if line[:1] == " " and not line.lstrip().startswith("*"))
    spaces = [len(line) - len(line.lstrip(" ")) for line in indented]
    is_written_so = any(line[:1] == "\t" for line in lines)
    if not tabs or not spaces or is_written_so or any(line[:2] == "  " for line in file):
        return [*lines]
    widths = Counter(
        (len(line) - len(line.lstrip(" "))) // depth
        for line in lines
        if line[:1] == " " and (depth := tabs.get(line.strip(), 0))
    )
    width = max(1, widths.most_common(1)[0][0] if widths else min(spaces))
    found = []
    for line in lines:
        depth, rest = divmod(len(line) - len(line.lstrip(" ")), width)
        found.append("\t" * depth + " " * rest + line.lstrip(" "))
    return found
