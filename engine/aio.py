"""The bridge from threads to asyncio: items that a thread hands over, read in the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from engine.records import Done, Event

if TYPE_CHECKING:
    from engine.worker import Submitted

T = TypeVar("T")


class Cancellable(Protocol):
    def cancel(self) -> None: ...


class Cancellation:
    """A flag that also cancels what is attached to it, whichever comes first. Thread-safe."""

    def __init__(self) -> None:
        self.cancelled = False
        self._target: Cancellable | None = None

    def cancel(self) -> None:
        self.cancelled = True
        if self._target is not None:
            self._target.cancel()

    def attach(self, target: Cancellable) -> None:
        """Cancel `target` with this, at once if this is cancelled already."""
        # The order matters: either this sees `cancelled`, or a concurrent `cancel` sees the target.
        self._target = target
        if self.cancelled:
            target.cancel()


class Stream(Cancellation, Generic[T]):
    """Items that threads hand to the event loop that created it. Iterate it once.

    Items are buffered without a limit, so a slow reader never blocks a thread. `put`, `end`,
    `cancel` and `attach` may be called from any thread; everything else belongs to the event loop.
    Cancelling is cooperative: it reaches the attached job, and a thread may check `cancelled`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[T | _End] = asyncio.Queue()
        self._exhausted = False

    def put(self, item: T) -> None:
        """Hand an item to the reader.

        Where the event loop is closed, nobody reads any more, and the stream is cancelled.
        """
        self._post(item)

    def end(self, error: Exception | None = None) -> None:
        """End the stream after the last item.

        An error is raised to the reader, after the items before it.
        """
        self._post(_End(error))

    def _post(self, item: T | _End) -> None:
        try:
            self._loop.call_soon_threadsafe(self._items.put_nowait, item)
        except RuntimeError:  # the loop is closed
            self.cancel()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if self._exhausted:
            raise StopAsyncIteration
        item = await self._items.get()
        if not isinstance(item, _End):
            return item
        self._exhausted = True
        if item.error is not None:
            raise item.error
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Cancel it, for `contextlib.aclosing`."""
        self.cancel()

    async def with_ticks(self, interval_s: float) -> AsyncGenerator[T | None]:
        """Yield the items, and None whenever `interval_s` seconds pass without one."""
        while True:
            item: T | None = None
            try:
                async with asyncio.timeout(interval_s) as timeout:
                    item = await anext(self)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if not timeout.expired():
                    raise  # the stream's own
            yield item


@dataclass(frozen=True)
class _End:
    """The end of a stream, and the exception that caused it."""

    error: Exception | None


def follow(job: Submitted) -> Stream[Event]:
    """Stream the events of a job, up to its Done.

    Use `aclosing`: closing the stream cancels the job.
    """
    stream: Stream[Event] = Stream()

    def pass_on(event: Event) -> None:
        stream.put(event)
        if isinstance(event, Done):
            stream.end()

    stream.attach(job)
    job.deliver(pass_on)
    return stream
