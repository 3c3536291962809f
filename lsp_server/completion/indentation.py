"""Lines around a cursor and their indentation. `before` and `after` are the text on either side, or
as much of it as is needed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice, pairwise

OPENS = re.compile(r"(?:[\[({:]|\b(?:do|then|begin)|=>|->)[ \t]*$")
FAR = 400  # lines looked at on either side


def indented(answer: str, before: str) -> str:
    """Without what repeats the end of the cursor's line: its indentation, a blank, or the beginning
    of a word that the answer begins anew."""
    line = line_before(before)
    text = answer.lstrip(" \t")
    blanks = answer[: len(answer) - len(text)]
    if line.strip():
        word = re.search(r"\w{2,}$", line)
        if word and blanks and re.match(rf"{word[0]}\w", text):
            return text[len(word[0]) :]
        return text if line[-1] in " \t" else answer
    most, kept = deepest(before), blanks
    while kept and width(line + kept) > most:
        kept = kept[1:]
    first, *others = text.split("\n")
    return "\n".join([kept + first, *_moved(others, line, blanks, len(blanks) - len(kept), first)])


def _moved(lines: list[str], line: str, blanks: str, less: int, first: str) -> list[str]:
    """The lines below a first one that stood `less` blanks too deep, as far to the left as that
    where they stood with it."""
    full = [one for one in lines if one.strip()]
    deep = width(line + blanks) + (OPENS.search(first) is not None)
    if not less or not full or width(full[0]) < deep:
        return lines
    if any(not one.startswith(line + blanks) for one in full):
        return lines
    return [line + one[len(line) + less :] if one.strip() else one for one in lines]


def deepest(before: str) -> int:
    """How deep a line may stand at the cursor: as the line above, or one step deeper where that
    opens a block; never less than the cursor itself."""
    above = list(islice(lines_above(before), FAR))
    if not above:
        return width(line_before(before))
    depths = sorted({0, *map(width, above)})
    step = min((deep - each for each, deep in pairwise(depths)), default=4)
    step = step if step > 1 else 4
    return max(
        width(line_before(before)), width(above[0]) + (step if OPENS.search(above[0]) else 0)
    )


def around(before: str) -> int:
    """The indentation of the line that begins the block around the cursor's line; -1: of none."""
    own = width(line_before(before))
    above = (width(one) for one in islice(lines_above(before), FAR))
    return next((each for each in above if each < own), -1)


def line_before(before: str) -> str:
    """The cursor's line up to the cursor."""
    return before[max(before.rfind("\n"), before.rfind("\r")) + 1 :]


def line_after(after: str) -> str:
    """The rest of the cursor's line."""
    found = re.search(r"[\r\n]", after)
    return after[: found.start()] if found else after


def width(line: str) -> int:
    """Columns of the indentation; a tab counts to the next multiple of 4."""
    blanks = line[: len(line) - len(line.lstrip(" \t"))]
    return len(blanks.expandtabs(4))


def lines_below(after: str) -> Iterator[tuple[int, str]]:
    """The lines below the cursor's that are not empty, from above: indentation and text."""
    for line in re.split(r"\r\n|\r|\n", after, maxsplit=FAR)[1:FAR]:
        if line.strip():
            yield width(line), line.strip()


def lines_above(before: str) -> Iterator[str]:
    """The lines above the cursor's that are not empty, from below."""
    stop = len(before) - len(line_before(before))
    while stop > 0:
        start = max(before.rfind("\n", 0, stop - 1), before.rfind("\r", 0, stop - 1)) + 1
        line = before[start:stop].rstrip("\r\n")
        if line.strip():
            yield line
        stop = start
