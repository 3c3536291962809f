"""Names that modules of JavaScript and TypeScript use of each other.

They use them by `import {x} from './a'`, `import * as a` and `a.x`, and `export {x} from './a'`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from engine.editing.scopes.javascript import JavaScriptNames
from engine.editing.scopes.modules import Module, Uses, exists, read
from engine.editing.scopes.names import Binding, Place, Unsure, whole_word

if TYPE_CHECKING:
    from tree_sitter import Node

ENDINGS = (".ts", ".tsx", ".d.ts", ".mts", ".cts", ".js", ".jsx", ".mjs", ".cjs")
LOADED = re.compile(r"\b(?:require|import|mock)\s*\(\s*['\"`]([^'\"`]+)")
STAR = re.compile(r"\bexport\s*\*")
COMMON_JS = re.compile(r"\bmodule\.exports\b|\bexports\.\w|\bexport\s*=")


class JavaScriptModule(Module):
    """A file of JavaScript or TypeScript."""

    names: JavaScriptNames

    def definition(self, name: str) -> Binding | None:
        found = self.names.top.bindings.get(name)
        if found is None or found.kinds & {"import", "alias"} or not self._exports(name, found):
            return None
        return found

    def _exports(self, name: str, binding: Binding) -> bool:
        """Return whether a binding is exported by its own name."""
        starts = {place.start for place in binding.places}
        for node in self.nodes("export_statement"):
            if node.child_by_field_name("source"):
                continue
            declaration = node.child_by_field_name("declaration")
            is_default = any(each.type == "default" for each in node.children)
            if declaration and not is_default and starts & self._defined_by(declaration):
                return True
            for each in node.named_children:
                for specifier in each.named_children if each.type == "export_clause" else ():
                    alias = specifier.child_by_field_name("alias")
                    original = specifier.child_by_field_name("name") or specifier
                    if alias is None and self.tree.text_of(original) == name:
                        return True
        return False

    def _defined_by(self, declaration: Node) -> set[int]:
        """Return where the names are that an exported declaration defines at its top."""
        start, stop = self.tree.span(declaration)
        return {
            use.place.start
            for use, found in self.names.resolved
            if use.kind and start <= use.place.start < stop and use.scope is self.names.top
        }

    def uses(self, name: str, homes: Collection[str]) -> Uses:
        places: list[Place] = []
        own: dict[int, Node] = {}
        spaces: set[Binding] = set()
        exports = False
        for loaded in LOADED.finditer(self.tree.text):
            if self._is_home(loaded[1], homes):
                raise Unsure(f"`{loaded[0]}` loads it in another way")
        for node in self.nodes("import_statement", "export_statement"):
            source = node.child_by_field_name("source")
            if source is None:
                continue
            if not self._is_home(self.tree.text_of(source)[1:-1], homes):
                self._refuse_star(node, source, name)
                continue
            is_import = node.type == "import_statement"
            if not is_import and any(each.type == "*" for each in node.children):
                exports = True  # export * from
                continue
            for each in self._below(node, "import_specifier", "export_specifier"):
                alias = each.child_by_field_name("alias")
                original = each.child_by_field_name("name") or each
                if self.tree.text_of(original) == name:
                    if is_import and alias is None:
                        own[self.tree.span(original)[0]] = original
                    else:
                        places.append(Place(*self.tree.span(original)))
                        exports = exports or (not is_import and alias is None)
                elif alias is not None and self.tree.text_of(alias) == name and not is_import:
                    raise Unsure(f"`{self.tree.text_of(each)}` exports another `{name}`")
            for each in self._below(node, "namespace_import", "namespace_export"):
                inner = [child for child in each.named_children if child.type == "identifier"]
                binding = self.binding_at(inner[0]) if inner else None
                if not is_import or binding is None:
                    raise Unsure(f"`{self.tree.text_of(node)}` exports the whole module")
                spaces.add(binding)
        places += self._members(name, spaces)
        bindings = {found for node in own.values() if (found := self.binding_at(node))}
        for binding in bindings:
            imports = [use for use, found in self.names.resolved if found is binding and use.kind]
            if binding.kinds != {"import"} or any(use.place.start not in own for use in imports):
                raise Unsure(f"`{name}` is bound in several ways")
            if self.names.unsure:
                raise Unsure(self.names.unsure)
            places += binding.places
            exports = exports or self._exports(name, binding)
        return Uses(tuple(places), exports)

    def _refuse_star(self, node: Node, source: Node, name: str) -> None:
        """Raise Unsure if a module that does not write the name may have it by `export *`."""
        written = re.search(whole_word(name), self.tree.text_of(node))
        if not written and not self._below(node, "namespace_import"):
            return
        target = self.tree.text_of(source)[1:-1]
        if target.startswith("."):
            for path in _files(_stem(_joined(self.path, target))):
                text = read(path)
                if STAR.search(text) and name not in text:
                    raise Unsure(f"'{target}' may have `{name}` by `export *`")

    def _members(self, name: str, spaces: set[Binding]) -> list[Place]:
        """Find `a.name` of modules that are imported as a whole.

        Raises Unsure if such a module is used in any other way.
        """
        if not spaces:
            return []
        found: list[Place] = []
        known: set[int] = set()  # offsets where such a module is used in a way that is understood
        for node in self.nodes("member_expression", "nested_type_identifier", "nested_identifier"):
            first = node.named_children[0]
            last = node.named_children[-1]
            if first.type == "identifier" and self.binding_at(first) in spaces:
                known.add(self.tree.span(first)[0])
                if self.tree.text_of(last) == name:
                    found.append(Place(*self.tree.span(last)))
        for use, binding in self.names.resolved:
            if binding in spaces and not use.kind and use.place.start not in known:
                raise Unsure(f"`{use.name}` is used as a whole")
        return found

    def _below(self, node: Node, *types: str) -> list[Node]:
        found, todo = [], list(node.named_children)
        while todo:
            each = todo.pop(0)
            if each.type in types:
                found.append(each)
            elif each.type in {"import_clause", "named_imports", "export_clause"}:
                todo = [*each.named_children, *todo]
        return found

    def _is_home(self, source: str, homes: Collection[str]) -> bool:
        return any(is_module(self.path, source, home) for home in homes)


def is_module(path: str, source: str, home: str) -> bool:
    """Return whether `from 'source'` in the file at `path` is the file at `home`. Raises Unsure."""
    stem = _stem(home)
    folder = stem.removesuffix("/index")
    source = source.split("?")[0]
    if not source.startswith("."):
        last = _stem(source).rsplit("/", 1)[-1]
        if last == PurePosixPath(folder).name or last == PurePosixPath(stem).name:
            raise Unsure(f"it is not certain that '{source}' is {PurePosixPath(home).name}")
        return False
    target = _stem(_joined(path, source))
    if target not in (stem, folder):
        return False
    if _files(target) - {home}:
        raise Unsure(f"'{source}' may be one of several files")
    return True


def stem_of(path: str, source: str) -> str | None:
    """Return the path, without its ending, of a module relative to a file; None for others."""
    return _stem(_joined(path, source.split("?")[0])) if source.startswith(".") else None


def find_module(path: str, source: str, has: Callable[[str], bool]) -> str | None:
    """Return the path of a module that a file names; None if it is not certain which one it is.

    `has`: whether there is a file.
    """
    stem = stem_of(path, source)
    found = [each for each in _named(stem) if has(each)] if stem else []
    return found[0] if len(found) == 1 else None


def _joined(path: str, source: str) -> str:
    """Return what a relative source means in a file."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), source))


def _files(target: str) -> set[str]:
    """Find the files that a path without an ending may mean."""
    return {each for each in _named(target) if exists(each)}


def _named(stem: str) -> list[str]:
    return [f"{stem}{middle}{end}" for middle in ("", "/index") for end in ENDINGS]


def _stem(path: str) -> str:
    """Strip the ending from a path."""
    end = next((end for end in (".d.ts", *ENDINGS) if path.endswith(end)), "")
    return path.removesuffix(end)
