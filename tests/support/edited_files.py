"""Two open documents, and the next-edit candidates after some edits of them."""

from __future__ import annotations

from lsp_server.next_edit.edit_history import EditHistory, RecentEdit
from lsp_server.next_edit.rules import find_candidates

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
Step = tuple[str, str, str]  # URI, old text (its first occurrence), new text


def edited(
    documents: dict[str, str], *steps: Step
) -> tuple[list[RecentEdit], dict[str, str], str, int]:
    """The arguments of `places` after these edits, the cursor just after the last one."""
    history, now, uri, cursor = EditHistory(), dict(documents), "", 0
    for uri, old, new in steps:
        text = now[uri]
        at = text.index(old)
        history.record(uri, text, at, at + len(old), new, 0.0)
        now[uri] = text[:at] + new + text[at + len(old) :]
        cursor = at + len(new)
    return history.edits(), now, uri, cursor


def expected_changes(documents: dict[str, str], *steps: Step) -> list[tuple[str, str]]:
    """(lines, expected new lines) of the candidates, best first."""
    edits, now, uri, cursor = edited(documents, *steps)
    found = find_candidates(edits, now, uri, cursor)
    return [(now[one.uri][one.start : one.stop].strip(), one.expected.strip()) for one in found]


def candidate_lines(documents: dict[str, str], *steps: Step) -> list[str]:
    return [old for old, _ in expected_changes(documents, *steps)]
