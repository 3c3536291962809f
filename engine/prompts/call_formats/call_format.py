"""A format in which models write calls of functions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

Schemas = Mapping[
    str, Any
]  # the JSON schemas of known functions' arguments, by the functions' names
Mark = Callable[[str], str]  # a mark in a grammar: a token where the model has one, else text


class Call(NamedTuple):
    """A call of a function: its name, and its arguments as a JSON object's text."""

    name: str
    arguments: str

    @classmethod
    def of(cls, name: str, arguments: dict[str, Any]) -> Call:
        """Make a call with these arguments."""
        text = json.dumps(arguments, ensure_ascii=False)
        try:
            text.encode()
        except UnicodeEncodeError:  # half a character, which only an escape can have written
            text = json.dumps(arguments)
        return cls(name, text)


class HalfCall(ValueError):
    """The text ends inside a call."""


@dataclass(frozen=True, slots=True)
class CallFormat:
    """The parts of a format's calls.

    A forced answer is `first`, a call, `between` and another call any number of times, `last`; a
    call is
    `before_name`, the name, `after_name`, the arguments, `after_arguments`.

    `read` reads the calls in a text, at the place behind `opening`, and returns them and their end:
    no calls where there are none, HalfCall where the text ends inside one. `rules` makes the
    grammar of the arguments that fit a JSON schema: rules for llguidance, of which the first has
    the given name; RequestError for a schema that cannot be enforced.
    """

    name: str
    signs: tuple[str, ...]  # a chat template of this format has all of them
    opening: str  # the mark before a call, or before several
    marks: tuple[str, ...]  # these may be control tokens
    read: Callable[[str, int, Schemas], tuple[list[Call], int]]
    rules: Callable[[str, dict[str, Any], Mark], list[str]]
    first: str = ""
    between: str = ""
    last: str = ""
    before_name: str = ""
    after_name: str = ""
    after_arguments: str = ""
    raw_texts: bool = False  # templates write texts among the arguments as they are
