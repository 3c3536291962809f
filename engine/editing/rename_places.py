"""Places where a language server can be asked for the rename that an instruction wants.

A language server renames what stands at one place, wherever it is used. The places found here are
all those of a selection that may be meant. There are none where an instruction may mean either of
two things, such as a variable and an attribute, or wants more than a language server does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.editing.rename import WALKERS
from engine.editing.scopes.names import Place, Unsure
from engine.editing.scopes.outline import OutlineNames
from engine.editing.signatures import find_signatures
from engine.editing.syntax import parse

if TYPE_CHECKING:
    from engine.editing.rename_request import RenameRequest

MEMBERS = ("attribute", "method")  # kinds of names that follow an object's
IMPORTED = {"import", "alias"}  # kinds of names whose own kind is not known here


def rename_places(
    path: str, text: str, selection: tuple[int, int] | None, request: RenameRequest
) -> list[Place]:
    """Find the places in a selection, in order."""
    tree = parse(path, text)
    if tree is None or request.in_comments or request.in_strings or request.new == request.old:
        return []
    if request.in_part and not selection:
        return []
    names = WALKERS.get(tree.language, OutlineNames)(tree)
    if not names.is_identifier(request.new):
        return []
    start, stop = selection or (0, len(text))
    if request.owner:
        return [
            Place(each.name_at, each.name_at + len(each.name))
            for each in find_signatures(tree, start, stop)
            if each.name == request.old and each.owner and each.owner[0] == request.owner
        ]
    try:
        names.read()
    except Unsure:
        return []
    plain, members = names.named(request.old)

    def inside(place: Place) -> bool:
        return place.start < stop and place.stop > start

    uses = [(use.place, binding) for use, binding in plain if inside(use.place)]
    members = [place for place in members if inside(place)]
    if not request.kinds:
        return [] if uses and members else sorted([place for place, _ in uses] or members)
    if request.kinds[0] in MEMBERS:
        return sorted(members)
    known = {*request.kinds, *IMPORTED}
    is_known = tree.language in WALKERS  # what its names are bound to
    fitting = [
        place for place, found in uses if not is_known or found is None or found.kinds & known
    ]
    return sorted(fitting or (members if "method" in request.kinds else []))
