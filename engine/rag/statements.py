"""The sentences, list items and rows of tables of a source, as a model reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from engine.rag.citations import Source
    from index.documents.tables import Tables

# Lines of prose go on in the next one, those of lists, tables and code do not. What a labelled row
# says is one statement: `Buyer: Haller Foods; Tonnes: 40`.
SENTENCE_END = re.compile(
    r"\n(?=\s*(?:\n|[-*+>#|\u2022]|\d+[.)]\s)|[^\n]*[|\t])"
    r"|(?<=[.!?])\s+|(?<=;)\s+(?![^\n;:]{1,80}: )|(?<=[\u3002\uff01\uff1f\uff1b])"
)


class SourceStatement(NamedTuple):
    """Code points `start:stop` of a source's text, which says something."""

    start: int
    stop: int
    text: str  # a row of a table with the names of its columns
    is_row: bool = False


def find_statements(source: Source) -> list[SourceStatement]:
    """Return the statements of a source in order; the heads of its tables are none."""
    tables = source.tables()
    found = [
        SourceStatement(start, stop, source.text[start:stop]) for start, stop in _sentences(tables)
    ]
    found += [
        SourceStatement(row.start, row.stop, tables.labelled(row), True) for row in tables.rows
    ]
    return sorted(found)


def _sentences(tables: Tables) -> Iterator[tuple[int, int]]:
    for first, last in tables.prose:
        ends = SENTENCE_END.finditer(tables.text, first, last)
        borders = [first, *(match.end() for match in ends), last]
        for start, stop in pairwise(borders):
            if tables.text[start:stop].strip():
                yield start, stop
