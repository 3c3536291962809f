"""Finds tables in a text: rows are lines with their cells between " | "."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

MAX_HEAD_CHARS = 1000  # characters; a longer first row does not name columns
MARKDOWN_RULE = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-*:?[ \t]*)*$")


class Table(NamedTuple):
    """Code points `start:stop` of a text, of which `start:head_stop` name the columns."""

    start: int
    head_stop: int
    stop: int


def find_tables(kind: str, text: str) -> list[Table]:
    """Find the tables of a text of this kind, in order, with a head and at least one row."""
    if kind == "code":  # `|` is an operator
        return []
    found = [_table(lines) for lines in _runs(text)]
    return [table for table in found if 0 < table.head_stop - table.start <= MAX_HEAD_CHARS]


def head_at(tables: Sequence[Table], text: str, position: int) -> str:
    """Return the head of the table whose other rows are around a position, "" for none."""
    number = bisect_right(tables, position, key=lambda table: table.head_stop) - 1
    inside = number >= 0 and position < tables[number].stop
    return text[tables[number].start : tables[number].head_stop].strip() if inside else ""


def heads_at(kind: str, text: str, positions: Sequence[int], head: str = "") -> list[str]:
    """Return the head of the table around each position, as `head_at` does.

    `head`: that of the table that the text starts inside of.
    """
    above = f"{head}\n" if head else ""
    tables = find_tables(kind, above + text)
    return [head_at(tables, above + text, len(above) + position) for position in positions]


def labelled(head: str, row: str) -> str:
    """Write a row as `Head: cell; Head: cell`; without a head of as many cells, as it is."""
    names, cells = _cells(head), _cells(row)
    if len(names) != len(cells) or len(cells) < 2:
        return row
    pairs = zip(names, cells, strict=True)
    return "; ".join(f"{name}: {cell}" if name else cell for name, cell in pairs if cell)


def _cells(row: str) -> list[str]:
    """Return the cells of the first line of some rows."""
    line = row.strip().partition("\n")[0].strip().removeprefix("|").removesuffix("|")
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)]


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
