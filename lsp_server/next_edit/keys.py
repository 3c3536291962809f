"""The keys of a mapping that a text names by strings, as in `sizes["a"]` and `sizes = {"a": 1}`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.editing.scopes.names import Place
from lsp_server.next_edit.renames import reference
from lsp_server.next_edit.source_text import SourceText

if TYPE_CHECKING:
    from tree_sitter import Node

    from engine.editing.syntax import Tree

STRINGS = frozenset({"string", "string_content", "string_fragment"})  # types of nodes
READERS = frozenset({"get", "pop", "setdefault"})  # methods whose first argument is a key


def key_places(source: SourceText, old: str, new: str, at: int) -> list[Place]:
    """Find the strings `old` that are keys of the mapping whose key at an offset is now `new`.

    The mapping is known by its variable; none where that is not a plain name.
    """
    tree = source.tree
    owner = _owner(source, tree, at, new) if tree else None
    if tree is None or owner is None:
        return []
    start, stop = tree.span(owner)
    meant = reference(source, source.text[start:stop], start)
    if meant is None or meant.kind not in ("local", "module"):
        return []
    same = {place.start for place in meant.places}
    found = []
    for spot in source.find_words(old):
        other = _owner(source, tree, spot, old)
        if other is not None and tree.span(other)[0] in same:
            found.append(Place(spot, spot + len(old)))
    return found


def _owner(source: SourceText, tree: Tree, at: int, name: str) -> Node | None:
    """Return the variable of the mapping that has the string at an offset for a key."""
    quotes = source.text[at - 1 : at], source.text[at + len(name) : at + len(name) + 1]
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
    return owner if owner is not None and owner.type == "identifier" and owner != node else None
