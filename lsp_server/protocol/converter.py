"""JSON values as lsprotocol's types, strictly, and what does not fit in words for a person.

cattrs by itself takes "3" for 3 and a text for a list of letters; here both are refused. The
messages name the field and never repeat what stood in it: that may be the user's text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from enum import Enum
from functools import cache
from typing import Any, NoReturn, get_args, get_origin

from lsprotocol.types import CANCEL_REQUEST
from pygls import protocol as pygls_protocol
from pygls.exceptions import JsonRpcInvalidParams, JsonRpcParseError

from lsp_server.protocol.positions import clean

SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # as JSON writes one, alone or in a pair
RANGE = re.compile(r"\w+\.(\w+) should be in range \[(-?\d+):(\d+)\]")  # lsprotocol's validators
ANYTHING = (None, Any, object)


class Misfit(TypeError):
    """A value of the wrong kind; the message says what is wanted."""


@cache
def converter() -> Any:
    """The one converter of all clients: it compiles code for every type it meets."""
    made: Any = pygls_protocol.default_converter()  # type: ignore[no-untyped-call]
    for kind, name in ((int, "a whole number"), (str, "a text"), (bool, "true or false")):
        made.register_structure_hook(kind, _strict(kind, name))
    made.register_structure_hook_factory(_is_sequence, _sequence)
    # The first hook also reads enums of numbers, so that values which we do not know stay numbers.
    made.register_unstructure_hook_func(_is_enum, lambda value: getattr(value, "value", value))
    return made


def shape(value: Any, kind: Any, name: str) -> Any:
    """A JSON value as `kind`; as it is where that is Any. Raises JsonRpcInvalidParams."""
    if kind in ANYTHING:
        return value
    try:
        return converter().structure(value, kind)
    except Exception as error:  # what lsprotocol's hooks raise at odd values is not foreseeable
        raise JsonRpcInvalidParams(misfit(error, name)) from None


def plain(value: Any) -> Any:
    """What lsprotocol's types and enums are in JSON."""
    return converter().unstructure(value)


def parsed(body: bytes) -> Any:
    """The body of a message as a JSON value; what a client sent as text in it is clean.
    Raises JsonRpcParseError."""
    try:
        message = json.loads(body.decode(), parse_constant=_no_constant)
        odd = isinstance(message, dict) and SURROGATE.search(body)
        if odd and message.get("method") != CANCEL_REQUEST:  # ids stay as they are
            for name in {"params", "result", "error"} & message.keys():
                message[name] = _clean(message[name])
        return message
    except RecursionError:
        raise JsonRpcParseError("the message is nested too deep: send it flatter") from None
    except json.JSONDecodeError as error:
        where = f"the message is not JSON ({error.msg}, character {error.pos})"
        raise JsonRpcParseError(f"{where}: send a JSON-RPC object") from None
    except ValueError:  # not UTF-8, NaN, a number of thousands of digits
        raise JsonRpcParseError("the message is not JSON in UTF-8: convert it") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _clean(value: Any) -> Any:
    """A JSON value whose texts are clean, keys included."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_clean(each) for each in value]
    if isinstance(value, dict):
        return {clean(key): _clean(each) for key, each in value.items()}
    return value


def misfit(error: BaseException, name: str) -> str:
    """The first thing that does not fit, as `params.position.line: not a whole number`."""
    for note in reversed(getattr(error, "__notes__", [])):  # the outermost comes last
        at = getattr(note, "name", None)  # of cattrs' notes of attributes
        name += str(note) if at is None else f".{_camel(at)}"
    if isinstance(error, BaseExceptionGroup):
        return misfit(error.exceptions[0], name)
    if isinstance(error, KeyError):
        key = str(error.args[0]) if error.args else ""
        return f"{name if name.endswith(f'.{key}') else f'{name}.{key}'}: missing"
    if isinstance(error, Misfit):
        return f"{name}: {error}"
    if found := RANGE.match(str(error)):
        return f"{name}.{_camel(found[1])}: not a whole number from {found[2]} to {found[3]}"
    if isinstance(error, RecursionError):
        return f"{name}: nested too deep"
    return f"{name}: not what the protocol has here"


def _strict(kind: type, name: str) -> Callable[[Any, Any], Any]:
    def structure(value: Any, _: Any) -> Any:
        if type(value) is kind:
            return value
        if kind is int and type(value) is float and value.is_integer():
            return int(value)  # some clients have no other numbers
        raise Misfit(f"not {name}")

    return structure


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _is_sequence(kind: Any) -> bool:
    origin: Any = get_origin(kind)
    return origin is Sequence


def _sequence(kind: Any) -> Callable[[Any, Any], Any]:
    (inner,) = get_args(kind)

    def structure(value: Any, _: Any) -> Any:
        if not isinstance(value, list):
            raise Misfit("not a list")
        items = []
        for number, item in enumerate(value):
            try:
                items.append(converter().structure(item, inner))
            except Exception as error:
                error.add_note(f"[{number}]")
                raise
        return tuple(items)

    return structure


def _camel(name: str) -> str:
    """lsprotocol's `text_document` is the wire's `textDocument`."""
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)
