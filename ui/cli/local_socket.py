"""The socket by which this user's commands join the engine of `draftline serve`.

It offers the engine's own routes. It is a Unix-domain socket, and needs no key.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from engine.remote.address import Address, AddressError, check_peer, listen, start_lock
from engine.remote.messages import HTTP_PATH
from ui.api.errors import ApiError
from ui.api.security import IS_LOCAL, App, Receive, Scope, Send, is_within
from ui.cli.connection import HttpConnection


class LocalConnection(HttpConnection):
    """A connection of a program on this machine, which must be this user's."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        try:
            check_peer(transport.get_extra_info("socket"), "a client")
        except AddressError:
            transport.abort()


class LocalRoutes:
    """The routes of an application that commands need."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not is_within(scope["path"], HTTP_PATH):
            missing = ApiError(404, "this socket is for commands: use the server's address")
            await missing.response(scope["path"])(scope, receive, send)
            return
        await self._app({**scope, IS_LOCAL: True}, receive, send)


@asynccontextmanager
async def shared(
    app: App, address: Address, state: ServerState, options: dict[str, Any]
) -> AsyncIterator[asyncio.Server]:
    """Serve an application at the address of a socket.

    `state`: of the server, whose end closes the connections. `options`: uvicorn's. AddressError
    where another program shares this model, OSError.
    """
    assert address.path is not None
    config = uvicorn.Config(LocalRoutes(app), **options | {"http": LocalConnection})
    with start_lock(address):
        listener = listen(address)

    def connection() -> LocalConnection:
        return LocalConnection(config=config, server_state=state, app_state={})

    try:
        accepting = await asyncio.get_running_loop().create_unix_server(connection, sock=listener)
        try:
            yield accepting
        finally:
            accepting.close()
    finally:
        address.path.unlink(missing_ok=True)
