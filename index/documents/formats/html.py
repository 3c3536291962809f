"""Rewrites a page so that xberg reads what it would leave out.

These are the values of forms, the alternative texts of pictures, and cells that span columns or
rows, each of which is repeated.
"""

from __future__ import annotations

from selectolax.lexbor import LexborHTMLParser, LexborNode

MAX_SPAN = 100  # columns or rows
WITHOUT_VALUE = ("hidden", "password", "submit", "button", "reset", "image", "file")


def complete(text: str) -> bytes:
    """Return the body of a page with what the library leaves out."""
    tree = LexborHTMLParser(text)
    for node in tree.css("input, select, textarea, img, svg"):
        node.replace_with(f" {_value(node)} ")
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
