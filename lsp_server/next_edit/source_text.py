"""A source text scanned for lines, brackets, string literals and indentation.

Deliberately not a parser such as tree-sitter: the text is being typed and often does not parse, and
it may be in a language without a grammar here, so these scanners would have to stay next to one.
Scopes are read off the indentation and are wrong where that does not follow the nesting.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from pathlib import PurePosixPath
from typing import NamedTuple

from lsp_server.next_edit.edit_history import whole_lines

MAX_BRACKET_CHARS = 4000  # characters between an opening bracket and its closing one
MAX_LINES_UP = 2000  # lines searched for the head of a function
MAX_STATEMENT_LINES = 6
MAX_CANDIDATE_CHARS = 600  # characters of the lines that a next edit may change
PROSE_SUFFIXES = frozenset({"", ".md", ".txt", ".rst", ".tex", ".adoc", ".csv", ".log"})
HASH_COMMENT_SUFFIXES = frozenset(
    {".py", ".pyi", ".sh", ".bash", ".rb", ".pl", ".r", ".yaml", ".yml", ".toml"}
)
# None of these scans far for a missing quote, of which there may be many: strings are bounded, and
# what may have several lines ends with the text.
_STRING = r'"(?:[^"\\\r\n]|\\.){0,400}+"' + "|" + r"'(?:[^'\\\r\n]|\\.){0,400}+'"
_TRIPLE_QUOTED = r'"""(?:[^\\]|\\.)*?(?:"""|\\?\Z)' + "|" + r"'''(?:[^\\]|\\.)*?(?:'''|\\?\Z)"
HASH_LITERALS = re.compile(rf"#[^\r\n]*|{_TRIPLE_QUOTED}|{_STRING}", re.DOTALL)
SLASH_LITERALS = re.compile(
    rf"//[^\r\n]*|/\*.*?(?:\*/|\Z)|`(?:[^`\\]|\\.)*+(?:`|\\?\Z)|{_STRING}", re.DOTALL
)
INTERPOLATION = re.compile(r"\{[^{}]*\}")  # code in a string
NO_LITERALS = re.compile(r"(?!)")
FUNCTION_HEAD = re.compile(r"\b(?:def|function|func|fn|fun)\b|\)[^;{}()]*\{\s*$|=>\s*\{?\s*$")
BRANCH_HEAD = re.compile(
    r"\s*\}?\s*(?:if|for|while|switch|else|catch|with|match|elif|do|try|return)\b"
)
CLASS_HEAD = re.compile(r"^\s*(?:\w+\s+)*(?:class|struct|interface|impl|trait|enum)\b\s*(\w*)")


class Item(NamedTuple):
    """One comma-separated item of a bracket, stripped of blanks."""

    start: int
    stop: int
    text: str


class SourceText:
    """One document's text, scanned lazily."""

    def __init__(self, uri: str, text: str) -> None:
        self.uri, self.text = uri, text
        self.suffix = PurePosixPath(uri).suffix.lower()
        self.is_prose = self.suffix in PROSE_SUFFIXES
        self.is_python = self.suffix in (".py", ".pyi")
        has_hash = self.suffix in HASH_COMMENT_SUFFIXES
        self._literals = HASH_LITERALS if has_hash else SLASH_LITERALS
        if self.is_prose:
            self._literals = NO_LITERALS
        self._tokens = re.compile(rf"{self._literals.pattern}|[()\[\]{{}},]", re.DOTALL)

    @cached_property
    def _literal_edges(self) -> list[int]:
        """Offsets at which strings and comments start and stop, alternating."""
        found = []
        for match in self._literals.finditer(self.text):
            start, stop = match.span()
            found.append(start)
            if match[0][0] == "`" or "f" in self.text[max(start - 2, 0) : start].lower():
                for filled in INTERPOLATION.finditer(self.text, start, stop):
                    found += filled.span()
            found.append(stop)
        return found

    def in_string_or_comment(self, at: int) -> bool:
        """Return whether an offset is inside a string literal or a comment."""
        return bisect_right(self._literal_edges, at) % 2 == 1

    def line_span(self, at: int) -> tuple[int, int]:
        return whole_lines(self.text, at, at)

    def line_prefix(self, at: int) -> str:
        """Return the line up to an offset; only its last MAX_CANDIDATE_CHARS characters."""
        return self.text[max(self.line_span(at)[0], at - MAX_CANDIDATE_CHARS) : at]

    def line_number(self, at: int) -> int:
        """Return the number of the line that contains `at`, counted from 1."""
        return 1 + len(re.findall(r"\r\n|\r|\n", self.text[:at]))

    def find_words(self, name: str, start: int = 0, stop: int | None = None) -> Iterator[int]:
        """Yield the offsets at which `name` occurs as a whole word."""
        stop = len(self.text) if stop is None else stop
        at = self.text.find(name, start, stop)
        while at >= 0:
            after = at + len(name)
            if not (
                is_identifier_char(self.text[at - 1 : at])
                or is_identifier_char(self.text[after : after + 1])
            ):
                yield at
            at = self.text.find(name, after, stop)

    # -- around an offset ----------------------------------------------------------------------

    def statement_span(self, start: int, stop: int) -> tuple[int, int]:
        """Extend the lines of a span to close the brackets that are open in them.

        They are not extended if that takes more than MAX_STATEMENT_LINES lines.
        """
        low, high = first = whole_lines(self.text, start, stop)
        for _ in range(MAX_STATEMENT_LINES):
            depth, lowest = self._bracket_depth(low, high)
            if lowest < 0 and low > 0:
                low = self._previous_line(low)[0]
            elif depth > 0 and high < len(self.text):
                high = self.line_span(self._next_line(high))[1]
            else:
                break
        else:
            return first
        return (low, high) if self._line_count(low, high) <= MAX_STATEMENT_LINES else first

    def _line_count(self, start: int, stop: int) -> int:
        return 1 + len(re.findall(r"\r\n|\r|\n", self.text[start:stop]))

    def enclosing_functions(self, at: int, outer: bool = False) -> Iterator[tuple[int, int]]:
        """Yield the spans of the enclosing functions, heads included, the innermost first.

        With `outer`, a function whose head is on the line itself is skipped.
        """
        for start, line in self._outwards(at):
            own = outer and start == self.line_span(at)[0]
            if FUNCTION_HEAD.search(line) and not BRANCH_HEAD.match(line) and not own:
                yield start, self._end(start, _indent(line))

    def neighbouring_lines(self, at: int, count: int) -> Iterator[tuple[int, int]]:
        """Yield the spans of the lines around, nearest first, at most `count` on either side."""
        up = down = self.line_span(at)
        for _ in range(count):
            if down[1] < len(self.text):
                down = self.line_span(self._next_line(down[1]))
                yield down
            if up[0] > 0:
                up = self._previous_line(up[0])
                yield up

    def enclosing_class(self, at: int) -> str | None:
        """Return the name of the class that directly encloses a line.

        None if something else does.
        """
        for start, line in self._outwards(at):
            if start < self.line_span(at)[0]:
                found = CLASS_HEAD.match(line)
                return found[1] if found else None
        return None

    def _outwards(self, at: int) -> Iterator[tuple[int, str]]:
        """Yield the line itself, then each line above that is less indented than the one before."""
        low, high = self.line_span(at)
        line = self.text[low:high]
        yield low, line
        indent = _indent(line) if line.strip() else MAX_BRACKET_CHARS
        for _ in range(MAX_LINES_UP):
            if not low or not indent:
                return
            low, high = self._previous_line(low)
            line = self.text[low:high]
            if line.strip() and line.lstrip()[0] not in ")]}#" and _indent(line) < indent:
                indent = _indent(line)
                yield low, line

    def _end(self, start: int, indent: int) -> int:
        """Find the end of the block whose head starts at `start`."""
        stop = self.line_span(start)[1]
        at = self._next_line(stop)
        while at < len(self.text):
            low, high = self.line_span(at)
            line = self.text[low:high]
            if line.strip():
                if _indent(line) <= indent and line.lstrip()[0] not in ")]}{#":
                    break
                stop = high
            at = self._next_line(high)
        return stop

    def _previous_line(self, low: int) -> tuple[int, int]:
        end = low - 2 if self.text[low - 2 : low] == "\r\n" else low - 1
        return whole_lines(self.text, end, end)

    def _next_line(self, high: int) -> int:
        return high + (2 if self.text[high : high + 2] == "\r\n" else 1)

    # -- brackets ------------------------------------------------------------------------------

    def _bracket_depth(self, start: int, stop: int) -> tuple[int, int]:
        """Count the nesting depth of brackets at the end of a span, and the lowest inside it."""
        depth = lowest = 0
        for match in self._tokens.finditer(self.text, start, stop):
            depth += (match[0] in "([") - (match[0] in ")]")  # braces enclose statements
            lowest = min(lowest, depth)
        return depth, lowest

    def bracket_items(self, opened: int) -> tuple[list[Item], int] | None:
        """Split the bracket that opens at `opened` into its items; also find its closing bracket.

        None if it is not closed.
        """
        depth, begun, found = 0, opened + 1, []
        for match in self._tokens.finditer(self.text, opened, opened + MAX_BRACKET_CHARS):
            mark = match[0]
            if mark in "([{":
                depth += 1
            elif mark in ")]}":
                depth -= 1
            if (mark == "," and depth == 1) or depth == 0:
                found.append(self._item(begun, match.start()))
                begun = match.end()
            if depth == 0:
                if not found[-1].text:  # a trailing comma, or an empty bracket
                    found.pop()
                return found, match.start()
        return None

    def _item(self, start: int, stop: int) -> Item:
        text = self.text[start:stop]
        start += len(text) - len(text.lstrip())
        return Item(start, start + len(text.strip()), text.strip())


def is_identifier_char(char: str) -> bool:
    """Return whether a character may continue an identifier; False for ""."""
    return char == "$" or (bool(char) and f"a{char}".isidentifier())


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))
