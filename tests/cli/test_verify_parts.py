"""What `draftline verify` is made of: requests, answers of hostile servers, places, margins."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.remote.engine_url import EngineUrl
from engine.remote.link import LinkError, Lost
from ui.verify.compare import TextPlace, compare, margin
from ui.verify.reply import Reply, TokenOdds, read_reply
from ui.verify.report import quoted
from ui.verify.run import AT_ONCE, MAX_FAILURES, ModeServer, VerifyRun, ask
from ui.verify.server import VerifiedServer
from ui.verify.tasks import TASKS, tasks
from ui.verify.verdict import CHANGED, SAME, UNKNOWN, judge

URL = EngineUrl("http://127.0.0.1:1/v1")
LETTERS = st.text("ab", max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def test_requests_are_short_and_no_two_begin_alike() -> None:
    found = [*tasks(1), *tasks(2)]
    assert len(found) == 4 * TASKS
    assert len({task.text.split("]")[0] for task in found}) == len(found)
    assert max(len(task.text) for task in found) < 600
    assert [task.name for task in tasks(1, 1)] == ["edit 1", "question 1"]
    assert {task.max_tokens for task in tasks(1, 3, 5)} == {5}


# -- answers -----------------------------------------------------------------------------------


def events(*sent: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from sent
    yield {"choices": [{"delta": {}, "finish_reason": "stop"}]}


@given(st.lists(st.dictionaries(st.sampled_from(["choices", "usage", "timings"]), VALUES)))
def test_any_events_are_an_answer_or_an_error_in_one_line(sent: list[dict[str, Any]]) -> None:
    assert isinstance(read_reply(URL, events(*sent)).text, str)
    try:
        read_reply(URL, iter(sent))
    except LinkError as error:
        assert "\n" not in str(error) and str(URL) in str(error)


@given(
    st.fixed_dictionaries({"delta": VALUES, "finish_reason": VALUES, "logprobs": VALUES}),
    VALUES,
    VALUES,
)
def test_fields_of_any_type_do_no_harm(choice: Any, usage: Any, timings: Any) -> None:
    choice["logprobs"] = {"content": [choice["logprobs"], {"token": "a", "logprob": 10**400}]}
    sent = {"choices": [choice], "usage": {"prompt_tokens_details": usage}, "timings": timings}
    reply = read_reply(URL, events(sent))
    assert isinstance(reply.text, str) and not reply.odds
    assert reply.cached_tokens is None or reply.cached_tokens >= 0


@given(st.lists(st.text(max_size=3)))
def test_the_text_is_that_of_all_events_up_to_the_end(parts: list[str]) -> None:
    sent = [{"choices": [{"delta": {"content": part}}]} for part in parts]
    assert read_reply(URL, events(*sent)).text == "".join(parts)
    with pytest.raises(LinkError, match="ended too soon" if parts else "no stream of events"):
        read_reply(URL, iter(sent))


def test_reasoning_is_part_of_the_text() -> None:
    deltas = [{"reasoning_content": "Hm. "}, {"content": "Yes."}]
    sent = events(*({"choices": [{"delta": delta}]} for delta in deltas))
    assert read_reply(URL, sent).text == "Hm. Yes."


def test_probabilities_are_read() -> None:
    likeliest = {"a": -0.1, "b": -2.0}
    top = [{"token": token, "logprob": chance} for token, chance in likeliest.items()]
    logprobs = {"content": [top[0] | {"top_logprobs": top}]}
    sent = {"choices": [{"delta": {"content": "a"}, "logprobs": logprobs}]}
    assert read_reply(URL, events(sent)).odds == (TokenOdds("a", -0.1, likeliest),)


# -- comparing ---------------------------------------------------------------------------------


@given(LETTERS, LETTERS)
def test_the_first_differing_place(first: str, second: str) -> None:
    place = TextPlace("edit 1", first, second)
    assert place.start == max(
        at for at in range(1 + min(len(first), len(second))) if first[:at] == second[:at]
    )
    assert place.before == first[max(0, place.start - 24) : place.start]
    assert place.then == (first[place.start :][:16], second[place.start :][:16])


@given(st.dictionaries(st.sampled_from(["edit 1", "question 1"]), LETTERS), st.data())
def test_only_requests_with_both_texts_are_compared(texts: dict[str, str], data: Any) -> None:
    other = data.draw(st.dictionaries(st.sampled_from(["edit 1", "question 2"]), LETTERS))
    found = compare(tasks(1, 2), "both", "four at once", (texts, other))
    both = texts.keys() & other.keys()
    assert found.of == len(both)
    assert len(found.differing) == sum(texts[name] != other[name] for name in both)


@given(
    st.lists(st.sampled_from(["a", "b", "ab", "ba"]), min_size=1, max_size=6),
    st.integers(0, 5),
    st.sampled_from(["a", "b", "ab", "ba"]),
    LETTERS,
    st.floats(0.001, 5),
)
def test_the_margin_is_that_of_the_token_that_was_taken_instead(
    tokens: list[str], at: int, other: str, rest: str, wide: float
) -> None:
    """Where the other text leaves the first one within the token that it took."""
    at %= len(tokens)
    text, before = "".join(tokens), "".join(tokens[:at])
    odds = [
        TokenOdds(token, -0.5, {token: -0.5} | ({other: -0.5 - wide} if number == at else {}))
        for number, token in enumerate(tokens)
    ]
    place = TextPlace("edit 1", text, before + other + rest)
    start = place.start
    inside = len(before) <= start < min(len(before) + len(other), len(text))
    known = margin(Reply(text=text, odds=tuple(odds)), place)
    if inside and other != tokens[at] and start < len(before) + len(tokens[at]):
        assert known == pytest.approx(wide)
    if start >= len(before) + len(other) or start < len(before):
        assert known is None


def test_another_way_has_no_margin() -> None:
    place = TextPlace("edit 1", "abc", "abd")
    odds = (TokenOdds("x", -0.1, {"x": -0.1, "a": -0.2}),)
    assert margin(Reply(text="x", odds=odds), place) is None
    assert margin(Reply(text="abc"), place) is None


@given(st.integers(0, 40), st.integers(0, 40))
def test_the_verdict_holds_rates_against_the_noise(differing: int, noise: int) -> None:
    asked = [task for task in tasks(1) if task.kind == "edit"]

    def row(mode: str, name: str, count: int) -> Any:
        first = {task.name: "a" for task in asked}
        second = first | {task.name: "b" for task in asked[:count]}
        return compare(asked, mode, name, (first, second))

    table = [
        row("without", "asked again", noise),
        row("both", "alone, cached prompt", differing),
        row("both", "four at once", 0),
    ]
    code = judge(table, True, "").code
    if not differing:
        assert code == SAME
    elif not noise:
        assert code == CHANGED
    elif differing <= noise:
        assert code == UNKNOWN
    if code == CHANGED and noise:
        assert table[1].interval[0] > table[0].interval[1]
    assert judge(table, True, "no server").code == UNKNOWN
    assert judge(table, False, "").code == (code or UNKNOWN)
    assert judge([row("both", "sampled, fixed seed", 40), *table], True, "").code == code


@given(st.text())
def test_shown_texts_drive_no_terminal(text: str) -> None:
    assert all(letter.isprintable() or ord(letter) >= 0xA0 for letter in quoted(text))


# -- asking ------------------------------------------------------------------------------------


class Asker(VerifiedServer):
    """A server whose answers a function gives; nothing is sent."""

    def __init__(self, answer: Callable[[], Reply]) -> None:
        super().__init__(URL, "", 60)
        self.answer = answer

    def ask(self, *_: Any) -> Reply:  # type: ignore[override]
        return self.answer()


def asked(server: VerifiedServer, count: int, at_once: int) -> VerifyRun:
    run = VerifyRun(1, tasks(1, count), {"with": ModeServer(server)})
    ask(run, "", [("with", "cold", task) for task in run.tasks], at_once, lambda *_: None)
    return run


def test_four_are_asked_at_once_and_no_more() -> None:
    barrier, lock = threading.Barrier(AT_ONCE), threading.Lock()
    running, most = 0, 0

    def answer() -> Reply:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        barrier.wait(60)  # breaks, and fails, unless four are here together
        with lock:
            running -= 1
        return Reply()

    run = asked(Asker(answer), 4, AT_ONCE)
    assert most == AT_ONCE and len(run.texts("with", "cold")) == 8


def test_a_server_that_fails_is_left_alone() -> None:
    times = 0

    def fail() -> Reply:
        nonlocal times
        times += 1
        raise LinkError("no")

    run = asked(Asker(fail), 5, 1)
    assert times == MAX_FAILURES and len(run.failed["with"]) == 10


def test_an_answer_without_an_end_is_given_up() -> None:
    """Signs of life in time, and no event."""
    server = VerifiedServer(URL, "", 0.01)
    with pytest.raises(Lost, match="raise --timeout"):
        for _ in server._in_time(itertools.repeat(b"")):
            pass
