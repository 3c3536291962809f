"""What a holder of one key can take of a server: slots of the queue, room for bodies, threads, and
values of JSON, all of which are counted before they are made."""

from __future__ import annotations

import asyncio
import json
import threading
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import Request
from engine.remote.messages import HTTP_PATH
from tests.support.server import HELLO, TIMEOUT_S, LocalServer, reciter, serve_model
from ui.api import body_budget, json_values
from ui.api.body_budget import BodyBudgets
from ui.api.jobs import MAX_PREPARING, MIN_OWNERS, SHARE, Jobs, QueueFull
from ui.api.json_values import MAX_VALUES, parsed, values_in
from ui.api.security import AccessRules

KEY, OTHER_KEY = "0123456789abcdef", "fedcba9876543210"
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRAFTLINE_HOME", str(tmp_path_factory.mktemp("home")))
        model = reciter(tmp_path_factory.mktemp("models") / "reciter")
        with serve_model(model, rules=AccessRules(key=f"{KEY} {OTHER_KEY}")) as served:
            yield served


def post(server: LocalServer, path: str, content: bytes, **headers: str) -> Any:
    sent = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    with server.http() as http:
        return http.post(path, content=content, headers=sent | headers)


# -- the queue ---------------------------------------------------------------------------------


class StoppedEngine:
    """An engine whose requests are being tokenized until `go` is set."""

    drafts = True

    def __init__(self) -> None:
        self.go = threading.Event()
        self.preparing = 0
        self.most = 0
        self._lock = threading.Lock()

    def make(self) -> Request:
        with self._lock:
            self.preparing += 1
            self.most = max(self.most, self.preparing)
        assert self.go.wait(TIMEOUT_S)
        with self._lock:
            self.preparing -= 1
        raise ValueError("enough")

    def forget(self, client: str) -> None:
        pass


def test_an_owner_gets_its_share_of_a_full_queue() -> None:
    async def run() -> None:
        engine: Any = StoppedEngine()
        jobs = Jobs(engine, 6, owners=2)
        streams = [jobs.submit(engine.make, f"client {n}", owner="A") for n in range(6)]
        with pytest.raises(QueueFull):
            jobs.submit(engine.make, "another client", owner="A")
        streams += [jobs.submit(engine.make, "client", owner="B") for _ in range(SHARE)]
        for owner in "AB":
            with pytest.raises(QueueFull):
                jobs.submit(engine.make, "client", owner=owner)
        for number in range(100):  # the queue is bounded, also where clients need no key
            try:
                streams.append(jobs.submit(engine.make, f"new {number}"))
            except QueueFull:
                break
        assert jobs.open == 6 + SHARE * MIN_OWNERS
        engine.go.set()
        for stream in streams:
            with pytest.raises(ValueError, match="enough"):
                await stream.accepted()
        assert jobs.open == 0 and not jobs._owners
        jobs.close()

    asyncio.run(run())


def test_few_requests_of_an_owner_are_tokenized_at_once() -> None:
    async def run() -> None:
        engine: Any = StoppedEngine()
        jobs = Jobs(engine, 20)
        streams = [jobs.submit(engine.make, "client", owner="A") for _ in range(20)]
        while engine.preparing < MAX_PREPARING:
            await asyncio.sleep(0.001)
        other = jobs.submit(engine.make, "client", owner="B")
        while engine.preparing < MAX_PREPARING + 1:
            await asyncio.sleep(0.001)
        engine.go.set()
        for stream in (*streams, other):
            with pytest.raises(ValueError, match="enough"):
                await stream.accepted()
        assert engine.most == MAX_PREPARING + 1
        jobs.close()

    asyncio.run(run())


# -- bodies ------------------------------------------------------------------------------------


def test_bodies_wait_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies that turn out to be large are not read beside too many others of their owner."""
    monkeypatch.setattr(body_budget, "BUDGET_BYTES", 100)
    monkeypatch.setattr(body_budget, "SMALL_BYTES", 9)

    async def run() -> None:
        budgets = BodyBudgets()
        read: list[str] = []
        ends = {name: asyncio.Event() for name in ("one", "two", "three", "small", "other")}

        async def request(name: str, owner: str, size: int) -> None:
            async def receive() -> dict[str, Any]:
                return {"type": "http.request", "body": b"x" * 10, "more_body": True}

            async with budgets.limited(receive, owner, size) as receive_in_budget:
                for _ in range(size // 10):
                    await receive_in_budget()
                read.append(name)
                await ends[name].wait()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(request("one", "A", 60))
            tasks.create_task(request("two", "A", 40))
            await asyncio.sleep(0)
            three = tasks.create_task(request("three", "A", 50))
            tasks.create_task(request("small", "A", 10))
            tasks.create_task(request("other", "B", 90))
            for _ in range(50):
                await asyncio.sleep(0)
            assert sorted(read) == ["one", "other", "small", "two"]
            ends["two"].set()
            for _ in range(50):
                await asyncio.sleep(0)
            assert "three" not in read
            ends["one"].set()
            for _ in range(50):
                await asyncio.sleep(0)
            assert "three" in read
            three.cancel()  # its room is free again
            ends["one"].clear()
            tasks.create_task(request("one", "A", 100))
            for _ in range(50):
                await asyncio.sleep(0)
            assert read.count("one") == 2
            for end in ends.values():
                end.set()

    asyncio.run(run())


TEXTS = st.text(st.sampled_from('ab"\\[]{},: \n\u00e9\u2200\U0001f60b'), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
)


def counted(value: Any) -> int:
    """Lists and objects, and what precedes each of their values."""
    if isinstance(value, list):
        return 1 + max(len(value) - 1, 0) + sum(map(counted, value))
    if isinstance(value, dict):
        return 1 + max(len(value) - 1, 0) + len(value) + sum(map(counted, value.values()))
    return 0


@given(value=JSON, ascii_only=st.booleans(), coding=st.sampled_from(["utf-8", "utf-16", "utf-32"]))
def test_values_are_counted_as_they_are(value: Any, ascii_only: bool, coding: str) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert values_in(text) == counted(value)
    assert parsed(text.encode(coding)) == value


@given(text=st.text(st.sampled_from('"\\[,x'), max_size=300))
def test_what_is_no_json_is_counted_too(text: str) -> None:
    assert 0 <= values_in(text) <= len(text)


BOMBS = {
    "lists": b"[" + b"[]," * MAX_VALUES + b"[]]",
    "objects": b'{"a":[' + b'{"":0},' * MAX_VALUES + b"0]}",
    "strings": b'["' + b'","' * MAX_VALUES + b'"]',
    "names": b"{" + b'"a":0,' * MAX_VALUES + b'"a":0}',
    "another coding": ("[" + "[]," * MAX_VALUES + "[]]").encode("utf-16"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_too_many_values_are_not_made(
    server: LocalServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are many megabytes in a few kilobytes."""
    loads, made = json.loads, []
    monkeypatch.setattr(
        json_values.json, "loads", lambda text, *more: made.append(len(text)) or loads(text, *more)
    )
    packed = zlib.compress(BOMBS[name])
    headers = {"draftline-protocol": "1", "content-encoding": "deflate"}
    for path, content, more in (
        (CHAT, BOMBS[name], {}),
        (f"{HTTP_PATH}/submit", packed, headers),
        (f"{HTTP_PATH}/workspaces/w", packed, headers),
    ):
        answer = post(server, path, content, **more)
        assert answer.status_code == 413 and "too many values" in answer.text
    assert len(packed) < 60_000 and not [size for size in made if size > 10_000]


def test_an_unpacked_body_has_a_size(server: LocalServer) -> None:
    packed = zlib.compress(b'"' + b"x" * (64 << 20) + b'"')
    headers = {"draftline-protocol": "1", "content-encoding": "deflate"}
    answer = post(server, f"{HTTP_PATH}/submit", packed, **headers)
    assert answer.status_code == 413 and "at most 16 MiB" in answer.text


def test_large_bodies_of_a_key_are_parsed_one_at_a_time_and_beside_the_loop(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, go, inside = threading.Event(), threading.Event(), []
    values = json_values.values_in

    def slow(text: str) -> int:
        if len(text) > 100_000:
            inside.append(threading.current_thread())
            held.set()
            assert go.wait(TIMEOUT_S)
        return values(text)

    monkeypatch.setattr(json_values, "values_in", slow)
    body = json.dumps({"messages": HELLO, "max_tokens": 1, "user": "u" * 100_000}).encode()
    threads = [threading.Thread(target=post, args=(server, CHAT, body)) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        assert held.wait(TIMEOUT_S)
        with server.http(timeout=20) as http:
            assert http.get("/health").status_code == 200
            key = {"authorization": f"Bearer {OTHER_KEY}"}
            small = {"messages": HELLO, "max_tokens": 3}
            assert http.post(CHAT, json=small, headers=key).status_code == 200
        assert len(inside) == 1
    finally:
        go.set()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert len(inside) == 3


# -- what cannot be used -----------------------------------------------------------------------

LONE = "\ud800"
REGEX = "^(([a-z]{1,500}){1,500}){1,500}$"
LINKS = {
    f"d{n}": {"properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}}, "required": ["a"]}
    for n in range(1_000)
}
CHAIN = {"type": "object", "$ref": "#/$defs/d0", "$defs": {**LINKS, "d1000": {}}}
CHAIN_TOOL = {
    "tools": [{"name": "f", "input_schema": CHAIN}],
    "tool_choice": {"type": "any"},
}
FORMAT = {"type": "json_schema", "name": "n"}
FUNCTION = {"name": "f", "parameters": {"type": "object", "description": LONE}}
TOOL = {"name": "f", "input_schema": {"type": "object", LONE: {}}}
ITEM = {"type": "function_call", "call_id": "1", "name": "f", "arguments": LONE}


def json_schema(schema: Any) -> dict[str, Any]:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    return {"messages": HELLO, "response_format": form}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, json_schema({"$ref": "#"})),
        (CHAT, json_schema({"$ref": "#"}) | {"stream": True}),
        (CHAT, json_schema({"properties": {"a": {"$ref": "#/properties/a"}}})),
        (CHAT, json_schema({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]})),
        (CHAT, json_schema({"type": "string", "pattern": REGEX})),
        (CHAT, json_schema(CHAIN)),
        ("/v1/responses", {"input": "x", "text": {"format": FORMAT | {"schema": CHAIN}}}),
        ("/v1/messages", {"messages": HELLO, "max_tokens": 1, **CHAIN_TOOL}),
        (CHAT, json_schema({"enum": [LONE]})),
        (CHAT, json_schema({"properties": {LONE: {}}})),
        (CHAT, {"messages": HELLO, "tools": [{"type": "function", "function": FUNCTION}]}),
        (CHAT, {"messages": [{"role": "user", "content": LONE}]}),
        (CHAT, {"messages": HELLO, "stop": LONE}),
        (CHAT, {"messages": HELLO, "stop": "x" * 5000}),
        ("/v1/messages", {"messages": HELLO, "max_tokens": 1, "tools": [TOOL]}),
        ("/v1/responses", {"input": [ITEM]}),
        ("/v1/completions", {"prompt": LONE}),
        ("/v1/apply", {"code": LONE, "update": "x"}),
    ],
)
def test_what_cannot_be_used_is_one_line(server: LocalServer, path: str, body: Any) -> None:
    answer = post(server, path, json.dumps(body).encode())
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].isprintable()
