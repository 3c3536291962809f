"""Calls of Gemma 4: names of arguments have no quotes, and texts have marks for them.

https://ai.google.dev/gemma/docs/core/prompt-formatting-gemma4:

    <|tool_call>call:NAME{key:<|"|>text<|"|>,list:[1,true],inner:{key:null}}<tool_call|>
"""

from __future__ import annotations

import json
import re
from typing import Any

from engine.prompts.call_formats.call_format import Call, CallFormat, HalfCall, Mark, Schemas
from engine.prompts.call_formats.json_calls import json_value, skip
from engine.prompts.call_formats.schema_parts import (
    alternatives,
    properties_of,
    text_terminal,
    unenforceable,
)

OPEN, CLOSE, QUOTE = "<|tool_call>", "<tool_call|>", '<|"|>'
MAX_DEPTH = 64  # lists and objects inside each other
MAX_NAME_CHARS = 400  # characters, with the marks around it
HEAD = re.compile(r"\s*call:([\w.-]{1,128})(?=\{)")
HALF_HEAD = re.compile(r"\s*(?:c|ca|cal|call|call:[\w.-]{0,128})?")
KEY = re.compile(r'(?:<\|"\|>)?([^\s<>{}\[\],:"|]{1,256})(?:<\|"\|>)?:')
HALF_KEY = re.compile(r'<?\|?"?\|?>?[^\s<>{}\[\],:"|]{0,256}<?\|?"?\|?>?')
WORD = re.compile(r"[\w.+-]*")  # a number, true, false or null
LIST_KEYS = {"type", "items", "minItems", "maxItems"}


def read_call(text: str, at: int, schemas: Schemas) -> tuple[list[Call], int]:
    """Read the call at a place, up to the closing mark if there is one."""
    head = HEAD.match(text, at)
    if head is None:
        if HALF_HEAD.fullmatch(text[at : at + MAX_NAME_CHARS]):
            raise HalfCall
        return [], at
    try:
        arguments, end = _object(text, head.end(), 0)
    except HalfCall:
        raise
    except ValueError:
        return [], at
    close = skip(text, end)
    if text.startswith(CLOSE, close) or CLOSE.startswith(text[close:]):  # cut off
        end = close + len(CLOSE)
    return [Call.of(head[1], arguments)], end


def _value(text: str, at: int, depth: int) -> tuple[Any, int]:
    """Read the value at a place; return it and its end.

    ValueError for none, HalfCall at the text's end.
    """
    if depth > MAX_DEPTH:
        raise ValueError
    if text.startswith(QUOTE, at):
        start = at + len(QUOTE)
        end = text.find(QUOTE, start)
        if end < 0:
            raise HalfCall
        return text[start:end], end + len(QUOTE)
    if text.startswith("{", at):
        return _object(text, at, depth)
    if text.startswith("[", at):
        return _list(text, at, depth)
    word = WORD.match(text, at)
    if word is None or word.end() == len(text) or QUOTE.startswith(text[at : at + len(QUOTE)]):
        raise HalfCall
    value, end = json_value(word[0], 0)
    if not 0 < end == len(word[0]):
        raise ValueError
    return value, word.end()


def _list(text: str, at: int, depth: int) -> tuple[list[Any], int]:
    found: list[Any] = []
    at = skip(text, at + 1)
    while not text.startswith("]", at):
        value, at = _value(text, at, depth + 1)
        found.append(value)
        at = _next(text, at, "]")
    return found, at + 1


def _object(text: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    at = skip(text, at + 1)
    while not text.startswith("}", at):
        key = KEY.match(text, at)
        if key is None:
            half = HALF_KEY.fullmatch(text[at : at + MAX_NAME_CHARS])
            raise HalfCall if half else ValueError
        found[key[1]], at = _value(text, skip(text, key.end()), depth + 1)
        at = _next(text, at, "}")
    return found, at + 1


def _next(text: str, at: int, end: str) -> int:
    """Find the place of the next value, or of the end."""
    at = skip(text, at)
    if at == len(text):
        raise HalfCall
    if text.startswith(",", at):
        return skip(text, at + 1)
    if not text.startswith(end, at):
        raise ValueError
    return at


def gemma_rules(name: str, schema: dict[str, Any], mark: Mark) -> list[str]:
    """Make the rules of `CallFormat.rules`. Properties come in the schema's order."""
    return _Rules(name, schema, mark).rules


class _Rules:
    """The grammar of the values of one schema."""

    def __init__(self, name: str, root: dict[str, Any], mark: Mark) -> None:
        self.name, self.root, self.mark = name, root, mark
        self.known: dict[str, str] = {}  # rules by schema
        self.rules = [""]
        self.rules[0] = f"{name}: {self._object(root)}"

    def _rule(self, schema: Any) -> str:
        """Return the name of a schema's rule. Schemas that refer to themselves have one as well."""
        key = json.dumps(schema, sort_keys=True)
        if key not in self.known:
            self.known[key] = name = f"{self.name}_{len(self.known)}"
            texts, others = alternatives(schema, self.root)
            ways = [way for text in texts for way in self._text(text)]
            ways += [self._other(other) for other in others]
            if not ways:
                raise unenforceable("value that nothing fits")
            self.rules.append(f"{name}: {' | '.join(ways)}")
        return self.known[key]

    def _text(self, schema: dict[str, Any]) -> list[str]:
        quote = self.mark(QUOTE)
        terminal, empty = text_terminal(schema, QUOTE)
        ways = [f"{quote} {quote}"] * empty
        if terminal:
            name = self._new(terminal if quote.startswith("<") else f"{terminal} {quote}")
            ways.append(f"{quote} {name} {quote}" if quote.startswith("<") else f"{quote} {name}")
        return ways

    def _other(self, schema: dict[str, Any]) -> str:
        if schema.get("type") == "object":
            return self._object(schema)
        if schema.get("type") == "array":
            return self._list(schema)
        if any(isinstance(value, dict | list) for value in schema.get("enum", [])):
            raise unenforceable("enum of lists or objects")
        return self._new(f"%json {json.dumps(schema)}", terminal=False)

    def _new(self, body: str, terminal: bool = True) -> str:
        """Add a rule, and return its name."""
        name = f"{self.name}_new_{len(self.rules)}"
        name = name.upper() if terminal else name
        self.rules.append(f"{name}: {body}")
        return name

    def _list(self, schema: dict[str, Any]) -> str:
        if unknown := schema.keys() - LIST_KEYS:
            raise unenforceable(", ".join(sorted(unknown)))
        one = self._rule(schema.get("items", {}))
        low, high = int(schema.get("minItems", 0)), schema.get("maxItems")
        if high == 0:
            return '"[" "]"'
        further = f'("," {one}){{{max(low - 1, 0)},{"" if high is None else int(high) - 1}}}'
        items = f"{one} {further}"
        return f'"[" {items} "]"' if low else f'"[" ({items})? "]"'

    def _object(self, schema: dict[str, Any]) -> str:
        properties, required, more = properties_of(schema)
        if more is not None:
            key = self._new(r"/[A-Za-z_][\w-]{0,63}/")
            pair = f'{key} ":" {self._rule(more)}'
            return f'"{{" ({pair} ("," {pair})*)? "}}"'
        rest, whole = "", ""  # rules after another property, and as the first one
        for name, one in reversed(properties.items()):
            if not KEY.fullmatch(f"{name}:"):
                raise unenforceable(f"properties.{name}")
            pair = f"{json.dumps(f'{name}:')} {self._rule(one)}"
            first = f"{pair} {rest}"
            if name in required:
                rest, whole = f'"," {first}', first
            else:
                whole = f"({first} | {whole})" if whole else f"({first})?"
                rest = f'("," {pair})? {rest}'
            rest, whole = (self._new(part, terminal=False) for part in (rest, whole))
        return f'"{{" {whole} "}}"'


GEMMA = CallFormat(
    "gemma",
    signs=(f"{OPEN}call:",),
    opening=OPEN,
    marks=(OPEN, CLOSE, QUOTE),
    read=read_call,
    rules=gemma_rules,
    first=f"{OPEN}call:",
    between=f"{CLOSE}{OPEN}call:",
    last=CLOSE,
    raw_texts=True,
)
