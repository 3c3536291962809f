"""Merging of an update that consists of whole definitions of a file.

Each definition of the update replaces the one of its name in the file, and nothing else changes. A
new one goes next to its neighbour in the update, and a new import among the file's imports. Of a
class that the update shows in part, only the shown members are replaced. There is no such merge
where a definition may stand for another one, or would lose a part.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from engine.editing.code_parts import DEFINITIONS, IMPORTS, WRAPPERS, definitions, name_of, tokens
from engine.editing.placed_imports import clash, with_imports
from engine.editing.scopes.names import whole_word
from engine.editing.syntax import Tree, parse

if TYPE_CHECKING:
    from tree_sitter import Node

HOLDERS = frozenset((  # definitions with members
    "class_definition", "class_declaration", "abstract_class_declaration", "class_specifier",
    "struct_specifier", "impl_item", "trait_item",
))  # fmt: skip
NO_CODE = {"pass_statement", "comment", "line_comment", "block_comment"}
RECEIVERS = ("self", "cls")
MAX_PARTS = 200  # statements of an update
STANDS_FOR = re.compile(  # what a comment says that stands for code
    r"\b(?:as before|as is|same|exist\w*|keep|kept|rest|snip\w*|unchanged|no changes?|etc|previous"
    r"|original|above|do not change|omitted|elided|logic|implementation|code|body|here)\b"
    r"|\.\.\.|\u2026",
    re.I,
)
SAYS_GONE = re.compile(r"\b(?:remov|delet|dropp|no longer|not needed|unused|gone)", re.I)

Change = tuple[int, int, str]  # code points of the file, and what to write there
IsMark = Callable[[str], bool]


class Doubt(Exception):
    """A reason why an update may be no list of whole definitions of a file."""


class Statement(NamedTuple):
    """A statement of a module or a member of a class. Its name is "" if it defines nothing."""

    node: Node  # with decorators and `export`
    inner: Node  # without them
    name: str
    first: int  # code points of whole lines, from the first comment right above it
    start: int
    stop: int
    after_mark: bool  # a mark is between it and the part before


def merge_definitions(path: str, text: str, update: str, is_mark: IsMark) -> str | None:
    """Return a text with the definitions of an update; None if the update may be anything else."""
    old, new = parse(path, text), parse(path, textwrap.dedent(update).strip("\n") + "\n")
    if not old or not new or old.errors or new.errors or _has_inner_mark(new, is_mark):
        return None
    if len(new.root.children) > MAX_PARTS:
        return None
    has_marks = any(map(is_mark, update.split("\n")))
    own, given = _parts(old, old.root, is_mark), _parts(new, new.root, is_mark)
    known = {old.text_of(part.node).strip() for part in own}
    imports = [new.text_of(part.node).strip() for part in given if part.node.type in IMPORTS]
    added = [each for each in imports if each not in known]
    shown = [at for at, part in enumerate(own) if old.text_of(part.node).strip() in imports]
    if has_marks and added and shown and len(shown) <= shown[-1] - shown[0]:
        return None  # an import between those that it shows may be gone
    had = [old.text_of(part.node) for part in own if part.node.type in IMPORTS]
    if any(clash(one, other) for one in added for other in had):
        return None  # it may replace the other one
    given = [part for part in given if part.node.type not in IMPORTS]
    try:
        _check_comments(old, new, new.root, given, is_mark)
        changes = [*_merged(old, new, own, given, has_marks, is_mark)] if given else []
    except Doubt:
        return None
    if any("\n" in each for each in added) or not (changes or (added and has_marks)):
        return None
    for start, stop, lines in sorted(changes, reverse=True):
        text = text[:start] + lines + text[stop:]
    text = with_imports(path, text, added)
    after = parse(path, text)
    if after is None or after.errors or text == old.text or any(map(is_mark, text.split("\n"))):
        return None
    return text


def _has_inner_mark(tree: Tree, is_mark: IsMark) -> bool:
    """Return whether a mark stands for anything but whole statements or members."""
    todo = [(tree.root, True)]
    while todo:
        node, is_outer = todo.pop()
        if not is_outer and "comment" in node.type and is_mark(tree.text_of(node).strip()):
            return True
        todo += [(child, is_outer and _holds(node, child)) for child in node.children]
    return False


def _holds(node: Node, child: Node) -> bool:
    """Return whether a child of a module or class may be, or have, whole members."""
    if node.type in HOLDERS:
        return child == node.child_by_field_name("body") or "comment" in child.type
    around = node.parent
    is_body = around is not None and around.type in HOLDERS
    return around is None or is_body or node.type in WRAPPERS


def _parts(tree: Tree, parent: Node, is_mark: IsMark) -> list[Statement]:
    """Return the parts of a module, or of a class's body."""
    found: list[Statement] = []
    above: Node | None = None  # the first comment of those right above
    last_row, after_mark = -1, False
    for node in parent.named_children:
        if "comment" in node.type:
            if is_mark(tree.text_of(node).strip()):
                above, after_mark = None, True
            elif node.start_point[0] > last_row:  # not behind code
                above = above if above and node.start_point[0] == last_row + 1 else node
            last_row = _last_row(node)
            continue
        inner = node
        if node.type in WRAPPERS:
            inner = next((one for one in node.named_children if one.type in DEFINITIONS), node)
        if inner.type in ("lexical_declaration", "expression_statement", "export_statement"):
            inner = _assigned(inner)
        start, stop = _lines(tree, node)
        is_close = above is not None and node.start_point[0] == last_row + 1
        first = _lines(tree, above)[0] if above and is_close else start
        found.append(Statement(node, inner, _name(tree, inner), first, start, stop, after_mark))
        above, last_row, after_mark = None, _last_row(node), False
    return found


def _assigned(node: Node) -> Node:
    """Return the one assignment or declaration in a statement, else the statement."""
    while node.named_child_count == 1 and not name_of(node):
        node = node.named_children[0]
    return node


def _name(tree: Tree, inner: Node) -> str:
    """Return the name of a definition, with the object that it belongs to; "" for another node."""
    if inner.type == "impl_item":
        return tree.text_of(inner).split("{")[0].strip()
    name, receiver = name_of(inner), inner.child_by_field_name("receiver")
    if name is None:
        return ""
    return " ".join(tree.text_of(each) for each in (receiver, name) if each)


def _last_row(node: Node) -> int:
    return node.end_point[0] - (node.end_point[1] == 0)  # some comments have their line end


def _lines(tree: Tree, node: Node) -> tuple[int, int]:
    """Return the span of the whole lines of a node, without the last line end. Raises Doubt."""
    start, stop = tree.span(node)
    stop = start + len(tree.text[start:stop].rstrip())
    start = tree.text.rfind("\n", 0, start) + 1
    end = tree.text.find("\n", stop)
    return start, end if end >= 0 else len(tree.text)


def _merged(
    old: Tree,
    new: Tree,
    own: Sequence[Statement],
    given: Sequence[Statement],
    has_marks: bool,
    is_mark: IsMark,
) -> Iterator[Change]:
    """Yield the changes of a module or class for the parts of the update. Raises Doubt."""
    known = {old.text_of(part.node).strip() for part in own}
    for part in given:
        if not part.name and new.text_of(part.node).strip() not in known:
            raise Doubt
    given = [part for part in given if part.name]
    places = [_place(old, new, own, part, is_mark) for part in given]
    if not any(places):
        raise Doubt
    order = [own.index(each) for each in places if each in own]
    if has_marks and order != sorted(order):
        raise Doubt
    for (one, two), part in zip(pairwise(places), given[1:], strict=True):
        is_run = has_marks and not part.after_mark and one in own and two in own
        if is_run and any(each.name for each in own[own.index(one) + 1 : own.index(two)]):
            raise Doubt  # what is between them may be gone
    for at, (part, place) in enumerate(zip(given, places, strict=True)):
        if place:
            yield from _replaced(old, new, part, place, has_marks, is_mark)
        elif at == 0 or places[at - 1]:
            yield _added(old, new, own, given, places, at)


def _place(
    old: Tree, new: Tree, own: Sequence[Statement], part: Statement, is_mark: IsMark
) -> Statement | None:
    """Find the definition that one of the update stands for; None for a new one. Raises Doubt."""
    named = [each for each in own if each.name == part.name]
    if not named and _is_method(new, part):
        named = [
            each
            for holder in own
            for each in _members(old, holder, is_mark)
            if each.name == part.name
        ]
    if len(named) > 1 or (named and named[0].inner.type != part.inner.type):
        raise Doubt
    if not named and (part.inner.type not in DEFINITIONS or _is_method(new, part)):
        raise Doubt  # a new value has no place, nor has a method without its class
    return named[0] if named else None


def _is_method(tree: Tree, part: Statement) -> bool:
    """Return whether a function of Python outside of a class is one of a class."""
    parameters = part.inner.child_by_field_name("parameters")
    first = parameters.named_children[:1] if parameters else []
    outside = part.node.parent is not None and part.node.parent.parent is None
    return outside and bool(first) and tree.text_of(first[0]) in RECEIVERS


def _members(tree: Tree, holder: Statement, is_mark: IsMark) -> list[Statement]:
    body = holder.inner.child_by_field_name("body")
    return _parts(tree, body, is_mark) if holder.inner.type in HOLDERS and body else []


def _replaced(
    old: Tree, new: Tree, part: Statement, place: Statement, has_marks: bool, is_mark: IsMark
) -> Iterator[Change]:
    """Yield the changes that make one definition of the file that of the update. Raises Doubt."""
    for tree, each in ((old, place), (new, part)):
        start, stop = tree.span(each.node)
        around = tree.text[each.start : start] + tree.text[stop : each.stop]
        if around.strip().strip(";,"):
            raise Doubt  # other code on its lines
    own, given = _members(old, place, is_mark), _members(new, part, is_mark)
    shown = {_key(new, each) for each in given}
    has_mark = any(map(is_mark, new.text_of(part.node).split("\n")))
    if has_mark or (own and given and not shown.issuperset(_key(old, each) for each in own)):
        heads = (_head(tree, each, is_mark) for tree, each in ((old, place), (new, part)))
        if len({*heads}) > 1:
            raise Doubt
        if given:
            body = part.inner.child_by_field_name("body")
            _check_comments(old, new, body or part.inner, given, is_mark)
            yield from _merged(old, new, own, given, has_marks, is_mark)
        return
    _check_bodies(old, new, place, part, is_mark)
    inside = {each.name for each in definitions(new, new.span(part.inner))}
    inside -= {each.name for each in definitions(old, old.span(place.inner))}
    if inside and re.search(rf"\b(?:class|def|fn|func|function) {whole_word(*inside)}", old.text):
        raise Doubt  # a definition of its own, which is indented too far
    first = place.first if part.first < part.start else place.start
    if place.node != place.inner and part.node.type != place.node.type:
        if place.node.type == "decorated_definition":
            raise Doubt  # the decorators may be gone, or stay
        first = old.span(place.inner)[0]
        lines = _lines_of(old, new, (part.start, part.stop), place).lstrip()
    else:
        lines = _lines_of(old, new, (part.first, part.stop), place)
    if lines != old.text[first : place.stop]:
        yield first, place.stop, lines


def _check_bodies(old: Tree, new: Tree, place: Statement, part: Statement, is_mark: IsMark) -> None:
    """Raise Doubt if a stub or a comment of a definition may stand for code that the file has."""
    if _is_empty(part.inner) and not _is_empty(place.inner):
        raise Doubt
    own = {_key(old, each): each for each in _members(old, place, is_mark)}
    for each in _members(new, part, is_mark):
        if _key(new, each) in own:
            _check_bodies(old, new, own[_key(new, each)], each, is_mark)
    was, now = old.text_of(place.node), new.text_of(part.node)
    spans = ((old, old.span(place.node)), (new, new.span(part.node)))
    had, has = (
        [each.row for each in tokens(*one) if each.kind not in ("comment", "block")]
        for one in spans
    )
    lines = {line.strip() for line in now.split("\n")} | {""}
    lost = not lines.issuperset(line.strip() for line in was.split("\n"))
    comments = [each.text for each in tokens(*spans[1]) if each.kind == "comment"]
    added = [each for each in comments if each.strip() not in was]
    fewer = len({*has}) < len({*had})
    if lost and any(fewer or STANDS_FOR.search(each) for each in added):
        raise Doubt


def _check_comments(
    old: Tree, new: Tree, parent: Node, parts: Sequence[Statement], is_mark: IsMark
) -> None:
    """Raise Doubt if a comment between the parts of an update is neither in the file nor merged.

    It may say what is to be deleted.
    """
    for node in parent.named_children:
        text = new.text_of(node).strip()
        if "comment" not in node.type or is_mark(text) or text in old.text:
            continue
        at = new.offset(node.start_byte)
        is_merged = any(part.first <= at < part.stop for part in parts)
        if not is_merged or SAYS_GONE.search(text):
            raise Doubt


def _check_order(
    old: Tree, new: Tree, own: Sequence[Statement], run: Sequence[Statement], at: int
) -> None:
    """Raise Doubt if a new definition would stand above a name that it needs when it is made.

    Those are the names of its decorators, bases and defaults.
    """
    below = {part.name for part in own if part.start >= at and part.name}
    for part in run:
        if below.intersection(re.findall(r"[\w$]+", _needed(new, part))):
            raise Doubt


def _needed(tree: Tree, part: Statement) -> str:
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


def _key(tree: Tree, part: Statement) -> str:
    return part.name or tree.text_of(part.node).strip()


def _head(tree: Tree, part: Statement, is_mark: IsMark) -> str:
    """Return a definition up to its body, with decorators and `export`."""
    body = part.inner.child_by_field_name("body")
    start, stop = tree.span(part.node)
    lines = tree.text[start : tree.span(body)[0] if body else stop].split("\n")
    return " ".join(" ".join(line for line in lines if not is_mark(line)).split())


def _is_empty(node: Node) -> bool:
    """Return whether a function has no code: nothing, `pass` or `...`."""
    body = node.child_by_field_name("body")
    if body is None:
        return False
    code = [each for each in body.named_children if each.type not in NO_CODE]
    return all([part.type for part in each.children] in (["ellipsis"], ["string"]) for each in code)


def _lines_of(old: Tree, new: Tree, span: tuple[int, int], place: Statement) -> str:
    """Return lines of the update, indented like a definition of the file. Raises Doubt."""
    lines = new.text[slice(*span)].split("\n")
    shown, wanted = (
        tree.text[at : at + len(tree.text[at:]) - len(tree.text[at:].lstrip(" \t"))]
        for tree, at in ((new, span[0]), (old, place.start))
    )
    if shown == wanted:
        return "\n".join(lines)
    if any(each.kind == "string" and "\n" in each.text for each in tokens(new, span)):
        raise Doubt
    if any(line.strip() and not line.startswith(shown) for line in lines):
        raise Doubt
    return "\n".join(wanted + line[len(shown) :] if line.strip() else line for line in lines)


def _added(
    old: Tree,
    new: Tree,
    own: Sequence[Statement],
    given: Sequence[Statement],
    places: Sequence[Statement | None],
    at: int,
) -> Change:
    """Return the change that adds new definitions from the one at `at` on. Raises Doubt."""
    end = next((n for n in range(at, len(given)) if places[n]), len(given))
    run = given[at:end]
    before = places[at - 1] if at and not run[0].after_mark else None
    after = places[end] if end < len(given) and not given[end].after_mark else None
    if any(part.after_mark for part in run[1:]):
        raise Doubt
    span = run[0].first, run[-1].stop
    if before in own and before:
        gap = new.text[given[at - 1].stop : run[0].first]
        _check_order(old, new, own, run, before.stop)
        return before.stop, before.stop, gap + _lines_of(old, new, span, before)
    if after in own and after:
        gap = new.text[run[-1].stop : given[end].first]
        _check_order(old, new, own, run, after.first)
        return after.first, after.first, _lines_of(old, new, span, after) + gap
    raise Doubt
