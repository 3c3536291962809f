"""Parses JSON bodies. The event loop waits meanwhile, so large bodies take turns with all else.

No garbage is collected while a body is parsed: where it has millions of lists, collections take ten
times as long as parsing.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from ui.api.large_bodies import LARGE_BYTES

PAUSE_S = 0.005  # before a large body is parsed: what has arrived by then is handled first


class JsonRequest(Request):
    """A request whose JSON has no cycles to look for. One large body of a route
    at a time holds `turn`."""

    def __init__(self, request: Request, turn: asyncio.Lock) -> None:
        super().__init__(request.scope, request.receive)
        self._turn = turn

    async def json(self) -> Any:
        if len(await self.body()) <= LARGE_BYTES:
            return await self._parsed()
        async with self._turn:
            await asyncio.sleep(PAUSE_S)
            return await self._parsed()

    async def _parsed(self) -> Any:
        collects = gc.isenabled()
        gc.disable()
        try:
            return await super().json()  # does not wait: the body is there
        finally:
            if collects:
                gc.enable()


class JsonRoute(APIRoute):
    """A route that reads such requests."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle, turn = super().get_route_handler(), asyncio.Lock()

        async def handle_json(request: Request) -> Response:
            return await handle(JsonRequest(request, turn))

        return handle_json
