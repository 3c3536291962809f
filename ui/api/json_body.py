"""Parses JSON bodies, large ones in a thread: one of a key at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute

from ui.api.json_values import LARGE_BYTES, TooManyValues, parsed
from ui.api.security import OWNER

T = TypeVar("T")


class BodySlots:
    """Slots of each key's large bodies."""

    def __init__(self) -> None:
        self._slots: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def run(self, request: Request, work: Callable[[], T]) -> T:
        """Run `work` in a thread once a slot is free, and return its result."""
        owner = str(request.scope.get(OWNER, ""))
        slot = self._slots.get(owner)
        if slot is None:
            slot = self._slots[owner] = asyncio.Lock()
        async with slot:
            return await asyncio.to_thread(work)


class JsonRequest(Request):
    """A request whose JSON is counted before it is made."""

    def __init__(self, request: Request, slots: BodySlots) -> None:
        super().__init__(request.scope, request.receive)
        self._slots = slots

    async def json(self) -> Any:
        read = partial(parsed, await self.body())
        try:
            if len(self._body) <= LARGE_BYTES:
                return read()
            return await self._slots.run(self, read)
        except TooManyValues as error:
            raise HTTPException(413, str(error)) from error


class JsonRoute(APIRoute):
    """A route that reads such requests."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            return await handle(JsonRequest(request, request.app.state.slots))

        return handle_json
