"""An engine of another machine, over HTTP: the same text as from an engine of one's own."""

from __future__ import annotations

import contextlib
import dataclasses
import http.server
import json
import os
import resource
import shutil
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from engine import Config, Engine
from engine.records import Done, Event, Request, RequestError, Step
from engine.remote import http_engine, messages
from engine.remote.address import AddressError
from engine.remote.engine_url import EngineUrl, parse_engine
from engine.remote.http_engine import HttpEngine
from engine.remote.link import Link, LinkError
from engine.remote.tokenizer_files import digest_of, read_files, store, stored
from engine.worker import URGENCY, Job
from tests.engine.test_remote_engine import ASK, REQUESTS, TEXT
from tests.support.held_model import unfinished
from tests.support.server import LocalServer, occupied, serve_engine, wait_until
from ui.api.remote_engine import bodies
from ui.api.security import AccessRules

KEY, OTHER_KEY = "0123456789abcdef", "fedcba9876543210"
RULES = AccessRules(key=f"{KEY} {OTHER_KEY}")
CHAT = Request("chat", messages=ASK, max_tokens=24)
UPDATE = Request(
    "edit", TEXT, path="a.py", update="# ... existing code ...\nx = 2\n", max_tokens=24
)


@pytest.fixture(scope="module")
def engine(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRAFTLINE_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("DRAFTLINE_ENGINE_KEY", KEY)
        with Engine(Config(model=str(tiny()), threads=1, library=False)) as engine:
            yield engine


@pytest.fixture(scope="module")
def server(engine: Engine) -> Iterator[LocalServer]:
    with serve_engine(engine, rules=RULES) as server:
        yield server


@pytest.fixture
def remote(server: LocalServer) -> Iterator[HttpEngine]:
    with HttpEngine(EngineUrl(server.url)) as remote:
        yield remote


@pytest.mark.parametrize("request_", [*REQUESTS, UPDATE], ids=lambda one: one.kind)
def test_the_text_is_that_of_the_engine_itself(
    engine: Engine, remote: HttpEngine, request_: Request
) -> None:
    expected = engine.submit(request_, speculation=False).result()
    for speculation in (True, False):
        done = remote.submit(request_, speculation).result()
        assert (done.text, done.reason) == (expected.text, expected.reason)
        assert done.usage.completion_tokens == expected.usage.completion_tokens


def test_what_faces_ask_of_an_engine(engine: Engine, remote: HttpEngine) -> None:
    assert remote.info == engine.info._replace(device=remote.info.device)
    assert engine.info.device in remote.info.device and remote.context == engine.context
    assert remote.encode("a b") == engine.encode("a b")
    assert remote.chat(ASK) == engine.chat(ASK)
    assert remote.encoder.fingerprint == engine.encoder.fingerprint
    assert remote.folder != engine.folder, "the server's folders mean nothing here"


def test_steps_arrive_as_they_are_made(engine: Engine, remote: HttpEngine) -> None:
    steps = [event for event in remote.submit(CHAT) if isinstance(event, Step)]
    assert "".join(step.text for step in steps) == engine.submit(CHAT).result().text
    assert len(steps) > 2


def test_requests_share_a_connection(remote: HttpEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a cancellation that comes too late is not sent."""
    posted: list[str] = []
    monkeypatch.setattr(remote.link, "post", lambda path, body: posted.append(path))
    for _ in range(3):
        job = remote.submit(CHAT)
        assert job.result().text
        job.cancel()
    assert len(remote.link._http._transport._pool.connections) == 1  # type: ignore[attr-defined]
    assert posted == []


def test_a_cancelled_answer_keeps_its_text(engine: Engine, remote: HttpEngine) -> None:
    with unfinished(engine):
        events = iter(job := remote.submit(Request("chat", messages=ASK), speculation=False))
        written = next(step.text for step in events if isinstance(step, Step) and step.text)
        job.cancel()
        *_, done = events
    assert isinstance(done, Done) and done.reason == "cancelled" and done.text.startswith(written)


def test_one_key_cannot_cancel_anothers_request(
    engine: Engine, server: LocalServer, remote: HttpEngine
) -> None:
    with unfinished(engine):
        events = iter(job := remote.submit(Request("chat", messages=ASK), speculation=False))
        next(events)
        with Link(EngineUrl(server.url), OTHER_KEY, {"draftline-protocol": "1"}) as link:
            link.post(f"{messages.HTTP_PATH}/cancel", {"id": job.number})
        assert server.open() == 1
        job.cancel()
        assert [*events][-1].reason == "cancelled"  # type: ignore[union-attr]


def test_a_client_that_leaves_frees_the_model(
    engine: Engine, server: LocalServer, remote: HttpEngine
) -> None:
    with unfinished(engine):
        job = remote.submit(Request("chat", messages=ASK), speculation=False)
        next(iter(job))
        job.hang_up()
        wait_until(lambda: server.open() == 0)


def test_urgent_requests_of_one_client_overtake_those_of_another(
    engine: Engine, server: LocalServer, remote: HttpEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    put = Job.put

    def noted(job: Job, event: Event) -> None:
        if isinstance(event, Done):
            ended.append(job.request.text)
        put(job, event)

    with HttpEngine(EngineUrl(server.url)) as other, occupied(engine) as release:
        monkeypatch.setattr(Job, "put", noted)
        jobs = [
            remote.submit(CHAT),
            other.submit(Request("complete", "def f", max_tokens=4)),
            other.submit(Request("complete", "def g", max_tokens=4), urgency=URGENCY["chat"]),
        ]
        with pytest.raises(RequestError, match="urgency"):
            remote.submit(CHAT, urgency=9)
        release()
        for job in jobs:
            job.result()
    assert next(filter(None, ended)) == "def f"


def test_what_cannot_be_answered_is_refused(remote: HttpEngine) -> None:
    for wrong in (Request("chat"), Request("complete", "x" * 4000)):
        with pytest.raises(RequestError):
            remote.submit(wrong)
    assert remote.submit(CHAT).result().text


def test_a_full_queue_is_one_line(engine: Engine) -> None:
    with (
        serve_engine(engine, queue_size=1) as server,
        HttpEngine(EngineUrl(server.url)) as remote,
        occupied(engine),
    ):
        first = remote.submit(CHAT)
        done = remote.submit(CHAT).result()
        assert done.reason == "failed" and "retry" in str(done.error)
        first.cancel()
        assert first.result().reason == "cancelled"


def test_a_wrong_key_is_one_line(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("", "wrong-key-0123456"):
        monkeypatch.setenv("DRAFTLINE_ENGINE_KEY", key)
        with pytest.raises(LinkError, match="DRAFTLINE_ENGINE_KEY") as caught:
            HttpEngine(EngineUrl(server.url))
        assert "\n" not in str(caught.value) and "wrong-key" not in str(caught.value)
    monkeypatch.setenv("DRAFTLINE_ENGINE_KEY", "two words")
    with pytest.raises(AddressError, match="without blanks"):
        HttpEngine(EngineUrl(server.url))


def test_another_version_of_the_protocol_is_one_line(server: LocalServer, home: Path) -> None:
    answer = httpx.get(
        f"{server.url}{messages.HTTP_PATH}/tokenizer",
        headers={"draftline-protocol": "2", "authorization": f"Bearer {KEY}"},
    )
    assert answer.status_code == 400 and "same version" in answer.json()["error"]["message"]
    body = json.dumps({"protocol": 2, "version": "9.9"}).encode()
    with (
        speaking(200, body) as url,
        pytest.raises(AddressError, match=r"protocol 2 of draftline 9\.9, and this is protocol 1"),
    ):
        HttpEngine(url)


@contextmanager
def speaking(status: int, body: bytes) -> Iterator[EngineUrl]:
    """A server that gives every request one answer."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Log nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield EngineUrl(f"http://127.0.0.1:{made.server_port}")
        made.shutdown()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b"not found"),
        (404, b'{"error": {"message": "no"}}'),
        (200, b"<html>"),
        (200, b"{}"),
        (200, b"[" * 99999),
        (200, b'{"protocol": 1, "version": "1"}'),
        (200, b'{"protocol": "1", "version": 1}'),
        (302, b""),
        (500, b'{"error": {"message": "a\\u0007b\\nc"}}'),
        (502, b"\xff" * 100000),
    ],
)
def test_other_programs_are_one_line(home: Path, status: int, body: bytes) -> None:
    with speaking(status, body) as url, pytest.raises((AddressError, LinkError)) as caught:
        HttpEngine(url)
    assert str(caught.value).startswith(url.url) and str(caught.value).isprintable()


def test_nobody_there_is_one_line(home: Path) -> None:
    with pytest.raises(LinkError, match="is the server running"):
        HttpEngine(EngineUrl("http://127.0.0.1:9"))


def test_a_lost_connection_fails_what_runs_and_is_made_again(engine: Engine) -> None:
    lost: list[str] = []
    with serve_engine(engine) as server:
        remote = HttpEngine(EngineUrl(server.url), on_lost=lost.append)
        with unfinished(engine):
            job = remote.submit(Request("chat", messages=ASK), speculation=False)
            events = iter(job)
            next(events)
            server.app.state.jobs.cancel()  # as when the server is ended
            *_, done = events
        assert isinstance(done, Done) and done.reason == "failed" and "server ends" in str(done)
    again = remote.submit(CHAT).result()
    assert again.reason == "failed" and lost == [again.error] and lost[0].isprintable()
    with serve_engine(engine) as server:
        remote.link.close()
        remote.link = Link(EngineUrl(server.url), "", {"draftline-protocol": "1"})
        assert remote.submit(CHAT).result().text == engine.submit(CHAT).result().text
    remote.close()


def test_a_connection_that_breaks_off_is_one_line(
    engine: Engine, server: LocalServer, remote: HttpEngine
) -> None:
    lost: list[str] = []
    remote.on_lost = lost.append
    with unfinished(engine):
        job = remote.submit(Request("chat", messages=ASK), speculation=False)
        events = iter(job)
        next(events)
        # What the network does: the transport ends in the middle of the answer.
        for connection in [*server_connections(remote)]:
            connection.close()
        *_, done = events
    assert isinstance(done, Done) and done.reason == "failed" and lost == [done.error]


def server_connections(remote: HttpEngine) -> Iterator[Any]:
    """The sockets of a client."""
    pool = remote.link._http._transport._pool  # type: ignore[attr-defined]
    for connection in pool.connections:
        inner = connection._connection
        if inner is not None:
            wire = inner._network_stream.get_extra_info("socket")
            wire.shutdown(socket.SHUT_RDWR)
            yield wire


@pytest.mark.parametrize(
    "line",
    [b"[]", b"{", b'{"event": 1}', b'{"done": {}}', b'{"event": {"text": "x"}}', b"\xff", b"1"],
)
def test_wrong_lines_end_an_answer(remote: HttpEngine, line: bytes) -> None:
    job = http_engine.HttpJob(CHAT, remote, "1")
    job.start(iter([b"", line, b'{"done": {"reason": "stop"}}']))
    done = job.result()
    assert done.reason == "failed" and "wrong answer" in str(done.error)


def test_bodies_are_checked(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    headers = {"draftline-protocol": "1", "authorization": f"Bearer {KEY}"}
    compressed = headers | {"content-encoding": "deflate"}
    monkeypatch.setattr(bodies, "MAX_BYTES", 1 << 16)
    for body, sent, status in (
        (b"{", headers, 400),
        (b"[]", headers, 400),
        (b"{}", headers, 400),
        (b'{"id": 7, "submission": {"request": {"kind": "chat"}}}', headers, 400),
        (b'{"id": "7", "submission": {"request": {"kind": "chit"}}}', headers, 400),
        (b"x", compressed, 400),
        (zlib.compress(b"{}")[:-1], compressed, 400),
        (zlib.compress(b" " * (1 << 17)), compressed, 413),
        (b"{}", headers | {"content-encoding": "br"}, 400),
    ):
        path = f"{server.url}{messages.HTTP_PATH}/submit"
        answer = httpx.post(path, content=body, headers=sent)
        assert answer.status_code == status, body[:30]
        assert answer.json()["error"]["message"].isprintable()


def test_an_id_runs_once(engine: Engine, server: LocalServer, remote: HttpEngine) -> None:
    with occupied(engine):
        job = remote.submit(CHAT)
        again = http_engine.HttpJob(CHAT, remote, job.number)
        body = {"id": job.number, "submission": messages.to_json(messages.Submission(CHAT))}
        with pytest.raises(RequestError, match="is running"):
            again.start(remote.link.lines(f"{messages.HTTP_PATH}/submit", body))
        job.cancel()
        assert job.result().reason == "cancelled"


# -- addresses and keys -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["", "box:8000", "ftp://box", "http://", "http://u:secret@box", "http://b ox", "http://box:x",
     "http://box?key=secret", "http://box/#a", "openai:", "openai:box", "http://box/v1#secret",
     "openai:https://box/v1?api-key=secret&x=1", "http://u:secret", "http://[secret", "secret",
     "http://box:8000 secret", "http://box?secret@", "box?key=secret", "http://u:secret@box?a=b"],
)  # fmt: skip
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(AddressError) as caught:
        parse_engine(text)
    assert "secret" not in str(caught.value) and "\n" not in str(caught.value)


def test_addresses() -> None:
    assert parse_engine("http://box:8000/") == EngineUrl("http://box:8000")
    openai = parse_engine("openai:https://box/v1")
    assert openai == EngineUrl("https://box/v1", is_openai=True)
    assert str(openai) == "openai:https://box/v1" and openai.host == "box"
    encrypted = {"https://box": True, "http://box": False, "http://127.0.0.1:8": True}
    for url, is_encrypted in encrypted.items():
        assert parse_engine(url).is_encrypted == is_encrypted


def test_keys_come_from_the_environment_or_the_key_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    class KeyringError(Exception):
        pass

    def stored_key(service: str, name: str) -> str | None:
        if name == "http://locked":
            raise KeyringError("locked\nring")
        return {("draftline", "openai:http://box/v1"): "stored-key"}.get((service, name))

    url = parse_engine("openai:http://box/v1")
    monkeypatch.delenv("DRAFTLINE_ENGINE_KEY", raising=False)
    monkeypatch.setitem(sys.modules, "keyring", None)
    assert url.key() == "", "the package is not installed"
    errors = SimpleNamespace(KeyringError=KeyringError)
    ring = SimpleNamespace(get_password=stored_key, errors=errors)
    monkeypatch.setitem(sys.modules, "keyring", ring)
    monkeypatch.setitem(sys.modules, "keyring.errors", errors)
    assert url.key() == "stored-key" and parse_engine("http://box").key() == ""
    with pytest.raises(AddressError, match="locked ring: unlock it"):
        parse_engine("http://locked").key()
    monkeypatch.setenv("DRAFTLINE_ENGINE_KEY", KEY)
    assert url.key() == KEY


def test_info_names_no_path(server: LocalServer, engine: Engine) -> None:
    answer = httpx.get(
        f"{server.url}{messages.HTTP_PATH}/info", headers={"authorization": f"Bearer {KEY}"}
    )
    host = messages.host_from_json(answer.json())
    assert dataclasses.asdict(host.server)["folder"] == ""
    assert host.forget_after_s > 0 and host.delete_within_s > 0
    with pytest.raises(messages.BadMessage):
        messages.host_from_json({"protocol": 1, "version": "1", "server": {}})


# -- encryption -------------------------------------------------------------------------------


@contextmanager
def tls_proxy(folder: Path, port: int) -> Iterator[int]:
    """A proxy with TLS before a port, as nginx or Caddy is one; its certificate is in `folder`."""
    files = {name: str(folder / f"{name}.pem") for name in ("key", "certificate")}
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command += ["-keyout", files["key"], "-out", files["certificate"]]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files["certificate"], files["key"])

    class Proxy(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                near = context.wrap_socket(self.request, server_side=True)
                with socket.create_connection(("127.0.0.1", port)) as far:
                    back = threading.Thread(target=carry, args=(far, near))
                    back.start()
                    carry(near, far)
                    back.join()

    def carry(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)

    class Proxies(socketserver.ThreadingTCPServer):
        daemon_threads, block_on_close = True, False

    with Proxies(("127.0.0.1", 0), Proxy) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made.server_address[1]
        made.shutdown()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates")
def test_through_a_proxy_with_tls(
    server: LocalServer, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tls_proxy(tmp_path, server.port) as port:
        url = parse_engine(f"https://localhost:{port}")
        with pytest.raises(LinkError, match="certificate") as caught:
            HttpEngine(url)
        assert str(caught.value).isprintable()
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        with HttpEngine(url) as remote:
            done = remote.submit(CHAT).result()
            assert done.text == engine.submit(CHAT).result().text
            with unfinished(engine):
                events = iter(job := remote.submit(Request("chat", messages=ASK)))
                written = next(step.text for step in events if isinstance(step, Step) and step.text)
                job.cancel()
                *_, done = events
            assert done.reason == "cancelled" and done.text.startswith(written)


# -- the tokenizer, which is stored ------------------------------------------------------------


def test_another_tokenizer_than_announced_is_not_stored(home: Path) -> None:
    files = {"tokenizer.json": "{}", "config.json": "{}"}
    digest = digest_of(files)
    for wrong in (
        None, {}, {"config.json": "{}"}, files | {"../x": ""}, files | {"config.json": 1},
        files | {"config.json": "{ }"}, {"tokenizer.json": "{}"},
    ):  # fmt: skip
        with pytest.raises(messages.BadMessage):
            store(home, digest, wrong)
        assert stored(home, digest) is None
    folder = store(home, digest, files)
    assert stored(home, digest) == folder and digest_of(read_files(folder)) == digest
    assert store(home, digest, files) == folder and len([*folder.parent.iterdir()]) == 1


def test_few_tokenizers_are_kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.remote.tokenizer_files.MAX_TOKENIZERS", 2)
    made = []
    for age in range(4):
        files = {"tokenizer.json": str(age)}
        made.append(store(home, digest_of(files), files))
        os.utime(made[-1], ns=(age, age))
    assert [folder.is_dir() for folder in made] == [False, False, True, True]


def test_a_full_disk_is_one_line(server: LocalServer, home: Path) -> None:
    """And nothing half-written stays."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(LinkError, match="free some space"):
            HttpEngine(EngineUrl(server.url))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [*(home / "tokenizers").iterdir()] == []
    HttpEngine(EngineUrl(server.url)).close()
