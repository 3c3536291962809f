"""A text with the offsets of its lines, and LSP positions in it.

Lines end at "\\n", "\\r\\n" and "\\r" only: not at the form feeds, NEL and U+2028 at which
`str.splitlines` (and so pygls) splits too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ENCODINGS = ("utf-8", "utf-16", "utf-32")  # encodings whose code units LSP positions count
LINE_END = re.compile("\r\n?|\n")
SURROGATE = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """Join surrogate pairs, and replace lone surrogates by U+FFFD. The result can be encoded.

    U+FFFD is as long as a surrogate in UTF-16 and UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return SURROGATE.sub("\ufffd", joined)
    return text


def units(text: str, encoding: str) -> int:
    """Count the code units of a text."""
    if encoding == "utf-32" or text.isascii():
        return len(text)
    return len(text.encode()) if encoding == "utf-8" else len(text.encode("utf-16-le")) // 2


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """An immutable text. Offsets are in code points."""

    text: str  # without lone surrogates
    starts: NDArray[np.int64]  # [lines], offsets; the first is 0

    @classmethod
    def of(cls, text: str) -> Text:
        """Index the lines of a text."""
        text = clean(text)
        return cls(text, np.array([0, *_line_starts(text)], np.int64))

    @property
    def line_count(self) -> int:
        """At least 1: a text with a final line end has an empty last line."""
        return len(self.starts)

    def line(self, number: int) -> tuple[int, int]:
        """Find the start and stop of a line, counted from 0, without its line end."""
        start = int(self.starts[number])
        if number + 1 == len(self.starts):
            return start, len(self.text)
        stop = int(self.starts[number + 1]) - 1
        return start, stop - (self.text[stop - 1 : stop + 1] == "\r\n" and stop > start)

    def line_of(self, offset: int) -> int:
        """Find the line of an offset."""
        return int(np.searchsorted(self.starts, offset, side="right")) - 1

    def offset(self, line: int, character: int, encoding: str) -> int:
        """Find the offset of a position, clamped to the end of its line and of the text.

        A position inside a code point has the offset of the point's start.
        """
        if line >= len(self.starts):
            return len(self.text)
        start, stop = self.line(line)
        # A code point has at least one unit, so the prefix of `character` points suffices.
        head = self.text[start : min(stop, start + character)]
        if encoding == "utf-32" or head.isascii():
            return start + len(head)
        if encoding == "utf-8":
            return start + len(head.encode()[:character].decode("utf-8", "ignore"))
        return start + len(head.encode("utf-16-le")[: 2 * character].decode("utf-16-le", "ignore"))

    def position(self, offset: int, encoding: str) -> tuple[int, int]:
        """Find the line and character of an offset.

        Between "\\r" and "\\n" that is the line's end.
        """
        line = self.line_of(offset)
        start, stop = self.line(line)
        return line, units(self.text[start : min(offset, stop)], encoding)

    def change(self, start: int, stop: int, new: str) -> Text:
        """Return the text with `new` in place of [start, stop)."""
        new, text = clean(new), self.text
        # Line ends change only within the replaced span, widened by a "\r" before and a "\n" after
        # it, which may lose or gain their other half.
        left = start - 1 if text[start - 1 : start] == "\r" else start
        right = stop + 1 if text[stop : stop + 1] == "\n" else stop
        found = _line_starts(text[left:start] + new + text[stop:right], left)
        before = int(np.searchsorted(self.starts, left, side="right"))
        after = int(np.searchsorted(self.starts, right, side="right"))
        moved = self.starts[after:] + (len(new) - (stop - start))
        starts = np.concatenate([self.starts[:before], np.array(found, np.int64), moved])
        return Text("".join((text[:start], new, text[stop:])), starts)


def _line_starts(text: str, base: int = 0) -> list[int]:
    """Find the offsets of all lines but the first."""
    return [base + end.end() for end in LINE_END.finditer(text)]
