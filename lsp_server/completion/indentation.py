"""The lines around a cursor and their indentation.

`before` and `after` are the text on either side of the cursor, or as much of it as matters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice, pairwise

BLOCK_OPENER = re.compile(r"(?:[\[({:]|\b(?:do|then|begin)|=>|->)[ \t]*$")
MAX_LINES = 400  # lines scanned on either side


def reindent(answer: str, before: str) -> str:
    """Drop the start of an answer that repeats the end of the cursor's line.

    That may be indentation, a blank, or the start of a word that the answer writes again.
    """
    line = line_before(before)
    text = answer.lstrip(" \t")
    blanks = answer[: len(answer) - len(text)]
    if line.strip():
        word = re.search(r"\w{2,}$", line)
        if word and blanks and re.match(rf"{word[0]}\w", text):
            return text[len(word[0]) :]
        return text if line[-1] in " \t" else answer
    most, kept = max_indent(before), blanks
    while kept and indent_width(line + kept) > most:
        kept = kept[1:]
    first, *others = text.split("\n")
    return "\n".join([kept + first, *_moved(others, line, blanks, len(blanks) - len(kept), first)])


def _moved(lines: list[str], line: str, blanks: str, less: int, first: str) -> list[str]:
    """Dedent the lines below a first line that was indented `less` blanks too deep with it."""
    full = [one for one in lines if one.strip()]
    deep = indent_width(line + blanks) + (BLOCK_OPENER.search(first) is not None)
    if not less or not full or indent_width(full[0]) < deep:
        return lines
    if any(not other.startswith(line + blanks) for other in full):
        return lines
    return [line + one[len(line) + less :] if one.strip() else one for one in lines]


def max_indent(before: str) -> int:
    """Find the deepest indentation allowed at the cursor.

    It is that of the line above, plus one level if it opens a block; at least the cursor's own
    column.
    """
    above = list(islice(lines_above(before), MAX_LINES))
    if not above:
        return indent_width(line_before(before))
    depths = sorted({0, *map(indent_width, above)})
    step = min((deep - each for each, deep in pairwise(depths)), default=4)
    step = step if step > 1 else 4
    return max(
        indent_width(line_before(before)),
        indent_width(above[0]) + (step if BLOCK_OPENER.search(above[0]) else 0),
    )


def enclosing_indent(before: str) -> int:
    """Find the indentation of the line that opens the cursor's block; -1 if there is none."""
    own = indent_width(line_before(before))
    above = (indent_width(above_line) for above_line in islice(lines_above(before), MAX_LINES))
    return next((each for each in above if each < own), -1)


def line_before(before: str) -> str:
    """Return the cursor's line up to the cursor."""
    return before[max(before.rfind("\n"), before.rfind("\r")) + 1 :]


def line_after(after: str) -> str:
    """Return the rest of the cursor's line."""
    found = re.search(r"[\r\n]", after)
    return after[: found.start()] if found else after


def indent_width(line: str) -> int:
    """Count the columns of indentation; a tab advances to the next multiple of 4."""
    blanks = line[: len(line) - len(line.lstrip(" \t"))]
    return len(blanks.expandtabs(4))


def lines_below(after: str) -> Iterator[tuple[int, str]]:
    """Yield the non-empty lines below the cursor, top to bottom: (indentation, text)."""
    for line in re.split(r"\r\n|\r|\n", after, maxsplit=MAX_LINES)[1:MAX_LINES]:
        if line.strip():
            yield indent_width(line), line.strip()


def lines_above(before: str) -> Iterator[str]:
    """Yield the non-empty lines above the cursor, bottom to top."""
    stop = len(before) - len(line_before(before))
    while stop > 0:
        start = max(before.rfind("\n", 0, stop - 1), before.rfind("\r", 0, stop - 1)) + 1
        line = before[start:stop].rstrip("\r\n")
        if line.strip():
            yield line
        stop = start
