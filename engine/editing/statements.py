"""The statements of a module and the members of a class, as an update of definitions has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from engine.editing.code_parts import DEFINITIONS, WRAPPERS, name_of
from engine.editing.definition import full_name
from engine.editing.syntax import Tree

if TYPE_CHECKING:
    from tree_sitter import Node

HOLDERS = frozenset((  # definitions with members
    "class_definition", "class_declaration", "abstract_class_declaration", "class_specifier",
    "struct_specifier", "impl_item", "trait_item", "struct_item", "enum_item", "type_spec",
    "interface_declaration", "enum_declaration", "mod_item",
))  # fmt: skip
CODE = DEFINITIONS | HOLDERS
NO_CODE = {"pass_statement", "comment", "line_comment", "block_comment"}
RECEIVERS = ("self", "cls")
MAIN = "if __name__"  # the name of the statement that runs a module of Python
IsMark = Callable[[str], bool]


class Statement(NamedTuple):
    """A statement of a module or a member of a class. Its name is "" if it defines nothing."""

    node: Node  # with decorators and `export`
    inner: Node  # without them
    name: str
    first: int  # code points of whole lines, from the first comment right above it
    start: int
    stop: int
    after_mark: bool  # a mark is between it and the part before


def parts_of(tree: Tree, parent: Node, is_mark: IsMark) -> list[Statement]:
    """Return the parts of a module, or of a class's body."""
    found: list[Statement] = []
    above: Node | None = None  # the first comment of those right above
    last_row, after_mark = -1, False
    for node in children_of(tree, parent):
        if is_mark_node(tree, node, is_mark):
            above, last_row, after_mark = None, _last_row(node), True
            continue
        if "comment" in node.type or node.type == "attribute_item":
            if node.start_point[0] > last_row:  # not behind code
                above = above if above and node.start_point[0] == last_row + 1 else node
            last_row = _last_row(node)
            continue
        inner = node
        if node.type in WRAPPERS:
            inner = next((one for one in node.named_children if one.type in DEFINITIONS), node)
        if inner.type in ("lexical_declaration", "expression_statement", "export_statement"):
            inner = _assigned(inner)
        start, stop = lines_of(tree, node)
        is_close = above is not None and node.start_point[0] == last_row + 1
        first = lines_of(tree, above)[0] if above and is_close else start
        is_main = node.type == "if_statement" and "__name__" in tree.text_of(node.named_children[0])
        name = MAIN if is_main else full_name(tree, node, inner)
        found.append(Statement(node, inner, name, first, start, stop, after_mark))
        above, last_row, after_mark = None, _last_row(node), False
    return found


def is_mark_node(tree: Tree, node: Node, is_mark: IsMark) -> bool:
    is_line = "comment" in node.type or node.type == "expression_statement"
    return is_line and is_mark(tree.text_of(node).strip())


def children_of(tree: Tree, parent: Node) -> list[Node]:
    """Return the children of a module or body, with comments of Python between it and its head."""
    around = parent.parent if parent.type == "block" else None
    above = [each for each in around.named_children if each.end_byte <= parent.start_byte
             and not tree.text[lines_of(tree, each)[0] : tree.span(each)[0]].strip()
             and "comment" in each.type] if around else []  # fmt: skip
    return [*above, *parent.named_children]


def body_of(node: Node) -> Node | None:
    """Return the node with the members or statements of a definition."""
    found = node.child_by_field_name("body")
    if node.type == "type_spec" and (value := node.child_by_field_name("type")):
        found = value if value.type == "interface_type" else next(iter(value.named_children), None)
    value = node.child_by_field_name("value")
    return found or (value and value.child_by_field_name("body"))


def _assigned(node: Node) -> Node:
    """Return the one assignment or declaration in a statement, else the statement."""
    while node.named_child_count == 1 and not name_of(node):
        node = node.named_children[0]
    return node


def _last_row(node: Node) -> int:
    return node.end_point[0] - (node.end_point[1] == 0)  # some comments have their line end


def lines_of(tree: Tree, node: Node) -> tuple[int, int]:
    """Return the span of the whole lines of a node, without the last line end. Raises Doubt."""
    start, stop = tree.span(node)
    stop = start + len(tree.text[start:stop].rstrip())
    start = tree.text.rfind("\n", 0, start) + 1
    end = tree.text.find("\n", stop)
    return start, end if end >= 0 else len(tree.text)


def members_of(tree: Tree, holder: Statement, is_mark: IsMark) -> list[Statement]:
    body = body_of(holder.inner)
    return parts_of(tree, body, is_mark) if holder.inner.type in HOLDERS and body else []


def is_empty(node: Node) -> bool:
    """Return whether a function has no code: nothing, `pass` or `...`."""
    body = node.child_by_field_name("body")
    if body is None:
        return False
    code = [each for each in body.named_children if each.type not in NO_CODE]
    return all([part.type for part in each.children] in (["ellipsis"], ["string"]) for each in code)


def needed_by(tree: Tree, part: Statement) -> str:
    """Return the code of a definition that runs when it is made."""
    start, body = tree.span(part.node)[0], part.inner.child_by_field_name("body")
    parameters = part.inner.child_by_field_name("parameters")
    if parameters is None:
        named = name_of(part.inner)
        head = tree.text[tree.span(named)[1] if named else start : tree.span(body or part.node)[0]]
        members = body.named_children if body and part.inner.type in HOLDERS else ()
        code = [head, *(tree.text_of(each) for each in members if each.type not in DEFINITIONS)]
    else:
        fields = (each.child_by_field_name(name) for each in parameters.named_children
                  for name in ("value", "right", "type"))  # fmt: skip
        code = [tree.text_of(each) for each in fields if each]
    return " ".join([tree.text[start : tree.span(part.inner)[0]], *code])


def key_of(tree: Tree, part: Statement) -> str:
    return part.name or tree.text_of(part.node).strip()


def is_lone_method(tree: Tree, part: Statement) -> bool:
    """Return whether a function of Python outside of a class is one of a class."""
    parameters = part.inner.child_by_field_name("parameters")
    first = parameters.named_children[:1] if parameters else []
    outside = part.node.parent is not None and part.node.parent.parent is None
    return outside and bool(first) and tree.text_of(first[0]) in RECEIVERS
