"""Many clients at once, some of whom hang up: answers stay whole, work stops, nothing is left."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench.serving.load import CHAT, TEXT, Asked, Tally, load, plan
from engine import Request
from engine.records import Done, Event
from engine.worker import MAX_CLIENTS as TURNS
from engine.worker import Job, Worker
from tests.support.server import (
    ANSWER,
    HELLO,
    PATIENCE,
    Served,
    endless,
    events,
    served_model,
    text_of,
    until,
)
from ui.api import requests
from ui.api import schemas as types
from ui.api.jobs import MAX_CLIENTS, Jobs
from ui.cli import serve

ROOT = Path(__file__).resolve().parents[2]

PLACES = 6
LONG = 30_000  # tokens: seconds
HAPPENS = ("streamed", "left", "refused")
CANCELLED = 'draftline_answers_total{end="cancelled"}'


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setenv("DRAFTLINE_HOME", str(tmp_path_factory.mktemp("home")))
    yield
    patch.undo()


@pytest.fixture(scope="module")
def writes(tiny: Any) -> Iterator[Served]:
    """Its answers depend on all that it is asked."""
    with served_model(tiny("llama"), queue_size=PLACES) as served:
        yield served


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Its answers take seconds."""
    model = endless(tmp_path_factory.mktemp("models") / "endless")
    with served_model(model, aliases=["*"]) as served:
        yield served
    assert served.open() == 0


# -- many at once ------------------------------------------------------------------------------


def request_of(one: Asked) -> Request:
    if one.route == CHAT:
        return requests.chat_request(types.ChatRequest(**one.body))
    return requests.completion_request(types.CompletionRequest(**one.body))


def test_every_answer_is_whole_and_its_own(writes: Served) -> None:
    """More clients than places, half of whom leave; what each gets is what the engine writes
    plainly for its request alone."""
    wanted = []
    for one in plan(20):
        text = writes.engine.submit(request_of(one), speculation=False).result().text
        wanted.append(Asked(one.route, one.body, text))
    assert len({one.text for one in wanted}) == len(wanted)
    process = psutil.Process()
    before = process.num_fds()
    tallies: list[Tally] = []

    def enough() -> bool:
        """Each who stays got an answer, and all else happened, too."""
        tallies.append(asyncio.run(load(writes.url, wanted, 12, 0.7, seed=len(tallies))))
        assert not tallies[-1].wrong, tallies[-1].wrong[:5]
        stayed = sum((one.whole for one in tallies), Counter[int]())
        happened = all(any(getattr(one, what) for one in tallies) for what in HAPPENS)
        return happened and all(stayed[number] for number in range(12) if number % 4 < 2)

    until(enough)
    until(lambda: writes.open() == 0)
    until(lambda: process.num_fds() <= before)
    followers = [one.name for one in threading.enumerate() if one.name.startswith("draftline-ev")]
    assert len(followers) <= PLACES


def test_who_asks_for_much_does_not_keep_others_waiting(
    busy: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients are told apart by what they say that they are; each has its turn."""
    order: list[str] = []  # as the engine ended them: threads of clients may wake in any other
    threads: list[threading.Thread] = []
    tokens, put = {"much": 2, "little": 3}, Job.put

    def noted(job: Job, event: Event) -> None:
        if isinstance(event, Done):
            order.extend(user for user in tokens if job.request.max_tokens == tokens[user])
        put(job, event)

    monkeypatch.setattr(Job, "put", noted)

    def ask(user: str) -> None:
        body = {"messages": HELLO, "max_tokens": tokens[user], "user": user}
        with busy.http() as http:
            http.post(CHAT, json=body).raise_for_status()

    def start(user: str) -> None:
        count = busy.open()
        threads.append(threading.Thread(target=ask, args=(user,)))
        threads[-1].start()
        until(lambda: busy.open() > count)

    with busy.http() as http:
        body = {"messages": HELLO, "max_tokens": LONG, "user": "first", "stream": True}
        with http.stream("POST", CHAT, json=body) as stream:
            lines = stream.iter_lines()  # kept: without it the connection is closed
            next(lines)
            for user in ("much", "much", "much", "much", "little"):
                start(user)
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(order) == ["little", *["much"] * 4]
    assert order.index("little") <= 2, order


def test_urgent_ones_run_first(busy: Served) -> None:
    """A completion is answered while a chat is written, which goes on."""
    with busy.http() as http, busy.http() as other:
        body = {"messages": HELLO, "max_tokens": LONG, "stream": True}
        with http.stream("POST", CHAT, json=body) as stream:
            lines = stream.iter_lines()  # kept: without it the connection is closed
            next(lines)
            answer = other.post(TEXT, json={"prompt": "x\n", "max_tokens": 4}).json()
            assert answer["choices"][0]["text"] == f" {ANSWER}"[:4]
            assert busy.open() == 1


def test_who_does_not_read_keeps_nobody_waiting(busy: Served) -> None:
    """The answer waits for its reader, whole. Each event says the model's name: no buffer holds
    them all."""
    with busy.http() as http, busy.http() as other:
        body = {"model": "m" * 300_000, "messages": HELLO, "max_tokens": 1000, "stream": True}
        with http.stream("POST", CHAT, json=body) as stream:
            until(lambda: busy.open() == 0)
            short = other.post(CHAT, json={"messages": HELLO, "max_tokens": 3}).json()
            assert short["choices"][0]["message"]["content"] == ANSWER[:3]
            said = b"".join(stream.iter_bytes())
    assert len(said) > 6e6
    assert text_of(events(said)) == (f"{ANSWER}\n " * 36)[:1000]


# -- hanging up --------------------------------------------------------------------------------


def open_post(served: Served, route: str, body: dict[str, Any]) -> socket.socket:
    """A request under way, by hand."""
    wire = socket.create_connection(("127.0.0.1", served.port), PATIENCE)
    content = json.dumps(body).encode()
    head = f"POST {route} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    wire.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    return wire


@pytest.mark.parametrize("count", [0, 1, 20])
@pytest.mark.parametrize("route", [CHAT, TEXT, "/predict"])
def test_work_stops_when_its_client_is_gone(busy: Served, route: str, count: int) -> None:
    """Streams after so many lines, and answers in one piece."""
    body: dict[str, Any] = {"messages": HELLO} if route == CHAT else {"prompt": "x\n"}
    body |= {"num_tokens" if route == "/predict" else "max_tokens": LONG, "temperature": 0}
    names = (CANCELLED, "draftline_late_steps_total", "draftline_completion_tokens_total")
    before = [busy.figure(name) for name in names]
    wire = open_post(busy, route, body | {"stream": count > 0})
    until(lambda: busy.open() == 1)
    if count and route != "/predict":
        with wire.makefile("rb") as lines:
            for _ in range(10 + count):
                assert lines.readline()
    wire.close()
    until(lambda: busy.open() == 0)
    until(lambda: busy.figure(names[0]) == before[0] + 1)
    late, tokens = (
        busy.figure(name) - then for name, then in zip(names[1:], before[1:], strict=True)
    )
    assert late <= 2, "the pass under way, and what it was told as"
    assert tokens < LONG


def test_who_is_gone_before_its_turn_never_has_it(busy: Served) -> None:
    """And the answer that it waited for goes on."""
    forwards = "draftline_completion_tokens_total"
    with busy.http() as http:
        body = {"messages": HELLO, "max_tokens": LONG, "stream": True}
        with http.stream("POST", CHAT, json=body) as stream:
            lines = stream.iter_lines()
            next(lines)
            before = (busy.figure(CANCELLED), busy.figure(forwards))
            waiting = open_post(busy, CHAT, {"messages": HELLO, "max_tokens": LONG})
            until(lambda: busy.open() == 2)
            waiting.close()
            until(lambda: busy.open() == 1)
            assert (busy.figure(CANCELLED), busy.figure(forwards)) == (before[0] + 1, before[1])
            for _ in range(20):
                assert "error" not in next(lines)
    until(lambda: busy.open() == 0)


def test_one_connection_asks_again_after_an_answer(busy: Served) -> None:
    """An answer that ended is not taken for a client that hung up."""
    before = busy.figure(CANCELLED)
    with busy.http() as http:
        for stream in (True, False, True, False):
            body = {"messages": HELLO, "max_tokens": 3, "stream": stream}
            assert ANSWER[0].encode() in http.post(CHAT, json=body).raise_for_status().content
    assert busy.figure(CANCELLED) == before


def test_nothing_waits_for_the_other_sides_receipt() -> None:
    """Each event is sent at once: what is accepted from the socket that `draftline serve` listens
    at must not collect small packets, which costs 40 ms an answer."""
    with (
        serve._listening(socket.AF_INET, "127.0.0.1", 0) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_few_names_of_clients_are_kept(busy: Served) -> None:
    """The one that asked longest ago makes room, and the engine forgets what it wrote for it."""
    jobs = Jobs(busy.engine, 1)
    names = [jobs._client_name(f"client {n}") for n in range(MAX_CLIENTS)]
    assert len(set(names)) == MAX_CLIENTS
    busy.engine.parts.history.add(names[0], "", [1, 2, 3])
    assert jobs._client_name("client 0") == names[0]
    later = [jobs._client_name(f"later {n}") for n in range(MAX_CLIENTS - 1)]
    assert later == names[1:]
    assert jobs._client_name("client 0") == names[0] and busy.engine.parts.history.of(names[0])
    for n in range(MAX_CLIENTS):
        jobs._client_name(f"last {n}")
    assert not busy.engine.parts.history.of(names[0])
    jobs.close()


def test_the_worker_forgets_clients_too() -> None:
    """The last turns of few are known: of those who had one last."""
    worker = Worker()
    for n in range(2 * TURNS):
        name = "regular" if n % 10 == 0 else f"client {n}"
        job = Job(Request("complete", "x"), lambda stop: iter([Done("stop")]), name)
        worker.submit(job).result()
    assert len(worker._turns) == TURNS
    assert "regular" in worker._turns and "client 1" not in worker._turns
    assert list(worker._turns.values()) == sorted(worker._turns.values())
    worker.close()
