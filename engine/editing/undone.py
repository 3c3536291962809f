"""Checks of an edit for what the instruction asks for and the new text does not have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from engine.editing.code_parts import variables
from engine.editing.instruction import (
    KEYWORDS,
    asks_optional,
    changed_name,
    gone_names,
    only_requested,
    raised_errors,
    speaks_of_layout,
    wanted_names,
    wanted_values,
    words,
)
from engine.editing.instruction import new_parameters as asked_parameters
from engine.editing.rename_request import read, replaced_names
from engine.editing.side import FailedCheck, Side, kinds_of, listed, quoted
from engine.editing.signatures import find_signatures


def blank(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that more than white space has changed."""
    if before.tree and after.tree and after.is_all_code:
        old, new = ([(token.kind, token.text) for token in side.tokens] for side in (before, after))
        same = old == new
    else:
        same = before.part.split() == after.part.split()
    if same and not speaks_of_layout(instruction):
        warning = "nothing but white space would change"
        yield FailedCheck("blank", warning, "The code must change; do not repeat it as it is.")


def remaining(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that the code that is to go or to be replaced is less; none, if all is to go."""
    for name, every in gone_names(instruction):
        old, new = (_count(name, side) for side in (before, after))
        if old and new and (every or new >= old):
            yield FailedCheck("remaining", f"`{name}` still occurs", f"There must be no `{name}`.")


def _count(name: str, side: Side) -> int:
    """Count how often a name occurs in the code, as in "a" or "a.b"."""
    found = side.of_kind("code", "import", "annotation")
    parts = re.findall(r"\w+", name)
    width = 2 * len(parts) - 1
    return sum(found[at : at + width : 2] == parts for at in range(len(found)))


def additions(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that the comments, docstrings and annotations that were asked for have changed."""
    asked = sorted(only_requested(instruction))
    for kind in asked if before.tree and before.is_all_code else ():
        if before.of_kind(*kinds_of(kind)) == after.of_kind(*kinds_of(kind)):
            yield FailedCheck(
                "additions", f"the {kind}s did not change", f"Change the {kind}s, too."
            )


def renamed(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that no function has both a variable that is to be replaced and the new one."""
    for old, new in replaced_names(instruction):
        if after.tree and any({old, new} <= each for each in variables(after.tree, after.span)):
            warning = f"`{old}` still occurs next to `{new}`"
            yield FailedCheck("rename", warning, f"Replace every `{old}`.")


def parameters(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that a rename of an attribute leaves the parameters of that name, which calls use."""
    requests = [each for each in read(instruction) if each.kinds[:1] == ("attribute",)]
    if not requests or not before.tree or not after.tree:
        return
    old, new = (
        {(each.owner and each.owner[0], each.name): each.parameters for each in found}
        for found in (
            find_signatures(side.tree, *side.span) for side in (before, after) if side.tree
        )
    )
    for request in requests:
        for key in old.keys() & new.keys():
            lost, added = {*old[key]} - {*new[key]}, {*new[key]} - {*old[key]}
            if request.old in lost and request.new in added:
                warning = f"the parameter `{request.old}` of `{key[1]}` was renamed, too"
                yield FailedCheck("parameters", warning, f"Keep the parameter `{request.old}`.")
                return


def missing_names(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that the names in the instruction are there.

    Names that it writes as code must be in the file, and keywords in the part.
    """
    known = words(before.outside) | before.names | after.names
    missing = [
        name
        for name in wanted_names(instruction)
        if name not in (after.names if name in KEYWORDS else known)
    ]
    if missing:
        names = listed(missing)
        warning = f"{names} {'does' if len(missing) == 1 else 'do'} not occur in the new text"
        yield FailedCheck("missing", warning, f"The new code must contain {names}.")


def new_parameters(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that the parameters that are to be added are parameters."""
    asked = asked_parameters(instruction)
    if not asked or not after.tree:
        return
    found = {name for each in find_signatures(after.tree, *after.span) for name in each.parameters}
    if missing := [name for name in asked if name not in found]:
        warning = f"no function has the parameter {listed(missing)}"
        yield FailedCheck("missing", warning, f"Add the parameter {listed(missing)}.")


def optional(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that no parameter is added that calls must give, where it is to be optional."""
    if not asks_optional(instruction):
        return
    for key, each in after.signatures.items():
        old = before.signatures.get(key)
        added = {*each.parameters} - {*old.parameters} if old else set()
        missed = sorted(added & each.required)
        if old and missed and len(each.parameters) > len(old.parameters):
            warning = f"calls of `{key[1]}` would have to give {listed(missed)}"
            yield FailedCheck("optional", warning, f"Give {listed(missed)} a default value.")
            return


def raised(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that the exceptions that are to be raised or handled are there."""
    if missing := [name for name in raised_errors(instruction) if name not in after.names]:
        warning = f"{listed(missing)} does not occur in the new text"
        yield FailedCheck("missing", warning, f"The new code must use {listed(missing)}.")


def values(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that the values that the instruction gives are there."""
    text = "".join(after.text.split())
    missing = [value for value in wanted_values(instruction) if "".join(value.split()) not in text]
    if missing:
        warning = f"{quoted(missing[0])} does not occur in the new text"
        yield FailedCheck("missing", warning, f"The new code must have {missing[0]}.")


def unchanged(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that what the instruction begins to speak of has changed."""
    name = changed_name(instruction)
    old, new = before.bodies, after.bodies
    if name in old and name in new and only_requested(instruction) == frozenset():
        inside = old[name].inside | new[name].inside
        same = [
            each in old and each in new and old[each].code == new[each].code
            for each in (name, *inside)
        ]
        if all(same):
            yield FailedCheck("untouched", f"`{name}` did not change", f"Change `{name}`.")


CHECKS: tuple[Callable[[str, Side, Side], Iterator[FailedCheck]], ...] = (
    additions, renamed, parameters, new_parameters, optional, raised, values, unchanged,
)  # fmt: skip
