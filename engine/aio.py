"""The bridge from threads to asyncio: an iterator that runs in a thread, read in the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from engine.records import Event
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


class ThreadStream(Cancellation, Generic[T]):
    """Runs an iterator in a thread and yields its items in the event loop that created it.

    Iterate it once. An exception of the iterator is raised to the reader, after the items before
    it. Items are buffered without a limit, so a slow reader never blocks the thread. `cancel` and
    `attach` may be called from any thread; everything else belongs to the event loop. Cancelling is
    cooperative: it reaches the attached job, and the iterator may check `cancelled`.
    """

    def __init__(
        self, source: Callable[[Self], Iterable[T]], executor: Executor | None = None
    ) -> None:
        """Start iterating `source(self)`, which is called in the thread: one of the executor's, or
        a daemon thread of its own."""
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[T | _End] = asyncio.Queue()
        self._exhausted = False
        if executor is not None:
            executor.submit(self._pump, source)
        else:
            thread = threading.Thread(
                target=self._pump, args=(source,), name="draftline-events", daemon=True
            )
            thread.start()

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
        """Cancel it, for `contextlib.aclosing`. The thread ends on its own."""
        self.cancel()

    async def with_ticks(self, interval_s: float) -> AsyncGenerator[T | None]:
        """The items, and None whenever `interval_s` seconds pass without one."""
        while True:
            item: T | None = None
            try:
                async with asyncio.timeout(interval_s) as timeout:
                    item = await anext(self)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if not timeout.expired():
                    raise  # the iterator's own
            yield item

    def _pump(self, source: Callable[[Self], Iterable[T]]) -> None:
        error: Exception | None = None
        try:
            for item in source(self):
                if not self._post(item):
                    self.cancel()  # and drain the rest: nobody reads any more
        except Exception as raised:
            error = raised
        self._post(_End(error))

    def _post(self, item: T | _End) -> bool:
        """Hand an item to the event loop; False if the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(self._items.put_nowait, item)
        except RuntimeError:
            return False
        return True


@dataclass(frozen=True)
class _End:
    """The end of a stream, and the exception that caused it."""

    error: Exception | None


def follow(job: Submitted) -> ThreadStream[Event]:
    """The events of a job, up to its Done. Use `aclosing`: closing the stream cancels the job."""
    stream: ThreadStream[Any] = ThreadStream(lambda _: job)
    stream.attach(job)
    return stream
