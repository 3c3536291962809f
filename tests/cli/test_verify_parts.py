"""What `draftline verify` is made of: requests, answers of hostile servers, places, margins."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.remote.engine_url import EngineUrl
from engine.remote.link import LinkError, Lost
from ui.verify.compare import TextPlace, compare, margin
from ui.verify.reply import Reply, TokenOdds, read_reply
from ui.verify.report import quoted
from ui.verify.server import (
    AT_ONCE,
    GREETING,
    MAX_FAILURES,
    MAX_REPLY_BYTES,
    Asking,
    Options,
    VerifiedServer,
    ask_all,
    within,
)
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


@given(st.binary(max_size=60) | st.builds(lambda value: json.dumps(value).encode(), VALUES))
def test_any_bytes_are_an_answer_or_an_error_in_one_line(body: bytes) -> None:
    for sent in (body, b"data: " + body + b"\n\n"):
        try:
            assert isinstance(read_reply(URL, sent).text, str)
        except LinkError as error:
            assert "\n" not in str(error) and str(URL) in str(error)


@given(
    st.fixed_dictionaries(
        {"message": VALUES, "finish_reason": VALUES, "logprobs": VALUES, "text": VALUES}
    ),
    VALUES,
    VALUES,
)
def test_fields_of_any_type_do_no_harm(choice: Any, usage: Any, timings: Any) -> None:
    choice["logprobs"] = {"content": [choice["logprobs"], {"token": "a", "logprob": 10**400}]}
    body = {"choices": [choice], "usage": {"prompt_tokens_details": usage}, "timings": timings}
    reply = read_reply(URL, json.dumps(body).encode())
    assert isinstance(reply.text, str) and not reply.odds
    assert reply.cached_tokens is None or reply.cached_tokens >= 0


def test_nested_json_is_an_error() -> None:
    for body in (b'{"a":' * 100_000, b"data: " + b"[" * 100_000):
        with pytest.raises(LinkError, match="not JSON"):
            read_reply(URL, body)


def test_a_stream_has_the_text_of_the_whole_answer() -> None:
    parts = ["one ", "two", "", "\u00e9"]
    whole = {"choices": [{"message": {"content": "".join(parts)}, "finish_reason": "stop"}]}
    events: list[Any] = [{"choices": [{"delta": {"content": part}}]} for part in parts]
    events.append({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    lines = [f"data: {json.dumps(event)}\r\n\r\n".encode() for event in events]
    assert read_reply(URL, b"".join([*lines, b"data: [DONE]\n\n"])) == read_reply(
        URL, json.dumps(whole).encode()
    )
    with pytest.raises(LinkError, match="ended too soon"):
        read_reply(URL, b"".join(lines[:-1]))


def test_reasoning_is_part_of_the_text() -> None:
    message = {"reasoning_content": "Hm. ", "content": "Yes."}
    body = {"choices": [{"message": message, "finish_reason": "stop"}]}
    assert read_reply(URL, json.dumps(body).encode()).text == "Hm. Yes."


@pytest.mark.parametrize("completion", [False, True])
def test_probabilities_in_both_forms(completion: bool) -> None:
    likeliest = {"a": -0.1, "b": -2.0}
    logprobs: dict[str, Any] = {
        "tokens": ["a"],
        "token_logprobs": [-0.1],
        "top_logprobs": [likeliest],
    }
    if not completion:
        top = [{"token": token, "logprob": chance} for token, chance in likeliest.items()]
        logprobs = {"content": [{"token": "a", "logprob": -0.1, "top_logprobs": top}]}
    body = {"choices": [{"text": "a", "finish_reason": "stop", "logprobs": logprobs}]}
    assert read_reply(URL, json.dumps(body).encode()).odds == (TokenOdds("a", -0.1, likeliest),)


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
    found = compare(tasks(1, 2), "both", "four at once", [(texts, other)])
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
        return compare(asked, mode, name, [(first, second)])

    table = [
        row("without", "asked again", noise),
        row("both", "alone, second time", differing),
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
    assert judge([row("both", "by chance, with a seed", 40), *table], True, "").code == code


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

    server, found = Asker(answer), list[Any]()
    askings = [Asking(server, task, Options()) for task in tasks(1, 4)]
    ask_all(askings, AT_ONCE, lambda number, reply: found.append(number))
    assert most == AT_ONCE and sorted(found) == [*range(len(askings))]


def test_a_server_that_fails_is_left_alone_and_the_other_is_not() -> None:
    def fail() -> Reply:
        raise LinkError("no")

    bad, good, found = Asker(fail), Asker(Reply), list[Any]()
    askings = [Asking(server, task, Options()) for task in tasks(1, 5) for server in (bad, good)]
    ask_all(askings, 1, lambda number, reply: found.append(askings[number].server))
    assert (found.count(bad), found.count(good)) == (MAX_FAILURES, 10)


@contextmanager
def raw_server(send: Callable[[socket.socket, threading.Event], None]) -> Iterator[EngineUrl]:
    """A server that sends what it likes to everybody who connects."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    wire, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=talk, args=(wire,), daemon=True).start()

        def talk(wire: socket.socket) -> None:
            with wire:
                try:
                    wire.recv(65536)
                    send(wire, ended)
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        port = listener.getsockname()[1]
        try:
            yield EngineUrl(f"http://127.0.0.1:{port}/v1")
        finally:
            ended.set()
            listener.shutdown(socket.SHUT_RDWR)


def test_a_server_that_drips_forever_is_given_up() -> None:
    """Each byte comes in time, and the headers never end."""

    def drip(wire: socket.socket, ended: threading.Event) -> None:
        wire.sendall(b"HTTP/1.1 200 OK\r\nx: ")
        while not ended.wait(0.01):
            wire.sendall(b"x")

    with raw_server(drip) as url:
        server = VerifiedServer(url, "", 0.5)
        with pytest.raises(Lost, match="no whole answer"):
            server.open()
        server.close()


def test_an_answer_without_an_end_is_given_up() -> None:
    def flood(wire: socket.socket, ended: threading.Event) -> None:
        wire.sendall(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
        while not ended.is_set():
            wire.sendall(b" " * 65536)

    with raw_server(flood) as url:
        server = VerifiedServer(url, "", 60)
        with pytest.raises(LinkError, match=f"over {MAX_REPLY_BYTES >> 20} MiB"):
            server.ask(GREETING)
        server.close()


def test_a_call_within_a_limit_returns_and_raises() -> None:
    assert within(lambda: 3, 60, URL) == 3
    with pytest.raises(ZeroDivisionError):
        within(lambda: 1 // 0, 60, URL)
