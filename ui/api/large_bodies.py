"""Large bodies: the rest of a body that is refused is read, and their memory is given back.

A server that closes a connection on data it has not read resets it, and the client loses the
response: 413 for a body that is too large, for example.
"""

from __future__ import annotations

import asyncio
import contextlib

from engine.memory import give_back_memory
from ui.api.security import App, Message, Receive, Scope, Send, announced_bytes, header

MAX_DRAIN_BYTES = 64 << 20  # bytes; clients that send more lose the response
DRAIN_SECONDS = 10.0
LARGE_BYTES = 1 << 20  # bytes of a body; the memory that a larger one took is given back
IS_LARGE = "draftline.large"  # key in a request's scope: its uncompressed body was large


class LargeBodies:
    """Middleware for large bodies.

    The end of a response that comes before the whole body is held back until the rest of the body
    was read, which is discarded. Then the connection is closed.
    """

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not has_body(scope):
            await self.app(scope, receive, send)
            return
        left, ended = MAX_DRAIN_BYTES, False

        async def receive_noted() -> Message:
            nonlocal left, ended
            message = await receive()
            left -= len(message.get("body", b""))
            ended = message["type"] != "http.request" or not message.get("more_body")
            return message

        async def send_drained(message: Message) -> None:
            if not ended and message["type"] == "http.response.start":
                closing = (b"connection", b"close")
                message = {**message, "headers": [*message.get("headers", ()), closing]}
            elif not ended and not message.get("more_body"):
                await send({**message, "more_body": True})
                if announced_bytes(scope) <= MAX_DRAIN_BYTES:
                    await drain()
                message = {"type": "http.response.body"}
            await send(message)

        async def drain() -> None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_SECONDS):
                    while left > 0 and not ended:
                        await receive_noted()

        try:
            await self.app(scope, receive_noted, send_drained)
        finally:
            if MAX_DRAIN_BYTES - left > LARGE_BYTES or IS_LARGE in scope:
                await asyncio.to_thread(give_back_memory)


def has_body(scope: Scope) -> bool:
    return announced_bytes(scope) > 0 or bool(header(scope, b"transfer-encoding"))
