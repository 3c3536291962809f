"""A completion that is being generated, which typing its own text keeps alive.

Editors cancel their request at every keystroke and send a new one. As long as the typed text agrees
with what the model writes, the new request waits for the same answer. Generation stops when
something else is typed, or shortly after the last request is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from lsp_server.completion.completion_cache import MAX_AUTO_CLOSED, Completion, typed_since
from lsp_server.completion.indentation import reindent

ABANDON_AFTER_S = 0.03  # seconds; a keystroke sends a cancellation, a change and a new request
ABANDON_AFTER_TYPING_S = 0.3  # seconds; editors debounce requests by up to 0.2 s


class DueCompletions:
    """The completions that are asked for and not made yet, before which nothing else is asked."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Make a completion due while the current task is in this context."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)

    async def made(self) -> None:
        """Wait until no completion is due."""
        while self._tasks:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)


class CompletionInFlight:
    """One completion being generated, and the requests that wait for it."""

    def __init__(
        self, completion: Completion, chars_after: int, stop_model: Callable[[], object]
    ) -> None:
        self.completion = completion  # its text grows as the model writes
        self._chars_after, self._stop_model = chars_after, stop_model
        self.typed = ""  # text between its offset and the cursor, at the latest request
        self.stopped = False  # something else was typed, or no request is left
        self._waiting = 0
        self._changed = False  # since the latest request
        self._task: asyncio.Task[list[Completion] | None] | None = None

    def start(self, work: Coroutine[None, None, list[Completion] | None]) -> None:
        """Run `work`, which asks the model; its result answers every waiting request."""
        self._task = asyncio.get_running_loop().create_task(work)

    def matches(self, text: str, offset: int) -> bool:
        """Return whether a request may wait for this completion: the typed text agrees with it."""
        typed = typed_since(self.completion, text, offset)
        if self.stopped or typed is None or not self._agrees(typed):
            return False
        self.typed, self._changed = typed, False
        return True

    async def wait(self) -> list[Completion] | None:
        """Wait for the completions; None if generation was cancelled or failed."""
        assert self._task
        self._waiting += 1
        try:
            return await asyncio.shield(self._task)
        finally:
            self._waiting -= 1
            self._check_later(ABANDON_AFTER_S)

    def on_text(self, text: str) -> None:
        """Take what the model has written so far; stop it if that is not what was typed."""
        self.completion.text = text
        if self.stopped or not self._agrees(self.typed):
            self.stop()

    def on_document_change(self, text: str) -> None:
        """Take the document's new `text`; stop the model if something else was typed.

        A change does not tell the cursor: it is behind the typed text, before any closing brackets
        that the editor inserted.
        """
        self._changed = True
        end = len(text) - self._chars_after
        typed = (
            typed_since(self.completion, text, end - closed)
            for closed in range(MAX_AUTO_CLOSED + 1)
        )
        if not any(one is not None and self._agrees(one) for one in typed):
            self.stop()

    def stop(self) -> None:
        """Stop generating: nobody needs the answer."""
        self.stopped = True
        if self._task is None or not self._task.done():
            self._stop_model()

    def _agrees(self, typed: str) -> bool:
        raw = self.completion.text
        written = (raw, reindent(raw, self.completion.before))
        return any(typed.startswith(text) or text.startswith(typed) for text in written)

    def _check_later(self, after: float) -> None:
        asyncio.get_running_loop().call_later(after, self._stop_if_abandoned, after)

    def _stop_if_abandoned(self, waited: float) -> None:
        """Stop if no request has come since the last one left `waited` seconds ago."""
        if self._waiting or self.stopped or self._task is None or self._task.done():
            return
        if self._changed and waited < ABANDON_AFTER_TYPING_S:
            self._check_later(ABANDON_AFTER_TYPING_S)
        else:
            self.stop()
