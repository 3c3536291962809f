"""The engine's own methods, for programs that are no editors.

`draftline/info` tells what runs here, `draftline/submit` answers a Request (see `engine.remote`).
They need no `initialize`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pygls.exceptions import JsonRpcInvalidParams

from engine.aio import Cancellation, follow
from engine.records import Done, RequestError
from engine.remote.messages import (
    ACCEPTED,
    EVENT,
    INFO,
    SERVER,
    SUBMIT,
    BadMessage,
    ServerInfo,
    Submission,
    submission_from_json,
    to_json,
)
from engine.weights import WeightsError, find
from index.version import own_version
from lsp_server.protocol.messages import failed
from lsp_server.shared_engine import NotReady, SharedEngine

if TYPE_CHECKING:
    from engine.remote.any_engine import EditorEngine
    from engine.worker import Submitted
    from lsp_server.protocol.protocol import Server

REPLACED = "the server loads another model now: run it again"


def add_engine_methods(server: Server, shared_engine: SharedEngine, client: str) -> None:
    """Register the methods. `client`: the name under which its answers are remembered."""

    async def loaded() -> EditorEngine:
        try:
            return await shared_engine.ready()
        except NotReady as reason:
            raise failed(reason) from None

    @server.feature(INFO)
    async def info(params: Any) -> dict[str, Any]:
        if isinstance(params, dict) and params.get("wait") is True:
            await loaded()
        return to_json(await asyncio.to_thread(_info, shared_engine))

    @server.feature(SUBMIT)
    async def submit(params: Any) -> dict[str, Any]:
        try:
            submission = submission_from_json(params)
        except (BadMessage, RequestError) as error:
            raise JsonRpcInvalidParams(str(error)) from None
        return to_json(await _answer(server, await loaded(), submission, client))

    async def forget() -> None:
        if (engine := shared_engine.engine) is not None:
            engine.forget(client=client)

    server.on_close.append(forget)


async def _answer(
    server: Server, engine: EditorEngine, submission: Submission, client: str
) -> Done:
    """Run a request and send its steps. `$/cancelRequest` ends it with what is written so far."""
    identity, running = server.protocol.msg_id, Cancellation()
    request, speculation = submission.request, submission.speculation

    def is_cancelled() -> bool:
        return running.cancelled

    def queue() -> Submitted:
        return engine.submit(
            request,
            speculation,
            client=client,
            cancelled=is_cancelled,
            urgency=submission.urgency,
        )

    stopped = server.protocol.stoppable
    stopped[identity] = running.cancel
    try:
        job = await asyncio.to_thread(queue)
        running.attach(job)
        server.protocol.notify(ACCEPTED, {"id": identity})
        done = Done("cancelled")
        async with aclosing(follow(job)) as events:
            async for event in events:
                if isinstance(event, Done):
                    done = event
                else:
                    server.protocol.notify(EVENT, {"id": identity, "event": to_json(event)})
    except RequestError as error:
        raise JsonRpcInvalidParams(str(error)) from None
    except RuntimeError:  # the engine was closed meanwhile
        return Done("failed", error=REPLACED)
    finally:
        was_cancelled = running.cancelled
        running.cancel()
        stopped.pop(identity, None)
    if done.reason == "cancelled" and not was_cancelled:
        return Done("failed", done.text, error=REPLACED)
    return done


def _info(shared_engine: SharedEngine) -> ServerInfo:
    """Describe what runs here; reads the cache folder."""
    engine, model = shared_engine.loaded, shared_engine.model
    folder: Path | None = None
    with contextlib.suppress(WeightsError, OSError):
        folder = engine.folder if engine else find(model) if model else None
    return ServerInfo(
        SERVER,
        own_version(),
        os.getpid(),
        shared_engine.state,
        shared_engine.message,
        model,
        str(folder or ""),
        shared_engine.device,
        engine.info if engine else None,
    )
