"""Names that the modules of a program use of each other, for renames across files.

A module is identified by its path. What cannot be known without running the program, such as what
is on the module search path, is Unsure.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from engine.editing.scopes.names import Binding, Place, Walker

if TYPE_CHECKING:
    from tree_sitter import Node


@dataclass(frozen=True, slots=True)
class Uses:
    """The places where a module uses another one's name."""

    places: tuple[Place, ...] = ()
    exports: bool = False  # other modules may import the name from this one


class Module(ABC):
    """A file with its names, which have been read."""

    def __init__(self, path: str, names: Walker) -> None:
        self.path, self.names, self.tree = path, names, names.tree

    @abstractmethod
    def definition(self, name: str) -> Binding | None:
        """Return the binding of a name that is defined here and that other modules may import."""

    @abstractmethod
    def uses(self, name: str, homes: Collection[str]) -> Uses:
        """Find where this module uses the name of the modules at some paths. Raises Unsure."""

    def nodes(self, *types: str) -> list[Node]:
        """Return all nodes of some types, each type in order."""
        return [node for each in types for node in self._nodes.get(each, [])]

    @cached_property
    def _nodes(self) -> dict[str, list[Node]]:
        found: dict[str, list[Node]] = {}
        todo = [self.tree.root]
        while todo:
            node = todo.pop()
            found.setdefault(node.type, []).append(node)
            todo += reversed(node.named_children)
        return found

    def binding_at(self, node: Node) -> Binding | None:
        """Return what the name that a node writes is bound to."""
        return self._bindings.get(self.tree.span(node)[0])

    @cached_property
    def _bindings(self) -> dict[int, Binding | None]:
        return {use.place.start: found for use, found in reversed(self.names.resolved)}


def read(path: str) -> str:
    """Read the text of a file, as far as that is possible."""
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return ""


def exists(path: str) -> bool:
    """Return whether there is a file."""
    return Path(path).is_file()
