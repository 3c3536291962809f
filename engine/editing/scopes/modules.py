"""What the modules of a program use of each other, for renames across files.

Modules are told apart by their paths. What cannot be known without running the program, such as
what is on the module search path, is Unsure.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine.editing.scopes.names import Binding, Place, Walker

if TYPE_CHECKING:
    from tree_sitter import Node


@dataclass(frozen=True, slots=True)
class Uses:
    """Where a module uses another one's name."""

    places: tuple[Place, ...] = ()
    exports: bool = False  # other modules may import the name from this one


class Module(ABC):
    """A file with its names, which are read."""

    def __init__(self, path: str, names: Walker) -> None:
        self.path, self.names, self.tree = path, names, names.tree

    @abstractmethod
    def definition(self, name: str) -> Binding | None:
        """The binding of a name that is defined here and that other modules may import."""

    @abstractmethod
    def uses(self, name: str, homes: Collection[str]) -> Uses:
        """Where this module uses the name of the modules at some paths. Raises Unsure."""

    def nodes(self, *types: str) -> Iterator[Node]:
        """All nodes of some types."""
        todo = [self.tree.root]
        while todo:
            node = todo.pop()
            if node.type in types:
                yield node
            todo += reversed(node.children)

    def binding_at(self, node: Node) -> Binding | None:
        """What the name that a node writes is bound to."""
        start = self.tree.span(node)[0]
        return next((found for use, found in self.names.resolved if use.place.start == start), None)


def read(path: str) -> str:
    """The text of a file, as far as it can be read."""
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return ""


def exists(path: str) -> bool:
    """Whether there is a file."""
    return Path(path).is_file()
