"""Names that Python modules use of each other, by `from a import x`, or by `import a` and `a.x`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from engine.editing.scopes.modules import Module, Uses, exists, read
from engine.editing.scopes.names import Binding, Place, Unsure, fields
from engine.editing.scopes.python_renames import PythonRenames

if TYPE_CHECKING:
    from tree_sitter import Node

LOADS = re.compile(r"\bsys\.modules\b|\bimport_module\b|\b__import__\b")
STAR = re.compile(r"\bimport\s*\(?\s*\*")
IMPORTING = {"dotted_name", "aliased_import"}
PATCHES = re.compile(r"\b(?:patch|setattr|getattr|delattr|hasattr|attrgetter|import_module)\b")


class PythonModule(Module):
    """A Python file."""

    names: PythonRenames

    def definition(self, name: str) -> Binding | None:
        found = self.names.top.bindings.get(name)
        return found if found and not found.kinds & {"import", "alias"} else None

    def uses(self, name: str, homes: Collection[str]) -> Uses:
        is_home = partial(_is_any, self.path, homes=homes)
        places: list[Place] = []
        modules: dict[Binding, set[str]] = {}  # bound to a home, or to a package around it
        own: dict[int, Node] = {}  # imports of the name itself, by their start
        for node in self.nodes("import_from_statement"):
            module = self.tree.text_of(fields(node, "module_name")[0]).replace(" ", "")
            if any(each.type == "wildcard_import" for each in node.named_children):
                if is_home(module):
                    raise Unsure(f"`{self.tree.text_of(node)}` may bring `{name}`")
                continue
            for each in fields(node, "name"):
                alias = each.child_by_field_name("alias")
                original = each.child_by_field_name("name") or each
                word = self.tree.text_of(original)
                if word == name and is_home(module):
                    if alias is None:
                        own[self.tree.span(original)[0]] = original
                    else:
                        places.append(Place(*self.tree.span(original)))
                elif is_home(f"{module}{'' if module.endswith('.') else '.'}{word}"):
                    self._bound(modules, alias or original, "")
                elif word == name and has_star(self.path, module, name, homes):
                    raise Unsure(f"`{module}` may have `{name}` by `import *`")
        for node in self.nodes("import_statement"):
            for each in fields(node, "name"):
                alias = each.child_by_field_name("alias")
                original = each.child_by_field_name("name") or each
                module = self.tree.text_of(original).replace(" ", "")
                if is_home(module):
                    first = alias or original.named_children[0]
                    self._bound(modules, first, "" if alias else module)
        places += self._members(name, modules, homes)
        self._refuse_whole(modules)
        bindings = {found for node in own.values() if (found := self.binding_at(node))}
        for binding in bindings:
            places += self._of_binding(binding, own)
        self._refuse_strings(name, homes, bool(modules))
        return Uses(tuple(places), any(each.scope is self.names.top for each in bindings))

    def _bound(self, modules: dict[Binding, set[str]], node: Node, dotted: str) -> None:
        if found := self.binding_at(node):
            modules.setdefault(found, set()).add(dotted)

    def _members(
        self, name: str, modules: dict[Binding, set[str]], homes: Collection[str]
    ) -> list[Place]:
        """Find `a.name` and `a.b.name` of modules.

        Raises Unsure for other members that may be a module's.
        """
        stems = {PurePosixPath(_stem(home)).name for home in homes}
        found = []
        for member in self.names.members:
            node = member.receiver
            if member.name != name or node is None:
                continue
            written = re.sub(r"\s", "", self.tree.text_of(node))
            while node.type == "attribute":
                node = node.child_by_field_name("object") or node.children[0]
            binding = self.binding_at(node) if node.type == "identifier" else None
            dotted = modules.get(binding, set()) if binding else set()
            if binding and (written in dotted or ("" in dotted and written == binding.name)):
                if binding.kinds - {"import", "alias"}:
                    raise Unsure(f"`{binding.name}` is not only a module")
                found.append(member.place)
                continue
            original = self._original(written, binding)
            if binding and binding.kinds & {"import", "alias"}:
                module = self._module_of(binding) + written.removeprefix(binding.name)
                if has_star(self.path, module, name, homes):
                    raise Unsure(f"`{written[:60]}` may have `{name}` by `import *`")
            if original in stems or LOADS.search(self.tree.text):
                raise Unsure(f"what `{written[:60]}.{name}` refers to is not certain")
        return found

    def _original(self, written: str, binding: Binding | None) -> str:
        """Return the last name of `a.b`, before `as` if it is imported; "" for a variable."""
        if "." in written:
            return written.rsplit(".", 1)[-1]
        if binding is None or binding.kinds <= {"import"}:
            return written
        if binding.kinds != {"alias"}:
            return ""
        starts = {place.start for place in binding.places}
        for node in self.nodes("aliased_import"):
            alias, original = node.child_by_field_name("alias"), node.named_children[0]
            if alias is not None and self.tree.span(alias)[0] in starts:
                return self.tree.text_of(original).rsplit(".", 1)[-1]
        return written

    def _module_of(self, binding: Binding) -> str:
        """Return the module that an import binds, as far as it is one."""
        starts = {place.start for place in binding.places}
        for node in self.nodes("aliased_import", "dotted_name"):
            alias = node.child_by_field_name("alias")
            original = node.named_children[0]
            if self.tree.span(alias or original)[0] in starts:
                around = node.parent
                inside = fields(around, "module_name") if around else []
                prefix = self.tree.text_of(inside[0]) if inside and inside[0] != node else ""
                dot = "." if prefix and not prefix.endswith(".") else ""
                word = self.tree.text_of(original)
                return re.sub(r"\s", "", f"{prefix}{dot}{word}")
        return binding.name

    def _refuse_whole(self, modules: dict[Binding, set[str]]) -> None:
        """Raise Unsure if a module is used in any other way than for its members.

        Others may then use these. `setattr(module, "name", ...)` and the like are understood.
        """
        for node in self.nodes("identifier") if modules else ():
            found = self.binding_at(node)
            around = node.parent
            if found not in modules or around is None or around.type in IMPORTING:
                continue
            if around.type == "attribute" and around.child_by_field_name("object") == node:
                continue
            if around.type == "argument_list" and around.named_children[0] == node:
                second = around.named_children[1:2]
                if second and second[0].type == "string":
                    continue
            raise Unsure(f"`{self.tree.text_of(node)}` is used as a whole")

    def _of_binding(self, binding: Binding, own: dict[int, Node]) -> list[Place]:
        """Return all places of an imported name. Raises Unsure."""
        names, name = self.names, binding.name
        imports = [use for use, found in names.resolved if found is binding and use.kind]
        if binding.kinds != {"import"} or any(use.place.start not in own for use in imports):
            raise Unsure(f"`{name}` is bound in several ways")
        if binding.scope.kind == "class":
            raise Unsure(f"`{name}` is imported into a class")
        if binding.scope is names.top and names.has_star_import:
            raise Unsure(f"`{name}` may also come from `import *`")
        if name in names.unclear:
            raise Unsure(f"an annotation in quotes may use `{name}`")
        if any(names.sees(*use, binding.scope) for use in names.dynamic):
            raise Unsure(f"`{name}` may be used by its text")
        return binding.places

    def _refuse_strings(self, name: str, homes: Collection[str], has_module: bool) -> None:
        """Raise Unsure if a string may name the thing, as those of `mock.patch` do."""
        stems = {PurePosixPath(_stem(home)).name for home in homes} | {"__main__"}
        by_text = has_module and PATCHES.search(self.tree.text)
        for node in self.nodes("string_content"):
            text = self.tree.text_of(node)
            parts = re.split("[.:]", text)
            dotted = len(parts) > 1 and parts[-1] == name and parts[-2] in stems
            if dotted or (by_text and text == name):
                raise Unsure(f'the string "{text[:60]}" may name it')


def _is_any(path: str, module: str, homes: Collection[str]) -> bool:
    return any(is_module(path, module, home) for home in homes)


def is_module(path: str, module: str, home: str) -> bool:
    """Return whether `import module` in the file at `path` imports the file at `home`.

    Raises Unsure.
    """
    stem = _stem(home)
    dots = len(module) - len(module.lstrip("."))
    tail = module[dots:].replace(".", "/")
    if dots:
        base = PurePosixPath(path).parent
        for _ in range(dots - 1):
            base = base.parent
        return str(base / tail if tail else base) == stem
    if not f"/{stem.lstrip('/')}".endswith(f"/{tail}") or not tail:
        return False
    root = PurePosixPath(stem.removesuffix(tail).rstrip("/") or "/")
    above = {root, *root.parents}
    around = max(len(each.parts) for each in PurePosixPath(path).parents if each in above)
    found = {
        str(folder / tail)
        for folder in PurePosixPath(path).parents
        if len(folder.parts) >= around
        and any(exists(f"{folder / tail}{end}") for end in (".py", ".pyi", "/__init__.py"))
    }
    if found == {stem} and tail.split("/")[0] not in sys.stdlib_module_names:
        return True
    if not found and _dotted(stem) == module and "." in module:
        return True
    raise Unsure(f"it is not certain that `{module}` is {PurePosixPath(home).name}")


def stem_of(path: str, module: str) -> str | None:
    """Return the path, without its ending, of a module of the file's own package.

    None for modules of other packages.
    """
    dots = len(module) - len(module.lstrip("."))
    above = PurePosixPath(path).parents
    tail = module[dots:].replace(".", "/")
    if dots:
        return str(above[dots - 1] / tail) if dots <= len(above) else None
    first = tail.split("/")[0]
    for each in above:
        is_package = each.name == first and exists(f"{each}/__init__.py")
        if is_package and not exists(f"{each.parent}/__init__.py"):
            return str(each.parent / tail)
    return None


def find_module(path: str, module: str, has: Callable[[str], bool]) -> str | None:
    """Return the path of a module that a file names; None if it is not certain which one it is.

    `has`: whether there is a file. The module search path is taken to be the folders around the
    file, and those named "src" in them.
    """
    above = [*PurePosixPath(path).parents]
    if stem := stem_of(path, module):
        stems = {stem}
    elif module.startswith(".") or module.split(".")[0] in sys.stdlib_module_names:
        return None
    else:
        tail = module.replace(".", "/")
        stems = {str(folder / tail) for each in above for folder in (each, each / "src")}
    named = (f"{stem}{end}" for stem in stems for end in (".py", "/__init__.py"))
    found = [each for each in named if has(each)]
    return found[0] if len(found) == 1 else None


def has_star(path: str, module: str, name: str, homes: Collection[str]) -> bool:
    """Return whether a module that does not write a name may have it by `import *`."""
    dots = len(module) - len(module.lstrip("."))
    tail = module[dots:].replace(".", "/")
    here = PurePosixPath(path).parents
    folders = [here[dots - 1]] if 0 < dots <= len(here) else list(here) if not dots else []
    stems = {str(folder / tail) for folder in folders}
    around = (str(each) for home in homes for each in PurePosixPath(home).parents)
    stems |= {each for each in around if tail and each.endswith(f"/{tail}") and not dots}
    for stem in stems:
        for end in (".py", "/__init__.py"):
            if exists(f"{stem}{end}") and not exists(f"{stem}/{name}.py"):
                text = read(f"{stem}{end}")
                if STAR.search(text) and not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text):
                    return True
    return False


def _dotted(stem: str) -> str:
    """Return the name of a module by the packages that it is in."""
    path = PurePosixPath(stem)
    parts = [path.name]
    while exists(str(path.parent / "__init__.py")):
        path = path.parent
        parts.append(path.name)
    return ".".join(reversed(parts))


def _stem(path: str) -> str:
    """Return a module's path without its ending; a package's folder."""
    pure = PurePosixPath(path)
    return str(pure.parent if pure.stem == "__init__" else pure.with_suffix(""))
