"""Places where a language server can be asked for the rename that an instruction wants.

A language server renames what stands at one place, wherever it is used. The places found here are
all those of a selection that may be meant. There are none where an instruction may mean either of
two things, such as a variable and an attribute, or wants more than a language server does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.editing.rename import WALKERS
from engine.editing.scopes.names import Binding, Place, Unsure, Walker
from engine.editing.syntax import parse

if TYPE_CHECKING:
    from engine.editing.rename_request import RenameRequest
    from engine.editing.syntax import Tree

MEMBERS = ("attribute", "method")  # kinds of names that follow an object's
IMPORTED = {"import", "alias"}  # kinds of names whose own kind is not known here
Named = tuple[list[tuple[Place, Binding | None]], list[Place]]  # plain names, and members


def rename_places(
    path: str, text: str, selection: tuple[int, int] | None, request: RenameRequest
) -> list[Place]:
    """Find the places in a selection, in order."""
    tree = parse(path, text)
    if tree is None or request.in_comments or request.in_strings or request.new == request.old:
        return []
    if request.in_part and not selection:
        return []
    walker = WALKERS.get(tree.language)
    if walker and not walker(tree).is_identifier(request.new):
        return []
    try:
        plain, members = _bound(walker(tree), request.old) if walker else _leaves(tree, request.old)
    except Unsure:
        return []
    start, stop = selection or (0, len(text))
    names = [(place, found) for place, found in plain if place.start < stop and place.stop > start]
    members = [place for place in members if place.start < stop and place.stop > start]
    if not request.kinds:
        return [] if names and members else sorted([place for place, _ in names] or members)
    if request.kinds[0] in MEMBERS:
        return sorted(members)
    known = {*request.kinds, *IMPORTED}
    fitting = [place for place, found in names if found is None or found.kinds & known]
    return sorted(fitting or (members if "method" in request.kinds else []))


def _bound(names: Walker, name: str) -> Named:
    """Find the uses of a name, in a language whose scopes are understood. Raises Unsure."""
    names.read()
    plain: list[tuple[Place, Binding | None]] = []
    members = [place for member, place in names.member_uses() if member == name]
    for use, binding in names.resolved:
        if use.name == name and binding and binding.scope.kind == "class":
            members.append(use.place)
        elif use.name == name:
            plain.append((use.place, binding))
    return plain, members


def _leaves(tree: Tree, name: str) -> Named:
    """Find the identifiers of another language with this text."""
    plain: list[tuple[Place, Binding | None]] = []
    members: list[Place] = []
    todo = [tree.root]
    while todo:
        node = todo.pop()
        todo += node.named_children
        if node.type.endswith("identifier") and not node.child_count and tree.text_of(node) == name:
            place = Place(*tree.span(node))
            of = node.parent and node.parent.child_by_field_name("field")
            if node.type in {"field_identifier", "property_identifier"} or of == node:
                members.append(place)
            else:
                plain.append((place, None))
    return plain, members
