"""An engine that other programs of this user share: the same text as from one of their own."""

from __future__ import annotations

import argparse
import contextlib
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import Config, Engine
from engine.records import Done, Request, RequestError, Step
from engine.remote.address import Address, AddressError, connect
from engine.remote.engine_server import EngineServer, address_of
from engine.remote.framing import framed
from engine.remote.remote_engine import RemoteEngine, open_connection
from tests.engine.test_remote_engine import ASK, REQUESTS
from tests.support.held_model import unfinished
from tests.support.shared_server import private_runtime
from ui.common.loading import shared


@pytest.fixture(scope="module")
def engine(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with (
        private_runtime(tmp_path_factory.mktemp("home")),
        Engine(Config(model=str(tiny()), threads=1, library=False)) as engine,
    ):
        yield engine


@pytest.fixture(scope="module")
def address(engine: Engine) -> Iterator[Address]:
    address = address_of(engine.folder)
    assert address is not None and address.path is not None
    with EngineServer(engine, address):
        yield address
    assert not address.path.exists()


@pytest.fixture
def remote(address: Address) -> Iterator[RemoteEngine]:
    with RemoteEngine(open_connection(address)) as remote:
        yield remote


def test_the_text_is_that_of_the_engine_itself(engine: Engine, remote: RemoteEngine) -> None:
    jobs = [remote.submit(request) for request in REQUESTS]
    for request, job in zip(REQUESTS, jobs, strict=True):
        expected, done = engine.submit(request, speculation=False).result(), job.result()
        assert (done.text, done.reason) == (expected.text, expected.reason)
        assert done.usage.completion_tokens == expected.usage.completion_tokens
    assert remote.submit(REQUESTS[0], speculation=False).result().usage.drafted == 0


def test_what_faces_ask_of_an_engine(engine: Engine, remote: RemoteEngine) -> None:
    assert remote.info == engine.info and remote.folder == engine.folder
    assert remote.encode("a b") == engine.encode("a b")


def test_a_cancelled_answer_keeps_its_text(engine: Engine, remote: RemoteEngine) -> None:
    with unfinished(engine):
        events = iter(job := remote.submit(Request("chat", messages=ASK), speculation=False))
        written = next(step.text for step in events if isinstance(step, Step) and step.text)
        job.cancel()
        *_, done = events
    assert isinstance(done, Done) and done.reason == "cancelled" and done.text.startswith(written)


def test_what_cannot_be_answered_is_refused(remote: RemoteEngine) -> None:
    for wrong in (Request("chat"), Request("complete", "x" * 4000)):
        with pytest.raises(RequestError):
            remote.submit(wrong)
    assert remote.submit(REQUESTS[0]).result().text


def test_garbage_disturbs_nobody(address: Address, remote: RemoteEngine) -> None:
    for data in (b"GET / HTTP/1.1\r\n\r\n", framed(b"{"), framed(b"[1]"), framed(b'{"id": {}}')):
        with connect(address) as wire:
            wire.sendall(data)
    assert remote.submit(REQUESTS[0]).result().text


def test_one_program_shares_a_model(engine: Engine, address: Address) -> None:
    assert address.path is not None and stat.S_IMODE(address.path.stat().st_mode) == 0o600
    with pytest.raises(AddressError, match="listens there already"):
        EngineServer(engine, address)
    options = argparse.Namespace(dtype=None, verification=None, exact=False)
    with shared(engine, options) as server:  # no reason not to serve
        assert server is None


@pytest.mark.parametrize("option", [{"dtype": "q8"}, {"verification": "rejection"}])
def test_an_engine_with_another_text_is_not_shared(
    engine: Engine, tmp_path: Path, option: dict[str, str]
) -> None:
    options = {"dtype": None, "verification": None, "exact": False} | option
    with private_runtime(tmp_path), shared(engine, argparse.Namespace(**options)) as server:
        assert server is None
    with private_runtime(tmp_path):
        usual = argparse.Namespace(dtype=None, verification=None, exact=False)
        with shared(engine, usual) as server:
            assert isinstance(server, EngineServer)


def test_when_the_program_ends_its_clients_are_told(tiny: Any, tmp_path: Path) -> None:
    with private_runtime(tmp_path), contextlib.ExitStack() as stack:
        engine = Engine(Config(model=str(tiny()), threads=1, library=False))
        address = address_of(engine.folder)
        assert address is not None
        stack.enter_context(EngineServer(engine, address))
        remote = stack.enter_context(RemoteEngine(open_connection(address)))
        with unfinished(engine):
            events = iter(remote.submit(Request("chat", messages=ASK), speculation=False))
            next(step for step in events if isinstance(step, Step) and step.text)
            engine.close()
            *_, done = events
        assert isinstance(done, Done)
        assert done.reason == "failed" and "run it again" in str(done.error)
        again = remote.submit(REQUESTS[0]).result()
        assert again.reason == "failed" and "closed" in str(again.error)
