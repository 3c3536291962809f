"""The definitions of a long file that an instruction names, each short enough to edit alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from engine.editing.code_parts import DEFINITIONS, WRAPPERS, Span
from engine.editing.edits import WHOLE_FILE_LINES, line_count
from engine.editing.scopes.names import whole_word
from engine.editing.syntax import parse

if TYPE_CHECKING:
    from tree_sitter import Node

    from engine.editing.syntax import Tree

MAX_PARTS = 8  # parts of one file


def named_parts(path: str, text: str, names: list[str]) -> list[Span]:
    """Find the functions and classes with one of these names in them, as code points, in order.

    They are the outermost ones of at most WHOLE_FILE_LINES lines, or longer ones with no definition
    inside.
    """
    tree = parse(path, text) if names else None
    if tree is None:
        return []
    pattern = re.compile(whole_word(*names))
    found: list[Span] = []
    todo = [tree.root]
    while todo:
        node = todo.pop()
        span = _lines(tree, node)
        part = text[slice(*span)]
        if not pattern.search(part):
            continue
        inner = _inside(node)
        if node is not tree.root and (line_count(part) <= WHOLE_FILE_LINES or not inner):
            found.append(span)
        else:
            todo += reversed(inner)
    return found


def _inside(node: Node) -> list[Node]:
    """Return the outermost definitions inside a node."""
    found, todo = [], list(reversed(node.children))
    while todo:
        each = todo.pop()
        if each.type in DEFINITIONS or each.type in WRAPPERS:
            found.append(each)
        else:
            todo += reversed(each.children)
    return found


def _lines(tree: Tree, node: Node) -> Span:
    """Return the span of a node from the start of its first line."""
    start, stop = tree.span(node)
    line = max(tree.text.rfind("\n", 0, start), tree.text.rfind("\r", 0, start)) + 1
    return (line if not tree.text[line:start].strip() else start), stop
