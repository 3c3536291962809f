"""Attacks on the HTTP server: requests that are not sent to their end, streams that are not read.

Time limits are tested with a clock in tests/cli/test_connection.py; here a test says when they are
over."""

from __future__ import annotations

import contextlib
import json
import select
import socket
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from engine import Config, Engine
from tests.support.server import (
    ANSWER,
    HELLO,
    TIMEOUT_S,
    LocalServer,
    answers_pause,
    endless,
    serve_engine,
    wait_until,
)
from ui.api import large_bodies
from ui.cli import connection
from ui.cli.connection import HttpConnection

KEY, OTHER_KEY = "0123456789abcdef0123", "3210fedcba9876543210"
CHAT = "/v1/chat/completions"
MAX_LEFT_BYTES = 100 << 20  # that an attack may leave behind
EVENT_BYTES = 300_000
BYTES_PER_CLIENT = 10 * EVENT_BYTES  # its request, and the event that is being sent
LIMITS = ("HEADER_TIMEOUT_S", "BODY_TIMEOUT_S", "REST_TIMEOUT_S", "WRITE_TIMEOUT_S")
NEVER_S = 10 * TIMEOUT_S
HALVES = {  # requests that lack their end
    "nothing": b"",
    "a request line": f"POST {CHAT} HT".encode(),
    "headers": f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nX-Name: ".encode(),
    "a body": (
        f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
        "Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{"
    ).encode(),
    "a body without a key": (
        f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
    ).encode(),
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    model = endless(tmp_path_factory.mktemp("models") / "endless")
    with Engine(Config(model=str(model), threads=2, library=False)) as engine:
        yield engine


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[HttpConnection]:
    """The server's connections, recorded when they are made. Their time limits are not over before
    a test says so, however slow the machine is."""
    for limit in LIMITS:
        monkeypatch.setattr(connection, limit, NEVER_S)
    monkeypatch.setattr(large_bodies, "DRAIN_SECONDS", NEVER_S)
    made: list[HttpConnection] = []
    original = HttpConnection.connection_made

    def record(self: HttpConnection, transport: Any) -> None:
        original(self, transport)
        made.append(self)

    monkeypatch.setattr(HttpConnection, "connection_made", record)
    return made


@pytest.fixture
def served(engine: Engine, connections: list[HttpConnection]) -> Iterator[LocalServer]:
    from ui.api.security import AccessRules

    with serve_engine(engine, rules=AccessRules(key=KEY), aliases=["*"]) as server:
        yield server


@contextlib.contextmanager
def clients(served: LocalServer, count: int, data: bytes) -> Iterator[list[socket.socket]]:
    """Connections on which `data` has been sent."""
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(count):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(TIMEOUT_S)
            client.connect(("127.0.0.1", served.port))
            client.sendall(data)
            opened.append(client)
        yield opened


def of(connections: list[HttpConnection], opened: list[socket.socket]) -> list[HttpConnection]:
    """The server's side of the connections."""
    wait_until(lambda: len(connections) >= len(opened))
    addresses = {client.getsockname() for client in opened}
    return [one for one in connections if one.client in addresses]


def assert_answers(served: LocalServer) -> None:
    """Check that another client is served."""
    with served.http() as http:
        assert http.get("/health").status_code == 200
        answer = http.post(
            CHAT,
            json={"messages": HELLO, "max_tokens": 5},
            headers={"authorization": f"Bearer {KEY}"},
        )
        assert answer.json()["choices"][0]["message"]["content"] == ANSWER[:5]


def run_in(one: HttpConnection, call: Any, *arguments: Any) -> None:
    one.loop.call_soon_threadsafe(call, *arguments)


def close_unread(ours: list[HttpConnection]) -> None:
    """Let the time limits of clients that read nothing be over, until all are closed. A limit
    begins anew each time that the system takes some more of what is sent."""

    def be_over(one: HttpConnection) -> None:
        if one._write_timer is not None:
            one._write_timer._run()

    def are_closed() -> bool:
        left = [one for one in ours if one in one.connections]
        for one in left:
            run_in(one, be_over, one)
        return not left

    wait_until(are_closed)


@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.full)])
@pytest.mark.parametrize("half", HALVES)
def test_half_sent_requests_end(
    served: LocalServer, connections: list[HttpConnection], half: str, count: int
) -> None:
    """They have a time limit; until then, others are served."""
    before = psutil.Process().memory_info().rss
    with clients(served, count, HALVES[half]) as opened:
        ours = of(connections, opened)
        wait_until(lambda: all(one._received == len(HALVES[half]) for one in ours))
        assert_answers(served)
        for one in ours:
            assert one._request_timer is not None, "a time limit is set"
            run_in(one, one._request_timer._run)
        wait_until(lambda: all(one not in one.connections for one in ours))
        for client in opened:
            with contextlib.suppress(ConnectionResetError):
                while client.recv(65536):
                    pass
        assert_answers(served)
    wait_until(lambda: served.open() == 0)
    assert psutil.Process().memory_info().rss - before < MAX_LEFT_BYTES


@pytest.mark.parametrize("count", [100, pytest.param(400, marks=pytest.mark.full)])
@pytest.mark.parametrize("half", HALVES)
def test_the_number_of_connections_is_bounded(
    served: LocalServer, half: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new client is always served: the oldest that waits for its client makes room."""
    most = count // 5
    monkeypatch.setattr(connection, "MAX_CONNECTIONS", most)

    with clients(served, count, HALVES[half]) as opened:
        if half != "a body without a key":  # those get an answer, so all can be read
            wait_until(lambda: len(select.select(opened, [], [], 0)[0]) >= count - most)
        assert_answers(served)


def request(max_tokens: int) -> bytes:
    """A request for a stream whose events are large."""
    content = {"model": "m" * EVENT_BYTES, "messages": HELLO, "stream": True}
    body = json.dumps(content | {"max_tokens": max_tokens}).encode()
    head = (
        f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@pytest.mark.parametrize("count", [4, pytest.param(24, marks=pytest.mark.full)])
def test_clients_that_never_read_their_streams(
    served: LocalServer, connections: list[HttpConnection], count: int
) -> None:
    """Others are served, memory is bounded, and the connections have a time limit."""
    memory = psutil.Process().memory_info
    before = memory().rss
    with clients(served, count, request(1000)) as opened:
        ours = of(connections, opened)
        wait_until(lambda: all(one.flow.write_paused for one in ours))
        assert_answers(served)
        wait_until(lambda: served.open() == 0)
        assert memory().rss - before < MAX_LEFT_BYTES + count * BYTES_PER_CLIENT
        close_unread(ours)
    assert_answers(served)
    assert memory().rss - before < MAX_LEFT_BYTES


def test_the_answer_of_a_client_that_never_reads_is_cancelled(
    served: LocalServer, connections: list[HttpConnection]
) -> None:
    """The answer is never finished in this test: only cancelling ends it."""
    with answers_pause(served.engine), clients(served, 1, request(30_000)) as opened:
        [one] = of(connections, opened)
        wait_until(lambda: one.flow.write_paused)
        assert served.open() == 1
        close_unread([one])
        wait_until(lambda: served.open() == 0)
    assert_answers(served)


def test_a_key_that_fills_the_queue_keeps_no_other_waiting(
    engine: Engine, connections: list[HttpConnection]
) -> None:
    """Its streams are never read, and would take minutes. Those of the other key are answered
    meanwhile, chats and completions."""
    from ui.api.security import AccessRules

    rules = AccessRules(key=f"{KEY} {OTHER_KEY}")
    headers = {"authorization": f"Bearer {OTHER_KEY}"}
    body = json.dumps({"prompt": "x\n", "max_tokens": 30_000, "stream": True}).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with serve_engine(engine, rules=rules, queue_size=8) as served:
        with clients(served, 12, head.encode() + body), served.http(headers=headers) as http:
            wait_until(lambda: served.open() == 8)
            for _ in range(3):
                chat = http.post(CHAT, json={"messages": HELLO, "max_tokens": 5})
                assert chat.json()["choices"][0]["message"]["content"] == ANSWER[:5]
                text = http.post("/v1/completions", json={"prompt": "x\n", "max_tokens": 5})
                assert text.json()["choices"][0]["text"] == f" {ANSWER}"[:5]
            assert served.open() == 8, "none of the others has ended"
        wait_until(lambda: served.open() == 0)


def test_the_key_of_a_half_sent_request_is_checked_first(
    served: LocalServer,
) -> None:
    """Without the key no body is read: the answer comes before it."""
    with clients(served, 1, HALVES["a body without a key"]) as [client]:
        assert client.recv(65536).startswith(b"HTTP/1.1 401 ")


def chunks(path: str, headers: str, count: int, size: int = 1) -> bytes:
    """A request whose body comes in chunks of `size` bytes."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n{headers}\r\n"
    return head.encode() + (b"%x\r\n%s\r\n" % (size, b" " * size)) * count


@pytest.mark.parametrize("path", [CHAT, "/v1/draftline/submit", "/v1/embeddings", "/none"])
@pytest.mark.parametrize("headers", [f"Authorization: Bearer {KEY}\r\n", ""])
def test_a_body_in_tiny_chunks_is_refused_early(
    served: LocalServer, connections: list[HttpConnection], path: str, headers: str
) -> None:
    """So that a few megabytes do not take the server seconds: what is parsed is counted."""
    count = 100 * connection.MAX_PIECES
    with clients(served, 1, b"") as [client]:
        with contextlib.suppress(ConnectionError):  # it may be closed before all is sent
            client.sendall(chunks(path, headers, count))
        [ours] = of(connections, [client])
        wait_until(lambda: ours not in ours.connections)
        assert isinstance(ours.conn, connection.CountedPieces)
        assert ours.conn.pieces == connection.MAX_PIECES + 1
    assert_answers(served)


def test_who_sends_tiny_chunks_is_told(served: LocalServer) -> None:
    request = chunks(CHAT, f"Authorization: Bearer {KEY}\r\n", connection.MAX_PIECES + 1)
    with clients(served, 1, request) as [client]:
        assert client.recv(65536).startswith(b"HTTP/1.1 400 ")
        wait_until(lambda: not client.recv(65536))


def test_a_body_in_many_larger_chunks_is_read(served: LocalServer) -> None:
    headers = f"Authorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
    body = json.dumps({"messages": HELLO, "max_tokens": 5}).encode()
    request = chunks(CHAT, headers, 2 * connection.MAX_PIECES, 2 * connection.MIN_PIECE_BYTES)
    with clients(served, 1, request + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)) as [client]:
        assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
