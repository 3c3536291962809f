"""The conversion of JSON to and from lsprotocol's types, strictly, with readable errors.

cattrs accepts "3" for an integer and a string for a list of letters; both are rejected here. Error
messages name the field and never quote its value, which may be the user's text.
"""

from __future__ import annotations

import inspect
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

SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # JSON's escape of one, alone or in a pair
RANGE = re.compile(r"\w+\.(\w+) should be in range \[(-?\d+):(\d+)\]")  # lsprotocol's validators


class Mismatch(TypeError):
    """A value of the wrong type; the message names the expected one."""


@cache
def converter() -> Any:
    """Make the converter that all clients share: it compiles code for every type it meets."""
    made: Any = pygls_protocol.default_converter()  # type: ignore[no-untyped-call]
    for kind, name in ((int, "an integer"), (str, "a string"), (bool, "true or false")):
        made.register_structure_hook(kind, _strict(kind, name))
    made.register_structure_hook_factory(_is_sequence, _strict_list)
    # The first hook also reads enums of numbers, so that unknown values stay numbers.
    made.register_unstructure_hook_func(
        lambda kind: isinstance(kind, type) and issubclass(kind, Enum),
        lambda value: getattr(value, "value", value),
    )
    return made


def structure(value: Any, kind: Any, name: str) -> Any:
    """Convert a JSON value to `kind`; for Any it is unchanged.

    Raises JsonRpcInvalidParams, which calls the value `name`.
    """
    if kind in (Any, object, inspect.Parameter.empty):
        return value
    try:
        return converter().structure(value, kind)
    except Exception as error:  # lsprotocol's hooks raise all kinds of errors at odd values
        raise JsonRpcInvalidParams(_explain(error, name)) from None


def unstructure(value: Any) -> Any:
    """Convert lsprotocol's types and enums to a JSON value."""
    return converter().unstructure(value)


def parse(body: bytes) -> Any:
    """Parse the body of a message and replace lone surrogates. Raises JsonRpcParseError."""
    try:
        message = json.loads(body.decode(), parse_constant=_reject_constant)
        has_surrogates = isinstance(message, dict) and SURROGATE.search(body)
        if has_surrogates and message.get("method") != CANCEL_REQUEST:  # ids stay as they are
            for name in {"params", "result", "error"} & message.keys():
                message[name] = _clean(message[name])
        return message
    except RecursionError:
        raise JsonRpcParseError("the message is nested too deeply: send it flatter") from None
    except json.JSONDecodeError as error:
        where = f"the message is not JSON ({error.msg}, character {error.pos})"
        raise JsonRpcParseError(f"{where}: send a JSON-RPC object") from None
    except ValueError:  # not UTF-8, NaN, an integer of thousands of digits
        raise JsonRpcParseError("the message is not JSON in UTF-8: convert it") from None


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _clean(value: Any) -> Any:
    """Replace lone surrogates in the strings and keys of a JSON value."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_clean(each) for each in value]
    if isinstance(value, dict):
        return {clean(key): _clean(each) for key, each in value.items()}
    return value


def _explain(error: BaseException, name: str) -> str:
    """Describe the first mismatch in an error of cattrs.

    The result is such as `params.position.line: not an integer`.
    """
    for note in reversed(getattr(error, "__notes__", [])):  # the outermost comes last
        field = getattr(note, "name", None)  # cattrs' notes have one
        name += str(note) if field is None else f".{_camel(field)}"
    if isinstance(error, BaseExceptionGroup):
        return _explain(error.exceptions[0], name)
    if isinstance(error, KeyError):
        key = str(error.args[0]) if error.args else ""
        return f"{name if name.endswith(f'.{key}') else f'{name}.{key}'}: missing"
    if isinstance(error, Mismatch):
        return f"{name}: {error}"
    if found := RANGE.match(str(error)):
        return f"{name}.{_camel(found[1])}: not an integer from {found[2]} to {found[3]}"
    if isinstance(error, RecursionError):
        return f"{name}: nested too deeply"
    return f"{name}: not what the protocol allows here"


def _strict(kind: type, name: str) -> Callable[[Any, Any], Any]:
    def structure(value: Any, _: Any) -> Any:
        if type(value) is kind:
            return value
        if kind is int and type(value) is float and value.is_integer():
            return int(value)  # some clients have no other numbers
        raise Mismatch(f"not {name}")

    return structure


def _is_sequence(kind: Any) -> bool:
    origin: Any = get_origin(kind)
    return origin is Sequence


def _strict_list(kind: Any) -> Callable[[Any, Any], Any]:
    (item_kind,) = get_args(kind)

    def structure(value: Any, _: Any) -> Any:
        if not isinstance(value, list):
            raise Mismatch("not a list")
        items = []
        for number, item in enumerate(value):
            try:
                items.append(converter().structure(item, item_kind))
            except Exception as error:
                error.add_note(f"[{number}]")
                raise
        return tuple(items)

    return structure


def _camel(name: str) -> str:
    """Write a name of lsprotocol as in JSON: `text_document` is `textDocument` there."""
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)
