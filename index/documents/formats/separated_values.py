"""Comma- and tab-separated values as a Markdown table, by the csv module.

The module takes the first line for the names of the columns. Here they are the first row that is
as wide as most: comments, titles and a line `sep=;` may stand above it.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter

DELIMITERS = ",;\t|"
MAX_CELL_CHARS = 16 << 20
DECLARED = re.compile(r"\s*sep=(.)[ \t]*(?:\r\n?|\n)", re.IGNORECASE)
Rows = list[list[str]]


def read(text: str) -> str:
    """Return the table, below what stands above it."""
    csv.field_size_limit(MAX_CELL_CHARS)
    declared = DECLARED.match(text)
    text, delimiters = (text[declared.end() :], declared[1]) if declared else (text, DELIMITERS)
    rows = max((_rows(text, each) for each in delimiters), key=_fit)
    _, width = _fit(rows)
    named = (n for n, row in enumerate(rows) if len(row) == width and row[0].lstrip()[:1] != "#")
    head = next(named, 0)
    above = [" ".join(" ".join(row).split()) for row in rows[:head]]
    lines = [f"| {' | '.join(map(_cell, row))} |" for row in rows[head:]]
    lines.insert(1, "|" + " --- |" * width)
    return "\n".join([*above, *[""] * bool(above), *lines])


def _rows(text: str, delimiter: str) -> Rows:
    """Return the rows that are not blank."""
    found = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    return [row for row in found if any(map(str.strip, row))]


def _fit(rows: Rows) -> tuple[int, int]:
    """Return how many rows are of one width, and it: that of most that have several columns."""
    widths = Counter(len(row) for row in rows if len(row) > 1)
    width, count = widths.most_common(1)[0] if widths else (1, 0)
    return count, width


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
