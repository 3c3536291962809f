"""Calls of Qwen3-Coder and Qwen3.5, in tags.

    <tool_call>
    <function=NAME>
    <parameter=KEY>
    VALUE
    </parameter>
    </function>
    </tool_call>

A value is a text as it is, or any other value in JSON: the function's JSON schema says which.
"""

from __future__ import annotations

import json
import re
from typing import Any

from engine.prompts.call_formats.call_format import Call, CallFormat, HalfCall, Mark, Schemas
from engine.prompts.call_formats.json_calls import (
    CLOSE,
    OPEN,
    WRITTEN,
    json_value,
    skip,
)
from engine.prompts.call_formats.schema_parts import (
    alternatives,
    properties_of,
    text_terminal,
    type_names,
    types_of,
    unenforceable,
)

FUNCTION, END_FUNCTION = "<function=", "</function>"
PARAMETER, END_PARAMETER = "<parameter=", "</parameter>"
MAX_TAG_CHARS = 300
HEAD = re.compile(r"<function=([\w.-]{1,128})>")
HALF_HEAD = re.compile(r"<function=[\w.-]{0,128}")
KEY = re.compile(r"<parameter=([^<>\n]{1,256})>\n?")
HALF_KEY = re.compile(r"<parameter=[^<>\n]{0,256}")
END = re.compile(r"\n?</parameter>(?=\s*(?:<parameter=|</function>))")
ANY_NUMBER = ({"type": "integer"}, {"type": "number"})
EMPTY = '""'
PYTHONS = {"True": True, "False": False, "None": None}  # the values that templates write


def read_function(text: str, at: int, schemas: Schemas) -> tuple[list[Call], int]:
    """Read the call at a place, up to the closing mark if there is one."""
    place = skip(text, at)
    head = HEAD.match(text, place)
    if head is None:
        _check_half(text[place : place + MAX_TAG_CHARS], HALF_HEAD, FUNCTION)
        return [], at
    schema = schemas.get(head[1])
    arguments: dict[str, Any] = {}
    place = skip(text, head.end())
    while not text.startswith(END_FUNCTION, place):
        key = KEY.match(text, place)
        if key is None:
            _check_half(text[place : place + MAX_TAG_CHARS], HALF_KEY, PARAMETER, END_FUNCTION)
            return [], at
        arguments[key[1]], place = _value(text, key.end(), _schema_of(schema, key[1]), schema)
        place = skip(text, place)
    place += len(END_FUNCTION)
    close = skip(text, place)
    if text.startswith(CLOSE, close) or CLOSE.startswith(text[close:]):  # cut off
        place = close + len(CLOSE)
    return [Call.of(head[1], arguments)], place


def _check_half(rest: str, half: re.Pattern[str], *whole: str) -> None:
    """HalfCall where a text is the beginning of what must come."""
    if half.fullmatch(rest) or any(tag.startswith(rest) for tag in whole):
        raise HalfCall


def _schema_of(schema: Any, key: str) -> Any:
    """Return the schema of a parameter."""
    if not isinstance(schema, dict):
        return {}
    properties = schema.get("properties")
    if isinstance(properties, dict) and key in properties:
        return properties[key]
    return schema.get("additionalProperties")


def _value(text: str, at: int, schema: Any, root: Any) -> tuple[Any, int]:
    """Read a parameter's value; return it and the place behind its closing tag.

    HalfCall if there is none.
    """
    texts, others = alternatives(schema, root)
    types = types_of(others)
    value, stop = json_value(text, at) if others else (None, at)
    end = END.match(text, stop) if stop > at else None
    if end and (not texts or type_names(value) & types):
        return value, end.end()
    end = END.search(text, at)
    if end is None:
        raise HalfCall
    word = text[at : end.start()]
    if word in PYTHONS and type_names(PYTHONS[word]) & types:
        return PYTHONS[word], end.end()
    if not texts and (bare := word.strip()):
        value, stop = json_value(bare, 0)
        return (value if stop == len(bare) else word), end.end()
    return word, end.end()


def xml_rules(name: str, schema: dict[str, Any], mark: Mark) -> list[str]:
    """Make the rules of `CallFormat.rules`. Parameters come in the schema's order."""
    properties, required, more = properties_of(schema)
    parts, rules = [], list[str]()
    for number, (key, one) in enumerate(properties.items()):
        if not KEY.fullmatch(f"{PARAMETER}{key}>"):
            raise unenforceable(f"properties.{key}")
        part = f"{name}_{number}"
        parts.append(part + "?" * (key not in required))
        tag = json.dumps(PARAMETER + key + ">\n")
        rules.append(f"{part}: {tag} {part}_value")
        rules += _value_rules(f"{part}_value", one, schema)
    if more is not None:
        parts.append(f"{name}_more*")
        key = r"/<parameter=[A-Za-z_][\w.-]{0,63}>\n/"
        rules += [f"{name}_more: {name.upper()}_KEY {name}_any", f"{name.upper()}_KEY: {key}"]
        rules += _value_rules(f"{name}_any", more, schema)
    return [f"{name}: {' '.join(parts) or EMPTY}", *rules]


def _value_rules(name: str, schema: Any, root: dict[str, Any]) -> list[str]:
    """Make the rules of a value and its closing tag.

    Text that would be read as another value is one only where that fits as well.
    """
    texts, others = alternatives(schema, root)
    close = json.dumps(f"\n{END_PARAMETER}\n")
    ways, rules, not_first = list[str](), list[str](), ""
    free = any("enum" not in text for text in texts)
    defs = {key: root[key] for key in ("$defs", "definitions") if key in root}
    for number, one in enumerate(others):
        kind = one.get("type", "enum")
        if free and kind == "enum":
            raise unenforceable("enum next to a text")
        if free and (kind in ("boolean", "null") or one in ANY_NUMBER):
            continue  # each of these values is also such a text
        not_first += {"array": "[", "object": "{"}.get(kind, "-0123456789")
        ways.append(f"{name}_{number} {close}")
        rules.append(f"{name}_{number}: %json {json.dumps(one | defs | WRITTEN)}")
    for number, one in enumerate(texts):
        terminal, empty = text_terminal(one, END_PARAMETER, not_first)
        ways += [f"{name.upper()}_{number}"] * bool(terminal) + [close] * empty
        if terminal:
            rules.append(f"{name.upper()}_{number}: {terminal} {close}")
    if not ways:
        raise unenforceable("value that nothing fits")
    return [f"{name}: {' | '.join(ways)}", *rules]


XML = CallFormat(
    "xml",
    signs=(OPEN, FUNCTION, PARAMETER),
    opening=OPEN,
    marks=(OPEN, CLOSE),
    read=read_function,
    rules=xml_rules,
    first=f"{OPEN}\n",
    between=f"\n{CLOSE}\n{OPEN}\n",
    last=f"\n{CLOSE}",
    before_name=FUNCTION,
    after_name=">\n",
    after_arguments=END_FUNCTION,
    raw_texts=True,
)
