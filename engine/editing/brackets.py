"""Bracket matching in a fragment of code, in any language.

A scanner rather than a parser: fragments are being written and rarely parse. String literals that
end on their line are skipped; comments are not recognised.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

OPENER_OF = {")": "(", "]": "[", "}": "{"}
_INSIDE = r"(?:[^{0}\\\n]|\\[^\n]){{0,1000}}+{0}"  # bounded, as the closing quote may be missing
# A lifetime (&'a) or an apostrophe (don't) does not start a string; f'...' does.
_SINGLE = r"(?<![\w&<])(?:[rbfuRBFU]{1,2})?'"
TOKEN = re.compile(
    rf'"{_INSIDE.format(chr(34))}|{_SINGLE}{_INSIDE.format(chr(39))}|`{_INSIDE.format("`")}'
    rf"|[()\[\]{{}}]|[\"`]|{_SINGLE}"
)


@dataclass(slots=True)
class Brackets:
    """The brackets of a text, by their offsets."""

    closed: list[tuple[int, int]] = field(default_factory=list)  # (closer, its opener or -1)
    open: list[int] = field(default_factory=list)  # unclosed openers, outermost first

    @property
    def unmatched_closers(self) -> list[int]:
        """The closers without an opener."""
        return [closer for closer, opener in self.closed if opener < 0]


def scan(text: str, complete: bool = True) -> Brackets:
    """Match the brackets of a text.

    Unless the text is `complete`, scanning stops at a quote that may start an unfinished string, so
    the result holds for every continuation of the text.
    """
    found = Brackets()
    for match in TOKEN.finditer(text):
        char, at = match[0], match.start()
        if char[-1] in "\"'`":
            is_string = len(char.lstrip("rbfuRBFU")) > 1
            if not is_string and not complete and text.find("\n", at) < 0:
                break
        elif char not in OPENER_OF:
            found.open.append(at)
        elif found.open and text[found.open[-1]] == OPENER_OF[char]:
            found.closed.append((at, found.open.pop()))
        else:
            found.closed.append((at, -1))
    return found
