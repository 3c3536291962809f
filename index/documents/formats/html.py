"""Rewrites a page so that xberg reads what it would leave out.

These are the values of forms, the alternative texts of pictures, and cells that span columns or
rows, each of which is repeated. Items of lists get their own numbers.
"""

from __future__ import annotations

import re

from selectolax.lexbor import LexborHTMLParser, LexborNode

from index.documents.formats import library

MAX_SPAN = 100  # columns or rows
SEPARATOR = "\u2063"  # of lists; without it, every other one would have `1)` in place of `1.`
BETWEEN_LISTS = re.compile(rf" *{SEPARATOR}\n+")
WITHOUT_VALUE = ("hidden", "password", "submit", "button", "reset", "image", "file")


def read(text: str) -> str:
    """Return a page as Markdown. Raises RuntimeError for one that xberg cannot read."""
    return BETWEEN_LISTS.sub("", library.read("html", complete(text)))


def complete(text: str) -> bytes:
    """Return the body of a page with what the library leaves out."""
    tree = LexborHTMLParser(text)
    for node in tree.css("input, select, textarea, img, svg"):
        node.replace_with(f" {_value(node)} ")
    for items in reversed(tree.css("ol")):  # inner ones first
        _split_where_numbers_jump(items)
    for items in tree.css("ol + ol"):
        items.insert_before(SEPARATOR)
    for table in reversed(tree.css("table")):  # inner ones first
        if table.css_first("[colspan], [rowspan]"):
            _repeat_spanning(table)
    body = tree.body.html if tree.body is not None else None  # a head names an encoding
    return (body or "").encode()


def _value(node: LexborNode) -> str:
    """Return what a field or a picture shows."""
    attributes = node.attributes
    if node.tag == "img":
        return attributes.get("alt") or ""
    if node.tag == "svg":
        return "".join(title.text() for title in node.css("title")[:1])
    if node.tag == "textarea":
        return node.text()
    if node.tag == "select":
        chosen = node.css("option[selected]") or node.css("option")[:1]
        return ", ".join(option.text() for option in chosen)
    kind = (attributes.get("type") or "text").lower()
    if kind in ("checkbox", "radio"):
        return "☒" if "checked" in attributes else "☐"
    return "" if kind in WITHOUT_VALUE else attributes.get("value") or ""


def _split_where_numbers_jump(items: LexborNode) -> None:
    """Make a list of each run of items; xberg counts from the start of a list alone."""
    starts = [item for item in items.iter() if item.tag == "li" and _number(item) is not None]
    if not starts:
        return
    parts = [f'<ol start="{items.attributes.get("start") or 1}">']
    for item in items.iter():
        if item.tag == "li" and (number := _number(item)) is not None:
            parts.append(f'</ol><ol start="{number}">')
        parts.append(item.html or "")
    made = LexborHTMLParser("".join([*parts, "</ol>"])).body
    for part in list(made.iter()) if made is not None else ():
        if part.child is not None:
            items.insert_before(part)
    items.decompose()


def _number(item: LexborNode) -> int | None:
    value = item.attributes.get("value") or ""
    return int(value) if value.isdecimal() and len(value) < 10 else None


def _repeat_spanning(table: LexborNode) -> None:
    """Repeat a table's cells in each column and row that they span."""
    below: dict[int, tuple[str, int]] = {}  # by column: a cell, and in how many rows it goes on
    for row in table.css("tr"):
        if row.parent is None or table.mem_id not in (row.parent.mem_id, _parent_id(row.parent)):
            continue  # it is another table's, inside of this one
        cells: list[str] = []
        for cell in [*(each for each in row.iter() if each.tag in ("td", "th")), None]:
            while len(cells) in below:
                html, rows = below.pop(len(cells))
                if rows > 1:
                    below[len(cells)] = html, rows - 1
                cells.append(html)
            if cell is not None:
                html = f"<{cell.tag}>{cell.inner_html}</{cell.tag}>"
                rows = _span(cell, "rowspan") - 1
                for _ in range(_span(cell, "colspan")):
                    if rows:
                        below[len(cells)] = html, rows
                    cells.append(html)
        row.inner_html = "".join(cells)


def _parent_id(node: LexborNode) -> int:
    return node.parent.mem_id if node.parent is not None else 0


def _span(cell: LexborNode, name: str) -> int:
    value = cell.attributes.get(name) or ""
    return max(1, min(int(value), MAX_SPAN)) if value.isdecimal() else 1
