"""Prompts, predictions and bodies of many megabytes are refused, cut or stopped. Meanwhile others
get their answers from the same server, and afterwards no memory stays behind."""

from __future__ import annotations

import contextlib
import gc
import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import psutil
import pytest

from engine.memory import give_back_memory
from engine.prompts.text_pieces import PIECE_CHARS
from engine.prompts.tokenizer import SHORT_CHARS, Tokenizer
from engine.records import MAX_PREDICTION_CHARS
from tests.support.server import (
    ANSWER,
    HELLO,
    TIMEOUT_S,
    LocalServer,
    endless,
    send_raw,
    serve_model,
    wait_until,
    with_infill,
)
from ui.api.fields import MAX_MESSAGES
from ui.api.json_values import MAX_VALUES, values_in
from ui.api.large_bodies import MAX_DRAIN_BYTES

CHAT, TEXT, PREDICT = "/v1/chat/completions", "/v1/completions", "/predict"
MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
RESPONSES = "/v1/responses"
CONTEXT = 32768  # of the model
MB = 1_000_000
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "
LINE = "def add(left, right): return left + right\n"
MAX_LEFT_BYTES = 100 * MB  # in memory, after all attacks
ATTACKS = 100

Body = dict[str, Any]


def message(text: Any) -> Body:
    return {"messages": [{"role": "user", "content": text}]}


def lines(size: int) -> str:
    return LINE * (size // len(LINE))


REFUSED: dict[str, tuple[str, Callable[[], Body]]] = {
    "one long message": (CHAT, lambda: message(lines(7_750_000))),
    "8,000 messages": (CHAT, lambda: {"messages": HELLO * 8_000}),
    "messages that fit alone": (
        CHAT,
        lambda: {"messages": message(lines(8_000))["messages"] * 900},
    ),
    "a million fences": (CHAT, lambda: message("```\n" * MB)),
    "blank lines": (CHAT, lambda: message("\n" * 4 * MB)),
    "a long prompt": (TEXT, lambda: {"prompt": lines(7 * MB)}),
    "a long suffix": (TEXT, lambda: {"prompt": "x", "suffix": lines(7 * MB)}),
    "a long system text": (MESSAGES, lambda: {"system": lines(7 * MB), "messages": HELLO}),
    "a long text to count": (COUNT, lambda: message("x" * 7_750_000)),
    "messages of 48,000 results to count": (
        COUNT,
        lambda: {
            "messages": message([{"type": "tool_result", "tool_use_id": "a"}] * 8_000)["messages"]
            * 6
        },
    ),
    "a long item": (RESPONSES, lambda: {"input": lines(7 * MB)}),
    "a long prompt to continue": (PREDICT, lambda: {"prompt": lines(7 * MB)}),
}
INVALID: dict[str, tuple[str, Body]] = {
    "too many messages": (CHAT, {"messages": HELLO * 40_000}),
    "millions of lists": (CHAT, {"messages": HELLO, "logit_bias": [[]] * 2 * MB}),
    "a million blocks that are none": (MESSAGES, message([0] * MB)),
    "blocks that are none": (MESSAGES, message([0] * MAX_MESSAGES)),
    "too many messages to count": (COUNT, {"messages": HELLO * 40_000}),
    "items that are none": (RESPONSES, {"input": [0] * MAX_MESSAGES}),
    "too many messages as items": (RESPONSES, {"input": HELLO * 40_000}),
    "functions that are none": (RESPONSES, {"input": "x", "tools": [0] * 4 * MB}),
    "some functions that are none": (RESPONSES, {"input": "x", "tools": [0] * (MB // 8)}),
    "some tools that are none": (MESSAGES, {"messages": HELLO, "tools": [0] * (MB // 8)}),
    "some messages that are none": (CHAT, {"messages": [0] * (MB // 8)}),
    "some parts that are none": (CHAT, message([0] * (MB // 8))),
}
PREDICTION = {"prediction": {"type": "content", "content": lines(7 * MB)}}


@dataclass
class Tokenized:
    """What was tokenized. Long texts are held after their first piece while `open` is not set."""

    pieces: list[tuple[int, int]] = field(default_factory=list)  # (text's length, tokens)
    held: threading.Event = field(default_factory=threading.Event)
    open: threading.Event = field(default_factory=threading.Event)

    def tokens(self, longer_than: int = SHORT_CHARS) -> int:
        return sum(tokens for length, tokens in self.pieces if length > longer_than)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    folder = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRAFTLINE_HOME", str(tmp_path_factory.mktemp("home")))
        model = with_infill(endless(folder / "endless"), folder / "model")
        (model / "chat_template.jinja").write_text(TEMPLATE, "utf-8")
        with serve_model(model) as served:
            assert served.engine.context == CONTEXT
            yield served


@pytest.fixture
def tokenized(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tokenized]:
    found = Tokenized()
    found.open.set()
    whole = Tokenizer.encode_in_pieces

    def noted(self: Tokenizer, text: str) -> Iterator[list[int]]:
        for ids in whole(self, text):
            found.pieces.append((len(text), len(ids)))
            if len(text) > SHORT_CHARS and not found.open.is_set():
                found.held.set()
                assert found.open.wait(TIMEOUT_S)
            yield ids

    monkeypatch.setattr(Tokenizer, "encode_in_pieces", noted)
    yield found
    found.open.set()


def post(server: LocalServer, path: str, body: Body) -> Any:
    with server.http() as http:
        return http.post(path, json=body)


def others_are_served(server: LocalServer) -> None:
    with server.http() as http:
        assert http.get("/health").json() == {"status": "ok"}
        answer = http.post(CHAT, json={"messages": HELLO, "max_tokens": 3}).json()
    assert answer["choices"][0]["message"]["content"] == ANSWER[:3]


def too_long(answer: Any) -> bool:
    """Whether the answer says that the context is exceeded, by how much, and what to do."""
    error = answer.json()["error"]
    known = f"tokens, the model's context is {CONTEXT}: select fewer lines" in error["message"]
    code = error.get("code", "context_length_exceeded")  # Anthropic's errors have none
    return answer.status_code == 400 and code == "context_length_exceeded" and known


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_fit_is_refused_without_tokenizing_it(
    server: LocalServer, tokenized: Tokenized, name: str
) -> None:
    path, make = REFUSED[name]
    assert too_long(post(server, path, make()))
    assert tokenized.tokens(0) <= 2 * CONTEXT
    if "messages" not in name:
        assert tokenized.tokens(0) < 20
    others_are_served(server)


@pytest.mark.parametrize("name", INVALID)
def test_validation_ends_with_the_first_error(server: LocalServer, name: str) -> None:
    path, body = INVALID[name]
    answer = post(server, path, body)
    error = answer.json()["error"]
    assert len(answer.content) < 1000
    if values_in(json.dumps(body)) > MAX_VALUES:
        assert answer.status_code == 413 and f"{MAX_VALUES:,}" in error["message"]
        return
    assert answer.status_code == 400
    if path in (CHAT, RESPONSES):
        assert error["param"]
    if name == "too many messages":
        assert error["code"] == "context_length_exceeded" and str(MAX_MESSAGES) in error["message"]
    others_are_served(server)


def test_of_a_long_prediction_the_first_part_is_used(
    server: LocalServer, tokenized: Tokenized
) -> None:
    body = {"messages": HELLO, "max_tokens": 9}
    plain, predicted = post(server, CHAT, body), post(server, CHAT, body | PREDICTION)
    assert predicted.json()["choices"] == plain.json()["choices"]
    assert tokenized.tokens() <= 2 * MAX_PREDICTION_CHARS  # to draft from, and for the usage
    details = predicted.json()["usage"]["completion_tokens_details"]
    assert sum(details[f"{kind}_prediction_tokens"] for kind in ("accepted", "rejected")) == len(
        server.engine.encode(lines(7 * MB)[:MAX_PREDICTION_CHARS])
    )


# A text of many pieces that might fit by its bytes: "```" is one token, and so are all letters.
LONG = ("`" * 97 + "a b") * 1200
assert len(LONG) > 7 * PIECE_CHARS


@pytest.mark.parametrize("stream", [False, True])
def test_others_are_served_while_a_long_prompt_is_tokenized(
    server: LocalServer, tokenized: Tokenized, stream: bool
) -> None:
    tokenized.open.clear()
    with ThreadPoolExecutor(1) as pool:
        attack = pool.submit(post, server, CHAT, message(LONG) | {"stream": stream})
        assert tokenized.held.wait(TIMEOUT_S)
        others_are_served(server)
        assert not attack.done()
        tokenized.open.set()
        assert too_long(attack.result())
    assert tokenized.tokens() <= CONTEXT + PIECE_CHARS


@pytest.mark.parametrize(
    ("path", "stream"), [(CHAT, False), (CHAT, True), (MESSAGES, True), (COUNT, False)]
)
def test_tokenizing_stops_when_the_client_disconnects(
    server: LocalServer, tokenized: Tokenized, path: str, stream: bool
) -> None:
    tokenized.open.clear()
    body = json.dumps(message(LONG) | {"stream": stream}).encode()
    with socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S) as wire:
        wire.sendall(head(path, len(body)) + body)
        assert tokenized.held.wait(TIMEOUT_S)
        (open_stream,) = server.app.state.jobs._open
    wait_until(lambda: open_stream.cancelled)
    others_are_served(server)
    tokenized.open.set()
    wait_until(lambda: server.open() == 0)
    assert len([length for length, _ in tokenized.pieces if length > SHORT_CHARS]) == 1


# -- bodies ------------------------------------------------------------------------------------


def head(path: str, size: int, *more: str) -> bytes:
    """The head of a POST request."""
    names = ("Host: localhost", "Content-Type: application/json", f"Content-Length: {size}")
    return "\r\n".join((f"POST {path} HTTP/1.1", *names, *more, "", "")).encode()


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_of_10_mb_is_answered(server: LocalServer, chunked: bool) -> None:
    body = json.dumps(message("x" * 10 * MB)).encode()
    parts = (body[start : start + 65536] for start in range(0, len(body), 65536))
    with server.http() as http:
        for _ in range(3):  # over one connection
            answer = http.post(CHAT, content=parts if chunked else body)
            assert answer.status_code == 413
            assert (
                answer.json()["error"]["message"]
                == "the body is too large: send at most 8388608 bytes"
            )
            if chunked:
                break
    others_are_served(server)


@pytest.mark.parametrize(("host", "status"), [("localhost", 413), ("evil.example", 400)])
def test_a_client_that_writes_before_it_reads_gets_the_answer(
    server: LocalServer, host: str, status: int
) -> None:
    """The server answers before it has the body, for whatever reason."""
    size = 10 * MB
    request = head(CHAT, size, "Connection: close").replace(b"localhost", host.encode())
    line, _, rest = send_raw(server.port, request + b" " * size).partition(b"\r\n")
    assert int(line.split()[1]) == status
    assert json.loads(rest.partition(b"\r\n\r\n")[2])["error"]["type"] == "invalid_request_error"


def test_a_body_without_end_is_not_read(server: LocalServer) -> None:
    """Of such a body no more than a part is read before the server closes the connection."""
    sent = 0
    with socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S) as wire:
        wire.sendall(head(CHAT, 0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked"))
        chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
        with contextlib.suppress(ConnectionError):
            while sent < 4 * MAX_DRAIN_BYTES:
                wire.sendall(chunk)
                sent += len(chunk)
    assert sent < 2 * MAX_DRAIN_BYTES
    others_are_served(server)


# -- memory ------------------------------------------------------------------------------------


@pytest.mark.full
def test_no_memory_stays_behind(server: LocalServer) -> None:
    """Four clients send so many of these at once, and once more. What the first time allocates,
    such as tables of the vocabulary and the allocator's arenas, is there once."""
    made = [(CHAT, lambda: {"messages": HELLO, "max_tokens": 2} | PREDICTION), *REFUSED.values()]
    sent = [(path, json.dumps(make()).encode()) for path, make in made]

    def attack(numbers: range) -> None:
        with server.http(headers={"content-type": "application/json"}) as client:
            for number in numbers:
                path, body = sent[number % len(sent)]
                assert client.post(path, content=body).status_code in (200, 400)

    def memory() -> int:
        wait_until(lambda: server.open() == 0)
        gc.collect()
        give_back_memory()  # of the clients, too
        return int(psutil.Process().memory_info().rss)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(attack, [range(len(sent))]))
        list(pool.map(attack, [range(client, ATTACKS, 4) for client in range(4)]))
        before = memory()
        list(pool.map(attack, [range(client, ATTACKS, 4) for client in range(4)]))
        wait_until(lambda: memory() - before < MAX_LEFT_BYTES)  # the last requests may still end
