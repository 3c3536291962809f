"""A block of code of an answer, put where it belongs in a file.

Imports go to the file's imports, a definition takes the place of the one with its name, and a new
one comes behind the definition at the cursor. Everything else, and all code in a language without a
grammar, is put at the cursor, or in the place of what is selected.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from engine.editing.code_parts import IMPORTS, WRAPPERS, Span, name_of
from engine.editing.definition import (
    AROUND,
    ATTACHED,
    all_definitions,
    bare,
    definitions_around,
    first_of,
    full_name,
    is_definition,
    reach,
)
from engine.editing.edits import Change, commonest_end, plain, preserve
from engine.editing.moved_imports import move_imports
from engine.editing.placed_imports import places
from engine.editing.syntax import Tree, parse
from engine.records import Request

if TYPE_CHECKING:
    from tree_sitter import Node

SCRIPTS = ("javascript", "typescript", "tsx")
CLASS = "class _ {\n"  # makes methods of a script a text that can be parsed
MEMBERS = ("method_definition", "constructor_declaration")
SELF = re.compile(r"\(\s*(?:&\s*)?(?:mut\s+)?(?:self|cls)\b")
SCRIPT_IMPORT = re.compile(r"import\b.*\n+")
OPENS = (":", "{", "(", "[")  # ends of a line below which the code is further in
SPACES = ("namespace_definition", "mod_item")  # definitions that hold what is defined side by side
FUNCTIONS = (
    "function_definition", "function_declaration", "generator_function_declaration",
    "method_definition", "method_declaration", "constructor_declaration", "function_item",
    "variable_declarator",
)  # fmt: skip


class _Piece(NamedTuple):
    """A definition of the code, with what is above it, or a statement, which has no name."""

    text: str
    name: str = ""
    is_member: bool = False  # of a class
    starts: tuple[int, int, int] = (0, 0, 0)  # with all that is above it, with decorators, bare


def place_code(path: str, text: str, span: Span, code: str) -> str:
    """Return the file's text with the code in it; an empty `span` is the cursor."""
    body, block = plain(text), textwrap.dedent(plain(code).strip("\n")).rstrip()
    start, stop = (len(plain(text[:at])) for at in span)
    if not block.strip():
        return text
    if start < stop:
        new = _in_selection(path, body, (start, stop), block)
    else:
        imports, rest, pieces = _split(path, block)
        tree = parse(path, body)
        if tree and any(piece.name for piece in pieces):
            new = _with_pieces(tree, start, pieces)
        else:
            new = _at_cursor(body, start, rest) if rest else body
        new = _with_imports(path, new, imports)
    return preserve(text, new, commonest_end(text, "\n"))


# -- the code ----------------------------------------------------------------------------------


def _split(path: str, code: str) -> tuple[list[str], str, list[_Piece]]:
    """Return the code's imports, what else is in it as a text, and as pieces."""
    text = code + "\n"
    imports: list[str] = []
    tree = parse(path, text)
    is_member = bool(tree and tree.errors and tree.language in SCRIPTS)
    if is_member:  # methods without their class
        while found := SCRIPT_IMPORT.match(text):
            imports.insert(0, found[0].strip())
            text = text[found.end() :]
        code = text.strip("\n")
        text = f"{CLASS}{text}}}\n"
        tree = parse(path, text)
    if tree is None or tree.errors:
        return imports[::-1], code, []
    nodes = tree.root.named_children
    if is_member:
        nodes = nodes[0].named_children[-1].named_children
    pieces: list[_Piece] = []
    rest, top = text, len(text)  # the rest without imports; where the node below begins
    for node in reversed(nodes):
        start, _ = reach(tree, node)
        if start >= top and node.type in ATTACHED:
            continue
        top = start
        if node.type in IMPORTS:
            imports.append(tree.text_of(node).strip())
            line = rest.find("\n", start + len(tree.text_of(node).rstrip()))
            rest = rest[:start] + rest[line + 1 :]
        else:
            pieces.append(_piece(tree, node, is_member))
    return imports[::-1], code if is_member else rest.strip("\n").rstrip(), pieces[::-1]


def _piece(tree: Tree, node: Node, is_member: bool) -> _Piece:
    start, stop = reach(tree, node)
    text = tree.text[start:stop].rstrip()
    if not is_definition(node):
        return _Piece(textwrap.dedent(text))
    own = bare(node)
    parameters = text[tree.offset(own.start_byte) - start :]
    has_self = own.type in FUNCTIONS and SELF.search(parameters.split(")")[0]) is not None
    has_self = has_self or "@staticmethod" in text[: -len(parameters)]
    in_class = own.type in MEMBERS or (own.type == "method_declaration" and tree.language == "java")
    return _Piece(text, _name(tree, node), is_member or has_self or in_class, _starts(tree, node))


def _name(tree: Tree, node: Node) -> str:
    """Return the name of a definition, or its first line where it has none."""
    return full_name(tree, node, bare(node)) or tree.text_of(node).split("\n")[0]


def _starts(tree: Tree, node: Node) -> tuple[int, int, int]:
    """Find where a definition begins: with all above it, with its decorators, and bare."""
    own = node
    while own.type in WRAPPERS:
        own = next(child for child in own.named_children if is_definition(child))
    first, whole, last = (tree.offset(each.start_byte) for each in (first_of(node), node, own))
    return first, whole, last


# -- the file ----------------------------------------------------------------------------------


def _in_selection(path: str, text: str, span: Span, code: str) -> str:
    """Put code in the place of the selected lines, and its imports to the file's."""
    start = text.rfind("\n", 0, span[0]) + 1
    stop = text.find("\n", span[1] - 1)
    stop = len(text) if stop < 0 else stop
    first = next((line for line in text[start:stop].split("\n") if line.strip()), "")
    new = text[:start] + textwrap.indent(code, _indent(first)) + text[stop:]
    return move_imports(Request("edit", text, path=path, selection=(start, stop)), new)


def _at_cursor(text: str, at: int, code: str) -> str:
    """Put code in the place of an empty line, or below the cursor's line."""
    start = text.rfind("\n", 0, at) + 1
    stop = text.find("\n", at)
    stop = len(text) if stop < 0 else stop
    line, below = text[start:stop], text[stop + 1 :].lstrip("\n").split("\n")[0]
    indent = _indent(line)
    if line.rstrip().endswith(OPENS) and len(_indent(below)) > len(indent):
        indent = _indent(below)
    code = textwrap.indent(code, indent)
    return text[:start] + (f"{line}\n{code}" if line.strip() else code) + text[stop:]


def _with_pieces(tree: Tree, at: int, pieces: Sequence[_Piece]) -> str:
    """Put each definition in the place of the one with its name, and the others at the cursor."""
    around = definitions_around(tree, at)
    new: list[_Piece] = []
    edits: list[Change] = []
    for piece in pieces:
        old = _namesake(tree, around, piece) if piece.name else None
        edit = _replaced(tree, old, piece) if old else None
        if edit is None or any(edit.start < one.stop and one.start < edit.stop for one in edits):
            new.append(piece)
        else:
            edits.append(edit)
    for is_member in (False, True):
        if group := [piece for piece in new if piece.is_member == is_member]:
            edits.append(_inserted(tree, around, at, group))
    text = tree.text
    for start, stop, more in sorted(edits, reverse=True):
        text = text[:start] + more + text[stop:]
    return text


def _namesake(tree: Tree, around: Sequence[Node], piece: _Piece) -> Node | None:
    """Find the one definition with a name: a method of the class at the cursor, if there is one."""
    owner = _class_of(around)
    found = [
        node
        for node in all_definitions(tree)
        if _name(tree, node) == piece.name and name_of(bare(node))
    ]
    if piece.is_member:
        found = [node for node in found if not owner or _class_around(node) == bare(owner)]
    else:
        found = [node for node in found if not _class_around(node)]
    return found[0] if len(found) == 1 else None


def _class_of(around: Sequence[Node]) -> Node | None:
    """Return the innermost class, or what else has methods, of definitions around a place."""
    return next((node for node in reversed(around) if _has_members(bare(node))), None)


def _class_around(node: Node) -> Node | None:
    """Return the class that a definition is in, without a function between them."""
    around = node.parent
    while around is not None and not (around.type in FUNCTIONS or _has_members(around)):
        around = around.parent
    return around if around is not None and _has_members(around) else None


def _has_members(node: Node) -> bool:
    return node.type in AROUND and node.type not in (*FUNCTIONS, *SPACES)


def _replaced(tree: Tree, old: Node, piece: _Piece) -> Change:
    """Replace a definition. What is above it stays, if the new one has nothing there."""
    ours, theirs = _starts(tree, old), piece.starts
    which = 0 if theirs[0] < theirs[1] else 1 if theirs[1] < theirs[2] else 2
    skipped = theirs[which] - (theirs[0] if which else theirs[which])
    start, stop = ours[which], tree.offset(old.end_byte)
    indent = _indent(tree.text[tree.text.rfind("\n", 0, start) + 1 :])
    text = textwrap.indent(piece.text[skipped:], indent)
    return Change(start, start + len(tree.text[start:stop].rstrip()), text.removeprefix(indent))


def _inserted(tree: Tree, around: Sequence[Node], at: int, pieces: Sequence[_Piece]) -> Change:
    """Insert new definitions behind the one at the cursor: methods in a class, others outside."""
    text = tree.text
    place, indent = _place(tree, around, at, pieces[0].is_member)
    gap = 2 if tree.language == "python" and not indent else 1
    code = ""
    for before, piece in zip((None, *pieces), pieces, strict=False):
        near = before is not None and not (before.name or piece.name)
        code += ("" if before is None else "\n" if near else "\n" * (gap + 1)) + piece.text
    rest = text[place:]
    blank = len(rest) - len(rest.lstrip("\n"))
    follows = rest.lstrip("\n").split("\n")[0]
    after = gap - blank if follows and len(_indent(follows)) >= len(indent) else 0
    if follows.strip().startswith(("}", ")", "]")):
        after = 0
    head = "" if not place else "\n" * (gap + (text[place - 1] != "\n"))
    return Change(place, place, head + textwrap.indent(code, indent) + "\n" + "\n" * max(0, after))


def _place(tree: Tree, around: Sequence[Node], at: int, is_member: bool) -> tuple[int, str]:
    """Find where a new definition goes: the offset of a line, and the indentation."""
    text = tree.text
    if not is_member:
        behind = next((node for node in around if node.type not in SPACES), None)
    else:
        owner = _class_of(around)
        inside = around[around.index(owner) + 1 :] if owner else around
        behind = inside[0] if inside else _last_child(owner) if owner else None
    if behind is not None:
        start, stop = tree.span(behind)
        place = _line_end(text, max(start, stop - 1))
        return place, _indent(text[text.rfind("\n", 0, start) + 1 :])
    row = at
    for node in tree.root.children:
        start, stop = tree.span(node)
        if start <= at < stop:
            row = stop
    head = text[: _line_end(text, row)].rstrip()
    place = _line_end(text, len(head)) if head else 0
    return max(place, places(tree)[1]), ""


def _last_child(node: Node) -> Node:
    """Return the last part of a class, or the class where it is empty."""
    body = bare(node).child_by_field_name("body")
    return body.named_children[-1] if body and body.named_children else node


def _with_imports(path: str, text: str, imports: Sequence[str]) -> str:
    """Add imports that the file does not have to its others."""
    if not imports:
        return text
    text = text if not text or text.endswith("\n") else text + "\n"
    request = Request("edit", text, path=path, selection=(len(text), len(text)))
    return move_imports(request, text + "\n".join(imports) + "\n")


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _line_end(text: str, at: int) -> int:
    """Return the offset after the line end of a place."""
    stop = text.find("\n", at)
    return len(text) if stop < 0 else stop + 1
