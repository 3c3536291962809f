"""Uses of names of Python's builtins: which of them are local variables, and which the builtins."""

from __future__ import annotations

import re

from engine.editing.code_parts import BUILTINS
from engine.editing.scopes.names import Unsure
from engine.editing.scopes.python import PythonNames
from engine.editing.syntax import Tree

TOKEN = re.compile(r"\w+|[^\w\s]")
NEARBY_CHARS = 80  # characters next to a name in which its neighbour is searched

NameUse = tuple[str, str, str]  # a name between the tokens before and after it


def builtin_uses(tree: Tree) -> tuple[set[NameUse], set[NameUse]]:
    """Return the uses of builtins' names as variables of functions, and those as builtins.

    There are none of a text with errors, in another language, or that is not understood.
    """
    local: set[NameUse] = set()
    free: set[NameUse] = set()
    if tree.language != "python" or tree.errors:
        return local, free
    names = PythonNames(tree)
    try:
        names.read()
    except Unsure:
        return local, free
    for use, binding in names.resolved:
        if use.kind or use.name not in BUILTINS:
            continue
        before = TOKEN.findall(tree.text[max(0, use.place.start - NEARBY_CHARS) : use.place.start])
        after = TOKEN.search(tree.text, use.place.stop, use.place.stop + NEARBY_CHARS)
        found = ((before or [""])[-1], use.name, after[0] if after else "")
        if binding is None:
            free.add(found)
        elif binding.scope.kind == "function" and binding.kinds <= {"parameter", "variable"}:
            local.add(found)
    return local, free
