"""Finds tables in a text: rows are lines with their cells between " | ", or lines of csv.

`Tables` knows the rows of a part of a document, and writes each as `Head: cell; Head: cell`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import groupby, zip_longest
from typing import NamedTuple

MAX_HEAD_CHARS = 400  # characters; a longer first row does not name columns
MARKDOWN_RULE = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-*:?[ \t]*)*$")
NO_TABLES = ("code", "pdf")  # in code `|` is an operator; rows of a pdf are not known
SEPARATED_VALUES = ("csv", "tsv")
SEPARATORS = ",;\t|"  # of csv
BAR = re.compile(r"(?<!\\)\|")

Span = tuple[int, int]  # start, stop


class Table(NamedTuple):
    """Code points `start:stop` of a text, of which `start:head_stop` name the columns."""

    start: int
    head_stop: int
    stop: int


class TableRow(NamedTuple):
    """A row of a table, code points `start:stop`, with the places of its cells."""

    start: int
    stop: int
    cells: tuple[Span, ...]
    heads: tuple[str, ...]  # the names of the columns; fewer or more than the cells
    table: int  # the number of its table


class Tables:
    """The tables of a part of a document, which may start inside of one.

    Positions are code points of `text`; those of a head above it are negative.
    """

    def __init__(self, kind: str, text: str, head: str = "") -> None:
        """Take a text of this kind of document. `head`: that of the table that it starts in."""
        self.text = text
        self._all = f"{head}\n{text}" if head else text
        self._shift = len(self._all) - len(text)
        self._kind = kind
        self._tables = find_tables(kind, self._all)

    @cached_property
    def rows(self) -> list[TableRow]:
        """All rows but those that name the columns."""
        found = []
        for number, table in enumerate(self._tables):
            split = [*_split_rows(self._kind, self._all, table)]
            heads = next((cells for start, _, cells in split if start < table.head_stop), [])
            names = tuple(" ".join(self._all[start:stop].split()) for start, stop in heads)
            for start, stop, cells in split:
                if start >= table.head_stop:
                    places = tuple((a - self._shift, b - self._shift) for a, b in cells)
                    row = TableRow(start - self._shift, stop - self._shift, places, names, number)
                    found.append(row)
        return found

    def start_of(self, row: TableRow) -> int:
        """Return where the table of a row starts; negative for one that starts above the text."""
        return self._tables[row.table].start - self._shift

    def labelled(self, row: TableRow) -> str:
        """Write a row as `Head: cell; Head: cell`; empty cells are left out."""
        cells = (" ".join(self.text[start:stop].split()) for start, stop in row.cells)
        pairs = zip_longest(row.heads, cells, fillvalue="")
        return "; ".join(f"{head}: {cell}" if head else cell for head, cell in pairs if cell)

    def as_rows(self) -> str:
        """Return the text with each row labelled, and without the rows that name columns."""
        parts, at = [], 0
        for start, rows in self._by_table():
            parts += [self._all[at:start], "\n".join(map(self.labelled, rows))]
            at = rows[-1].stop + self._shift
        return "".join([*parts, self._all[at:]])

    @cached_property
    def prose(self) -> list[Span]:
        """The parts outside of tables, which `as_rows` leaves as they are."""
        borders = [0]
        for start, rows in self._by_table():
            borders += [max(0, start - self._shift), rows[-1].stop]
        borders.append(len(self.text))
        spans = zip(borders[::2], borders[1::2], strict=True)
        return [(start, stop) for start, stop in spans if self.text[start:stop].strip()]

    def _by_table(self) -> Iterator[tuple[int, list[TableRow]]]:
        """Yield where each table starts in the head and the text, and its rows."""
        for number, rows in groupby(self.rows, key=lambda row: row.table):
            yield self._tables[number].start, [*rows]


def find_tables(kind: str, text: str) -> list[Table]:
    """Find the tables of a text of this kind, in order, with a head and at least one row."""
    if kind in NO_TABLES:
        return []
    if kind in SEPARATED_VALUES:
        found = [Table(0, text.find("\n") + 1, len(text))]
    else:
        found = [_table(lines) for lines in _runs(text)]
    return [table for table in found if 0 < table.head_stop - table.start <= MAX_HEAD_CHARS]


def head_at(tables: Sequence[Table], text: str, position: int) -> str:
    """Return the head of the table whose other rows are around a position, "" for none."""
    number = bisect_right(tables, position, key=lambda table: table.head_stop) - 1
    inside = number >= 0 and position < tables[number].stop
    return text[tables[number].start : tables[number].head_stop].strip() if inside else ""


Line = tuple[int, str]  # where it starts; its text with the line end


def _runs(text: str) -> Iterator[list[Line]]:
    """Yield each run of at least two consecutive lines with cells."""
    run: list[Line] = []
    at = 0
    for line in text.splitlines(keepends=True):
        if " | " in line or line.lstrip().startswith("|") or _is_rule(line):
            run.append((at, line))
        else:
            if len(run) > 1:
                yield run
            run = []
        at += len(line)
    if len(run) > 1:
        yield run


def _table(lines: list[Line]) -> Table:
    """Return the table in these lines.

    Its head is the first row, in Markdown with the rule below it.
    """
    head = lines[1] if _is_rule(lines[1][1]) else lines[0]
    start, last = lines[0][0], lines[-1]
    return Table(start, head[0] + len(head[1]), last[0] + len(last[1]))


def _is_rule(line: str) -> bool:
    """Return whether a line is a rule below a head in Markdown, such as `---|:-:`."""
    return "|" in line and MARKDOWN_RULE.match(line.rstrip()) is not None


# -- rows ------------------------------------------------------------------------------------------

RawRow = tuple[int, int, list[Span]]  # start, stop, cells


def _split_rows(kind: str, text: str, table: Table) -> Iterator[RawRow]:
    """Yield the rows of a table, the one that names the columns included."""
    if kind in SEPARATED_VALUES:
        yield from _separated_rows(kind, text, table)
        return
    at = table.start
    for line in text[table.start : table.stop].splitlines(keepends=True):
        if line.strip() and not _is_rule(line):
            yield at, at + len(line.rstrip()), _cells(line, at)
        at += len(line)


def _cells(line: str, at: int) -> list[Span]:
    """Return the places of the cells between the bars of a line that starts at `at`."""
    bars = [match.span() for match in BAR.finditer(line)]
    borders = [0, *(place for bar in bars for place in bar), len(line)]
    found = [_trimmed(line, *span) for span in zip(borders[::2], borders[1::2], strict=True)]
    if line.lstrip().startswith("|"):
        found = found[1:]
    if line.rstrip().endswith("|") and len(found) > 1:
        found = found[:-1]
    return [(at + start, at + stop) for start, stop in found]


def _trimmed(text: str, start: int, stop: int) -> Span:
    part = text[start:stop]
    start = stop - len(part.lstrip())
    return start, start + len(part.strip())


def _separated_rows(kind: str, text: str, table: Table) -> Iterator[RawRow]:
    """Yield the rows of csv or tsv; a quoted cell may have line ends."""
    counts = Counter(text[table.start : table.head_stop])
    separator = "\t" if kind == "tsv" else max(SEPARATORS, key=lambda sign: counts[sign])
    sign = re.escape(separator)
    end = rf"({sign}|\r?\n|\r|\Z)"
    cell = re.compile(rf'"((?:[^"]|"")*)"[ \t]*{end}|([^{sign}\r\n]*){end}')
    start = at = table.start
    cells: list[Span] = []
    while at < table.stop and (match := cell.match(text, at, table.stop)):
        group = 1 if match[1] is not None else 3
        cells.append(_trimmed(text, *match.span(group)))
        at = match.end()
        if match[group + 1] != separator:
            if any(first < last for first, last in cells):
                yield start, match.start(group + 1), cells
            start, cells = at, []
    if cells:
        yield start, at, cells
