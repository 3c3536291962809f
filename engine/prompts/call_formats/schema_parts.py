"""JSON schemas for values that are not written as JSON.

Finds which values are texts, and makes the grammar of texts without quotes.
"""

from __future__ import annotations

import json
import re
from typing import Any

from engine.records import RequestError

MAX_DEPTH = 32  # alternatives and references inside each other in a schema
MAX_SHOWN_CHARS = 120  # characters of a schema in an error
TYPES = ("array", "boolean", "integer", "null", "number", "object")  # types other than texts
TEXT_KEYS = frozenset({"type", "enum", "minLength", "maxLength", "pattern"})
OF_OTHERS = frozenset(  # keys that say nothing about texts
    {"additionalProperties", "exclusiveMaximum", "exclusiveMinimum", "items", "maxItems", "maximum",
     "minItems", "minimum", "multipleOf", "properties", "required", "uniqueItems"}
)  # fmt: skip
ANNOTATIONS = frozenset(
    {"$comment", "$defs", "$id", "$schema", "default", "definitions", "deprecated", "description",
     "examples", "format", "nullable", "readOnly", "strict", "title", "writeOnly"}
)  # fmt: skip
ESCAPED, BRACKETED = re.compile(r"\\.", re.DOTALL), re.compile(r"\[[^\]]*\]|\([^()]*\)")


def alternatives(schema: Any, root: Any) -> tuple[list[Any], list[Any]]:
    """Return the schemas of the texts and of the other values that fit a schema.

    The latter are of one type each or have an `enum`. `root` is where references lead. What cannot
    be told apart is in both.
    """
    return _alternatives(schema, root, set(), 0)


def _alternatives(
    schema: Any, root: Any, followed: set[str], depth: int
) -> tuple[list[Any], list[Any]]:
    """`followed`: the references that need not be followed again."""
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        schema = {}
    own = {key: value for key, value in schema.items() if key not in ANNOTATIONS}
    if isinstance(path := own.get("$ref"), str):
        if path in followed:
            return [], []
        followed.add(path)
        return _alternatives(_referred(path, root), root, followed, depth + 1)
    for key in ("anyOf", "oneOf"):
        if isinstance(branches := own.pop(key, None), list):
            texts, others = list[Any](), list[Any]()
            for option in branches:
                branch = own | option if isinstance(option, dict) else option
                more = _alternatives(branch, root, followed, depth + 1)
                texts += more[0]
                others += more[1]
            return texts, others
    if "const" in own:
        own["enum"] = [own.pop("const")]
    if isinstance(values := own.get("enum"), list):
        words = [value for value in values if isinstance(value, str)]
        rest = [value for value in values if not isinstance(value, str)]
        return [own | {"enum": words}] * bool(words), [{"enum": rest}] * bool(rest)
    types = own.get("type", ["string", *TYPES])
    types = types if isinstance(types, list) else [types]
    others = [own | {"type": name} for name in types if name in TYPES]
    return [own | {"type": "string"}] * ("string" in types), others


def _referred(path: str, root: Any) -> Any:
    """Return the target of a reference; {} for nothing."""
    if not path.startswith("#"):
        return {}
    for name in path[1:].split("/")[1:]:
        name = name.replace("~1", "/").replace("~0", "~")
        root = root.get(name) if isinstance(root, dict) else None
    return {} if root is None else root


def types_of(others: list[Any]) -> set[str]:
    """Return the types of the values that are no texts."""
    found: set[str] = set()
    for schema in others:
        found |= {schema["type"]} if "type" in schema else set()
        for value in schema.get("enum", []):
            found |= type_names(value)
    return found


def type_names(value: Any) -> set[str]:
    """Return the types that a JSON value has."""
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int):
        return {"integer", "number"}
    if isinstance(value, float):
        return {"number", "integer"} if value.is_integer() else {"number"}
    known = {str: "string", type(None): "null", list: "array", dict: "object"}
    return {known[type(value)]}


def text_terminal(schema: dict[str, Any], closing: str, not_first: str = "") -> tuple[str, bool]:
    """Make a terminal of llguidance for the texts of a schema without the empty one.

    Returns it and whether the empty text fits. No text contains `closing`, and none begins with a
    character of `not_first`. RequestError.
    """
    if unknown := schema.keys() - TEXT_KEYS - OF_OTHERS - ANNOTATIONS:
        raise unenforceable(", ".join(sorted(unknown)))
    if "enum" in schema:
        words = schema["enum"]
        if any(closing in word for word in words):
            raise unenforceable(f"enum with {closing}")
        named = [json.dumps(word) for word in words if word]
        return f"({' | '.join(named)})" if named else "", "" in words
    low, high = int(schema.get("minLength", 0)), schema.get("maxLength", "")
    first = f"[^{re.escape(not_first)}](?s:.*)" if not_first else "(?s:.+)"
    parts = [_regex(first), "~" + _regex(f"(?s:.*){re.escape(closing)}(?s:.*)")]
    if low or high != "":
        parts.append(_regex(f"(?s:.{{{low},{high}}})"))
    pattern = schema.get("pattern")
    if pattern is not None:
        parts.append(_regex(_whole(pattern)))
    return f"({' & '.join(parts)})" if high != 0 else "", not low and pattern is None


def _whole(pattern: str) -> str:
    """Return a pattern that may begin anywhere in a text as one of the whole text."""
    bare = ESCAPED.sub("", pattern)
    while (shorter := BRACKETED.sub("", bare)) != bare:
        bare = shorter
    if "|" in bare:
        if "^" in bare or "$" in bare:
            raise unenforceable(f"pattern {pattern}")
        return f"(?s:.*)(?:{pattern})(?s:.*)"
    start = pattern.startswith("^")
    stop = bare.endswith("$")
    body = pattern[start : len(pattern) - stop]
    return f"{'' if start else '(?s:.*)'}(?:{body}){'' if stop else '(?s:.*)'}"


def _regex(pattern: str) -> str:
    """Write a regular expression as a grammar does."""
    pattern = re.sub(
        r"\\(.)|(/)", lambda found: r"\/" if "/" in (found[1], found[2]) else found[0], pattern
    )
    return f"/{pattern}/".replace("\r", r"\r").replace("\n", r"\n")


def properties_of(schema: dict[str, Any]) -> tuple[dict[str, Any], set[str], Any]:
    """Return the properties of an object's schema, the required ones, and one for others.

    The last is the schema of further properties, None where there are none. RequestError for what
    only JSON's grammar enforces.
    """
    known = {"type", "properties", "required", "additionalProperties"} | ANNOTATIONS
    if unknown := schema.keys() - known:
        raise unenforceable(", ".join(sorted(unknown)))
    properties, required = schema.get("properties") or {}, {*(schema.get("required") or ())}
    if missing := required - properties.keys():
        raise unenforceable(f"required {', '.join(sorted(missing))}")
    more = schema.get("additionalProperties", True)
    open_ended = not properties and more is not False  # or a further one could be a known one
    return properties, required, (more if isinstance(more, dict) else {}) if open_ended else None


def unenforceable(what: str) -> RequestError:
    """Make the error for a part of a schema."""
    what = repr(what[:MAX_SHOWN_CHARS])
    return RequestError(f"the schema's {what} cannot be enforced in the model's format of calls")
