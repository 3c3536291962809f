"""Two open files, and what is proposed after edits of them."""

from __future__ import annotations

from lsp_server.next_edit.edit_history import Edit, Recent
from lsp_server.next_edit.rules import places

A, B = "file:///w/shapes.py", "file:///w/main.py"
SHAPES = '''\
import os
LIMIT = 3

class Box:
    size: int = 0

    def grow(self, by):
        """Grow by `by`, up to LIMIT."""
        self.size = self.size + by
        return self.size

def area(width, height):
    # width times height
    result = width * height
    if result > LIMIT:
        result = LIMIT
    return result

def other(width):
    widths = width
    return area(width, 2) + area(
        widths,
        3,
    )

print(area(1, 2), f"{LIMIT} LIMIT", Box().size)
'''
MAIN = """\
import shapes
from shapes import area, LIMIT, Box
x = area(3, 4)
y = min(LIMIT, Box().size) + shapes.area(5, 6)
size = 3
"""
OPEN = {A: SHAPES, B: MAIN}
Step = tuple[str, str, str]  # uri, old text (its first place), new text


def edited(documents: dict[str, str], *steps: Step) -> tuple[list[Edit], dict[str, str], str, int]:
    """The arguments of `places` after these edits, the cursor just after the last one."""
    recent, now, uri, cursor = Recent(), dict(documents), "", 0
    for uri, old, new in steps:
        text = now[uri]
        at = text.index(old)
        recent.changed(uri, text, at, at + len(old), new, 0.0)
        now[uri] = text[:at] + new + text[at + len(old) :]
        cursor = at + len(new)
    return recent.edits(), now, uri, cursor


def said(documents: dict[str, str], *steps: Step) -> list[tuple[str, str]]:
    """(the lines of a place, what they are expected to become), best first."""
    edits, now, uri, cursor = edited(documents, *steps)
    found = places(edits, now, uri, cursor)
    return [(now[one.uri][one.start : one.stop].strip(), one.expected.strip()) for one in found]


def only(documents: dict[str, str], *steps: Step) -> list[str]:
    return [old for old, _ in said(documents, *steps)]
