"""Checks of an edit for what the instruction asks for and the new text does not have."""

from __future__ import annotations

import re
from collections.abc import Iterator

from engine.editing.code_parts import variables
from engine.editing.instruction import (
    KEYWORDS,
    gone_names,
    only_requested,
    speaks_of_layout,
    wanted_names,
    words,
)
from engine.editing.rename_request import read, replaced_names
from engine.editing.side import FailedCheck, Side, kinds_of, listed
from engine.editing.signatures import find_signatures


def blank(instruction: str, before: Side, after: Side) -> Iterator[FailedCheck]:
    """Check that more than white space has changed."""
    if before.tree and after.tree:
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
    for kind in sorted(only_requested(instruction)) if before.tree else ():
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
