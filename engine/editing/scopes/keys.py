"""The keys of a mapping that a text names by strings, as in `sizes["a"]` and `sizes = {"a": 1}`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.editing.scopes.names import Place

if TYPE_CHECKING:
    from engine.editing.syntax import Tree

STRINGS = frozenset({"string", "string_content", "string_fragment"})  # types of nodes
READERS = frozenset({"get", "pop", "setdefault"})  # methods whose first argument is a key


def key_owner(tree: Tree, at: int, name: str) -> Place | None:
    """Find the variable of the mapping that has the string `name` at an offset for a key.

    None where that is not a plain name.
    """
    quotes = tree.text[at - 1 : at], tree.text[at + len(name) : at + len(name) + 1]
    if quotes[0] != quotes[1] or quotes[0] not in ("'", '"'):
        return None
    byte = tree.byte(at)
    node = tree.root.descendant_for_byte_range(byte, byte + 1)
    while node is not None and node.parent and node.parent.type in STRINGS:
        node = node.parent
    around = node.parent if node and node.type in STRINGS else None
    if node is None or around is None:
        return None
    owner = None
    if around.type in ("subscript", "subscript_expression"):
        owner = around.child_by_field_name("value") or around.child_by_field_name("object")
    elif around.type == "pair" and around.child_by_field_name("key") == node:
        outer = around.parent.parent if around.parent else None
        if outer is not None and outer.type in ("assignment", "variable_declarator"):
            owner = outer.child_by_field_name("left") or outer.child_by_field_name("name")
    elif around.type == "argument_list" and around.named_children[0] == node and around.parent:
        method = around.parent.child_by_field_name("function")
        called = method and method.child_by_field_name("attribute")
        if method and called and tree.text_of(called) in READERS:
            owner = method.child_by_field_name("object")
    if owner is None or owner.type != "identifier" or owner == node:
        return None
    return Place(*tree.span(owner))
