"""Requests and events as JSON, both ways, for an engine in another process.

`to_json` writes plain objects whose keys are the fields of `engine.records`. Reading trusts
nothing: a value of the wrong type or an unknown key is a BadMessage, which names the field and
never quotes its value, the user's text.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, get_args

from engine.records import (
    MAX_STOP_CHARS,
    Done,
    Event,
    Info,
    Kind,
    Message,
    Passage,
    Piece,
    Reason,
    Request,
    Step,
    TokenChance,
    Usage,
)
from engine.worker import URGENCY
from index.records import Span

INFO = "draftline/info"  # params: {wait}; result: ServerInfo, with `wait` of a loaded model
SUBMIT = "draftline/submit"  # params: Submission; result: the Done
ACCEPTED = "draftline/accepted"  # notification {id}: the request with this id is queued
EVENT = "draftline/event"  # notification {id, event}: a Step of the request with this id
CANCEL = "$/cancelRequest"  # {id}: the request ends with a Done, which has the text so far
SERVER = "draftline"  # `ServerInfo.server`
HTTP_PATH = "/v1/draftline"  # below it, the same requests and events over HTTP
MAX_NAME_BYTES = 4096  # bytes of the name of a workspace's file, in UTF-8
HTTP_PROTOCOL = 1  # the version of what is below it; raise it when older programs reject a change

MAX_TEXTS = 1 << 15  # texts of a kind in one request
MAX_TOOLS = 1024
MAX_STOPS = 64
MAX_BIASES = 1024
MAX_LOGPROBS = 20  # likeliest tokens
MAX_TOKEN_BYTES = 1 << 12
MAX_PIECES = 1 << 18  # pieces of one step

T = TypeVar("T")
Read = Callable[[Any, str], Any]  # (value, name) -> the value, checked and converted


ROLES = ("system", "user", "assistant", "tool")


class BadMessage(ValueError):
    """A message that is not what its method expects. One line."""


class OtherProtocol(Exception):
    """A server that speaks another version of the protocol over HTTP."""

    def __init__(self, protocol: int, version: str) -> None:
        super().__init__(f"protocol {protocol} of draftline {version}")
        self.protocol, self.version = protocol, version


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """Who answers at an address, and what it runs."""

    server: str  # SERVER
    version: str
    process: int
    state: str  # a state of lsp_server's SharedEngine: idle, loading, asking, ready, error
    message: str = ""  # about the state, for the user
    model: str = ""  # as it is configured
    folder: str = ""  # the model's
    device: str = ""  # as it is configured
    engine: Info | None = None  # once a model is loaded


class Submission(NamedTuple):
    """The parameters of SUBMIT, as `Engine.submit` takes them."""

    request: Request
    speculation: bool = True
    client: str = ""
    workspace: str = ""  # over HTTP: the name of an index that the client keeps there
    urgency: int | None = None  # smaller ones run first; None: that of the request's kind


class Host(NamedTuple):
    """A server of other machines: what it runs, and how long it keeps texts of workspaces."""

    server: ServerInfo
    tokenizer: str  # the digest of its files (engine.remote.tokenizer_files)
    forget_after_s: float  # seconds without a client before an index is dropped
    delete_within_s: float  # seconds until a text that a client deletes is gone from memory


# -- writing -----------------------------------------------------------------------------------


def to_json(value: Request | Event | ServerInfo | Submission | Host) -> dict[str, Any]:
    """Write a value as a JSON object, without fields that have their defaults."""
    if isinstance(value, Submission):
        return value._asdict() | {"request": to_json(value.request)}
    if isinstance(value, Host):
        about = {"protocol": HTTP_PROTOCOL, "version": value.server.version}
        return about | value._asdict() | {"server": to_json(value.server)}
    defaults = {field.name: field.default for field in dataclasses.fields(value)}
    return {
        name: _plain(field)
        for name, default in defaults.items()
        if (field := getattr(value, name)) != default or default is dataclasses.MISSING
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Info):
        return value._asdict()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return dataclasses.asdict(value) if isinstance(value, Span | Usage) else value


# -- reading -----------------------------------------------------------------------------------


def submission_from_json(value: Any) -> Submission:
    """Read a submission.

    Raises BadMessage, and RequestError for numbers out of range.
    """
    read: dict[str, Read] = {
        "request": _request,
        "speculation": _flag,
        "client": _text,
        "workspace": _text,
        "urgency": _or_none(_urgency),
    }
    return Submission(**_fields(value, "params", read, {"request"}))


def host_from_json(value: Any) -> Host:
    """Read a host.

    Raises BadMessage, OtherProtocol.
    """
    fields = value if isinstance(value, dict) else {}
    protocol, version = fields.get("protocol"), fields.get("version")
    if type(protocol) is not int or not isinstance(version, str):
        raise BadMessage("result: another program")
    if protocol != HTTP_PROTOCOL:
        raise OtherProtocol(protocol, version[:40])
    read: dict[str, Read] = {
        "protocol": _count,
        "version": _text,
        "server": lambda value, name: info_from_json(value),
        "tokenizer": _text,
        "forget_after_s": _number,
        "delete_within_s": _number,
    }
    known = _fields(value, "result", read, read.keys())
    return Host(*(known[name] for name in Host._fields))


def event_from_json(value: Any) -> Step:
    """Read a step.

    Raises BadMessage.
    """
    return Step(**_fields(value, "event", STEP))


def done_from_json(value: Any) -> Done:
    """Read the end of an answer.

    Raises BadMessage.
    """
    return Done(**_fields(value, "result", DONE, {"reason"}))


def info_from_json(value: Any) -> ServerInfo:
    """Read a server's description of itself.

    Raises BadMessage.
    """
    required = {"server", "version", "process", "state"}
    info = ServerInfo(**_fields(value, "result", SERVER_INFO, required))
    if info.server != SERVER:
        raise BadMessage("result.server: another program")
    return info


def _request(value: Any, name: str) -> Request:
    return Request(**_fields(value, name, REQUEST, {"kind"}))


def _fields(
    value: Any, name: str, readers: Mapping[str, Read], required: Set[str] = frozenset()
) -> dict[str, Any]:
    """Read an object's values by key, each with its reader."""
    if not isinstance(value, dict):
        raise BadMessage(f"{name}: not an object")
    for key in value:
        if key not in readers:
            raise BadMessage(f"{name}: {ascii(key)[:40]} is no field")
    for key in required - value.keys():
        raise BadMessage(f"{name}.{key}: missing")
    return {key: readers[key](one, f"{name}.{key}") for key, one in value.items()}


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise BadMessage(f"{name}: not a string")
    if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
        raise BadMessage(f"{name}: not text (lone surrogates)")
    return value


def _stop(value: Any, name: str) -> str:
    text = _text(value, name)
    if len(text) > MAX_STOP_CHARS:
        raise BadMessage(f"{name}: over {MAX_STOP_CHARS:,} characters: send a shorter one")
    return text


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise BadMessage(f"{name}: not true or false")
    return value


def _count(value: Any, name: str) -> int:
    if type(value) is not int or not 0 <= value < 1 << 53:
        raise BadMessage(f"{name}: not a whole number of 0 or more")
    return value


def _integer(value: Any, name: str) -> int:
    if type(value) is not int or abs(value) >= 1 << 63:
        raise BadMessage(f"{name}: not an integer")
    return value


def _number(value: Any, name: str) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise BadMessage(f"{name}: not a number")
    return float(value)


def _urgency(value: Any, name: str) -> int:
    if type(value) is not int or value not in URGENCY.values():
        raise BadMessage(f"{name}: not one of {', '.join(map(str, URGENCY.values()))}")
    return value


def _one_of(names: tuple[str, ...]) -> Read:
    def read(value: Any, name: str) -> str:
        if value not in names or not isinstance(value, str):
            raise BadMessage(f"{name}: not one of {', '.join(names)}")
        return value

    return read


def _or_none(read: Read) -> Read:
    return lambda value, name: None if value is None else read(value, name)


def _list(read: Read, most: int) -> Read:
    """Return a reader of lists of at most `most` values."""

    def read_all(value: Any, name: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise BadMessage(f"{name}: not a list")
        if len(value) > most:
            raise BadMessage(f"{name}: over {most:,} values: send fewer")
        return tuple(read(one, f"{name}[{number}]") for number, one in enumerate(value))

    return read_all


def _tuple(kind: Callable[..., T], *readers: Read) -> Callable[[Any, str], T]:
    """Return a reader of lists of as many values as there are readers."""

    def read(value: Any, name: str) -> T:
        if not isinstance(value, list) or len(value) != len(readers):
            raise BadMessage(f"{name}: not a list of {len(readers)}")
        parts = zip(readers, value, strict=True)
        return kind(*(each(one, f"{name}[{number}]") for number, (each, one) in enumerate(parts)))

    return read


def _pair(*values: Any) -> tuple[Any, ...]:
    return values


def _message(value: Any, name: str) -> Message:
    readers: dict[str, Read] = {"role": _one_of(ROLES), "content": _text, "name": _text}
    readers |= dict.fromkeys(("tool_calls", "tool_call_id", "reasoning_content"), _text)
    return _fields(value, name, readers, {"role", "content"})


def _span(value: Any, name: str) -> Span:
    readers: dict[str, Read] = {"path": _text, "start": _count, "stop": _count, "version": _integer}
    return Span(**_fields(value, name, readers, {"path", "start", "stop"}))


def _usage(value: Any, name: str) -> Usage:
    return Usage(**_fields(value, name, USAGE))


REQUEST: dict[str, Read] = {
    "kind": _one_of(get_args(Kind)),
    "text": _text,
    "path": _text,
    "version": _integer,
    "selection": _or_none(_tuple(_pair, _count, _count)),
    "instruction": _text,
    "update": _text,
    "suffix": _or_none(_text),
    "suffix_first": _flag,
    "snippets": _list(_tuple(_pair, _text, _text), MAX_TEXTS),
    "parse_special": _flag,
    "messages": _list(_message, MAX_TEXTS),
    "documents": _list(_tuple(Passage, _text, _count, _text), MAX_TEXTS),
    "predictions": _list(_text, MAX_TEXTS),
    "max_tokens": _or_none(_integer),
    "temperature": _number,
    "top_k": _integer,
    "top_p": _number,
    "seed": _integer,
    "stop": _list(_stop, MAX_STOPS),
    "tools": _list(_text, MAX_TOOLS),
    "must_call": _list(_text, MAX_TOOLS),
    "grammar": _text,
    "thinking": _flag,
    "continues": _flag,
    "min_p": _number,
    "stop_tokens": _list(_count, MAX_STOPS),
    "min_tokens": _count,
    "ignore_end": _flag,
    "logit_bias": _list(_tuple(_pair, _count, _number), MAX_BIASES),
    "presence_penalty": _number,
    "frequency_penalty": _number,
    "repetition_penalty": _number,
    "logprobs": _or_none(_count),
    "prompt_logprobs": _flag,
}
CHANCE = _tuple(TokenChance, _list(_count, MAX_TOKEN_BYTES), _or_none(_number))
STEP: dict[str, Read] = {
    "pieces": _list(_tuple(Piece, _text, _text, _or_none(_span)), MAX_PIECES),
    "drafted": _count,
    "accepted": _count,
    "seconds": _number,
    "prefill": _or_none(_tuple(_pair, _count, _count)),
    "reasoning": _text,
    "logprobs": _list(_list(CHANCE, 1 + MAX_LOGPROBS), MAX_PIECES),
}
USAGE: dict[str, Read] = {
    field.name: _count if field.type == "int" else _number for field in dataclasses.fields(Usage)
}
DONE: dict[str, Read] = {
    "reason": _one_of(get_args(Reason)),
    "text": _text,
    "matched": _or_none(_text),
    "usage": _usage,
    "error": _or_none(_text),
    "reasoning": _text,
}
ENGINE: dict[str, Read] = {
    "model": _text,
    "device": _text,
    "dtype": _text,
    "context": _count,
    "fills_middle": _flag,
    "prefill_tokens_per_s": _number,
}
SERVER_INFO: dict[str, Read] = {
    "server": _text,
    "version": _text,
    "process": _count,
    "state": _text,
    "message": _text,
    "model": _text,
    "folder": _text,
    "device": _text,
    "engine": lambda value, name: Info(**_fields(value, name, ENGINE, ENGINE.keys())),
}
