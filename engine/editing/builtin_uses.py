"""Uses of names of Python's builtins: which of them are local variables, and which the builtins."""

from __future__ import annotations

import re

from engine.editing.code_parts import BUILTINS
from engine.editing.scopes.python import PythonNames

TOKEN = re.compile(r"\w+|[^\w\s]")
NEARBY_CHARS = 80  # characters next to a name in which its neighbour is searched

NameUse = tuple[str, str, str]  # a name between the tokens before and after it


def builtin_uses(names: PythonNames) -> tuple[set[NameUse], set[NameUse]]:
    """Return the uses of builtins' names as variables of functions, and those as builtins."""
    text = names.tree.text
    local: set[NameUse] = set()
    free: set[NameUse] = set()
    for use, binding in names.resolved:
        if use.kind or use.name not in BUILTINS:
            continue
        before = TOKEN.findall(text[max(0, use.place.start - NEARBY_CHARS) : use.place.start])
        after = TOKEN.search(text, use.place.stop, use.place.stop + NEARBY_CHARS)
        found = ((before or [""])[-1], use.name, after[0] if after else "")
        if binding is None:
            free.add(found)
        elif binding.scope.kind == "function" and binding.kinds <= {"parameter", "variable"}:
            local.add(found)
    return local, free
