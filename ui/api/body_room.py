"""Room for the bodies of a key's requests: more are not read before some are answered.

Otherwise a client of many connections could fill the memory with bodies that wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakValueDictionary

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

ROOM_BYTES = 32 << 20  # bytes of an owner's bodies, in requests that are not answered yet
SMALL_BYTES = 1 << 16  # bytes of a body that need no room


class _Room:
    """The room of one owner."""

    def __init__(self) -> None:
        self.free = ROOM_BYTES
        self.changed = asyncio.Condition()

    async def take(self, size: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: self.free >= size)
            self.free -= size

    async def give(self, size: int) -> None:
        async with self.changed:
            self.free += size
            self.changed.notify_all()


class BodyRooms:
    """The rooms of all owners that have requests."""

    def __init__(self) -> None:
        self._rooms: WeakValueDictionary[str, _Room] = WeakValueDictionary()

    @asynccontextmanager
    async def limited(self, receive: Receive, owner: str, most: int) -> AsyncIterator[Receive]:
        """Wrap `receive` to wait for room once a body turns out not to be small.

        `most`: bytes that it may have. The room is free again at the end of the block.
        """
        room = self._rooms.get(owner)
        if room is None:
            room = self._rooms[owner] = _Room()
        received = taken = 0

        async def receive_in_room() -> Message:
            nonlocal received, taken
            if received > SMALL_BYTES and not taken:
                taken = min(most, ROOM_BYTES)
                try:
                    await room.take(taken)
                except BaseException:
                    taken = 0
                    raise
            message = await receive()
            received += len(message.get("body", b""))
            return message

        try:
            yield receive_in_room
        finally:
            if taken:
                await room.give(taken)
