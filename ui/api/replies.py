"""HTTP responses to running jobs, which end when their clients disconnect."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from engine.aio import Stream
from engine.editing.edits import EditRefused
from engine.editing.merged_text import EVERY_WAY
from engine.records import RequestError
from ui.api.errors import CONTEXT_CODE, ApiError, refused
from ui.api.jobs import JobStream
from ui.api.security import Receive, Scope, Send

QUIET_SECONDS = 15.0  # seconds without an event; then a client hears that the answer is in progress
CONTEXT_ERROR = "the model's context is"  # part of the engine's message for too long a prompt


async def json_response(
    stream: JobStream, answer: Coroutine[Any, Any, BaseModel], http: Request
) -> Response:
    """Return the `answer` that is made of the events of `stream`."""
    async with cancel_on_disconnect(stream, http.receive):
        try:
            await wait_until_accepted(stream)
            with request_errors():  # of the second request and the following ones, too
                return JSONResponse((await answer).model_dump())
        finally:
            answer.close()


async def wait_until_accepted(stream: JobStream) -> None:
    """Wait until the engine has the request. Raises ApiError if it rejects it."""
    with request_errors():
        await stream.accepted()


@contextlib.contextmanager
def request_errors() -> Iterator[None]:
    """Raise ApiError where the engine rejects a request."""
    try:
        yield
    except RequestError as error:
        if str(error).startswith(EVERY_WAY):
            raise refused(error) from error
        code = CONTEXT_CODE if CONTEXT_ERROR in str(error) else None
        raise ApiError(400, str(error), code=code) from error
    except EditRefused as error:
        raise refused(error) from error
    except RuntimeError as error:
        raise ApiError(503, str(error)) from error


@contextlib.asynccontextmanager
async def cancel_on_disconnect(stream: Stream[Any], receive: Receive) -> AsyncIterator[None]:
    """Cancel the job when its client disconnects, or at the end of the block."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        stream.cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()
        stream.cancel()


def comment() -> bytes:
    """Return a comment, which keeps a stream of events alive."""
    return b": the answer is in progress\n\n"


async def with_signs(
    chunks: AsyncIterator[bytes], sign: Callable[[], bytes]
) -> AsyncIterator[bytes]:
    """Yield the chunks, and a sign of life whenever QUIET_SECONDS pass without one."""
    next_one = asyncio.ensure_future(anext(chunks, None))
    try:
        while True:
            done, _ = await asyncio.wait({next_one}, timeout=QUIET_SECONDS)
            if not done:
                yield sign()
            elif (chunk := next_one.result()) is None:
                return
            else:
                yield chunk
                next_one = asyncio.ensure_future(anext(chunks, None))
    finally:
        next_one.cancel()


class EventStreamResponse(Response):
    """An answer as server-sent events. The job is cancelled if the client disconnects."""

    media_type = "text/event-stream"

    def __init__(
        self,
        stream: JobStream,
        chunks: AsyncIterator[bytes],
        sign: Callable[[], bytes] = comment,
        media_type: str | None = None,
    ) -> None:
        """Take the job and its events. `sign` makes what is sent while there is none."""
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(headers=headers, media_type=media_type)
        del self.headers["content-length"]
        self.stream, self.chunks = stream, with_signs(chunks, sign)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with cancel_on_disconnect(self.stream, receive):
            await wait_until_accepted(self.stream)  # or the error is the response
            start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(start)
            async for event in self.chunks:
                await send({"type": "http.response.body", "body": event, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
