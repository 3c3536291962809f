"""References in a JSON schema that lead to themselves, so that no value can ever begin."""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any
from urllib.parse import unquote

DATA = ("const", "enum", "default", "examples")  # keywords whose values are no schemas


def refers_to_itself(schema: dict[str, Any]) -> bool:
    """Return whether a part of the schema is defined by itself: `{"$ref": "#"}`.

    A part inside a value, as a tree has them, is not meant.
    """
    graph = {id(part): [id(same) for same in _same_values(part, schema)] for part in _parts(schema)}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError:
        return True
    return False


def _same_values(part: dict[str, Any], schema: dict[str, Any]) -> Iterator[Any]:
    """Yield the parts that every value of a part fits too."""
    if isinstance(reference := part.get("$ref"), str):
        target = target_of(schema, reference)
        if isinstance(target, dict):
            yield target
    for keyword in ("allOf", "anyOf", "oneOf"):
        inner = part.get(keyword)
        if isinstance(inner, list) and (keyword == "allOf" or len(inner) == 1):
            yield from (item for item in inner if isinstance(item, dict))


def target_of(schema: dict[str, Any], reference: str) -> Any:
    """Return the target of a JSON pointer in the schema; None for other documents and nothing."""
    if not reference.startswith("#"):
        return None
    found: Any = schema
    for name in unquote(reference[1:]).split("/")[1:]:
        name = name.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isdecimal() and len(name) < 10:
            found = found[int(name)] if int(name) < len(found) else None
        else:
            found = found.get(name) if isinstance(found, dict) else None
    return found


def _parts(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield all objects in a schema."""
    stack: list[Any] = [schema]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            yield part
            stack += [inner for name, inner in part.items() if name not in DATA]
        elif isinstance(part, list):
            stack += part
