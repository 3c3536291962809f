"""Moving of imports that an answer put in the middle of a file to the file's other imports.

A model that edits a selection sees nothing else, so it writes there what it imports.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from engine.editing.code_parts import IMPORTS, Span, imported_by, imported_names
from engine.editing.edits import LINE
from engine.editing.placed_imports import lines_of, places, with_imports
from engine.editing.syntax import Tree, parse

if TYPE_CHECKING:
    from tree_sitter import Node

    from engine.records import Request

IMPORT_LINES = re.compile(r"^[ \t]*(?:pub )?(?:import|from|use|#[ \t]*include)\b.*", re.M)
LOCAL = re.compile(r"\b(?:local\w*|laz\w+|inside|here|within)\b", re.I)  # asks for local imports


def move_imports(request: Request, new: str) -> str:
    """Move the imports that an edit added below other code of `new` to the file's imports.

    `new` is the whole file after the edit. Imports that are indented like the selection are moved,
    or dropped if they are there already. The text stays as it is without a grammar, with new syntax
    errors, and if local imports were asked for.
    """
    start, stop = request.selection or (0, len(request.text))
    if Counter(IMPORT_LINES.findall(new)) <= Counter(IMPORT_LINES.findall(request.text)):
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
    _, last = places(before)
    if last > start:
        _, last = places(after)
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
    texts: list[str] = []
    for node in moved:
        text = _missing(after, node, names)
        if text and text not in known:
            texts.append(text)
            known.add(text)
    for node in reversed(moved):
        first, end = lines_of(new, after.span(node))
        new = new[:first] + new[end:]
    return with_imports(request.path, new, texts)


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
