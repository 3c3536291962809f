"""Brackets of a piece of text: which closes which. Strings that end on their line are passed over;
comments are not known."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

PAIRS = {")": "(", "]": "[", "}": "{"}
_INSIDE = r"(?:[^{0}\\\n]|\\[^\n])*{0}"
# A lifetime (&'a) and an apostrophe (don't) begin no string; f'...' does.
_SINGLE = r"(?<![\w&<])(?:[rbfuRBFU]{1,2})?'"
TOKEN = re.compile(
    rf'"{_INSIDE.format(chr(34))}|{_SINGLE}{_INSIDE.format(chr(39))}|`{_INSIDE.format("`")}'
    rf"|[()\[\]{{}}]|[\"`]|{_SINGLE}"
)


@dataclass(slots=True)
class Brackets:
    """Places in a text."""

    closed: list[tuple[int, int]] = field(default_factory=list)  # (closer, its opener or -1)
    open: list[int] = field(default_factory=list)  # openers without a closer, outermost first

    @property
    def outer(self) -> list[int]:
        """Closers without an opener."""
        return [closer for closer, opener in self.closed if opener < 0]


def scan(text: str, whole: bool = True) -> Brackets:
    """The brackets of a text. Where it is not `whole` and may go on, what stands behind a quote
    that may begin a string is left open: all that is said stays true of any longer text."""
    found = Brackets()
    for match in TOKEN.finditer(text):
        char, at = match[0], match.start()
        if char[-1] in "\"'`":
            is_string = len(char.lstrip("rbfuRBFU")) > 1
            if not is_string and not whole and text.find("\n", at) < 0:
                break
        elif char not in PAIRS:
            found.open.append(at)
        elif found.open and text[found.open[-1]] == PAIRS[char]:
            found.closed.append((at, found.open.pop()))
        else:
            found.closed.append((at, -1))
    return found
