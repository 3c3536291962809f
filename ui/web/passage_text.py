"""The text of a passage as HTML: the answer's words marked, and tables as tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

from index.documents.tables import MARKDOWN_RULE, Table, find_tables

BAR = re.compile(r"(?<!\\)\|")
Span = tuple[int, int]


def marked_text(text: str, marks: Sequence[Span], is_code: bool) -> str:
    """Render a text. `marks`: code points of it, in order, without overlap."""
    out, at = [], 0
    for table in find_tables("code" if is_code else "", text):
        out += [_marked(text, marks, (at, table.start)), _table(text, marks, table)]
        at = table.stop
    return "".join([*out, _marked(text, marks, (at, len(text)))])


def _marked(text: str, marks: Sequence[Span], part: Span) -> str:
    """Render a part of a text without tables."""
    out, (at, stop) = [], part
    for first, last in marks:
        first, last = max(at, first), min(last, stop)
        if first < last:
            out.append(f"{escape(text[at:first])}<mark>{escape(text[first:last])}</mark>")
            at = last
    return f"{''.join(out)}{escape(text[at:stop])}"


def _table(text: str, marks: Sequence[Span], table: Table) -> str:
    """Render a table; its first row is the head if a rule is below it."""
    lines = text[table.start : table.stop].splitlines(keepends=True)
    has_head = len(lines) > 1 and _is_rule(lines[1])
    rows, at = [], table.start
    for number, line in enumerate(lines):
        if not _is_rule(line):
            tag = "th" if has_head and not number else "td"
            cells = (_cell(_marked(text, marks, cell)) for cell in _cells(line, at))
            rows.append("".join(f"<{tag}>{cell}</{tag}>" for cell in cells))
        at += len(line)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _cell(html: str) -> str:
    """Return a cell without the Markdown of bars and breaks."""
    return html.replace("\\|", "|").replace("&lt;br&gt;", "<br>")


def _is_rule(line: str) -> bool:
    return MARKDOWN_RULE.match(line.rstrip()) is not None


def _cells(line: str, at: int) -> Iterator[Span]:
    """Yield the places of the cells of a line that starts at `at`."""
    start, stop = len(line) - len(line.lstrip()), len(line.rstrip())
    start += line.startswith("|", start)
    stop -= stop - start > 1 and BAR.match(line, stop - 1) is not None
    for bar in [*BAR.finditer(line, start, stop), None]:
        end = bar.start() if bar else stop
        cell = line[start:end]
        yield at + end - len(cell.lstrip()), at + start + len(cell.rstrip())
        start = end + 1
