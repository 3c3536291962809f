"""Calls whose arguments are a JSON object.

They are Hermes's (Qwen and most others), Mistral's, Granite 3's, and Llama 3's, which has no marks.
"""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

from engine.prompts.call_formats.call_format import Call, CallFormat, HalfCall, Mark, Schemas

OPEN, CLOSE = "<tool_call>", "</tool_call>"
# Arguments are written as Python's json does, so that a template writes them in the same way again.
WRITTEN = {
    "x-guidance": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
}
STRING = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?$)', re.DOTALL)  # in JSON; the last may not end
NAME_OF_MISTRAL = re.compile(r"[\w.-]{0,128}(?:\[[A-Z_]+\]?\w*){0,2}")
CALL_OF_MISTRAL = re.compile(r"\s*([\w.-]{1,128})(?:\[CALL_ID\]\w*)?(?:\[ARGS\])?\s*(?=\{)")


def json_rules(name: str, schema: dict[str, Any], mark: Mark) -> list[str]:
    """Make the rules of `CallFormat.rules`."""
    return [f"{name}: %json {json.dumps(schema | WRITTEN)}"]


def read_hermes(text: str, at: int, schemas: Schemas) -> tuple[list[Call], int]:
    """Read calls in JSON objects, up to the closing mark if there is one."""
    calls, end = read_objects(text, at, schemas)
    close = skip(text, end)
    if text.startswith(CLOSE, close) or CLOSE.startswith(text[close:]):  # cut off
        end = close + len(CLOSE)
    return calls, end


def read_mistral(text: str, at: int, schemas: Schemas) -> tuple[list[Call], int]:
    """Read a name and a JSON object, or calls in JSON objects."""
    named = CALL_OF_MISTRAL.match(text, at)
    if named is None:
        return read_objects(text, at, schemas)
    value, end = decoded(text, named.end())
    if isinstance(value, dict):
        return [Call.of(named[1], value)], end
    _check_half(text, at)
    return [], end


def read_objects(text: str, at: int, schemas: Schemas) -> tuple[list[Call], int]:
    """Read calls in JSON objects, or lists of them."""
    calls, end = objects(text, at)
    if not calls:
        _check_half(text, at)
    return calls, end


def _check_half(text: str, at: int) -> None:
    if is_half(text[at:]):
        raise HalfCall


def is_half(text: str) -> bool:
    """Return whether a text is the beginning of a call behind its mark.

    That is a name, if the format has it there, and JSON that does not end.
    """
    text = STRING.sub("", NAME_OF_MISTRAL.sub("", text.lstrip(), count=1).lstrip())
    return not text or (text[0] in "{[" and sum(map(text.count, "{[")) > sum(map(text.count, "}]")))


def objects(text: str, at: int) -> tuple[list[Call], int]:
    """Read the calls in JSON objects, or lists of them; return them and their end."""
    calls: list[Call] = []
    end = at
    while True:
        value, stop = decoded(text, skip(text, end, " \n\t\r;,") if calls else end)
        found = [_call(item) for item in (value if isinstance(value, list) else [value])]
        if not found or None in found:
            return calls, end
        calls += [call for call in found if call]
        end = stop


def skip(text: str, at: int, chars: str = " \n\t\r") -> int:
    """Find the place of the first other character."""
    while at < len(text) and text[at] in chars:
        at += 1
    return at


def decoded(text: str, at: int) -> tuple[Any, int]:
    """Decode the JSON object or list at a place; return it and its end. None for none."""
    at = skip(text, at)
    if text[at : at + 1] not in ("{", "["):
        return None, at
    return json_value(text, at)


def json_value(text: str, at: int) -> tuple[Any, int]:
    """Decode the JSON value at a place; return it and its end.

    Where there is none: None and the place.
    """
    try:
        return DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None, at


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


DECODER = json.JSONDecoder(parse_constant=_no_constant)


def _call(value: Any) -> Call | None:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str):  # JSON in JSON
        arguments, _ = decoded(arguments, 0)
    return Call.of(value["name"], arguments) if isinstance(arguments, dict) else None


object_format = partial(
    CallFormat,
    rules=json_rules,
    before_name='{"name": "',
    after_name='", "arguments": ',
    after_arguments="}",
)
HERMES = object_format(
    "hermes",
    signs=(OPEN,),
    opening=OPEN,
    marks=(OPEN, CLOSE),
    read=read_hermes,
    first=f"{OPEN}\n",
    between=f"\n{CLOSE}\n{OPEN}\n",
    last=f"\n{CLOSE}",
)
MISTRAL = object_format(
    "mistral",
    signs=("[TOOL_CALLS]",),
    opening="[TOOL_CALLS]",
    marks=("[TOOL_CALLS]",),
    read=read_mistral,
    first="[TOOL_CALLS][",
    between=", ",
    last="]",
)
MISTRAL_ARGS = CallFormat(
    "mistral-args",
    rules=json_rules,
    signs=("[TOOL_CALLS]", "[ARGS]"),
    opening="[TOOL_CALLS]",
    marks=("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
    read=read_mistral,
    first="[TOOL_CALLS]",
    between="[TOOL_CALLS]",
    after_name="[ARGS]",
)
GRANITE = object_format(
    "granite",
    signs=("<|tool_call|>",),
    opening="<|tool_call|>",
    marks=("<|tool_call|>",),
    read=read_objects,
    first="<|tool_call|>[",
    between=", ",
    last="]",
)
LLAMA = object_format(
    "llama",
    signs=('"parameters": ',),
    opening="<|python_tag|>",
    marks=("<|python_tag|>",),
    read=read_objects,
    between="; ",
    after_name='", "parameters": ',
)
