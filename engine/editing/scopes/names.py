"""Scopes, bindings, and the places where a text names them.

A `Walker` reads a syntax tree with a list of nodes to visit instead of recursion, so that deeply
nested text cannot exhaust the stack, and notes every name with its scope; then each is resolved. A
binding that a rule cannot rename for certain says why in `unsure`. Where scopes are nested without
end, a look-up passes many of them for each name: the work is counted, and given up beyond a limit.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from engine.editing.syntax import Tree

if TYPE_CHECKING:
    from tree_sitter import Node


MAX_STEPS = 5_000_000  # scopes passed in look-ups; 1 MiB of plain code takes a tenth
MAX_DEPTH = 1000  # nodes around a word that is read alone; plain code has a tenth


class Unsure(Exception):
    """A doubt for which a rule gives up; the message says why."""


class Place(NamedTuple):
    """One occurrence of a name: code points, and how a new name is written there."""

    start: int
    stop: int
    form: str = "{}"


@dataclass(eq=False, slots=True)
class Scope:
    """A region whose names are its own: "module", "function", "class", "block", ..."""

    kind: str
    parent: Scope | None = None
    bindings: dict[str, Binding] = field(default_factory=dict)
    outer: dict[str, str] = field(default_factory=dict)  # name -> "global" or "nonlocal" (Python)
    node: Node | None = None


@dataclass(eq=False, slots=True)
class Binding:
    """A name of a scope, with all that refers to it."""

    name: str
    scope: Scope
    kinds: set[str] = field(
        default_factory=set
    )  # "parameter", "variable", "function", "class", ...
    places: list[Place] = field(default_factory=list)
    unsure: str = ""


class Use(NamedTuple):
    """A name as it was noted; `kind` is "" if it does not define anything."""

    place: Place
    name: str
    scope: Scope
    kind: str


Visit = tuple["Node", Scope, str]  # a node, its scope, and what the names in it define


class Walker(ABC):
    """A reader of a tree's names.

    After `read`, `resolved` has what each use refers to, in order.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.top = Scope("module", node=tree.root)
        self.uses: list[Use] = []
        self.resolved: list[tuple[Use, Binding | None]] = []
        self.unsure = ""  # why no name of the text can be renamed
        self.bound: set[str] = set()  # names with a binding in any scope
        self.steps = 0
        self.words: Mapping[int, str] = {}  # start -> the name that is read there, if only some are

    def spend(self, steps: int) -> None:
        """Count work that may grow faster than the text. Raises Unsure when it is too much."""
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise Unsure("too much is nested in it")

    def chain(self, scope: Scope | None) -> Iterator[Scope]:
        """Yield a scope and those around it. Raises Unsure."""
        while scope:
            self.spend(1)
            yield scope
            scope = scope.parent

    @abstractmethod
    def visit(self, node: Node, scope: Scope, kind: str) -> list[Visit]:
        """Note the names of a node, and return what is to be visited next, in order."""

    @abstractmethod
    def is_identifier(self, word: str) -> bool:
        """Return whether the language takes a word as a name."""

    def read(self) -> None:
        """Visit the whole tree and resolve all names."""
        todo: list[Visit] = [(self.tree.root, self.top, "")]
        while todo:
            todo += reversed(self.visit(*todo.pop()))
        self.resolve()
        for use, binding in self.resolved:
            if binding:
                binding.places.append(use.place)

    def read_words(self, words: Mapping[int, str]) -> None:
        """Read some words of the text alone; each, by its start, as the name that is given for it.

        The text may be in the middle of an edit: what a node lacks is passed over. Raises Unsure.
        """
        self.words = words
        spots = [self.tree.byte(at) for at in sorted(words)]
        todo: list[tuple[Visit, int]] = [((self.tree.root, self.top, ""), 0)]
        while todo:
            (node, scope, kind), depth = todo.pop()
            first = bisect_left(spots, node.start_byte)
            if depth > MAX_DEPTH or first == len(spots) or spots[first] >= node.end_byte:
                continue
            try:
                visits = self.visit(node, scope, kind)
            except Unsure:
                visits = self.all(node.named_children, scope)
            todo += [(visit, depth + 1) for visit in reversed(visits)]
        self.uses = [use._replace(name=words.get(use.place.start, use.name)) for use in self.uses]
        self.resolve()

    def resolve(self) -> None:
        """Bind what defines a name in its scope, then look up every use."""
        for use in self.uses:
            if use.kind:
                self.bind(use)
        self.look_up()

    def look_up(self) -> None:
        """Find what every use refers to."""
        for use in self.uses:
            self.resolved.append((use, self.find(use.name, use.scope)))

    def bind(self, use: Use) -> Binding:
        """Return the binding of a name in its scope; make it if it is new."""
        found = use.scope.bindings.get(use.name)
        self.bound.add(use.name)
        if found is None:
            found = use.scope.bindings[use.name] = Binding(use.name, use.scope)
        found.kinds.add(use.kind)
        return found

    def find(self, name: str, scope: Scope) -> Binding | None:
        """Find the binding that a name refers to in a scope."""
        for each in self.chain(scope if name in self.bound else None):
            if name in each.bindings:
                return each.bindings[name]
        return None

    def bindings(self) -> list[Binding]:
        """Return all bindings, in the order of their first place."""
        return list(dict.fromkeys(binding for _, binding in self.resolved if binding))

    def named(self, name: str) -> tuple[list[tuple[Use, Binding | None]], list[Place]]:
        """Return the uses of a name with what they refer to, and the places of such members."""
        plain: list[tuple[Use, Binding | None]] = []
        members = [
            place
            for member, place in self.member_uses()
            if self.words.get(place.start, member) == name
        ]
        for use, binding in self.resolved:
            if use.name == name and binding and binding.scope.kind == "class":
                members.append(use.place)
            elif use.name == name:
                plain.append((use, binding))
        return plain, members

    def places(self, binding: Binding, new: str) -> list[Place]:
        """Return all places to rewrite for a new name. Raises Unsure."""
        if binding.unsure:
            raise Unsure(binding.unsure)
        return binding.places

    def member_uses(self) -> list[tuple[str, Place]]:
        """Return the names of members that are used, as in `object.name`."""
        return []

    def classes_with(self, name: str) -> list[Scope]:
        """Return the classes that certainly have a member of this name."""
        return []

    def member_places(self, name: str, scope: Scope, new: str) -> list[Place]:
        """Return all places of a class's member. Raises Unsure."""
        raise Unsure(f"what `.{name}` refers to is not certain")

    def note(self, node: Node, scope: Scope, kind: str = "", form: str = "{}") -> None:
        """Note one name."""
        start, stop = self.tree.span(node)
        self.uses.append(Use(Place(start, stop, form), self.tree.text[start:stop], scope, kind))

    def all(self, nodes: list[Node], scope: Scope, kind: str = "") -> list[Visit]:
        return [(node, scope, kind) for node in nodes]

    def fields(self, node: Node, scope: Scope, *names: str) -> list[Visit]:
        """Return visits of a node's fields, as expressions."""
        return [(child, scope, "") for name in names for child in node.children_by_field_name(name)]


def whole_word(*names: str) -> str:
    """Return the pattern of one of these names, which is no part of a longer one."""
    return rf"(?<![\w$])(?:{'|'.join(map(re.escape, names))})(?![\w$])"


def child(node: Node, name: str) -> Node:
    """Return the node of a field that the grammar requires. Raises Unsure if it is not there."""
    found = node.child_by_field_name(name)
    if found is None:
        raise Unsure(f"a {node.type.replace('_', ' ')} of this form is not understood")
    return found


def fields(node: Node | None, name: str) -> list[Node]:
    """Return the nodes of a field; none without a node."""
    return node.children_by_field_name(name) if node else []
