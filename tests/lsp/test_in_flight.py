"""A completion being generated is kept exactly while the typed text agrees with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lsp_server.completion.completion_cache import Completion, context_around
from lsp_server.completion.in_flight import (
    ABANDON_AFTER_S,
    ABANDON_AFTER_TYPING_S,
    CompletionInFlight,
)

BEFORE, AFTER = "x = ", "\ny\n"
ANSWER = st.text("ab(", min_size=1, max_size=6)


class Harness:
    """A completion being generated between BEFORE and AFTER, which ends when `made` is set."""

    def __init__(self) -> None:
        text, place = BEFORE + AFTER, len(BEFORE)
        self.ended = 0
        made = Completion("u", place, *context_around(text, place), "", False)
        self.writing = CompletionInFlight(made, len(AFTER), self._end)
        self.made: asyncio.Future[list[Completion] | None] = asyncio.Future()

        async def work() -> list[Completion] | None:
            return await self.made

        self.writing.start(work())

    def _end(self) -> None:
        self.ended += 1
        if not self.made.done():
            self.made.set_result(None)

    def type(self, typed: str, closed: str = "") -> None:
        self.writing.on_document_change(BEFORE + typed + closed + AFTER)

    def matches(self, typed: str, closed: str = "") -> bool:
        return self.writing.matches(BEFORE + typed + closed + AFTER, len(BEFORE + typed))


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop with a virtual clock that jumps to the next timer when nothing else is ready,
    so the machine's load cannot change the order of events."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        selector: Any = self._selector  # type: ignore[attr-defined]
        select = selector.select

        def leap(timeout: float | None) -> Any:
            self.now += timeout or 0.0
            return select(0)

        selector.select = leap

    def time(self) -> float:
        return self.now


def run(body: Callable[[Harness], Awaitable[None]]) -> None:
    async def whole() -> None:
        harness = Harness()
        await body(harness)
        harness._end()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(whole())


@given(ANSWER, st.lists(st.tuples(st.booleans(), st.sampled_from("ab(")), max_size=12))
def test_generation_continues_exactly_while_typed_and_generated_text_agree(
    answer: str, events: list[tuple[bool, str]]
) -> None:
    async def body(harness: Harness) -> None:
        typed = written = ""
        for types, char in events:
            if types:
                typed += char
                harness.type(typed)
            else:
                written = answer[: len(written) + 1]
                harness.writing.on_text(written)
            agree = typed.startswith(written) or written.startswith(typed)
            assert harness.matches(typed) == agree and (harness.ended > 0) == (not agree)
            if not agree:
                return

    run(body)


def test_closing_brackets_from_the_editor_do_not_count_as_typed() -> None:
    async def body(harness: Harness) -> None:
        harness.writing.on_text("f(a, b)")
        harness.type("f(", ")")
        assert harness.matches("f(", ")") and not harness.ended
        harness.type("f(c", ")")
        assert harness.ended and not harness.matches("f(c", ")")

    run(body)


def test_a_change_elsewhere_stops_generation() -> None:
    async def body(harness: Harness) -> None:
        harness.writing.on_text("ab")
        harness.writing.on_document_change("#" + BEFORE + "a" + AFTER)
        assert harness.ended

    run(body)


async def cancel(waiting: asyncio.Task[list[Completion] | None]) -> None:
    """Cancel a request, as an editor does."""
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])


def test_generation_stops_after_the_last_request_and_later_while_it_is_typed() -> None:
    async def body(harness: Harness) -> None:
        await cancel(asyncio.create_task(harness.writing.wait()))
        assert not harness.ended
        await asyncio.sleep(3 * ABANDON_AFTER_S)
        assert harness.ended == 1
        typed = Harness()
        typed.writing.on_text("ab")
        await cancel(asyncio.create_task(typed.writing.wait()))
        typed.type("a")
        await asyncio.sleep(3 * ABANDON_AFTER_S)
        assert not typed.ended
        await asyncio.sleep(2 * ABANDON_AFTER_TYPING_S)
        assert typed.ended == 1

    run(body)


def test_all_requests_get_the_same_answer_and_one_may_be_cancelled() -> None:
    async def body(harness: Harness) -> None:
        first, second, third = (asyncio.create_task(harness.writing.wait()) for _ in range(3))
        await cancel(first)
        await asyncio.sleep(3 * ABANDON_AFTER_S)
        assert not harness.ended
        made = [harness.writing.completion]
        harness.made.set_result(made)
        assert await second is made and await third is made and await harness.writing.wait() is made
        harness.writing.stop()
        assert not harness.ended  # it had ended already

    run(body)
