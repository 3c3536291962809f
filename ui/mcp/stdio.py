"""The protocol over stdin and stdout, where a message that cannot be read has an answer as well."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Self

from mcp.server.mcpserver import MCPServer
from mcp.server.stdio import stdio_server
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError, RequestId
from pydantic import ValidationError

REMEDY = "send JSON whose texts are Unicode, without halves of surrogate pairs"


async def serve(server: MCPServer) -> None:
    """Serve until the client closes stdin."""
    lowlevel = server._lowlevel_server
    options = lowlevel.create_initialization_options()
    async with stdio_server() as (messages, answers):
        await lowlevel.run(ReadableMessages(messages, answers), answers, options)


class ReadableMessages:
    """The messages of a stream that can be read.

    The others, of which the package tells nobody, are answered with an error.
    """

    def __init__(
        self,
        messages: ReadStream[SessionMessage | Exception],
        answers: WriteStream[SessionMessage],
    ) -> None:
        self._messages, self._answers = messages, answers

    async def receive(self) -> SessionMessage | Exception:
        """Wait for the next message that can be read."""
        while True:
            message = await self._messages.receive()
            if not await self._is_answered(message):
                return message

    async def __anext__(self) -> SessionMessage | Exception:
        while True:
            message = await self._messages.__anext__()
            if not await self._is_answered(message):
                return message

    async def _is_answered(self, message: SessionMessage | Exception) -> bool:
        if not isinstance(message, ValidationError):
            return False
        if error := error_of(message):
            await self._answers.send(SessionMessage(error))
        return True

    async def aclose(self) -> None:
        """Close the stream."""
        await self._messages.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


def error_of(unreadable: ValidationError) -> JSONRPCError | None:
    """Make the answer to a message that cannot be read.

    None for what asks for no answer: an empty line, a notification or a response.
    """
    faults = unreadable.errors(include_context=False, include_url=False)
    given: object = faults[0]["input"]
    if faults[0]["type"] == "json_invalid":
        if not (isinstance(given, str) and given.strip()):
            return None
        error = ErrorData(code=PARSE_ERROR, message=f"{faults[0]['msg']}: {REMEDY}")
        message = _parsed(given)
    else:
        error = ErrorData(code=INVALID_REQUEST, message="the message is none of the protocol")
        lacking = [fault["input"] for fault in faults if fault["type"] == "missing"]
        message = lacking[0] if lacking else given  # the whole of it, of which `given` is a part
    if isinstance(message, dict) and not message.keys() >= {"id", "method"}:
        return None
    return JSONRPCError(jsonrpc="2.0", id=_request_id(message), error=error)


def _parsed(line: str) -> object:
    """Parse a line as far as Python can read it: it takes halves of surrogate pairs. Else None."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _request_id(message: object) -> RequestId | None:
    number = message["id"] if isinstance(message, dict) else None
    if isinstance(number, str):
        return number if number.isprintable() else None
    return number if isinstance(number, int) and not isinstance(number, bool) else None
