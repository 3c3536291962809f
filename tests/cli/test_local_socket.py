"""The engine of `draftline serve` as this user's commands join it, over a socket of their own."""

from __future__ import annotations

import argparse
import contextlib
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine import Config, Engine
from engine.records import Done, Request, RequestError, Step
from engine.remote import address as addresses
from engine.remote import http_engine
from engine.remote.address import Address, AddressError, connect, serve_address
from engine.remote.engine_url import EngineUrl
from engine.remote.framing import framed
from engine.remote.http_engine import HttpEngine
from engine.remote.link import Lost
from tests.engine.test_remote_engine import ASK, REQUESTS
from tests.support.held_model import unfinished
from tests.support.server import serve_locally
from tests.support.shared_server import private_runtime
from ui.api.security import AccessRules
from ui.cli import local_socket
from ui.cli.serve import TEXT_OPTIONS, _address

RULES = AccessRules(key="a key that commands need not know")


def engine_at(address: Address, folder: Path) -> HttpEngine:
    return HttpEngine(EngineUrl("http://localhost", socket=address.path), folder=folder)


@pytest.fixture(scope="module")
def engine(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with (
        private_runtime(tmp_path_factory.mktemp("home")),
        Engine(Config(model=str(tiny()), threads=1, library=False)) as engine,
    ):
        yield engine


@pytest.fixture(scope="module")
def address(engine: Engine) -> Iterator[Address]:
    address = serve_address(engine.folder)
    assert address is not None and address.path is not None
    with serve_locally(engine, address, rules=RULES):
        yield address
    assert not address.path.exists()


@pytest.fixture
def remote(engine: Engine, address: Address) -> Iterator[HttpEngine]:
    with engine_at(address, engine.folder) as remote:
        yield remote


@pytest.fixture
def http(address: Address) -> Iterator[httpx.Client]:
    transport = httpx.HTTPTransport(uds=str(address.path))
    with httpx.Client(base_url="http://localhost", transport=transport) as client:
        yield client


def test_the_text_is_that_of_the_engine_itself(engine: Engine, remote: HttpEngine) -> None:
    jobs = [remote.submit(request) for request in REQUESTS]
    for request, job in zip(REQUESTS, jobs, strict=True):
        expected, done = engine.submit(request, speculation=False).result(), job.result()
        assert (done.text, done.reason) == (expected.text, expected.reason)
        assert done.usage.completion_tokens == expected.usage.completion_tokens
    assert remote.submit(REQUESTS[0], speculation=False).result().usage.drafted == 0


def test_what_clients_ask_of_an_engine(engine: Engine, remote: HttpEngine) -> None:
    assert remote.info == engine.info and remote.folder == engine.folder
    assert remote.encode("a b") == engine.encode("a b")


def test_texts_that_may_hold_secrets_stay_on_this_machine_and_are_answered(
    engine: Engine, remote: HttpEngine
) -> None:
    request = Request("complete", "x = 1", path="/home/me/.env", max_tokens=4)
    assert remote.submit(request).result().text == engine.submit(request).result().text


def test_a_cancelled_answer_keeps_its_text(engine: Engine, remote: HttpEngine) -> None:
    with unfinished(engine):
        events = iter(job := remote.submit(Request("chat", messages=ASK), speculation=False))
        written = next(step.text for step in events if isinstance(step, Step) and step.text)
        job.cancel()
        *_, done = events
    assert isinstance(done, Done) and done.reason == "cancelled" and done.text.startswith(written)


def test_what_cannot_be_answered_is_refused(remote: HttpEngine) -> None:
    for wrong in (Request("chat"), Request("complete", "x" * 4000)):
        with pytest.raises(RequestError):
            remote.submit(wrong)
    assert remote.submit(REQUESTS[0]).result().text


def test_garbage_disturbs_nobody(address: Address, remote: HttpEngine) -> None:
    for data in (b"GET / HTTP/1.1\r\n\r\n", framed(b"{"), b"\0" * 99, b"POST"):
        with connect(address) as wire:
            wire.sendall(data)
    assert remote.submit(REQUESTS[0]).result().text


def test_without_a_key_only_what_commands_need_is_served(http: httpx.Client) -> None:
    assert http.get("/v1/draftline/info").json()["server"]["engine"]
    for path in ("/v1/models", "/metrics", "/ui", "/v1/draftline/../models", "/health"):
        assert http.get(path).status_code == 404, path
    for headers in ({"host": "example.com"}, {"origin": "http://example.com"}):
        assert http.get("/v1/draftline/info", headers=headers).status_code in (400, 403)


def test_a_process_of_another_user_is_not_answered(
    address: Address, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(connection: Any, name: str) -> None:
        raise AddressError(f"{name}: belongs to user 7")

    monkeypatch.setattr(local_socket, "check_peer", refuse)
    with pytest.raises(httpx.TransportError):
        http.get("/v1/draftline/info")
    monkeypatch.undo()
    monkeypatch.setattr(addresses, "check_peer", refuse)
    with pytest.raises(AddressError, match="user 7"):
        HttpEngine(EngineUrl("http://localhost", socket=address.path))


def test_a_stopped_server_is_not_waited_for(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses, "stopped_peer", lambda connection: 7)
    with pytest.raises(AddressError, match="kill -CONT 7"):
        HttpEngine(EngineUrl("http://localhost", socket=address.path))


def test_a_server_that_accepts_and_does_not_answer_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_engine, "HELLO_TIMEOUT_S", 0.05)
    with private_runtime(tmp_path) as folder:
        address = Address(path=folder / "x.sock")
        with (
            contextlib.closing(addresses.listen(address)),
            pytest.raises(Lost, match="no sign of life"),
        ):
            HttpEngine(EngineUrl("http://localhost", socket=address.path))


def test_one_program_shares_a_model(engine: Engine, address: Address) -> None:
    assert address.path is not None and stat.S_IMODE(address.path.stat().st_mode) == 0o600
    with (
        pytest.raises(AddressError, match="listens there already"),
        serve_locally(engine, address),
    ):
        pass


def test_an_engine_with_another_text_is_not_shared(engine: Engine) -> None:
    usual: dict[str, Any] = dict.fromkeys(TEXT_OPTIONS)
    for option in (
        {"dtype": "q8"},
        {"kv": "q8"},
        {"lora": ["a.gguf"]},
        {"verification": "rejection"},
        {"exact": True},
        {"exact": False},
    ):
        assert _address(argparse.Namespace(**usual | option), engine) is None
    assert _address(argparse.Namespace(**usual), engine) == serve_address(engine.folder)


def test_when_the_program_ends_its_clients_are_told(tiny: Any, tmp_path: Path) -> None:
    with private_runtime(tmp_path), contextlib.ExitStack() as stack:
        engine = Engine(Config(model=str(tiny()), threads=1, library=False))
        address = serve_address(engine.folder)
        assert address is not None
        stack.enter_context(serve_locally(engine, address))
        remote = stack.enter_context(engine_at(address, engine.folder))
        with unfinished(engine):
            events = iter(remote.submit(Request("chat", messages=ASK), speculation=False))
            next(step for step in events if isinstance(step, Step) and step.text)
            engine.close()
            *_, done = events
        assert isinstance(done, Done)
        assert done.reason == "failed" and "ask again" in str(done.error)
        again = remote.submit(REQUESTS[0]).result()
        assert again.reason == "failed" and "closed" in str(again.error)
