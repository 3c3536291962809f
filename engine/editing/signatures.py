"""Function signatures, and whether a call fits one, by the syntax tree.

Arguments are matched by count and by Python's keywords, not by type. A call that unpacks an
argument is assumed to fit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tree_sitter import Node

    from engine.editing.syntax import Tree

NAMES = ("name", "property", "pattern", "declarator", "left")  # fields of what is defined
CALLED = ("function", "constructor", "name", "type")  # fields of what is called
LAST = ("attribute", "property", "field", "name")  # fields of a name's last part
OPTIONAL = ("value", "default_value", "right")  # fields of a parameter with a default
MAX_DECLARATORS = 20  # nodes around the name that they define
NOT_PARAMETERS = {"self_parameter", "receiver_parameter", "positional_separator"}


class Item(NamedTuple):
    """One comma-separated item of a bracket."""

    node: Node
    text: str


@dataclass(frozen=True, slots=True)
class Signature:
    """The head of a function, from its name on.

    `self` and its like are not parameters here.
    """

    name: str
    text: str  # "name(a, b)" as written, on one line
    name_at: int  # code points
    close_at: int  # where the brackets close
    positional: tuple[str, ...]
    required: frozenset[str]
    keyword_only: frozenset[str] = frozenset()
    variadic: bool = False
    variadic_keywords: bool = False
    parameters: tuple[str, ...] = ()  # the names, as written
    owner: tuple[str, int] | None = None  # the class around it, and where its name is


class CallSite(NamedTuple):
    """A call in a source text."""

    name_at: int  # code points
    arguments: list[Item]
    open_at: int  # where the brackets open
    close_at: int


def find_signatures(tree: Tree, start: int, stop: int) -> list[Signature]:
    """Find the signatures that overlap or touch a part of the text, in order."""
    low, high = tree.byte(start), tree.byte(stop)
    found: list[Signature] = []
    todo: list[tuple[Node, Node | None, Node | None]] = [(tree.root, None, None)]
    while todo:
        node, given, owner = todo.pop()
        if node.end_byte < low or node.start_byte > high:
            continue
        name = _first(node, "name", "property", "declarator") or given
        brackets = node.child_by_field_name("parameters")
        if name and brackets and name.start_byte <= high and brackets.end_byte >= low:
            found += _signature(tree, _innermost(name), brackets, owner)
        if node.type.endswith(("class_definition", "class_declaration", "class_specifier")):
            owner = name
        elif brackets and node.type != "function_declarator":
            owner = None
        value = node.child_by_field_name("value")
        todo += [(each, name if each == value else None, owner) for each in reversed(node.children)]
    return found


def _signature(tree: Tree, name: Node, brackets: Node, owner: Node | None) -> Iterator[Signature]:
    """Yield the signature of a function, if its brackets are closed."""
    items = _items(tree, brackets)
    if items is None:
        return
    positional: list[str] = []
    keyword_only: list[str] = []
    required: set[str] = set()
    written: list[str] = []
    variadic = variadic_keywords = past_star = False
    is_python = tree.language == "python"
    for index, (node, text) in enumerate(items):
        is_own = index == 0 and text.split(":")[0].strip() in {"self", "cls", "this"}
        if is_own or node.type in NOT_PARAMETERS or text == "void":
            continue
        if is_python and text.startswith("**"):
            variadic_keywords = True
        elif is_python and text.startswith("*"):
            variadic, past_star = variadic or text != "*", True  # what follows is keyword-only
        elif "..." in text:
            variadic = True
        else:
            is_optional = node.type == "optional_parameter" or _first(node, *OPTIONAL) is not None
            for each in node.children_by_field_name("name") or [node]:  # in Go: a, b int
                written.append(tree.text_of(_innermost(each)))
                known = written[-1] if is_python else str(len(positional))
                (keyword_only if past_star else positional).append(known)
                required |= set() if is_optional else {known}
    text = tree.text_of(name)
    yield Signature(
        text, " ".join(f"{text}({', '.join(item.text for item in items)})".split()),
        tree.span(name)[0], tree.span(brackets)[1] - 1, tuple(positional), frozenset(required),
        frozenset(keyword_only), variadic, variadic_keywords, tuple(written),
        (tree.text_of(owner), tree.span(owner)[0]) if owner else None,
    )  # fmt: skip


def find_calls(tree: Tree, places: Collection[int]) -> list[CallSite]:
    """Find the calls of the names that start at some places, in order.

    What calls a name without its body, as a prototype of C, is one of them: it must fit as well.
    """
    found: list[CallSite] = []
    for node in tree.around(sorted(places)):
        for name, brackets in _calls(node):
            at = tree.span(name)[0]
            if at in places and (items := _items(tree, brackets)) is not None:
                start, stop = tree.span(brackets)
                found.append(CallSite(at, items, start, stop - 1))
    return sorted(found, key=lambda call: call.name_at)


def _calls(node: Node) -> Iterator[tuple[Node, Node]]:
    """Yield the name and the brackets of what a node calls."""
    called, brackets = _first(node, *CALLED), node.child_by_field_name("arguments")
    if called and brackets:
        if called.type == "generic_function":  # f::<T>
            called = _first(called, "function") or called
        yield _first(called, *LAST) or called, brackets
    elif node.type == "declaration":
        for each in node.children_by_field_name("declarator"):
            if each.type == "function_declarator" and (inside := _first(each, "parameters")):
                yield _innermost(each), inside
    elif node.type == "token_tree":  # what a macro of Rust is given
        yield from pairwise(node.children)


def _items(tree: Tree, brackets: Node) -> list[Item] | None:
    """Split a bracket at its commas; None if it is not closed."""
    inside = brackets.children
    if not inside or inside[0].type != "(" or inside[-1].type != ")" or inside[-1].is_missing:
        return None
    groups: list[list[Node]] = [[]]
    for each in inside[1:-1]:
        if each.type == ",":
            groups.append([])
        elif "comment" not in each.type:
            groups[-1].append(each)
    found = []
    for group in filter(None, groups):
        start, stop = tree.offset(group[0].start_byte), tree.offset(group[-1].end_byte)
        node = next((each for each in group if each.is_named), group[0])
        found.append(Item(node, tree.text[start:stop]))
    return found


def _first(node: Node, *fields: str) -> Node | None:
    """Return the first of these fields that a node has."""
    return next((each for name in fields if (each := node.child_by_field_name(name))), None)


def _innermost(node: Node) -> Node:
    """Return the name that a declarator or a parameter defines."""
    for _ in range(MAX_DECLARATORS):
        if not node.named_child_count:
            break
        node = _first(node, *NAMES) or node.named_children[0]
    return node


def call_fits(signature: Signature, call: CallSite) -> bool:
    """Return whether a call fits the signature."""
    texts = [item.text for item in call.arguments]
    if any(text.startswith(("*", "...")) or text.endswith("...") for text in texts):
        return True
    keyed = [item for item in call.arguments if item.node.type == "keyword_argument"]
    named = {item.text.split("=")[0].strip() for item in keyed}
    count = len(texts) - len(named)
    if count > len(signature.positional) and not signature.variadic:
        return False
    known = {*signature.positional[count:], *signature.keyword_only}
    if not (named <= known or signature.variadic_keywords):
        return False
    return signature.required <= {*signature.positional[:count], *named}


def missing_parameters(signature: Signature, other: Signature) -> list[str]:
    """Find the parameters that one signature has and another does not."""
    return [name for name in signature.parameters if name not in other.parameters]
