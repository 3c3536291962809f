"""A source text read by its lines, brackets, strings and indentation: where a name stands, in which
function, and what stands in a bracket.

No parser: a text that is being typed must be read, too, and one reading serves many languages. It
goes wrong where a file is indented otherwise than it is nested.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from pathlib import PurePosixPath
from typing import NamedTuple

from lsp_server.next_edit.edit_history import whole_lines

LONGEST = 4000  # code points between two brackets
UPWARDS = 2000  # lines looked at for the head of a function
TALLEST = 6  # lines of a statement
WIDE = 600  # code points of a place
PROSE = frozenset({"", ".md", ".txt", ".rst", ".tex", ".adoc", ".csv", ".log"})
HASHED = frozenset({".py", ".pyi", ".sh", ".bash", ".rb", ".pl", ".r", ".yaml", ".yml", ".toml"})
_STRING = r'"(?:[^"\\\r\n]|\\.)*"' + "|" + r"'(?:[^'\\\r\n]|\\.)*'"
_LONG = r'"""(?:[^\\]|\\.)*?(?:"""|\Z)' + "|" + r"'''(?:[^\\]|\\.)*?(?:'''|\Z)"
HASH = re.compile(rf"#[^\r\n]*|{_LONG}|{_STRING}", re.DOTALL)
SLASH = re.compile(rf"//[^\r\n]*|/\*.*?(?:\*/|\Z)|`(?:[^`\\]|\\.)*`|{_STRING}", re.DOTALL)
FILLED = re.compile(r"\{[^{}]*\}")  # code in a string
NOTHING = re.compile(r"(?!)")
HEAD = re.compile(r"\b(?:def|function|func|fn|fun)\b|\)[^;{}()]*\{\s*$|=>\s*\{?\s*$")
BRANCH = re.compile(r"\s*\}?\s*(?:if|for|while|switch|else|catch|with|match|elif|do|try|return)\b")
BLOCK = re.compile(r"^\s*(?:\w+\s+)*(?:class|struct|interface|impl|trait|enum)\b\s*(\w*)")


class Part(NamedTuple):
    """What stands between two commas of a bracket, without the blanks around it."""

    start: int
    stop: int
    text: str


class Source:
    """One document's text, read when asked."""

    def __init__(self, uri: str, text: str) -> None:
        self.uri, self.text = uri, text
        self.suffix = PurePosixPath(uri).suffix.lower()
        self.prose = self.suffix in PROSE
        self.python = self.suffix in (".py", ".pyi")
        self._marks = NOTHING if self.prose else HASH if self.suffix in HASHED else SLASH
        self._parts = re.compile(rf"{self._marks.pattern}|[()\[\]{{}},]", re.DOTALL)

    @cached_property
    def _quiet(self) -> list[int]:
        """Where strings and comments start and stop, in turn."""
        found = []
        for match in self._marks.finditer(self.text):
            start, stop = match.span()
            found.append(start)
            if match[0][0] == "`" or "f" in self.text[max(start - 2, 0) : start].lower():
                for filled in FILLED.finditer(self.text, start, stop):
                    found += filled.span()
            found.append(stop)
        return found

    def is_quiet(self, at: int) -> bool:
        """Whether a string or a comment stands there."""
        return bisect_right(self._quiet, at) % 2 == 1

    def line(self, at: int) -> tuple[int, int]:
        return whole_lines(self.text, at, at)

    def left(self, at: int) -> str:
        """The line up to there, the end of it where it is very long."""
        return self.text[max(self.line(at)[0], at - WIDE) : at]

    def number(self, at: int) -> int:
        """The line `at` is in, from 1."""
        return 1 + len(re.findall(r"\r\n|\r|\n", self.text[:at]))

    def line_of(self, at: int) -> str:
        start, stop = self.line(at)
        return self.text[start:stop]

    def words(self, name: str, start: int = 0, stop: int | None = None) -> Iterator[int]:
        """Where `name` stands as a whole word."""
        stop = len(self.text) if stop is None else stop
        at = self.text.find(name, start, stop)
        while at >= 0:
            after = at + len(name)
            if not (joins(self.text[at - 1 : at]) or joins(self.text[after : after + 1])):
                yield at
            at = self.text.find(name, after, stop)

    # -- around a place ------------------------------------------------------------------------

    def statement(self, start: int, stop: int) -> tuple[int, int]:
        """Whole lines around it, and those to the end of brackets that are open there; only the
        lines themselves where these are too many."""
        low, high = first = whole_lines(self.text, start, stop)
        for _ in range(TALLEST):
            depth, lowest = self._depth(low, high)
            if lowest < 0 and low > 0:
                low = self._line_above(low)[0]
            elif depth > 0 and high < len(self.text):
                high = self.line(self._next_line(high))[1]
            else:
                break
        else:
            return first
        return (low, high) if self.number_of_lines(low, high) <= TALLEST else first

    def number_of_lines(self, start: int, stop: int) -> int:
        return 1 + len(re.findall(r"\r\n|\r|\n", self.text[start:stop]))

    def scopes(self, at: int, outer: bool = False) -> Iterator[tuple[int, int]]:
        """The functions around it, the innermost first, by indentation, their heads included;
        outer: but not one whose head is on the line itself."""
        for start, line in self._outwards(at):
            own = outer and start == self.line(at)[0]
            if HEAD.search(line) and not BRANCH.match(line) and not own:
                yield start, self._end(start, _indent(line))

    def near(self, at: int, count: int) -> Iterator[tuple[int, int]]:
        """The lines around, the nearest first, at most `count` of them on either side."""
        up = down = self.line(at)
        for _ in range(count):
            if down[1] < len(self.text):
                down = self.line(self._next_line(down[1]))
                yield down
            if up[0] > 0:
                up = self._line_above(up[0])
                yield up

    def block(self, at: int) -> str | None:
        """The name of the class right around a line; None where there is something else."""
        for start, line in self._outwards(at):
            if start < self.line(at)[0]:
                found = BLOCK.match(line)
                return found[1] if found else None
        return None

    def _outwards(self, at: int) -> Iterator[tuple[int, str]]:
        """The line, and above it always the next one that is less indented."""
        low, high = self.line(at)
        line = self.text[low:high]
        yield low, line
        indent = _indent(line) if line.strip() else LONGEST
        for _ in range(UPWARDS):
            if not low or not indent:
                return
            low, high = self._line_above(low)
            line = self.text[low:high]
            if line.strip() and line.lstrip()[0] not in ")]}#" and _indent(line) < indent:
                indent = _indent(line)
                yield low, line

    def _end(self, start: int, indent: int) -> int:
        """Where the block ends whose head is at `start`."""
        stop = self.line(start)[1]
        at = self._next_line(stop)
        while at < len(self.text):
            low, high = self.line(at)
            line = self.text[low:high]
            if line.strip():
                if _indent(line) <= indent and line.lstrip()[0] not in ")]}{#":
                    break
                stop = high
            at = self._next_line(high)
        return stop

    def _line_above(self, low: int) -> tuple[int, int]:
        end = low - 2 if self.text[low - 2 : low] == "\r\n" else low - 1
        return whole_lines(self.text, end, end)

    def _next_line(self, high: int) -> int:
        return high + (2 if self.text[high : high + 2] == "\r\n" else 1)

    # -- brackets ------------------------------------------------------------------------------

    def _depth(self, start: int, stop: int) -> tuple[int, int]:
        """Of brackets: how many are open at the end, and the least on the way."""
        depth = lowest = 0
        for match in self._parts.finditer(self.text, start, stop):
            depth += (match[0] in "([") - (match[0] in ")]")  # braces hold many statements
            lowest = min(lowest, depth)
        return depth, lowest

    def parts(self, opened: int) -> tuple[list[Part], int] | None:
        """What the bracket that opens there holds, and where its closing one is. None: open."""
        depth, begun, found = 0, opened + 1, []
        for match in self._parts.finditer(self.text, opened, opened + LONGEST):
            mark = match[0]
            if mark in "([{":
                depth += 1
            elif mark in ")]}":
                depth -= 1
            if (mark == "," and depth == 1) or depth == 0:
                found.append(self._part(begun, match.start()))
                begun = match.end()
            if depth == 0:
                if not found[-1].text:  # a comma before the bracket, or nothing at all
                    found.pop()
                return found, match.start()
        return None

    def _part(self, start: int, stop: int) -> Part:
        text = self.text[start:stop]
        start += len(text) - len(text.lstrip())
        return Part(start, start + len(text.strip()), text.strip())


def joins(char: str) -> bool:
    """Whether a character goes on an identifier; "" does not."""
    return char == "$" or (bool(char) and f"a{char}".isidentifier())


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))
