"""A budget for the bodies of a key's requests: more are not read before some are answered.

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

BUDGET_BYTES = 32 << 20  # bytes of an owner's bodies, in requests that are not answered yet
SMALL_BYTES = 1 << 16  # bytes of a body that need no budget


class _Budget:
    """The budget of one owner."""

    def __init__(self) -> None:
        self.free = BUDGET_BYTES
        self.changed = asyncio.Condition()

    async def take(self, size: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: self.free >= size)
            self.free -= size

    async def give(self, size: int) -> None:
        async with self.changed:
            self.free += size
            self.changed.notify_all()


class BodyBudgets:
    """The budgets of all owners that have requests."""

    def __init__(self) -> None:
        self._budgets: WeakValueDictionary[str, _Budget] = WeakValueDictionary()

    @asynccontextmanager
    async def limited(self, receive: Receive, owner: str, most: int) -> AsyncIterator[Receive]:
        """Wrap `receive` to wait for budget once a body turns out not to be small.

        `most`: bytes that it may have. It is free again at the end of the block.
        """
        budget = self._budgets.get(owner)
        if budget is None:
            budget = self._budgets[owner] = _Budget()
        received = taken = 0

        async def receive_in_budget() -> Message:
            nonlocal received, taken
            if received > SMALL_BYTES and not taken:
                taken = min(most, BUDGET_BYTES)
                try:
                    await budget.take(taken)
                except BaseException:
                    taken = 0
                    raise
            message = await receive()
            received += len(message.get("body", b""))
            return message

        try:
            yield receive_in_budget
        finally:
            if taken:
                await budget.give(taken)
