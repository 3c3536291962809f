"""Bodies of the engine's own protocol: JSON, which clients compress."""

from __future__ import annotations

import asyncio
import json
import zlib
from typing import Any

from fastapi import Request

from engine.remote.link import DEFLATE
from engine.remote.messages import HTTP_PROTOCOL
from ui.api.errors import ApiError

MAX_BYTES = 64 << 20  # of a body, decompressed
LARGE_BYTES = 1 << 16  # larger ones are read in a thread


def check_protocol(http: Request) -> None:
    """Raise ApiError for a client of another version of the protocol."""
    spoken = http.headers.get("draftline-protocol", "")
    if spoken != str(HTTP_PROTOCOL):
        message = f"this server speaks protocol {HTTP_PROTOCOL}, and the client another one"
        raise ApiError(400, f"{message}: install the same version on both machines")


async def read_json(http: Request) -> dict[str, Any]:
    """The object that the body of a request has. Raises ApiError."""
    check_protocol(http)
    encoding = http.headers.get("content-encoding", "")
    if encoding not in ("", DEFLATE):
        raise ApiError(400, f"content-encoding: send {DEFLATE}, or leave it out")
    data = await http.body()
    if len(data) > LARGE_BYTES:
        return await asyncio.to_thread(_parsed, data, encoding)
    return _parsed(data, encoding)


def _parsed(data: bytes, encoding: str) -> dict[str, Any]:
    if encoding:
        data = _decompressed(data)
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, "the body is not JSON: check its encoding") from error
    if not isinstance(body, dict):
        raise ApiError(400, "the body is not a JSON object: send one")
    return body


def _decompressed(data: bytes) -> bytes:
    """Raises ApiError for more than MAX_BYTES."""
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
