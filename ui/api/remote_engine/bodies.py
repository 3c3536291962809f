"""Bodies of the engine's own protocol: JSON, which clients compress."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import Request

from engine.remote.link import DEFLATE
from engine.remote.messages import HTTP_PROTOCOL
from ui.api.errors import ApiError
from ui.api.json_body import BodySlots
from ui.api.json_values import LARGE_BYTES, TooManyValues, parsed
from ui.api.large_bodies import IS_LARGE

MAX_BYTES = 16 << 20  # bytes of a body, decompressed
T = TypeVar("T")


def check_protocol(http: Request) -> None:
    """Raise ApiError for a client of another version of the protocol."""
    spoken = http.headers.get("draftline-protocol", "")
    if spoken != str(HTTP_PROTOCOL):
        message = f"this server speaks protocol {HTTP_PROTOCOL}, and the client another one"
        raise ApiError(400, f"{message}: install the same version on both machines")


async def read_json(
    http: Request, use: Callable[[dict[str, Any]], T], slots: BodySlots | None = None
) -> T:
    """Read the JSON object in a request's body, and return what `use` makes of it.

    Compressed and large bodies are read, and used, in a thread. So are all bodies with `slots`,
    the slots of bodies whose use takes long. Raises ApiError, and what `use` raises.
    """
    check_protocol(http)
    encoding = http.headers.get("content-encoding", "")
    if encoding not in ("", DEFLATE):
        raise ApiError(400, f"content-encoding: send {DEFLATE}, or leave it out")
    data = await http.body()

    def work() -> T:
        return use(_parsed(_decompressed(data) if encoding else data))

    if not (encoding or slots or len(data) > LARGE_BYTES):
        return work()
    http.scope[IS_LARGE] = True
    slots = slots or http.app.state.slots
    return await slots.run(http, work)


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        body = parsed(data)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, "the body is not JSON: check its encoding") from error
    except TooManyValues as error:
        raise ApiError(413, str(error)) from error
    if not isinstance(body, dict):
        raise ApiError(400, "the body is not a JSON object: send one")
    return body


def _decompressed(data: bytes) -> bytes:
    """Decompress a body. Raises ApiError if it is damaged or has more than MAX_BYTES."""
    reader = zlib.decompressobj()
    try:
        whole = reader.decompress(data, MAX_BYTES)
    except zlib.error as error:
        raise ApiError(400, "the body is damaged: send it again") from error
    if reader.unconsumed_tail:
        raise ApiError(413, f"the body is too large: send at most {MAX_BYTES >> 20} MiB")
    if not reader.eof:
        raise ApiError(400, "the body is incomplete: send it again")
    return whole
