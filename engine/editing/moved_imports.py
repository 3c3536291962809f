"""Moving of imports that an answer put in the middle of a file to the file's other imports.

A model that edits a selection sees nothing else, so it writes there what it imports.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from engine.editing.code_parts import IMPORTS, Span, imported_by, imported_names
from engine.editing.edits import LINE, commonest_end
from engine.editing.syntax import Tree, parse

if TYPE_CHECKING:
    from tree_sitter import Node

    from engine.records import Request

FUTURE = "future_import_statement"
# Nodes that stay above the imports, as docstrings do.
DOCSTRING = ["expression_statement", "string"]  # the types of a statement and its only child
HEAD = frozenset((
    "comment", "line_comment", "block_comment", "hash_bang_line", "package_clause",
    "package_declaration", "inner_attribute_item",
))  # fmt: skip
IMPORT_LINE = re.compile(r"^[ \t]*(?:pub )?(?:import|from|use|#[ \t]*include)\b.*", re.M)
LOCAL = re.compile(r"\b(?:local\w*|laz\w+|inside|here|within)\b", re.I)  # asks for local imports


def move_imports(request: Request, new: str) -> str:
    """Move the imports that an edit added below other code of `new` to the file's imports.

    `new` is the whole file after the edit. Imports that are indented like the selection are moved,
    or dropped if they are there already. The text stays as it is without a grammar, with new syntax
    errors, and if local imports were asked for.
    """
    start, stop = request.selection or (0, len(request.text))
    if Counter(IMPORT_LINE.findall(new)) <= Counter(IMPORT_LINE.findall(request.text)):
        return new
    before = parse(request.path, request.text)
    after = parse(request.path, new)
    if not before or not after or after.errors > before.errors or LOCAL.search(request.instruction):
        return new
    old = {before.text_of(node).strip() for node in _imports(before, (start, stop))}
    span = (start, len(new) - (len(request.text) - stop))
    added = [node for node in _imports(after, span) if after.text_of(node).strip() not in old]
    if not added:
        return new
    head, last = _places(before)
    if last > start:
        head, last = _places(after)
    margin = _margin(request.text[start:stop])
    moved = [
        node
        for node in added
        if after.offset(node.start_byte) >= last
        and node.start_point[1] == margin
        and _is_alone(after, node)
    ]
    if not moved:
        return new
    known = {after.text_of(node).strip() for node in after.root.children if node not in moved}
    names = imported_names(before, (0, len(request.text)))
    texts: dict[bool, list[str]] = {True: [], False: []}
    for node in moved:
        text = _missing(after, node, names)
        if text and text not in known:
            texts[node.type == FUTURE].append(text)
            known.add(text)
    for node in reversed(moved):
        first, end = _lines_of(new, after.span(node))
        new = new[:first] + new[end:]
    new = _inserted(new, last, texts[False], last == head)
    return _inserted(new, head, texts[True], last == head and not texts[False])


def _missing(tree: Tree, node: Node, names: dict[str, str]) -> str:
    """Return an import's text without the names of a Python module that are imported already."""
    module = node.child_by_field_name("module_name")
    parts = imported_by(tree, node) if node.type == "import_from_statement" else []
    missing = [text for name, origin, text in parts if names.get(name) != origin]
    if module is None or len(missing) == len(parts):
        return tree.text_of(node).strip()
    return f"from {tree.text_of(module)} import {', '.join(missing)}" if missing else ""


def _imports(tree: Tree, span: Span) -> list[Node]:
    """Return the imports that start in a part of the text, in order."""
    found: list[Node] = []
    todo = [tree.root]
    while todo:
        node = todo.pop()
        start, stop = tree.span(node)
        if start >= span[1] or stop <= span[0]:
            continue
        if node.type in IMPORTS and start >= span[0]:
            found.append(node)
        else:
            todo += reversed(node.children)
    return found


def _places(tree: Tree) -> tuple[int, int]:
    """Return the offsets after the lines of the file's head, and after its first run of imports."""
    head = last = 0
    is_head = True
    for node in tree.root.children:
        is_docstring = [node.type, *(child.type for child in node.children)] == DOCSTRING
        stop = _lines_of(tree.text, tree.span(node), blank=False)[1]
        is_head = is_head and (node.type in HEAD or is_docstring)
        if is_head:
            head = stop
        elif node.type in IMPORTS:
            last = stop
        elif last and node.type not in HEAD:
            break
    return head, max(head, last)


def end_of_imports(tree: Tree) -> int:
    """Return the offset after the lines of a file's imports, or of its head without any."""
    return _places(tree)[1]


def _margin(part: str) -> int:
    """Return the indentation of a text's shallowest line, in characters."""
    lines = [line for line in LINE.findall(part) if line.strip()]
    return min((len(line) - len(line.lstrip(" \t")) for line in lines), default=0)


def _is_alone(tree: Tree, node: Node) -> bool:
    """Return whether nothing else is in the node's lines."""
    start, stop = tree.span(node)
    stop = start + len(tree.text[start:stop].rstrip())
    before = re.split(r"[\r\n]", tree.text[:start])[-1]
    after = re.split(r"[\r\n]", tree.text[stop:], maxsplit=1)[0]
    return not before.strip() and not after.strip(" \t;")


def _lines_of(text: str, span: Span, blank: bool = True) -> Span:
    """Return the whole lines of a part of the text.

    `blank`: with the blank lines below, if there are some above, too, or nothing at all.
    """
    start, stop = span[0], span[0] + len(text[slice(*span)].rstrip())
    start = max(text.rfind("\n", 0, start), text.rfind("\r", 0, start)) + 1
    line = LINE.match(text, stop)
    stop = line.end() if line else stop
    if (
        blank
        and not text[:start].rstrip(" \t").removesuffix("\n").endswith(("\n", ":", "{"))
        and start
    ):
        return start, stop
    while blank and (line := LINE.match(text, stop)) and not line[0].strip():
        stop = line.end()
    return start, stop


def _inserted(text: str, place: int, lines: list[str], first: bool) -> str:
    """Insert lines into `text`; `first`: they are the first imports of the file."""
    if not lines:
        return text
    end = commonest_end(text, "\n")
    block = "".join(line + end for line in lines)
    if first:
        block = end + block if place else block + end
    if place and text[place - 1] not in "\r\n":
        block = end + block
    return text[:place] + block + text[place:]
