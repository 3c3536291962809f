"""Checks of an edit for faults that it adds to code: each is there after it and was not before.

They need no words of the instruction, and are silent where the code is not understood.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from engine.editing.builtin_uses import builtin_uses
from engine.editing.code_parts import BUILTINS, is_read, nodes_of
from engine.editing.instruction import (
    COMMENT_OUT,
    speaks_of_comments,
    words,
)
from engine.editing.scopes.names import Binding
from engine.editing.scopes.python_renames import PythonRenames
from engine.editing.side import FailedCheck, Side, listed, quoted
from engine.editing.signatures import call_fits, find_calls

if TYPE_CHECKING:
    from tree_sitter import Node

STANDS_FOR = re.compile(  # comments that stand for code
    r"\W*(?:keep |the |your )*(?:"
    r"rest of (?:the |your )?(?:\w+ )?(?:code|function|class|file|method|implementation|body)"
    r"|(?:existing|remaining|other|previous) (?:\w+ )?(?:code|logic|methods|functions)"
    r"|same as before|(?:code|logic|implementation|body) (?:remains|stays|goes|is|here|omitted)"
    r"|add (?:your )?(?:code|logic|implementation) here)\b",
    re.I,
)
LEAVES = frozenset((
    "return_statement", "raise_statement", "continue_statement", "break_statement",
    "throw_statement",
))  # fmt: skip
BLOCKS = frozenset(("block", "module", "statement_block"))
RETURNS = re.compile(r"\breturn|yield|generat|print|log\b|none|void|inline|procedure", re.I)
MIN_CODE_CHARS = 10  # characters of a line of code that may be found in a comment
Check = Callable[[str, Side, Side], Iterator[FailedCheck]]


def builtins(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that no use is left of a local variable that is gone, where its name is a builtin's.

    Only a use between the same tokens as before is one that was left.
    """
    old, new = before.names_of_python, after.names_of_python
    if "built" in instruction.lower() or not old or not new:
        return
    old_local, old_free = builtin_uses(old)
    new_local, new_free = builtin_uses(new)
    if names := sorted({use[1] for use in (old_local - old_free) & (new_free - new_local)}):
        warning = f"{listed(names)} would be the builtin, no longer a variable"
        yield FailedCheck("builtins", warning, f"Replace every use of {listed(names)}.")


def placeholders(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that no new comment stands for code that the answer leaves out."""
    known = {*before.of_kind("comment")}
    for text in after.of_kind("comment"):
        if text not in known and STANDS_FOR.match(text):
            warning = f"{quoted(text)} stands for code that is left out"
            yield FailedCheck("placeholders", warning, "Write all of the code.")
            return


def commented_out(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that no line of code becomes a comment."""
    if COMMENT_OUT.search(instruction) or speaks_of_comments(instruction):
        return
    known = {*before.of_kind("comment")}
    lines = {"".join(line.split()) for line in before.part.splitlines()}
    for text in after.of_kind("comment"):
        bare = "".join(text.split()).lstrip("#/")
        is_code = len(bare) >= MIN_CODE_CHARS and bare in lines and re.search(r"[(=\[]", bare)
        if text not in known and is_code:
            warning = f"the code {quoted(text)} would become a comment"
            yield FailedCheck("commented", warning, "Do not turn code into comments.")
            return


def unreachable(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that no statement is added that is never reached."""
    old, new = ([*_behind_leaving(side)] for side in (before, after))
    if len(new) > len(old):
        line = next((each for each in new if each not in old), new[0])
        warning = f"{quoted(line)} would never be reached"
        yield FailedCheck("unreachable", warning, "Leave out what is never reached.")


def _behind_leaving(side: Side) -> Iterator[str]:
    """Yield the statements that follow one that leaves their block."""
    for block in nodes_of(side.tree, side.span) if side.tree else ():
        leaves = False
        for node in block.named_children if block.type in BLOCKS else ():
            if leaves and "comment" not in node.type and "declaration" not in node.type:
                yield side.tree.text_of(node) if side.tree else ""
                break
            leaves = leaves or node.type in LEAVES


def awaits(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that nothing is awaited in a function of Python that is not `async`."""
    old, new = ([*_awaited_outside(side)] for side in (before, after))
    if len(new) > len(old):
        warning = f"{quoted(new[0])} is in a function that is not `async`"
        yield FailedCheck("await", warning, "Make the function `async`, or do not await in it.")


def _awaited_outside(side: Side) -> Iterator[str]:
    if side.tree is None or side.tree.language != "python":
        return
    for node in nodes_of(side.tree, side.span):
        if node.type == "await":
            around = node.parent
            while around is not None and around.type not in ("function_definition", "lambda"):
                around = around.parent
            if around is not None and around.children[0].type != "async":
                yield side.tree.text_of(node)


# -- names of Python ---------------------------------------------------------------------------


def undefined(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that no name is used where it is not defined, though it may be elsewhere."""
    old, new = before.names_of_python, after.names_of_python
    if not old or not new or new.has_star_import:
        return
    known = _free(old) | BUILTINS
    names = sorted({name for name in _free(new) - known if name in new.bound})
    if names:
        warning = f"{listed(names)} {'is' if len(names) == 1 else 'are'} not defined where used"
        yield FailedCheck("undefined", warning, f"Define {listed(names)} where used.")


def _free(names: PythonRenames) -> set[str]:
    return {use.name for use, binding in names.resolved if binding is None and not use.kind}


def attributes(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that no attribute of `self` is read that nothing sets."""
    new = after.names_of_python
    if not before.names_of_python or not new:
        return
    known = words(before.text) | {*dir(object)}
    known |= {each.name for each in new.bindings() if each.scope.kind == "class"} | new.strings
    read: dict[str, bool] = {}
    for member in new.members:
        parent = member.node.parent
        is_own = member.receiver is not None and new.tree.text_of(member.receiver) == "self"
        owner = next((each for each in new.chain(member.scope) if each.kind == "class"), None)
        is_plain = owner is not None and not new.has_bases(owner)
        certain = is_own and is_plain and parent is not None and is_read(parent)
        read[member.name] = read.get(member.name, True) and certain
    if names := [name for name, certain in read.items() if certain and name not in known]:
        warning = f"{listed([f'self.{name}' for name in names])} is read, and nothing sets it"
        yield FailedCheck("attributes", warning, f"Set {listed(names)}, or do not use it.")


def unused(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that every new parameter of a function is used, and a variable that is asked for."""
    old, new = before.names_of_python, after.names_of_python
    if not old or not new or new.dynamic:
        return
    had = [_owner_and_name(old, each) for each in _unread(old)]
    known, counts = {*had}, Counter(owner for owner, _ in had)
    heads = {key[1]: {*each.parameters} for key, each in before.signatures.items()}
    found = []
    for binding in _unread(new):
        owner, name = _owner_and_name(new, binding)
        counts[owner] -= 1
        if (owner, name) in known or name in ("self", "cls") or name.startswith("_"):
            continue
        is_new = name not in heads.get(owner, {name})
        if binding.kinds == {"variable"}:
            is_new = name in words(instruction)
        if is_new and not _is_stub(binding.scope.node):
            found.append((owner, name))
    names = [name for owner, name in found if counts[owner] < 0]  # else one is renamed
    if names:
        warning = f"{listed(names)} would be new and not used"
        yield FailedCheck("unused", warning, f"Use {listed(names)}, or leave it out.")


def _unread(names: PythonRenames) -> Iterator[Binding]:
    """Yield the parameters, and the variables bound by plain assignments, that are never read."""
    for binding in names.bindings():
        uses = [names.at[place.start][0] for place in binding.places if place.start in names.at]
        if binding.scope.kind != "function" or any(not use.kind for use in uses):
            continue
        if binding.kinds == {"parameter"} or all(names.is_assigned(use.place) for use in uses):
            yield binding


def _is_stub(function: Node | None) -> bool:
    """Return whether a function does nothing but raise or pass."""
    body = function.child_by_field_name("body") if function else None
    return body is None or all(
        each.type in ("pass_statement", "raise_statement", "comment")
        or [part.type for part in each.children] in (["string"], ["ellipsis"])
        for each in body.named_children
    )


def _owner_and_name(names: PythonRenames, binding: Binding) -> tuple[str, str]:
    node = binding.scope.node
    name = node.child_by_field_name("name") if node else None
    return names.tree.text_of(name) if name else "", binding.name


def calls(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that the calls in the file fit the functions whose parameters have changed."""
    names, old = after.names_of_python, before.signatures
    if not before.names_of_python or not names or not after.tree:
        return
    changed = {
        key: each
        for key, each in after.signatures.items()
        if key in old and old[key].text != each.text and each.name_at not in names.decorated
    }
    if not changed:
        return
    places = {at: key for at, key in _called(names) if key in changed}
    for call in find_calls(after.tree, places):
        owner, name = places[call.name_at]
        if not call_fits(changed[owner, name], call):
            row = after.text[: call.name_at].count("\n") + 1
            name = owner if name == "__init__" else name
            warning = f"line {row}: the call of `{name}` does not fit its new parameters"
            yield FailedCheck("calls", warning, f"Adapt the calls of `{name}`.")
            return


def _called(names: PythonRenames) -> Iterator[tuple[int, tuple[str, str]]]:
    """Yield the places where functions and methods are used, each with its class and name."""
    for use, binding in names.resolved:
        if binding and not use.kind and binding.scope is names.top:
            if binding.kinds == {"class"}:
                yield use.place.start, (use.name, "__init__")
            elif binding.kinds == {"function"}:
                yield use.place.start, ("", use.name)
    for member in names.members:
        if owner := names.class_name(member):
            yield member.place.start, (owner, member.name)


def returns(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that a function that returned a value still returns one."""
    if RETURNS.search(instruction) or not before.tree or before.tree.language != "python":
        return
    old, new = _returning(before), _returning(after)
    if names := [name for name, does in old.items() if does and new.get(name) is False]:
        warning = f"{listed(names)} would no longer return a value"
        yield FailedCheck("returns", warning, f"Return a value from {listed(names)}.")


def _returning(side: Side) -> dict[str, bool]:
    """Return the functions of a part by name, with whether they return or yield a value."""
    found: dict[str, bool] = {}
    for node in nodes_of(side.tree, side.span) if side.tree else ():
        if node.type == "function_definition" and side.tree and not _is_stub(node):
            name = node.child_by_field_name("name")
            does = any(
                each.type == "yield" or (each.type == "return_statement" and each.named_children)
                for each in _own_nodes(node)
            )
            key = side.tree.text_of(name) if name else ""
            found[key] = found.get(key, False) or does
    return found


def _own_nodes(function: Node) -> Iterator[Node]:
    """Yield the nodes of a function without those of functions inside it."""
    todo = [*function.children]
    while todo:
        node = todo.pop()
        yield node
        if node.type not in ("function_definition", "lambda", "class_definition"):
            todo += node.children


CHECKS: tuple[Check, ...] = (
    builtins, undefined, attributes, unused, calls, returns, placeholders, commented_out,
    unreachable, awaits,
)  # fmt: skip
