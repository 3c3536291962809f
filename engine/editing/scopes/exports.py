"""The names that other modules can import from a module of Python, JavaScript or TypeScript."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from engine.editing.scopes.javascript import JavaScriptNames
from engine.editing.scopes.javascript_modules import find_module as find_script
from engine.editing.scopes.javascript_modules import stem_of as script_stem
from engine.editing.scopes.names import Unsure, fields
from engine.editing.scopes.python import PythonNames
from engine.editing.scopes.python_modules import find_module as find_python
from engine.editing.scopes.python_modules import stem_of as python_stem
from engine.editing.syntax import Tree, language_of, parse

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_MODULES = 50  # modules that are read for the names that a star brings
WORD = re.compile(r"[^\W\d]\w*")
ADDS_NAMES = re.compile(r"\bglobals\s*\(|\bsys\.modules\b|\bexec\s*\(|\b__getattr__\b")
DEFINED_IN = "declaration"  # the field of an `export` with what it exports
Read = Callable[[str], str | None]  # a path -> the text of its file; None if there is none


class Exports(NamedTuple):
    """The names of a module: those that it defines, then those that it imports."""

    names: tuple[str, ...]
    is_complete: bool  # it certainly has no others


UNKNOWN = Exports((), False)


def exports(path: str, module: str, read: Read, seen: set[str] | None = None) -> Exports:
    """Return the names of the module that a file names so; UNKNOWN if it is not certain which.

    `seen`: the modules that were read already, whose names are not looked for again.
    """
    seen = set() if seen is None else seen
    is_python = language_of(path) == "python"
    find = find_python if is_python else find_script
    home = find(path, module, lambda each: read(each) is not None)
    if home is None or len(seen) == MAX_MODULES:
        return UNKNOWN
    if home in seen:
        return Exports((), True)
    seen.add(home)
    text = read(home) or ""
    if (tree := parse(home, text)) is None:
        return UNKNOWN if text.strip() or not is_python else Exports(_submodules(home), True)
    return (_of_python if is_python else _of_javascript)(home, tree, read, seen)


def lacks_module(path: str, module: str, read: Read) -> bool:
    """Return whether a module of the file's own package certainly does not exist."""
    is_python = language_of(path) == "python"
    stem = (python_stem if is_python else script_stem)(path, module)
    find = find_python if is_python else find_script
    known = find(path, module, lambda each: read(each) is not None)
    if stem is None or known or not Path(path).parent.is_dir():
        return False
    name = PurePosixPath(stem).name
    try:
        inside = [each.name for each in Path(stem).parent.iterdir()]
    except OSError:
        return True
    return not any(each == name or each.startswith(f"{name}.") for each in inside)


def _of_python(path: str, tree: Tree, read: Read, seen: set[str]) -> Exports:
    names = PythonNames(tree)
    with suppress(Unsure):
        names.read_words({found.start(): found[0] for found in WORD.finditer(tree.text)})
    found = {
        name: binding.kinds <= {"import", "alias"} for name, binding in names.top.bindings.items()
    }
    is_complete = not tree.errors and not ADDS_NAMES.search(tree.text)
    for node in _nodes(tree.root, "import_from_statement", "import_statement"):
        if any(each.type == "wildcard_import" for each in node.named_children):
            module = tree.text_of(fields(node, "module_name")[0])
            brought = exports(path, module, read, seen)
            found |= {name: True for name in brought.names if name[0] != "_" and name not in found}
            is_complete = is_complete and brought.is_complete
    found |= {name: True for name in _submodules(path) if name not in found}
    return Exports(tuple(sorted(found, key=lambda name: found[name])), is_complete)


def _submodules(path: str) -> tuple[str, ...]:
    """Return the modules of a package, by the path of its __init__.py."""
    if PurePosixPath(path).stem != "__init__":
        return ()
    try:
        inside = sorted(Path(path).parent.iterdir())
    except OSError:
        return ()
    return tuple(
        each.name.split(".")[0]
        for each in inside
        if each.suffix in {".py", ".pyi", ".so", ".pyd"} or (each / "__init__.py").is_file()
        if each.stem != "__init__"
    )


def _of_javascript(path: str, tree: Tree, read: Read, seen: set[str]) -> Exports:
    names = JavaScriptNames(tree)
    with suppress(Unsure):
        names.read_words({found.start(): found[0] for found in WORD.finditer(tree.text)})
    own: list[str] = []
    others: list[str] = []
    is_complete = not tree.errors
    for node in tree.root.named_children:
        source, declaration = (node.child_by_field_name(each) for each in ("source", DEFINED_IN))
        if node.type == "expression_statement":
            found, is_known = _common_js(tree, node)
            own += found
            is_complete = is_complete and is_known
        elif node.type == "export_statement" and declaration:
            start, stop = tree.span(declaration)
            inside = (use for use in names.uses if start <= use.place.start < stop)
            own += [use.name for use in inside if use.kind and use.scope is names.top]
        elif node.type == "export_statement":
            kept = others if source else own
            for each in _nodes(node, "export_specifier", "namespace_export"):
                kept.append(tree.text_of(each.named_children[-1]))
            if source and any(each.type == "*" for each in node.children):
                brought = exports(path, tree.text_of(source)[1:-1], read, seen)
                others += brought.names
                is_complete = is_complete and brought.is_complete
            is_complete = is_complete and not any(each.type == "=" for each in node.children)
    return Exports(tuple(dict.fromkeys([*own, *others])), is_complete and bool(own + others))


def _common_js(tree: Tree, node: Node) -> tuple[list[str], bool]:
    """Return the names that a statement adds to `exports`, and whether they are all of them."""
    if "exports" not in tree.text_of(node):
        return [], True
    assignment = node.named_children[0]
    left, right = (assignment.child_by_field_name(each) for each in ("left", "right"))
    target = tree.text_of(left) if left else ""
    if found := re.fullmatch(r"(?:module\.)?exports\.([\w$]+)", target):
        return [found[1]], True
    if target != "module.exports" or right is None or right.type != "object":
        return [], False
    keys = [
        each.child_by_field_name("key") or each.child_by_field_name("name") or each
        for each in right.named_children
    ]
    known = {"property_identifier", "shorthand_property_identifier"}
    kept = [tree.text_of(each) for each in keys if each.type in known]
    return kept, all(each.type in known or each.type == "comment" for each in keys)


def _nodes(root: Node, *types: str) -> Iterator[Node]:
    """Yield the nodes of some types below one, except for those in others of them."""
    todo = [root]
    while todo:
        node = todo.pop()
        if node.type in types:
            yield node
        else:
            todo += reversed(node.named_children)
