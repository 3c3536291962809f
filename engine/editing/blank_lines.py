"""Keeping of the blank lines around definitions where an answer changes nothing else there."""

from __future__ import annotations

from itertools import pairwise

from engine.editing.code_parts import DEFINITIONS, WRAPPERS
from engine.editing.edits import LINE, align, common_prefix
from engine.editing.instruction import speaks_of_layout
from engine.editing.syntax import Tree, parse
from engine.records import Request

MAX_LINES = 2000  # lines between the first and the last change


def keep_blank_lines(request: Request, new: str) -> str:
    """Return `new`, the whole file after an edit, with the file's blank lines around definitions.

    They are kept between two lines that stay, or one of which has changed. Where the instruction
    speaks of layout, or nothing else has changed, `new` stays as it is.
    """
    old_lines, new_lines = LINE.findall(request.text), LINE.findall(new)
    old_rows, new_rows = _full(old_lines), _full(new_lines)
    texts = [[lines[row] for row in rows] for lines, rows in
             ((old_lines, old_rows), (new_lines, new_rows))]  # fmt: skip
    tree = parse(request.path, new)
    if tree is None or tree.errors or texts[0] == texts[1] or speaks_of_layout(request.instruction):
        return new
    same = common_prefix(*texts) + common_prefix(texts[0][::-1], texts[1][::-1])
    if max(map(len, texts)) - same > MAX_LINES:
        return new
    starts, ends = _edges(tree)
    origin = {
        k + n: i + n for same, i, j, k, _ in align(*texts) if same for n in range(j - i)
    }  # of each new line that is not blank
    stayed = {*origin.values()}
    out = new_lines[: new_rows[0] + 1] if new_rows else []
    for at, (row, following) in enumerate(pairwise(new_rows)):
        gap = new_lines[row + 1 : following]
        before, after = origin.get(at), origin.get(at + 1)
        if after is None and before is not None and before + 1 not in stayed:
            after = before + 1  # changed in both
        elif before is None and after is not None and after - 1 not in stayed:
            before = after - 1
        is_same = before is not None and after == before + 1 and 0 <= before < len(old_rows) - 1
        if is_same and before is not None and (following in starts or row in ends):
            gap = old_lines[old_rows[before] + 1 : old_rows[before + 1]]
        out += [*gap, new_lines[following]]
    return "".join([*out, *new_lines[new_rows[-1] + 1 :]]) if new_rows else new


def _full(lines: list[str]) -> list[int]:
    """Return the rows of the lines that are not blank."""
    return [row for row, line in enumerate(lines) if line.strip()]


def _edges(tree: Tree) -> tuple[set[int], set[int]]:
    """Return the rows where definitions begin, or the comments right above them, and end."""
    starts: set[int] = set()
    ends: set[int] = set()
    todo = [tree.root]
    while todo:
        node = todo.pop()
        todo += node.children
        if node.type in DEFINITIONS or node.type in WRAPPERS:
            first = node.start_point[0]
            above = node.prev_sibling
            while above and "comment" in above.type and above.start_point[0] == first - 1:
                first, above = first - 1, above.prev_sibling
            starts.add(first)
            ends.add(node.end_point[0] - (node.end_point[1] == 0))
    return starts, ends
