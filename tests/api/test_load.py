"""Many clients at once, some of which disconnect: answers stay complete, abandoned work stops, and
nothing leaks."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from bench.serving.load import CHAT, TEXT, ExpectedAnswer, Tally, load, plan
from engine import Request
from engine.records import Done, Event
from engine.worker import MAX_CLIENTS as MAX_TURNS
from engine.worker import Job, Worker
from tests.support.server import (
    ANSWER,
    HELLO,
    TIMEOUT_S,
    LocalServer,
    answers_pause,
    endless,
    occupied,
    parse_events,
    serve_model,
    text_of,
    wait_until,
)
from ui.api import requests
from ui.api import schemas as types
from ui.api.jobs import MAX_CLIENTS, Jobs, QueueFull
from ui.cli import serve

QUEUE_SIZE = 6
LONG = 30_000  # tokens
OUTCOMES = ("streamed", "left", "refused")
CANCELLED = 'draftline_answers_total{end="cancelled"}'


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setenv("DRAFTLINE_HOME", str(tmp_path_factory.mktemp("home")))
    yield
    patch.undo()


@pytest.fixture(scope="module")
def sampling(tiny: Any) -> Iterator[LocalServer]:
    """A server whose answers depend on the whole prompt."""
    with serve_model(tiny("llama"), queue_size=QUEUE_SIZE) as served:
        yield served


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """A server whose answers fill the context."""
    model = endless(tmp_path_factory.mktemp("models") / "endless")
    with serve_model(model, aliases=["*"]) as served:
        yield served
    assert served.open() == 0


# -- concurrent clients ------------------------------------------------------------------------


def request_of(answer: ExpectedAnswer) -> Request:
    if answer.route == CHAT:
        return requests.chat_request(types.ChatRequest(**answer.body))
    return requests.completion_request(types.CompletionRequest(**answer.body))


def test_concurrent_answers_are_complete_and_not_mixed_up(sampling: LocalServer) -> None:
    """There are more clients than slots, and half of them disconnect. Each of the others gets the
    answer that the engine gives when it runs only that request, without speculation."""
    expected = []
    for planned in plan(20):
        text = sampling.engine.submit(request_of(planned), speculation=False).result().text
        expected.append(ExpectedAnswer(planned.route, planned.body, text))
    assert len({answer.text for answer in expected}) == len(expected)
    process = psutil.Process()
    fds_before = process.num_fds()
    tallies: list[Tally] = []

    def all_outcomes_seen() -> bool:
        """Put more load on the server; whether by now each client that stays got an answer and all
        outcomes occurred."""
        tallies.append(asyncio.run(load(sampling.url, expected, 12, 0.7, seed=len(tallies))))
        assert not tallies[-1].wrong, tallies[-1].wrong[:5]
        answered = sum((tally.whole for tally in tallies), Counter[int]())
        occurred = all(any(getattr(tally, name) for tally in tallies) for name in OUTCOMES)
        return occurred and all(answered[number] for number in range(12) if number % 4 < 2)

    wait_until(all_outcomes_seen)
    wait_until(lambda: sampling.open() == 0)
    wait_until(lambda: process.num_fds() <= fds_before)

    def threads() -> int:
        names = [thread.name for thread in threading.enumerate()]
        return sum(name.startswith("draftline-ev") for name in names)

    wait_until(lambda: threads() <= QUEUE_SIZE)  # the last ones end behind their requests


def test_clients_take_turns(busy: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client with one request does not wait for all requests of another client. Clients are
    identified by their `user` field."""
    order: list[str] = []  # the users, in the order in which their jobs finished
    threads: list[threading.Thread] = []
    tokens, put = {"many": 2, "one": 3}, Job.put

    def record(job: Job, event: Event) -> None:
        if isinstance(event, Done):
            order.extend(user for user in tokens if job.request.max_tokens == tokens[user])
        put(job, event)

    monkeypatch.setattr(Job, "put", record)

    def post(user: str) -> None:
        body = {"messages": HELLO, "max_tokens": tokens[user], "user": user}
        with busy.http() as http:
            http.post(CHAT, json=body).raise_for_status()

    with occupied(busy.engine):
        for user in ("many", "many", "many", "many", "one"):
            waiting = len(busy.engine.worker.waiting)
            threads.append(threading.Thread(target=post, args=(user,)))
            threads[-1].start()
            wait_until(lambda count=waiting: len(busy.engine.worker.waiting) > count)
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert sorted(order) == [*["many"] * 4, "one"]
    assert order.index("one") == 1, order


def test_completions_run_before_chats(busy: LocalServer) -> None:
    """A completion is answered while one chat is running and another is waiting."""
    body = {"messages": HELLO, "max_tokens": 4, "stream": True}
    with (
        busy.http() as http,
        busy.http() as other,
        occupied(busy.engine) as release,
        http.stream("POST", CHAT, json=body) as stream,
    ):
        answer = other.post(TEXT, json={"prompt": "x\n", "max_tokens": 4}).json()
        assert answer["choices"][0]["text"] == f" {ANSWER}"[:4]
        assert busy.open() == 1
        release()
        assert text_of(parse_events(b"".join(stream.iter_bytes()))) == ANSWER[:4]


def test_a_client_that_does_not_read_blocks_no_other(busy: LocalServer) -> None:
    """Its answer is buffered. Each event contains the model's name, which is long enough that no
    socket buffer could hold all events."""
    with busy.http() as http, busy.http() as other:
        body = {"model": "m" * 300_000, "messages": HELLO, "max_tokens": 1000, "stream": True}
        with http.stream("POST", CHAT, json=body) as stream:
            wait_until(lambda: busy.open() == 0)
            short = other.post(CHAT, json={"messages": HELLO, "max_tokens": 3}).json()
            assert short["choices"][0]["message"]["content"] == ANSWER[:3]
            received = b"".join(stream.iter_bytes())
    assert len(received) > 6e6
    assert text_of(parse_events(received)) == (f"{ANSWER}\n " * 36)[:1000]


# -- disconnects -------------------------------------------------------------------------------


def open_post(server: LocalServer, route: str, body: dict[str, Any]) -> socket.socket:
    """Send a request and return its connection, without reading the response."""
    wire = socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S)
    content = json.dumps(body).encode()
    head = f"POST {route} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    wire.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    return wire


@pytest.mark.parametrize("lines_read", [0, 20])
@pytest.mark.parametrize("route", [CHAT, TEXT, "/predict"])
def test_generation_stops_when_the_client_disconnects(
    busy: LocalServer, route: str, lines_read: int
) -> None:
    """Both for streams, after some lines, and for responses that are not streamed."""
    body: dict[str, Any] = {"messages": HELLO} if route == CHAT else {"prompt": "x\n"}
    body |= {"num_tokens" if route == "/predict" else "max_tokens": LONG, "temperature": 0}
    names = (CANCELLED, "draftline_late_steps_total", "draftline_completion_tokens_total")
    before = [busy.metric(name) for name in names]
    with answers_pause(busy.engine):
        wire = open_post(busy, route, body | {"stream": lines_read > 0})
        wait_until(lambda: busy.open() == 1)
        if lines_read and route != "/predict":
            with wire.makefile("rb") as lines:
                for _ in range(lines_read):
                    assert lines.readline()
        wire.close()
        wait_until(lambda: busy.open() == 0)
    cancelled, late, tokens = (
        busy.metric(name) - previous for name, previous in zip(names, before, strict=True)
    )
    assert cancelled == 1 and tokens < LONG
    assert late <= 2, "at most the current pass and the step that reports it"


def test_a_request_whose_client_disconnects_in_the_queue_never_runs(busy: LocalServer) -> None:
    """Its queue slot is released while the job ahead of it is still running."""
    names = (CANCELLED, "draftline_completion_tokens_total")
    with occupied(busy.engine):
        before = [busy.metric(name) for name in names]
        waiting = open_post(busy, CHAT, {"messages": HELLO, "max_tokens": LONG})
        wait_until(lambda: busy.open() == 1)
        waiting.close()
        wait_until(lambda: busy.open() == 0)
        assert [busy.metric(name) for name in names] == [before[0] + 1, before[1]]


def test_a_connection_is_reused_after_an_answer(busy: LocalServer) -> None:
    """The end of an answer is not mistaken for a disconnect."""
    before = busy.metric(CANCELLED)
    with busy.http() as http:
        for stream in (True, False, True, False):
            body = {"messages": HELLO, "max_tokens": 3, "stream": stream}
            assert ANSWER[0].encode() in http.post(CHAT, json=body).raise_for_status().content
    assert busy.metric(CANCELLED) == before


def test_events_are_sent_at_once() -> None:
    """`draftline serve` disables Nagle's algorithm, which would delay each answer by 40 ms."""
    with (
        serve._listening(socket.AF_INET, "127.0.0.1", 0) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_the_number_of_client_names_is_bounded(busy: LocalServer) -> None:
    """The name of the least recently used client is reused, and the engine forgets its history."""
    jobs = Jobs(busy.engine, 1)
    names = [jobs._client_name(f"client {n}") for n in range(MAX_CLIENTS)]
    assert len(set(names)) == MAX_CLIENTS
    busy.engine.parts.history.add(names[0], "", [1, 2, 3])
    assert jobs._client_name("client 0") == names[0]
    later = [jobs._client_name(f"later {n}") for n in range(MAX_CLIENTS - 1)]
    assert later == names[1:]
    assert jobs._client_name("client 0") == names[0]
    assert busy.engine.parts.history.of(names[0])
    for n in range(MAX_CLIENTS):
        jobs._client_name(f"last {n}")
    assert not busy.engine.parts.history.of(names[0])
    jobs.close()


def test_a_rejected_request_takes_no_client_name(busy: LocalServer) -> None:
    """Otherwise it could take the name of another client."""
    jobs = Jobs(busy.engine, 1)
    jobs.queue_size = 0
    with pytest.raises(QueueFull):
        jobs.submit(lambda: Request("chat"), "new")
    assert not jobs._client_names
    jobs.close()


def test_the_worker_keeps_the_turns_of_a_bounded_number_of_clients() -> None:
    worker = Worker()
    for n in range(2 * MAX_TURNS):
        name = "regular" if n % 10 == 0 else f"client {n}"
        job = Job(Request("complete", "x"), lambda stop: iter([Done("stop")]), name)
        worker.submit(job).result()
    turns, used = worker._schedule._served, worker._schedule._used
    for known in (turns, used):
        assert len(known) == MAX_TURNS
        assert "regular" in known and "client 1" not in known
    assert list(turns.values()) == sorted(turns.values())
    worker.close()
