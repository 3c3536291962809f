"""The routes below /v1/draftline, for engines' clients on other machines.

They take requests and send events as lines of JSON, cancel requests, and receive the indexes of
clients' workspaces.

A stream has a line for every event, an empty one as a sign of life where nothing happens, and ends
with the line of the Done.
"""

from __future__ import annotations

import asyncio
import json
import os
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from engine.records import Done, Event, Piece, RequestError, Step
from engine.remote.link import DEFLATE, SIGN_OF_LIFE_S
from engine.remote.messages import (
    HTTP_PATH,
    SERVER,
    BadMessage,
    Host,
    ServerInfo,
    Submission,
    submission_from_json,
    to_json,
)
from engine.remote.received_indexes import (
    DELETE_WITHIN_S,
    FORGET_AFTER_S,
    IndexesFull,
    ReceivedIndexes,
)
from engine.remote.tokenizer_files import digest_of, read_files
from index.version import own_version
from ui.api.errors import ApiError
from ui.api.json_body import BodySlots
from ui.api.remote_engine.bodies import check_protocol, read_json
from ui.api.security import IS_LOCAL, OWNER

if TYPE_CHECKING:
    from engine.engine import Engine
    from ui.api.jobs import Jobs, JobStream

MAX_ID_CHARS = 80
ENDED = "the server ends: ask again once it runs"
Respond = Callable[["JobStream", AsyncIterator[bytes]], Response]
Route = TypeVar("Route", bound=Callable[..., Awaitable[Response]])


class EngineHost:
    """The engine of this process for clients of other machines."""

    def __init__(self, engine: Engine, jobs: Jobs) -> None:
        self.engine, self.jobs = engine, jobs
        self.indexes = ReceivedIndexes(engine.encoder)
        self.slots = BodySlots()  # for messages about the indexes
        # The streams by owner and id, until they have ended or are cancelled.
        self._running: WeakValueDictionary[tuple[str, str], JobStream] = WeakValueDictionary()

    @cached_property
    def tokenizer(self) -> dict[str, str]:
        """The files of the model's tokenizer."""
        return read_files(self.engine.folder)

    @cached_property
    def tokenizer_digest(self) -> str:
        """The digest of these files."""
        return digest_of(self.tokenizer)

    def info(self) -> Host:
        """Describe what runs here, without paths."""
        engine = self.engine
        server = ServerInfo(
            SERVER,
            own_version(),
            os.getpid(),
            "ready",
            model=engine.config.model,
            device=engine.config.device,
            engine=engine.info,
        )
        return Host(server, self.tokenizer_digest, FORGET_AFTER_S, DELETE_WITHIN_S)

    def submit(
        self, owner: str, is_local: bool, number: str, submission: Submission
    ) -> tuple[JobStream, AsyncIterator[bytes]]:
        """Queue a request, and return it with the lines of its answer.

        Raises BadMessage, QueueFull.
        """
        if (owner, number) in self._running:
            raise BadMessage("id: a request with it is running")
        name = submission.workspace
        workspace = self.indexes.find(owner, name) if name else None
        stream = self.jobs.submit(
            lambda: submission.request,
            f"{owner}\n{submission.client}",
            submission.speculation,
            raw=True,
            owner=owner,
            workspace=workspace,
            urgency=submission.urgency,
        )
        self._running[owner, number] = stream
        sees_files = is_local or workspace is not None
        return stream, self._lines(stream, (owner, number), sees_files)

    async def _lines(
        self, stream: JobStream, key: tuple[str, str], sees_files: bool
    ) -> AsyncIterator[bytes]:
        async for event in stream.with_ticks(SIGN_OF_LIFE_S):
            line = b""
            if event is not None:
                line = json.dumps(_message(event, key not in self._running, sees_files)).encode()
            yield line + b"\n"

    def cancel(self, owner: str, number: str) -> None:
        """End a request of this owner, if it runs."""
        stream = self._running.pop((owner, number), None)
        if stream is not None:
            stream.cancel()

    def close(self) -> None:
        """Forget the clients' texts."""
        self.indexes.close()


def _submission(body: dict[str, Any]) -> tuple[str, Submission]:
    """Parse the id and the parameters of a request. Raises BadMessage, RequestError."""
    number = body.get("id")
    if not isinstance(number, str) or not 0 < len(number) <= MAX_ID_CHARS:
        raise BadMessage("id: not a short string")
    return number, submission_from_json(body.get("submission"))


def _message(event: Event, was_cancelled: bool, sees_files: bool) -> dict[str, Any]:
    """Make a line of a stream.

    `was_cancelled`: its client has cancelled the request. `sees_files`: the client may learn of the
    files that an answer is drafted from.
    """
    if isinstance(event, Done):
        if event.reason == "cancelled" and not was_cancelled:
            event = Done("failed", event.text, error=ENDED)
        return {"done": to_json(event)}
    if not sees_files and isinstance(event, Step):
        event = replace(event, pieces=tuple(map(_without_file, event.pieces)))
    return {"event": to_json(event)}


def _without_file(piece: Piece) -> Piece:
    return piece._replace(span=None) if piece.source == "workspace" else piece


def add_engine_routes(
    application: FastAPI, host: EngineHost, respond: Respond, queue_errors: Any
) -> None:
    """Add the routes. `respond` streams lines, `queue_errors` raises ApiError for a full queue."""

    def add(method: str, path: str) -> Callable[[Route], Route]:
        return application.api_route(
            f"{HTTP_PATH}/{path}", methods=[method], include_in_schema=False
        )

    @add("GET", "info")
    async def info() -> Response:
        """Describe what runs here, in any version of the protocol, so that clients can tell."""
        return JSONResponse(to_json(await asyncio.to_thread(host.info)))

    @add("GET", "tokenizer")
    async def tokenizer(http: Request) -> Response:
        check_protocol(http)
        files = await asyncio.to_thread(lambda: zlib.compress(json.dumps(host.tokenizer).encode()))
        headers = {"content-encoding": DEFLATE}
        return Response(files, media_type="application/json", headers=headers)

    @add("POST", "submit")
    async def submit(http: Request) -> Response:
        try:
            submission = await read_json(http, _submission)
            with queue_errors():
                is_local = bool(http.scope.get(IS_LOCAL))
                return respond(*host.submit(http.scope[OWNER], is_local, *submission))
        except (BadMessage, RequestError) as error:
            raise ApiError(400, str(error)) from error

    @add("POST", "cancel")
    async def cancel(http: Request) -> Response:
        number = await read_json(http, lambda body: str(body.get("id")))
        host.cancel(http.scope[OWNER], number)
        return JSONResponse({})

    @add("POST", "forget")
    async def forget(http: Request) -> Response:
        client = await read_json(http, lambda body: str(body.get("client")))
        host.jobs.forget(f"{http.scope[OWNER]}\n{client}")
        return JSONResponse({})

    @add("POST", "workspaces/{name}")
    async def sync(http: Request, name: str) -> Response:
        try:
            sync_with = partial(host.indexes.sync, http.scope[OWNER], name)
            answer = await read_json(http, sync_with, host.slots)
        except BadMessage as error:
            raise ApiError(400, str(error)) from error
        except IndexesFull as error:
            raise ApiError(413, str(error)) from error
        return JSONResponse(answer)
