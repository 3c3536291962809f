"""Access control of the API: hosts, origins, keys, logs, and no outgoing connections."""

from __future__ import annotations

import hmac
import ipaddress
import logging
import sys
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st

from engine import Config, Engine
from tests.support.server import (
    ANSWER,
    HELLO,
    LocalServer,
    reciter,
    send_raw,
    serve_app,
    serve_engine,
)
from ui.api import app as api
from ui.api import security
from ui.api.failures import ADDRESS_BURST, ADDRESS_INTERVAL_S, Failures
from ui.api.security import AccessRules, rules_for

KEY = "correct-horse-battery-staple"
CLOSE = b"Connection: close\r\n\r\n"
ROUTES = [
    ("GET", "/health"),
    ("GET", "/v1/models"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("GET", "/nowhere"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/messages"),
    ("POST", "/v1/messages/count_tokens"),
    ("POST", "/v1/responses"),
    ("POST", "/v1/embeddings"),
    ("POST", "/predict"),
    ("OPTIONS", "/v1/chat/completions"),
    ("GET", "/ui/"),
]
HOSTILE = [
    "evil.com",
    "localhost.evil.com",
    "127.0.0.1.evil.com",
    "evil.com:80",
    "0.0.0.0",
    "169.254.169.254",
    "[::]",
    "localhost:80:80",
    "localhost:port",
    "localhost@evil.com",
    "2130706433",
    "127.1",
    "[::1",
    "::ffff:8.8.8.8",
    "local host",
    "",
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    patch = pytest.MonkeyPatch()
    patch.setenv("DRAFTLINE_HOME", str(tmp_path_factory.mktemp("home")))
    model = reciter(tmp_path_factory.mktemp("models") / "reciter")
    with Engine(Config(model=str(model), library=False)) as engine:
        yield engine
    patch.undo()


@pytest.fixture(scope="module")
def served(engine: Engine) -> Iterator[LocalServer]:
    """A server with the default rules: loopback only, no key, and a page mounted."""
    app = with_page(api.app(engine, AccessRules(pages=("/ui",))))
    with serve_app(app) as port:
        yield LocalServer(engine, app, port)


@pytest.fixture(scope="module")
def locked(engine: Engine) -> Iterator[LocalServer]:
    """A server that requires a key, except for the page."""
    app = with_page(api.app(engine, AccessRules(key=KEY, pages=("/ui",), max_body=1000)))
    with serve_app(app) as port:
        yield LocalServer(engine, app, port)


def with_page(app: FastAPI) -> FastAPI:
    page = FastAPI(docs_url=None)

    @page.get("/")
    def read() -> str:
        return "page"

    @page.post("/")
    def write(body: dict[str, Any]) -> int:
        return len(body)

    app.mount("/ui", page)
    return app


# -- hosts and origins -------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_foreign_hosts_and_origins_are_refused(served: LocalServer, method: str, path: str) -> None:
    """This prevents DNS rebinding and cross-site requests, on every path, even unknown ones."""
    with served.http() as http:
        for host in ("evil.com", "localhost.evil.com:80"):
            answer = http.request(method, path, headers={"host": host}, json={})
            assert answer.status_code == 400 and "--allow-host" in answer.json()["error"]["message"]
        for origin in ("http://evil.com", "null", "http://localhost:1", "http://127.0.0.1"):
            headers = {"origin": origin, "access-control-request-method": "POST"}
            answer = http.request(method, path, headers=headers, json={})
            assert answer.status_code == 403 and "error" in answer.json()
            assert not [name for name in answer.headers if name.startswith("access-control")]
        same_origin = http.request(method, path, headers={"origin": served.url})
        assert same_origin.status_code != 403 and "unknown host name" not in same_origin.text
        assert not [name for name in same_origin.headers if name.startswith("access-control")]


@pytest.mark.parametrize("host", HOSTILE)
def test_no_spelling_of_a_foreign_host_is_accepted(served: LocalServer, host: str) -> None:
    line = f"Host: {host}\r\n" if host else "Host:\r\n"
    response = send_raw(
        served.port, f"GET /health HTTP/1.1\r\n{line}Connection: close\r\n\r\n".encode()
    )
    assert response.startswith(b"HTTP/1.1 400 "), response


def test_exactly_one_host_is_required(served: LocalServer) -> None:
    for hosts in (b"", b"Host: localhost\r\nHost: evil.com\r\n", b"Host: evil.com, localhost\r\n"):
        for version in (b"1.0", b"1.1"):
            line = b"GET /health HTTP/" + version + b"\r\n"
            assert b" 400 " in send_raw(served.port, line + hosts + b"Connection: close\r\n\r\n")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:80", "[::1]:80", "127.9.9.9"]
)
def test_names_of_this_machine_are_accepted(served: LocalServer, host: str) -> None:
    with served.http() as http:
        assert http.get("/health", headers={"host": host}).status_code == 200


@given(st.from_regex(r"[a-zA-Z0-9.:\[\]-]{0,30}", fullmatch=True))
def test_by_default_only_loopback_is_accepted(host: str) -> None:
    name = security.without_port(host)
    if AccessRules().accepts_host(name) and name != "localhost":
        assert ipaddress.ip_address(name).is_loopback


@given(st.ip_addresses(), st.from_regex(r"[a-z]{1,10}(\.[a-z]{1,10}){0,2}", fullmatch=True))
def test_hosts_of_a_server_that_other_machines_can_reach(address: Any, name: str) -> None:
    """A server on all addresses accepts any IP address, its own host name and the allowed names."""
    everywhere = rules_for("0.0.0.0", "0.0.0.0", KEY)
    assert everywhere.accepts_host(str(address))
    own_names = {"0.0.0.0", "localhost", security.socket.gethostname().lower()}
    assert everywhere.accepts_host(name) == (name in own_names)
    assert rules_for("::", "::", KEY, [name.upper()]).accepts_host(name)
    one_address = rules_for("192.168.7.7", "192.168.7.7", KEY)
    expected = address.is_loopback or str(address) == "192.168.7.7"
    assert one_address.accepts_host(str(address)) == expected
    assert not rules_for("localhost", "127.0.0.1", None).accepts_host("0.0.0.0")


@given(st.sampled_from(["localhost:80", "127.0.0.1", "[::1]:9"]), st.text(max_size=30))
def test_the_origin_must_be_the_host(host: str, other: str) -> None:
    assert security.same_origin(f"http://{host}", host) and security.same_origin(
        f"HTTPS://{host}", host
    )
    assert security.same_origin(other, host) == (
        other.lower() in (f"http://{host}", f"https://{host}")
    )


# -- keys --------------------------------------------------------------------------------------


def test_a_key_is_required(locked: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Failures, "add", lambda self, key: None)  # so many wrong ones are slowed
    with locked.http() as http:
        assert http.get("/health").status_code == 200
        for method, path in ROUTES[1:-1]:
            for authorization in (
                None,
                "",
                "Bearer",
                "Bearer wrong",
                f"Basic {KEY}",
                KEY,
                f"Bearer {KEY}x",
            ):
                headers = {} if authorization is None else {"authorization": authorization}
                answer = http.request(method, path, headers=headers)
                assert answer.status_code == 401, (path, authorization)
                error = answer.json()["error"]
                assert error["type"] == "authentication_error"
                if not path.startswith("/v1/messages"):  # Anthropic's errors have no code
                    assert error["code"] == "invalid_api_key"
                assert answer.headers["www-authenticate"] == "Bearer"
        assert http.get("/v1/models", headers={"authorization": f"bearer {KEY}"}).status_code == 200
    answer = locked.client(KEY).chat.completions.create(model="reciter", messages=HELLO)
    assert answer.choices[0].message.content == ANSWER
    with pytest.raises(openai.AuthenticationError):
        locked.client("wrong").models.list()


def test_who_guesses_keys_waits_and_holders_of_right_ones_do_not(
    locked: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also at the same address."""
    now = [100.0]
    guard = Failures(ADDRESS_BURST, ADDRESS_INTERVAL_S, lambda: now[0])
    wait_s, add = guard.wait_s, guard.add
    monkeypatch.setattr(Failures, "wait_s", lambda self, key: wait_s(key))
    monkeypatch.setattr(Failures, "add", lambda self, key: add(key))
    with locked.http() as http:

        def status(key: str | None) -> int:
            headers = {} if key is None else {"x-api-key": key}
            return http.get("/v1/models", headers=headers).status_code

        assert {status(f"wrong {n}") for n in range(ADDRESS_BURST)} == {401}
        answer = http.get("/v1/models", headers={"authorization": "Bearer wrong"})
        assert answer.status_code == 429 and answer.headers["retry-after"] == "10"
        assert status(KEY) == 200 and status(None) == 401
        now[0] += ADDRESS_INTERVAL_S
        assert [status("wrong"), status("wrong"), status(KEY)] == [401, 429, 200]


def test_keys_and_sizes_are_not_checked_for_pages(locked: LocalServer) -> None:
    """Their hosts and origins are still checked."""
    with locked.http() as http:
        assert http.get("/ui/").json() == "page"
        assert http.post("/ui/", json={"a": "x" * 5000}).json() == 1
        assert http.get("/ui/", headers={"origin": "http://evil.com"}).status_code == 403
        for path in ("/uix", "/ui2/", "//ui/", "/UI/", "/ui/../v1/models", "/v1/models?/ui/"):
            answer = send_raw(
                locked.port, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n".encode() + CLOSE
            )
            assert b" 401 " in answer or b" 404 " in answer, path
            assert b"reciter" not in answer


def test_keys_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """With hmac.compare_digest, on digests of equal length."""
    compared: list[tuple[bytes, bytes]] = []
    compare = hmac.compare_digest

    def record(left: bytes, right: bytes) -> bool:
        compared.append((left, right))
        return compare(left, right)

    monkeypatch.setattr("hmac.compare_digest", record)
    rules = AccessRules(key=KEY)
    for header, valid in {
        None: False,
        "Bearer x": False,
        "é": False,
        f"Bearer {KEY}": True,
    }.items():
        assert (rules.owner(header) is not None) == valid
    assert len(compared) == 4 and {len(digest) for pair in compared for digest in pair} == {32}
    assert len({right for _, right in compared}) == 1


def test_several_keys_have_several_owners() -> None:
    rules = AccessRules(key=f"{KEY} {KEY[::-1]}")
    owners = {rules.owner(f"Bearer {key}") for key in (KEY, KEY[::-1])}
    assert len(owners) == 2 and None not in owners
    assert rules.owner(None, KEY) == rules.owner(f"Bearer {KEY}")
    assert rules.owner(f"Bearer {KEY} {KEY[::-1]}") is None and rules.owner("Bearer ") is None
    assert AccessRules().owner("Bearer x") == ""


@given(st.text(max_size=40) | st.sampled_from([KEY, f" {KEY} ", KEY.upper(), KEY[:-1]]))
def test_only_the_key_is_accepted(key: str) -> None:
    assert (AccessRules(key=KEY).owner(f"Bearer {key}") is not None) == (key.strip() == KEY)
    assert AccessRules(key=KEY).owner(key) is None
    assert AccessRules().owner(key) is not None, "no key is required"
    assert (AccessRules(key=KEY).owner(None, key) is not None) == (key.strip() == KEY)


def test_a_key_may_come_as_x_api_key(locked: LocalServer) -> None:
    """As Anthropic's clients send it."""
    body = {"messages": HELLO, "max_tokens": 99}
    with locked.http() as http:
        for key, status in ((KEY, 200), (f"{KEY}x", 401), ("", 401)):
            answer = http.post("/v1/messages", json=body, headers={"x-api-key": key})
            assert answer.status_code == status
            assert KEY not in answer.text
        wrong = {"authorization": "Bearer wrong", "x-api-key": KEY}
        assert http.post("/v1/messages", json=body, headers=wrong).status_code == 200


def test_keys_and_texts_are_never_logged(
    locked: LocalServer, caplog: pytest.LogCaptureFixture
) -> None:
    text = "the user's own words"
    caplog.set_level(1)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio", "ui", "engine"):
        caplog.set_level(1, name)
    messages: Any = [{"role": "user", "content": text}]
    locked.client(KEY).chat.completions.create(model="reciter", messages=messages)
    with locked.http() as http:
        http.get("/v1/models", headers={"authorization": "Bearer wrong-key-that-was-tried"})
        http.get(f"/v1/models/{text}", headers={"authorization": f"Bearer {KEY}"})
        http.post("/v1/completions", content=text, headers={"authorization": f"Bearer {KEY}"})
    clients = ("openai", "httpx", "httpcore")
    for record in caplog.records:
        if record.name.startswith(clients):
            continue
        line = logging.Formatter().format(record)
        for secret in (KEY, "wrong-key", text):
            assert secret not in line, line


# -- connections ------------------------------------------------------------------------------

recorded: list[tuple[str, Any]] | None = None


def audit(event: str, args: tuple[Any, ...]) -> None:
    if recorded is not None and event in ("socket.connect", "socket.sendto", "socket.getaddrinfo"):
        recorded.append((event, args[1] if event != "socket.getaddrinfo" else args[0]))


def test_the_server_makes_no_outgoing_connections(engine: Engine) -> None:
    global recorded
    sys.addaudithook(audit)  # cannot be removed: it records only while `recorded` is a list
    recorded = []
    try:
        with serve_engine(engine) as served:
            answer = served.client().chat.completions.create(model="reciter", messages=HELLO)
            assert answer.choices[0].message.content == ANSWER
            with served.http() as http:
                assert http.get("/metrics").status_code == 200
                assert http.get("/openapi.json").status_code == 200
    finally:
        connections, recorded = recorded, None
    assert connections, "the client's own connections must be recorded"
    for event, address in connections:
        host = address[0] if isinstance(address, tuple) else address
        assert host in ("127.0.0.1", "localhost", "::1"), (event, address)
