"""The definition around a place of a text, in whole lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.editing.code_parts import DEFINITIONS, FUNCTIONS, WRAPPERS, Span, name_of
from engine.editing.edits import LINE
from engine.editing.syntax import parse

if TYPE_CHECKING:
    from tree_sitter import Node

    from engine.editing.syntax import Tree

AROUND = DEFINITIONS | {"impl_item", "namespace_definition"}
HOLDERS = (*WRAPPERS, "lexical_declaration", "variable_declaration", "ambient_declaration")
FIELDS = frozenset((  # members without code, in languages with brackets
    "field_definition", "public_field_definition", "field_declaration", "property_signature",
    "method_signature", "enum_variant", "enum_assignment", "method_elem",
    "function_signature_item",
))  # fmt: skip
# Nodes directly above a definition that belong to it.
ATTACHED = ("comment", "line_comment", "block_comment", "attribute_item", "decorator")


def definition_around(path: str, text: str, at: int) -> Span | None:
    """Find the innermost function, method, class or type around a code point.

    It has its decorators and the comment directly above it, and no last line end. None outside of
    any, and without a grammar for the text.
    """
    tree = parse(path, text)
    around = definitions_around(tree, at) if tree else []
    if tree is None or not around:
        return None
    start, stop = reach(tree, around[-1])
    return start, start + len(text[start:stop].rstrip("\r\n"))


def definitions_around(tree: Tree, at: int) -> list[Node]:
    """Find the definitions around the line of a code point, the outermost first."""
    text = tree.text
    line = max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1
    at = line + len(text[line:]) - len(text[line:].lstrip(" \t"))  # the line's own node begins here
    found, nodes = [], tree.root.named_children
    while nodes:
        spans = [(reach(tree, node), node) for node in nodes]
        inside = [node for (start, stop), node in spans if start <= at < stop]
        if not inside:
            break
        node = inside[-1]  # a comment comes before what it belongs to
        if is_definition(node) and not _is_held(node):
            found.append(node)
        nodes = node.named_children
    return found


def all_definitions(tree: Tree) -> Iterator[Node]:
    """Yield all definitions of a text, the outer ones first."""
    todo = [tree.root]
    while todo:
        node = todo.pop()
        if is_definition(node) and not _is_held(node):
            yield node
        todo += reversed(node.named_children)


def bare(node: Node) -> Node:
    """Return the definition itself of one with decorators, or of one that is exported."""
    while node.type in HOLDERS:
        node = next(child for child in node.named_children if is_definition(child))
    return node


def full_name(tree: Tree, node: Node, own: Node) -> str:
    """Return a definition's name and what tells it from others: `(s *Store) Get`, `size.setter`.

    It is the head of Rust's `impl`, and "" for what has no name. `own`: `node` without decorators.
    """
    if own.type == "impl_item":
        return tree.text_of(own).split("{")[0].strip()
    named, receiver = name_of(own), own.child_by_field_name("receiver")
    if own.type in FIELDS:
        inner = own.child_by_field_name("declarator") or own
        named = inner.child_by_field_name("name") or own.child_by_field_name("property")
    if named is None:
        return ""
    name = tree.text_of(named)
    kind = re.search(rf"@{re.escape(name)}\.(\w+)", tree.text_of(node).split(f" {name}")[0])
    return f"{tree.text_of(receiver)} {name}" if receiver else f"{name}.{kind[1]}" if kind else name


def first_of(node: Node, apart: bool = False) -> Node:
    """Return the first of the comments and attributes directly above a definition, or itself.

    `apart`: also of those above blank lines.
    """
    while (
        (above := node.prev_named_sibling) is not None
        and above.type in ATTACHED
        and (apart or _last_row(above) + 1 == node.start_point[0])
        and not _is_behind_code(above)
    ):
        node = above
    return node


def is_definition(node: Node) -> bool:
    """Return whether a node defines a function, method, class or type, or holds what does."""
    if node.type == "variable_declarator":
        value = node.child_by_field_name("value")
        return value is not None and value.type in FUNCTIONS
    if node.type in HOLDERS:
        return any(is_definition(child) for child in node.named_children)
    return node.type in AROUND and (
        not node.type.endswith("_specifier") or node.child_by_field_name("body") is not None
    )


def _is_held(node: Node) -> bool:
    """Return whether a definition is a part of another node that stands for it."""
    return node.parent is not None and node.parent.type in HOLDERS


def reach(tree: Tree, node: Node) -> Span:
    """Return a node's span; a definition's whole lines, with what is attached to it."""
    if not is_definition(node) or _is_held(node):
        return tree.span(node)
    text = tree.text
    start, stop = tree.offset(first_of(node).start_byte), tree.offset(node.end_byte)
    start = max(text.rfind("\n", 0, start), text.rfind("\r", 0, start)) + 1
    rest = LINE.match(text, stop) if text[stop - 1 : stop] not in ("\n", "\r") else None
    return start, rest.end() if rest else stop


def _is_behind_code(comment: Node) -> bool:
    """Return whether a comment ends a line of code, to which it belongs."""
    before = comment.prev_sibling
    return before is not None and _last_row(before) == comment.start_point[0]


def _last_row(node: Node) -> int:
    """Return the row of a node's last character; some comments have their line end."""
    row, column = node.end_point
    return row - (column == 0)
