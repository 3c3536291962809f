"""The completion that the model is writing in a document: typing what it writes keeps it.

An editor cancels its request at every keystroke and asks anew. While what was typed since is what
the model writes, the newer request waits for the same answer. The model is stopped where something
else was typed, and soon after nobody waits any more. What is asked and offered is `suggest`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from lsp_server.completion.completion_cache import CLOSERS, Completion, typed_since
from lsp_server.completion.indentation import indented

ESCAPED = 0.03  # s that it goes on for nobody: in one stroke come a cancel, a change, a request
TYPING = 0.3  # s where the text was typed into: editors wait up to 0.2 s before they ask again


class Writing:
    """One completion under way. `place` gets its text as it is written, `behind` it stand so many
    characters, and `end` has the model stop."""

    def __init__(self, place: Completion, behind: int, end: Callable[[], object]) -> None:
        self.place, self._behind, self._end = place, behind, end
        self.typed = ""  # at the place, when the latest request came
        self.stopped = False  # since something else was typed, or for want of requests
        self._waiting = 0
        self._changed = False  # since the latest request
        self._task: asyncio.Task[list[Completion] | None] | None = None

    def start(self, work: Coroutine[None, None, list[Completion] | None]) -> None:
        """`work` asks the model; what it gives is what every request gets."""
        self._task = asyncio.get_running_loop().create_task(work)

    def takes(self, text: str, offset: int) -> bool:
        """Whether a request at this place may wait for it: so far the same is typed and written."""
        typed = typed_since(self.place, text, offset)
        if self.stopped or typed is None or not self._agrees(typed):
            return False
        self.typed, self._changed = typed, False
        return True

    async def wait(self) -> list[Completion] | None:
        """What was made of it; None where it was cancelled or failed."""
        assert self._task
        self._waiting += 1
        try:
            return await asyncio.shield(self._task)
        finally:
            self._waiting -= 1
            self._leave(ESCAPED)

    def wrote(self, text: str) -> None:
        """The model wrote so much of it. Ends it where that is not what was typed."""
        self.place.text = text
        if self.stopped or not self._agrees(self.typed):
            self.stop()

    def changed(self, text: str) -> None:
        """The document did. Where the cursor is now is not told: behind what was typed, or in
        front of the brackets that the editor closed."""
        self._changed = True
        end = len(text) - self._behind
        typed = (typed_since(self.place, text, end - closed) for closed in range(CLOSERS + 1))
        if not any(one is not None and self._agrees(one) for one in typed):
            self.stop()

    def stop(self) -> None:
        """End it: its answer is wanted no more."""
        self.stopped = True
        if self._task is None or not self._task.done():
            self._end()

    def _agrees(self, typed: str) -> bool:
        raw = self.place.text
        written = (raw, indented(raw, self.place.head))
        return any(typed.startswith(one) or one.startswith(typed) for one in written)

    def _leave(self, after: float) -> None:
        asyncio.get_running_loop().call_later(after, self._look, after)

    def _look(self, waited: float) -> None:
        """Whether anybody will still want it."""
        if self._waiting or self.stopped or self._task is None or self._task.done():
            return
        if self._changed and waited < TYPING:
            self._leave(TYPING)
        else:
            self.stop()
