"""A source text with its lines, words and syntax tree."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property

from engine.editing.brackets import scan
from engine.editing.scopes.names import Walker
from engine.editing.syntax import Tree, language_of, parse
from lsp_server.next_edit.edit_history import RecentEdit, has_hyphenated_names, whole_lines

MAX_STATEMENT_LINES = 6
MAX_CANDIDATE_CHARS = 600  # characters of the lines that a next edit may change


class SourceText:
    """One document's text, parsed when its tree is first asked for.

    `path` tells the language; "" if the URI does.
    """

    def __init__(
        self, uri: str, text: str, edits: Sequence[RecentEdit] = (), path: str = ""
    ) -> None:
        self.uri, self.text, self.path = uri, text, path or uri
        self.language = language_of(self.path)
        self.has_hyphens = has_hyphenated_names(self.path)
        self.names: dict[tuple[str, str, frozenset[int]], Walker | None] = {}  # as they were read
        self._before: SourceText | None = None
        self._edits = [edit for edit in edits if edit.uri == uri]

    @cached_property
    def tree(self) -> Tree | None:
        """The syntax tree, without the lines being written if their open brackets break it."""
        tree, text = parse(self.path, self.text), self.text
        for edit in self._edits if tree and tree.root.has_error else ():
            if any(edit.after[at] in "([" for at in scan(edit.after).open):
                blank = re.sub(r"[^\r\n]", " ", edit.after)
                text = text[: edit.start] + blank + text[edit.stop :]
        other = parse(self.path, text) if text != self.text else None
        return other if tree and other and other.errors < tree.errors else tree

    def in_prose(self, offsets: list[int]) -> list[int]:
        """Return those of some offsets, in order, that are in a comment or in documentation."""
        return self.tree.in_text(offsets, prose=True) if self.tree else []

    def line_span(self, at: int) -> tuple[int, int]:
        return whole_lines(self.text, at, at)

    def line_number(self, at: int) -> int:
        """Return the number of the line that contains `at`, counted from 1."""
        return 1 + len(re.findall(r"\r\n|\r|\n", self.text[:at]))

    def find_words(self, name: str, start: int = 0, stop: int | None = None) -> Iterator[int]:
        """Yield the offsets at which `name` occurs as a whole word."""
        stop = len(self.text) if stop is None else stop
        at = self.text.find(name, start, stop)
        while at >= 0:
            after = at + len(name)
            sides = self.text[at - 1 : at], self.text[after : after + 1]
            if self.language == "bash":  # where $ is before a name and not in it
                sides = sides[0].replace("$", ""), sides[1].replace("$", "")
            if not any(
                is_identifier_char(side) or (side == "-" and self.has_hyphens) for side in sides
            ):
                yield at
            at = self.text.find(name, after, stop)

    def statement_span(self, at: int) -> tuple[int, int]:
        """Extend the line around an offset to close the brackets that are open in it.

        It is not extended if that takes more than MAX_STATEMENT_LINES lines.
        """
        low, high = first = self.line_span(at)
        for _ in range(MAX_STATEMENT_LINES):
            if high - low > MAX_CANDIDATE_CHARS:
                break
            found = scan(self.text[low:high])
            if low > 0 and any(self.text[low + each] in ")]" for each in found.unmatched_closers):
                low = self._previous_line(low)[0]
            elif high < len(self.text) and any(self.text[low + one] in "([" for one in found.open):
                high = self.line_span(self._next_line(high))[1]
            else:
                return low, high
        return first

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

    def _previous_line(self, low: int) -> tuple[int, int]:
        end = low - 2 if self.text[low - 2 : low] == "\r\n" else low - 1
        return whole_lines(self.text, end, end)

    def _next_line(self, high: int) -> int:
        return high + (2 if self.text[high : high + 2] == "\r\n" else 1)

    def before(self, edits: Sequence[RecentEdit], edit: RecentEdit) -> tuple[SourceText, int]:
        """Return the text without those edits that are of it, and where one of them was in it."""
        mine = sorted((one for one in edits if one.uri == self.uri), key=lambda one: one.start)
        if self._before is None:
            pieces, at = [], 0
            for one in mine:
                pieces += [self.text[at : one.start], one.before]
                at = one.stop
            text = "".join((*pieces, self.text[at:]))
            self._before = SourceText(self.uri, text, path=self.path)
        above = mine[: mine.index(edit)]
        return self._before, edit.start - sum(len(one.after) - len(one.before) for one in above)


def is_identifier_char(char: str) -> bool:
    """Return whether a character may continue an identifier; False for ""."""
    return char == "$" or (bool(char) and f"a{char}".isidentifier())
