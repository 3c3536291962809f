"""Renames by rule: `Rename the parameter path to source`.

The instruction is read, the name is looked up in the selection, all that refers to the same thing
is rewritten, across the file where it reaches that far, and the new text is read again: every name
must refer to what it referred to before. Comments and strings change only if the instruction speaks
of them, except for a parameter's entry in its function's docstring, names in `__all__`, and
annotations in quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.editing.edits import EditRefused
from engine.editing.rename_request import RenameRequest
from engine.editing.scopes.javascript import JavaScriptNames
from engine.editing.scopes.names import Binding, Place, Scope, Unsure, Walker, whole_word
from engine.editing.scopes.python_renames import PythonRenames
from engine.editing.syntax import Tree, language_of, parse

if TYPE_CHECKING:
    from tree_sitter import Node

WALKERS: dict[str, type[Walker]] = {
    "python": PythonRenames,
    **dict.fromkeys(("javascript", "typescript", "tsx"), JavaScriptNames),
}

COMMENT, STRINGS = "comment", {"string_content", "string_fragment"}


@dataclass(frozen=True, slots=True)
class Renamed:
    """A text after renames."""

    text: str
    title: str
    notes: tuple[str, ...]
    is_wide: bool = False  # other files may use the name


def rename(
    path: str,
    text: str,
    selection: tuple[int, int] | None,
    requests: list[RenameRequest],
    alone: bool = True,
) -> Renamed:
    """Make all renames in a text; `alone`: other files stay as they are, which a note says.

    Raises EditRefused for what cannot be renamed so, and Unsure for what a rule cannot be certain
    of.
    """
    start, stop = selection or (0, len(text))
    titles: list[str] = []
    notes: list[str] = []
    is_wide = False
    for request in requests:
        places, own, wide = _places(path, text, (start, stop), request, selection is not None)
        text, start, stop = rewritten(text, places, request.new, start, stop)
        count = f"{len(places)} place{'s' * (len(places) != 1)}"
        titles.append(f"`{request.old}` renamed to `{request.new}` in {count}")
        notes += own
        is_wide = is_wide or wide
        if wide and alone:
            notes.append(f"other files that use `{request.old}` are unchanged")
    return Renamed(text, "; ".join(titles), tuple(dict.fromkeys(notes)), is_wide)


def _places(
    path: str, text: str, selection: tuple[int, int], request: RenameRequest, is_part: bool
) -> tuple[list[Place], list[str], bool]:
    """Find where a text is to be rewritten.

    Returns these places, what the user should know, and whether other files may use the name.
    """
    language = language_of(path)
    if language is None:
        raise Unsure("the language is not known")
    if request.in_part and not is_part:
        raise Unsure("it is not known which part of the file is meant")
    where = "the selection" if is_part else "the file"
    if not re.search(whole_word(request.old), text[slice(*selection)]):
        if not request.certain or not re.fullmatch(r"[\w$]+", request.old):
            raise Unsure(f"`{request.old}` may not be meant as a name")
        raise EditRefused(
            f"`{request.old}` is not in {where}: check the name, or select other lines"
        )
    tree = parse(path, text)
    if tree is None or language not in WALKERS:
        raise Unsure(f"names of {language} are not understood")
    names = WALKERS[language](tree)
    if not names.is_identifier(request.new):
        raise EditRefused(
            f"`{request.new}` cannot be a name: choose letters, digits and underscores"
        )
    if request.new == request.old:
        raise EditRefused(f"`{request.old}` is the name already: choose another one")
    if tree.errors:
        raise Unsure("the file has syntax errors")
    names.read()
    if names.unsure:
        raise Unsure(names.unsure)
    bindings, scopes = _targets(names, selection, request)
    places = {place for binding in bindings for place in names.places(binding, request.new)}
    for scope in scopes:
        places |= set(names.member_places(request.old, scope, request.new))
    check(path, names, bindings, places, request)
    regions = [binding.scope for binding in bindings] + scopes
    texts = _texts(tree, regions, request)
    starts = {place.start for place in places}
    wanted = {one for kind, one in texts if one.start not in starts and _requested(kind, request)}
    everywhere = _texts(tree, [names.top], request) if scopes else texts  # members have no region
    left = {one for _, one in everywhere if one.start not in starts} - wanted
    is_wide = any(binding.scope.kind in {"module", "class"} for binding in bindings)
    return sorted(places | wanted), _notes(len(left), request), is_wide or bool(scopes)


def _targets(
    names: Walker, selection: tuple[int, int], request: RenameRequest
) -> tuple[list[Binding], list[Scope]]:
    """Find the bindings that are meant, and the classes whose member is meant. Raises Unsure."""
    start, stop = selection

    def inside(place: Place) -> bool:
        return place.start < stop and place.stop > start

    found: dict[Binding, None] = {}
    is_free = False
    for use, binding in names.resolved:
        if use.name == request.old and inside(use.place):
            if request.owner and not (binding and _owns(names, request.owner, binding.scope)):
                continue
            if binding:
                found[binding] = None
            else:
                is_free = True
    members = any(name == request.old and inside(place) for name, place in names.member_uses())
    own = [binding for binding in found if binding.scope.kind != "class"]
    if len({_function(names, binding.scope) for binding in own}) > 1 and request.owner:
        raise Unsure(f"several functions are named `{request.owner}`")
    if request.owner and not request.kinds:
        return (own, []) if own else ([], _classes(names, request))
    if request.kinds:
        for kind in request.kinds:
            if kind == "attribute" and members:
                return [], _classes(names, request)
            if kind == "method":
                methods = [each for each in found if kind in each.kinds] or members
                if methods:
                    return [], _classes(names, request)
            elif matching := [binding for binding in own if kind in binding.kinds]:
                return matching, []
        raise Unsure(f"`{request.old}` is not what the instruction calls it")
    if is_free:
        raise Unsure(f"`{request.old}` is not defined in this file")
    if len(own) < len(found) or members:
        if own:
            raise Unsure(f"`{request.old}` is both a name and an attribute")
        return [], _classes(names, request)
    if not own:
        raise Unsure(f"`{request.old}` is only in comments or strings")
    return own, []


def _classes(names: Walker, request: RenameRequest) -> list[Scope]:
    """Return the one class whose member is meant, in a list. Raises Unsure."""
    scopes = names.classes_with(request.old)
    if request.owner:
        scopes = [scope for scope in scopes if _owns(names, request.owner, scope)]
    if len(scopes) != 1:
        raise Unsure(f"it is not certain what `.{request.old}` refers to")
    return scopes


def _owns(names: Walker, owner: str, scope: Scope) -> bool:
    """Return whether a class or function of this name has a scope, without others between them."""
    around = _function(names, scope)
    name = around.node.child_by_field_name("name") if around and around.node else None
    return name is not None and names.tree.text_of(name) == owner


def _function(names: Walker, scope: Scope) -> Scope | None:
    """Return the class or function that a scope is in or is; None for a module."""
    return next((one for one in names.chain(scope) if one.kind in {"class", "function"}), None)


def check(
    path: str, names: Walker, bindings: list[Binding], places: set[Place], request: RenameRequest
) -> None:
    """Read the new text again, and refuse it if any name refers to something else than before."""
    text, _, _ = rewritten(names.tree.text, sorted(places), request.new, 0, 0)
    tree = parse(path, text)
    taken = EditRefused(
        f"`{request.new}` is used already, where it would mean something else: choose another name"
    )
    if tree is None or tree.errors:
        raise Unsure("the new text has syntax errors")
    after = type(names)(tree)
    after.read()
    if len(names.resolved) != len(after.resolved):
        raise Unsure("the new text has other names")
    starts = {place.start for place in places}
    partner: dict[Binding, Binding] = {}
    for (old, was), (new, now) in zip(names.resolved, after.resolved, strict=True):
        name = request.new if old.place.start in starts else old.name
        if new.name != name:
            raise Unsure("the new text has other names")
        if (was is None) != (now is None):
            raise taken
        if was and now and partner.setdefault(was, now) is not now:
            raise taken
    if len(set(partner.values())) != len(partner):
        raise taken
    if after.unsure or any(partner[each].unsure for each in bindings if each in partner):
        raise Unsure(f"`{request.new}` is a special name")


def rewritten(
    text: str, places: Iterable[Place], new: str, start: int, stop: int
) -> tuple[str, int, int]:
    """Write a new name at some places of a text, and say where a selection is then."""
    pieces: list[str] = []
    done = moved_start = moved_stop = 0
    for place in places:
        written = place.form.replace("{}", new)
        pieces += [text[done : place.start], written]
        growth = len(written) - (place.stop - place.start)
        moved_start += growth if place.stop <= start else 0
        moved_stop += growth if place.start < stop else 0
        done = place.stop
    return "".join([*pieces, text[done:]]), start + moved_start, stop + moved_stop


def _requested(kind: str, request: RenameRequest) -> bool:
    return request.in_comments if kind == COMMENT else request.in_strings


def _texts(tree: Tree, scopes: list[Scope], request: RenameRequest) -> list[tuple[str, Place]]:
    """Find the old name in comments and strings of some scopes."""
    found = []
    todo = [scope.node for scope in scopes if scope.node]
    roots, done = {node.id for node in todo}, set[int]()
    while todo:
        node = todo.pop()
        if node.id in done:
            continue  # a scope in another one
        if node.id in roots:
            done.add(node.id)
        todo += node.children
        if node.type in {COMMENT, *STRINGS}:
            start, _ = tree.span(node)
            for match in re.finditer(whole_word(request.old), _without_escapes(tree, node)):
                found.append((node.type, Place(start + match.start(), start + match.end())))
    return found


def _without_escapes(tree: Tree, node: Node) -> str:
    """Return the text of a node, with blanks for escapes: no letter of one belongs to a name."""
    text = tree.text_of(node)
    escapes = [each for each in node.children if each.type == "escape_sequence"]
    if escapes:
        start, _ = tree.span(node)
        chars = [*text]
        for each in escapes:
            low, high = tree.span(each)
            chars[low - start : high - start] = " " * (high - low)
        text = "".join(chars)
    return text


def _notes(left: int, request: RenameRequest) -> list[str]:
    """Say what the user should know of the old name's `left` places in comments and strings."""
    if left <= 0:
        return []
    return [f"`{request.old}` is still in {left} place{'s' * (left != 1)} of comments or strings"]
