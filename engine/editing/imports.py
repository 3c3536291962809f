"""Imports by rule: their order in Python, and unused ones in Python, JavaScript and TypeScript.

The order is isort's default: `__future__`, the standard library, other packages, relative imports;
in each group plain imports before `from` imports, both by module. A rule cannot tell a project's
own packages from others, so groups of these stay as they are. Comments among the imports, imports
of `*` and names that are imported twice are left to the model, as their order may matter.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING

from engine.editing.edits import BOM, EditRefused
from engine.editing.scopes.javascript import JavaScriptNames
from engine.editing.scopes.names import Unsure, Walker
from engine.editing.scopes.python import PythonNames
from engine.editing.syntax import Tree, language_of, parse

if TYPE_CHECKING:
    from tree_sitter import Node

SCRIPTS = {"javascript", "typescript", "tsx"}
KEPT = re.compile(r"#\s*(?:noqa|type:|pyright:)|//|/\*")  # a comment may be why it is there
IMPORTS = {"import_statement", "import_from_statement", "future_import_statement"}
END = re.compile(r"\r\n|\r|\n")
BLANK_LINE = re.compile(r"[ \t]*(?:\r\n|\r|\n)")
WORD = re.compile(r"[\w$]+")
# What may use a name as a type: comments, and strings that are a type of Python.
TYPE_COMMENT, TYPE_TAG = re.compile(r"#\s*type:(.*)"), re.compile(r"@\w+([^\n]*)")
TYPE_STRING = re.compile(r"(?=([\"'])((?:[\w.\[\]|]|, ?| \| )*)\1)")
WHERE = r"(?: (?:in|from|of) (?:the|this) (?:whole |entire )?(?:file|module|selection))?"
SORT = re.compile(
    r"(?:sort|organi[sz]e|order|sort and group|group and sort)(?: all)?(?: the| my| these)?"
    rf" (?:imports?(?: statements)?|rest)(?: alphabetically)?{WHERE}",
    re.I,
)
REMOVE = re.compile(
    r"(?:remove|delete|drop)(?: all| any)?(?: the| of the)? unused"
    rf" (?:ones|imports?(?: statements)?(?: of)?(?: [`'\"]?(?P<name>[^\W\d]\w*)[`'\"]?)?){WHERE}",
    re.I,
)


@dataclass(frozen=True, slots=True)
class ImportEdit:
    """The changes of imports that an instruction asks for."""

    order: bool = False
    unused: bool = False
    name: str = ""  # name of the one unused import


def read(instruction: str) -> ImportEdit | None:
    """Read the changes of imports that an instruction asks for.

    Returns None if it asks for anything else.
    """
    words = re.sub(r"\s+", " ", instruction).strip().rstrip(".!").removeprefix("please ")
    words = words.removeprefix("Please ")
    whole = ImportEdit()
    for part in re.split(r", and |,? then |, | and (?!group|sort the? imports)", words, flags=re.I):
        if SORT.fullmatch(part):
            whole = ImportEdit(True, whole.unused, whole.name)
        elif found := REMOVE.fullmatch(part):
            whole = ImportEdit(whole.order, True, found["name"] or "")
        else:
            return None
    return whole


def tidy(
    path: str, text: str, selection: tuple[int, int] | None, edit: ImportEdit
) -> tuple[str, str]:
    """Change the imports of a text, and say what was done. Raises EditRefused and Unsure."""
    done = []
    if edit.unused:
        old = text
        text, removed = _without_unused(path, text, selection, edit.name)
        if selection:
            selection = (selection[0], max(selection[0], selection[1] + len(text) - len(old)))
        names = ", ".join(f"`{name}`" for name in removed)
        done.append(f"unused imports removed: {names}" if removed else "no import is unused")
    if edit.order:
        new = _in_order(path, text, selection)
        done.append("imports sorted" if new != text else "the imports are sorted already")
        text = new
    return text, "; ".join(done)


def _tree(path: str, text: str, languages: set[str]) -> Tree:
    """Parse a text without errors, in one of some languages. Raises Unsure."""
    if language_of(path) not in languages:
        raise Unsure("imports of this language are not understood")
    tree = parse(path, text)
    if tree is None or tree.errors:
        raise Unsure("the file has syntax errors")
    return tree


def _statements(tree: Tree, selection: tuple[int, int] | None) -> list[Node]:
    """Return the imports at the top level of a module, or those that a selection touches."""
    start, stop = selection or (0, len(tree.text))
    found = []
    for node in tree.root.children:
        if node.type in IMPORTS:
            first, last = tree.span(node)
            if first < stop and last > start:
                found.append(node)
            line = _line(tree.text, first, last)
            if tree.text[slice(*line)].strip() != tree.text_of(node):
                raise Unsure("a comment or another statement is on the line of an import")
    if not found:
        raise Unsure("no import is at the top of the file or in the selection")
    return found


def _line(text: str, start: int, stop: int) -> tuple[int, int]:
    """Return the whole lines around a span, with their last line end."""
    found = END.search(text, stop)
    while start > 0 and text[start - 1] not in "\r\n":
        start -= 1
    return start or _mark(text), found.end() if found else len(text)


def _mark(text: str) -> int:
    """Return where a text starts after its BOM."""
    return len(text) - len(text.lstrip(BOM))


# -- unused ------------------------------------------------------------------------------------


def _without_unused(
    path: str, text: str, selection: tuple[int, int] | None, name: str
) -> tuple[str, list[str]]:
    """Return the text without unused imports, and their names."""
    tree = _tree(path, text, {"python", *SCRIPTS})
    if path.endswith(("__init__.py", ".pyi", ".d.ts")):
        raise Unsure("what this file imports may be used by others")
    statements = _statements(tree, selection)
    unused = _unused(tree)
    cuts: list[tuple[int, int]] = []
    removed: list[str] = []
    for node in statements:
        parts = _parts(tree, node) if tree.language == "python" else _script_parts(tree, node)
        gone = [part for part in parts if part.bound in unused and not part.is_export]
        if name:
            gone = [part for part in gone if part.name == name]
        if gone and not KEPT.search(text[slice(*_line(text, *tree.span(node)))]):
            removed += [part.name for part in gone]
            cuts += _cuts(tree, node, parts, gone)
    if name and not removed:
        raise EditRefused(f"`{name}` is not an unused import: check the name")
    if not name and not selection:
        spans = [tree.span(node) for node in statements]
        for start in unused:
            before = bisect_right(spans, start, key=itemgetter(0))
            if not before or start >= spans[before - 1][1]:
                raise Unsure("an import inside a block is unused")
    return _cut(text, cuts), removed


def _unused(tree: Tree) -> set[int]:
    """Find where names are that only imports bind, and that nothing uses."""
    if tree.language == "python":
        names: Walker = _read_python(tree)
    else:
        names = JavaScriptNames(tree)
        names.read()
    if names.unsure:
        raise Unsure(names.unsure)
    used = {binding for use, binding in names.resolved if use.kind not in {"import", "alias"}}
    unclear = names.unclear if isinstance(names, PythonNames) else set()
    free = unclear | {use.name for use, binding in names.resolved if binding is None}
    if tree.language != "python" and re.search(r"<[\w>]", tree.text):
        used |= {each for each in names.bindings() if each.name in {"React", "h", "Fragment"}}
    free |= _names_in_text(tree)
    return {
        place.start
        for binding in names.bindings()
        if binding not in used and binding.name not in free
        for place in binding.places
    }


def _read_python(tree: Tree) -> PythonNames:
    names = PythonNames(tree)
    names.read()
    if any(names.sees(*use, names.top) for use in names.dynamic):
        raise Unsure("names may be used by their text")
    return names


def _names_in_text(tree: Tree) -> set[str]:
    """Return the names that a comment or a string may use as types."""
    if tree.language == "python":
        parts = [match[1] for match in TYPE_COMMENT.finditer(tree.text)]
        parts += [match[2] for match in TYPE_STRING.finditer(tree.text)]
    else:
        parts = [match[1] for match in TYPE_TAG.finditer(tree.text)]
    return {name for part in parts for name in WORD.findall(part)}


@dataclass(frozen=True, slots=True)
class ImportPart:
    """One name of an import statement."""

    start: int
    stop: int
    bound: int  # offset of the name that it binds
    name: str
    is_export: bool  # `import a as a`, by convention


def _parts(tree: Tree, node: Node) -> list[ImportPart]:
    parts = []
    for each in node.children_by_field_name("name"):
        alias = each.child_by_field_name("alias")
        bound = alias or each.named_children[0]
        name, last = tree.text_of(bound), tree.text_of(each).split()[0].split(".")[-1]
        exported = alias is not None and name == last
        parts.append(ImportPart(*tree.span(each), tree.span(bound)[0], name, exported))
    return parts


def _script_parts(tree: Tree, node: Node) -> list[ImportPart]:
    """Return the names of an import of JavaScript or TypeScript; none of `import "a"`."""
    parts = []
    clause = [each for each in node.named_children if each.type == "import_clause"]
    todo = list(reversed(clause[0].named_children)) if clause else []
    while todo:
        each = todo.pop()
        if each.type == "named_imports":
            todo += reversed([part for part in each.named_children if part.type != "comment"])
            continue
        bound = each.child_by_field_name("alias") or each.child_by_field_name("name")
        bound = bound or (each.named_children or [each])[0]
        parts.append(ImportPart(*tree.span(each), tree.span(bound)[0], tree.text_of(bound), False))
    return parts


def _cuts(
    tree: Tree, node: Node, parts: list[ImportPart], gone: list[ImportPart]
) -> list[tuple[int, int]]:
    """Return the spans to delete from a statement."""
    if len(gone) == len(parts):
        return [_line(tree.text, *tree.span(node))]
    if re.search(r"#|//|/\*", tree.text_of(node)):
        raise Unsure("comments are among the imported names")
    if tree.language != "python" and re.search(r"import\s+(type\s+)?[\w$]", tree.text_of(node)):
        raise Unsure("the import has several parts")
    cuts = []
    starts = {part.start for part in gone}
    kept = [part for part in parts if part.start not in starts]
    for part, following in pairwise(parts):
        if part.start in starts and part.start < kept[-1].start:
            cuts.append((part.start, following.start))
    if parts[-1].start in starts:
        cuts.append((kept[-1].stop, parts[-1].stop))
    return cuts


def _cut(text: str, cuts: list[tuple[int, int]]) -> str:
    """Cut some spans from a text; where whole lines go, blank lines do not pile up."""
    spans: list[tuple[int, int]] = []
    for start, stop in sorted(cuts):
        touches = spans and spans[-1][1] == start
        spans.append((spans.pop()[0] if touches else start, stop))
    pieces: list[str] = []
    end = 0
    for start, stop in spans:
        pieces.append(text[end:start])
        has_blank = text[max(0, start - 4) : start].endswith(("\n\n", "\r\n\r\n", "\r\r"))
        blank = BLANK_LINE.match(text, stop) if has_blank else None
        end = blank.end() if blank else stop
    head, rest = "".join(pieces[:1]), "".join([*pieces[1:], text[end:]])
    if cuts and not head.strip(BOM):  # the first line goes
        rest = re.sub(rf"\A(?:{BLANK_LINE.pattern})+", "", rest)
    return head + rest


# -- order -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """One import as it is written."""

    group: int
    is_from: bool
    module: str
    text: str

    def key(self) -> tuple[object, ...]:
        dots = len(self.module) - len(self.module.lstrip("."))
        name = self.module[dots:]
        return self.group, self.is_from, -dots, _natural(name.lower()), _natural(name), self.text


def _natural(name: str) -> list[tuple[bool, int, str, str]]:
    """Return a key that sorts numbers in a name by their value, however long they are."""
    parts = []
    for part in re.findall(r"\d+|\D+", name):
        digits = part.lstrip("0") if part.isdigit() else ""
        parts.append((not part.isdigit(), len(digits), digits, part))
    return parts


def _in_order(path: str, text: str, selection: tuple[int, int] | None) -> str:
    """Sort the imports of a text."""
    tree = _tree(path, text, {"python"})
    nodes = _statements(tree, selection)
    start, stop = _line(text, tree.span(nodes[0])[0], tree.span(nodes[-1])[1])
    between = [node for node in tree.root.children if start <= tree.span(node)[0] < stop]
    if between != nodes:
        raise Unsure("comments or other statements are between the imports")
    if not selection and len(nodes) < sum(node.type in IMPORTS for node in tree.root.children):
        raise Unsure("imports are in several places of the file")
    if any("\\" in tree.text_of(node) for node in nodes):
        raise Unsure("an import is continued by a backslash")
    ends = Counter(re.findall(r"\r\n|\r|\n", text[start:stop]))
    end = ends.most_common(1)[0][0] if ends else "\n"
    lines = _lines(tree, nodes, end)
    groups: dict[int, list[Line]] = {}
    for line in sorted(lines, key=Line.key):
        groups.setdefault(line.group, []).append(line)
    body = (end + end).join(
        end.join(line.text for line in groups[number]) for number in sorted(groups)
    )
    last = text[start:stop].endswith(("\n", "\r"))
    return text[:start] + body + (end if last else "") + text[stop:]


FUTURE, STANDARD, OTHER, RELATIVE = 0, 1, 2, 1 << 20


def _lines(tree: Tree, nodes: list[Node], end: str) -> list[Line]:
    """Return the imports, one a line, each with its group.

    Raises Unsure if their order may matter.
    """
    lines: list[Line] = []
    blocks: list[set[bool]] = [set()]  # between blank lines: whether they have standard modules
    other: dict[int, int] = {}  # block -> group
    bound: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    for before, node in zip([None, *nodes], nodes, strict=False):
        if before is not None:
            gap = tree.text[tree.span(before)[1] : tree.span(node)[0]]
            if len(re.findall(r"\r\n|\r|\n", gap)) > 1:
                blocks.append(set())
        bound.update(part.name for part in _parts(tree, node))
        for module, text in _written(tree, node, end):
            is_from = node.type != "import_statement"
            modules[f"{is_from} {text if not is_from else module}"] += 1
            top = module.split(".")[0]
            if module.startswith("."):
                group = RELATIVE
            elif top == "__future__":
                group = FUTURE
            elif top in sys.stdlib_module_names:
                group = STANDARD
                blocks[-1].add(True)
            else:
                blocks[-1].add(False)
                group = other.setdefault(len(blocks) - 1, OTHER + len(blocks))
            lines.append(Line(group, is_from, module, text))
    if max(bound.values(), default=0) > 1 or max(modules.values(), default=0) > 1:
        raise Unsure("something is imported twice")
    if len(other) > 1 and any(len(blocks[number]) > 1 for number in other):
        raise Unsure("the groups of packages are not clear")
    return lines


def _written(tree: Tree, node: Node, end: str) -> list[tuple[str, str]]:
    """Return (module, text) of a statement, its names sorted; of `import a, b` one for each."""
    names = [tree.text_of(each) for each in node.children_by_field_name("name")]
    if not names:
        raise Unsure("`import *` is among the imports")
    if any(each.type == "comment" for each in node.children):
        raise Unsure("comments are among the imported names")
    if node.type == "import_statement":
        return [(name.split()[0], f"import {_spaced(name)}") for name in names]
    module = "__future__"
    if source := node.child_by_field_name("module_name"):
        module = re.sub(r"\s", "", tree.text_of(source))
    ordered = sorted(map(_spaced, names), key=_member_key)
    text = tree.text_of(node)
    if "\n" not in text and "\r" not in text:
        opening, closing = ("(", ")") if text.endswith(")") else ("", "")
        return [(module, f"from {module} import {opening}{', '.join(ordered)}{closing}")]
    layout = re.fullmatch(
        r"from\s+[\w.]+\s+import\s*\((?:(?:\r\n|\r|\n)([ \t]+)[^\s,]+(?: as [^\s,]+)?,)+\s*\)", text
    )
    if layout is None:
        raise Unsure("an import takes several lines in a way of its own")
    entries = "".join(f"{end}{layout[1]}{name}," for name in ordered)
    return [(module, f"from {module} import ({entries}{end})")]


def _spaced(name: str) -> str:
    return " ".join(name.split())


def _member_key(name: str) -> tuple[object, ...]:
    """Return a key that sorts constants, classes, then the rest, each by name in any case."""
    kind = 0 if name.split()[0].isupper() and len(name.split()[0]) > 1 else 2 - name[0].isupper()
    return kind, _natural(name.lower()), _natural(name)
