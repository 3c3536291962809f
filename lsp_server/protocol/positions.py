"""A document's text with the places where its lines start, and LSP's positions in it.

Line ends are "\\n", "\\r\\n" and "\\r" and nothing else: not the form feeds, NEL and U+2028 at
which `str.splitlines` splits as well. Knows nothing of documents, versions or messages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ENCODINGS = ("utf-8", "utf-16", "utf-32")  # what LSP counts a position's characters in
LINE_END = re.compile("\r\n?|\n")
SURROGATE = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """The text with surrogate pairs joined and lone ones replaced by U+FFFD, which is as long in
    UTF-16 and UTF-8: no later step can fail to encode it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return SURROGATE.sub("\ufffd", joined)
    return text


def units(text: str, encoding: str) -> int:
    """How long a text is in an encoding's code units."""
    if encoding == "utf-32" or text.isascii():
        return len(text)
    return len(text.encode()) if encoding == "utf-8" else len(text.encode("utf-16-le")) // 2


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """One state of a document; a change makes another. Offsets are code points."""

    text: str  # without lone surrogates
    starts: NDArray[np.int64]  # [lines] offsets, the first is 0

    @classmethod
    def of(cls, text: str) -> Text:
        """A whole text; its line ends are looked for."""
        text = clean(text)
        return cls(text, np.array([0, *_line_starts(text)], np.int64))

    @property
    def line_count(self) -> int:
        """At least 1; a text that ends in a line end has an empty last line."""
        return len(self.starts)

    def line(self, number: int) -> tuple[int, int]:
        """Start and stop of a line, from 0, without its line end."""
        start = int(self.starts[number])
        if number + 1 == len(self.starts):
            return start, len(self.text)
        stop = int(self.starts[number + 1]) - 1
        return start, stop - (self.text[stop - 1 : stop + 1] == "\r\n" and stop > start)

    def line_of(self, offset: int) -> int:
        """The line in which an offset stands."""
        return int(np.searchsorted(self.starts, offset, side="right")) - 1

    def offset(self, line: int, character: int, encoding: str) -> int:
        """Where a position stands. Past a line's end: its end; past the last line: the text's end;
        inside a code point: its start."""
        if line >= len(self.starts):
            return len(self.text)
        start, stop = self.line(line)
        # No code point is shorter than one unit, so no more of the line than this is needed.
        head = self.text[start : min(stop, start + character)]
        if encoding == "utf-32" or head.isascii():
            return start + len(head)
        if encoding == "utf-8":
            return start + len(head.encode()[:character].decode("utf-8", "ignore"))
        return start + len(head.encode("utf-16-le")[: 2 * character].decode("utf-16-le", "ignore"))

    def position(self, offset: int, encoding: str) -> tuple[int, int]:
        """Line and character of an offset; between "\\r" and "\\n" it is the line's end."""
        line = self.line_of(offset)
        start, stop = self.line(line)
        return line, units(self.text[start : min(offset, stop)], encoding)

    def change(self, start: int, stop: int, new: str) -> Text:
        """The text with `new` in place of [start, stop)."""
        new, text = clean(new), self.text
        # The window in which line ends may come or go: what is replaced, and the half of a "\r\n"
        # on either side that may lose or find its other half. None reaches over its borders.
        left = start - 1 if text[start - 1 : start] == "\r" else start
        right = stop + 1 if text[stop : stop + 1] == "\n" else stop
        found = _line_starts(text[left:start] + new + text[stop:right], left)
        before = int(np.searchsorted(self.starts, left, side="right"))
        after = int(np.searchsorted(self.starts, right, side="right"))
        moved = self.starts[after:] + (len(new) - (stop - start))
        starts = np.concatenate([self.starts[:before], np.array(found, np.int64), moved])
        return Text("".join((text[:start], new, text[stop:])), starts)


def _line_starts(text: str, base: int = 0) -> list[int]:
    """Where the lines after the first start."""
    return [base + end.end() for end in LINE_END.finditer(text)]
