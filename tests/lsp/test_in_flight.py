"""A completion under way is kept while what it writes is typed, and only as long as that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lsp_server.completion.completion_cache import Completion, around
from lsp_server.completion.in_flight import ESCAPED, TYPING, Writing

BEFORE, AFTER = "x = ", "\ny\n"
ANSWER = st.text("ab(", min_size=1, max_size=6)


class Under:
    """A completion under way in BEFORE|AFTER, whose answer comes when `answer` is called."""

    def __init__(self) -> None:
        text, place = BEFORE + AFTER, len(BEFORE)
        self.ended = 0
        made = Completion("u", place, *around(text, place), "", False)
        self.writing = Writing(made, len(AFTER), self._end)
        self.made: asyncio.Future[list[Completion] | None] = asyncio.Future()

        async def work() -> list[Completion] | None:
            return await self.made

        self.writing.start(work())

    def _end(self) -> None:
        self.ended += 1
        if not self.made.done():
            self.made.set_result(None)

    def type(self, typed: str, closed: str = "") -> None:
        self.writing.changed(BEFORE + typed + closed + AFTER)

    def takes(self, typed: str, closed: str = "") -> bool:
        return self.writing.takes(BEFORE + typed + closed + AFTER, len(BEFORE + typed))


class Clockwork(asyncio.SelectorEventLoop):
    """A loop whose clock stands while anything is to be done and then leaps to what is due: a busy
    machine changes no order."""

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


def run(body: Callable[[Under], Awaitable[None]]) -> None:
    async def whole() -> None:
        under = Under()
        await body(under)
        under._end()

    with asyncio.Runner(loop_factory=Clockwork) as runner:
        runner.run(whole())


@given(ANSWER, st.lists(st.tuples(st.booleans(), st.sampled_from("ab(")), max_size=12))
def test_it_goes_on_exactly_while_one_text_begins_with_the_other(
    answer: str, events: list[tuple[bool, str]]
) -> None:
    async def body(under: Under) -> None:
        typed = written = ""
        for types, char in events:
            if types:
                typed += char
                under.type(typed)
            else:
                written = answer[: len(written) + 1]
                under.writing.wrote(written)
            agree = typed.startswith(written) or written.startswith(typed)
            assert under.takes(typed) == agree and (under.ended > 0) == (not agree)
            if not agree:
                return

    run(body)


def test_brackets_that_the_editor_closes_are_not_typed() -> None:
    async def body(under: Under) -> None:
        under.writing.wrote("f(a, b)")
        under.type("f(", ")")
        assert under.takes("f(", ")") and not under.ended
        under.type("f(c", ")")
        assert under.ended and not under.takes("f(c", ")")

    run(body)


def test_a_change_elsewhere_ends_it() -> None:
    async def body(under: Under) -> None:
        under.writing.wrote("ab")
        under.writing.changed("#" + BEFORE + "a" + AFTER)
        assert under.ended

    run(body)


async def gone(waiting: asyncio.Task[list[Completion] | None]) -> None:
    """The editor cancels its request."""
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])


def test_it_ends_soon_after_nobody_waits_and_later_where_it_is_typed_into() -> None:
    async def body(under: Under) -> None:
        await gone(asyncio.create_task(under.writing.wait()))
        assert not under.ended
        await asyncio.sleep(3 * ESCAPED)
        assert under.ended == 1
        typed = Under()
        typed.writing.wrote("ab")
        await gone(asyncio.create_task(typed.writing.wait()))
        typed.type("a")
        await asyncio.sleep(3 * ESCAPED)
        assert not typed.ended
        await asyncio.sleep(2 * TYPING)
        assert typed.ended == 1

    run(body)


def test_all_who_wait_get_the_same_and_one_that_leaves_takes_it_from_none() -> None:
    async def body(under: Under) -> None:
        first, second, third = (asyncio.create_task(under.writing.wait()) for _ in range(3))
        await gone(first)
        await asyncio.sleep(3 * ESCAPED)
        assert not under.ended
        made = [under.writing.place]
        under.made.set_result(made)
        assert await second is made and await third is made and await under.writing.wait() is made
        under.writing.stop()
        assert not under.ended  # there was nothing to stop

    run(body)
