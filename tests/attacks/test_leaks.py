"""Secrets that clients send or the server keeps, searched for in its logs at the most detailed
level, its output, its metrics and its answers to strangers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.support.page import (
    API,
    file_data,
    gradio_routes,
    guard_of,
    join,
    login,
    reciting,
    upload,
)
from tests.support.server import LocalServer, send_raw, serve_app, wait_until
from ui.api import app as api
from ui.api.security import AccessRules
from ui.web import app as web

KEY = "the-secret-key-0123456789"
USER = ("ann", "the-secret-password")
PLANTED = {
    "key": KEY,
    "wrong key": "a-key-that-was-tried",
    "password": USER[1],
    "wrong password": "a-password-that-was-tried",
    "prompt": "the words of a prompt",
    "prediction": "the words of a prediction",
    "completion": "the words to be completed",
    "path": "the-words-of-a-path",
    "query": "the-words-of-a-query",
    "header": "the words of a header",
    "user": "the-name-of-an-end-user",
    "invalid": "the words of an invalid body",
    "file": "the words of an uploaded file",
    "file name": "the-name-of-an-uploaded-file",
    "document": "the words of a document",
    "document name": "the-name-of-a-document",
    "question": "the words of a question",
    "raw": "the-words-of-a-broken-request",
}
LOGGERS = ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio", "ui", "engine", "gradio")
PLAIN = (str, int, float, list)  # values that the page sends
GET = "GET / HTTP/1.1\r\nHost: localhost\r\n"
CLIENTS = ("httpx", "httpcore", "openai")  # log what they send; they are not part of the server


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """A server with a key, a login, and a document."""
    with reciting(tmp_path_factory) as engine:
        app = api.app(engine, replace(AccessRules(key=KEY), pages=("/ui",)))
        web.mount(app, engine, app.state.jobs, None, [USER])
        name, text = PLANTED["document name"], PLANTED["document"]
        app.state.page.library(USER[0]).add_data(f"{name}.txt", text.encode())
        with serve_app(app) as port:
            yield LocalServer(engine, app, port)
        app.state.page.close()


def use_api(served: LocalServer, authorization: str) -> None:
    """Every kind of request to the API, valid and not."""
    planted = PLANTED
    chat: dict[str, Any] = {
        "messages": [{"role": "user", "content": planted["prompt"]}],
        "prediction": {"type": "content", "content": planted["prediction"]},
        "user": planted["user"],
    }
    bodies = {
        "/v1/chat/completions": [chat, chat | {"stream": True}, chat | {"n": 7}],
        "/v1/completions": [{"prompt": planted["completion"]}, {"prompt": [planted["invalid"]]}],
        "/v1/messages": [
            {"messages": chat["messages"], "metadata": {"user_id": planted["user"]}},
            {"messages": chat["messages"], "stream": True},
            {"messages": [{"role": planted["invalid"], "content": planted["prompt"]}]},
        ],
        "/v1/messages/count_tokens": [{"messages": chat["messages"]}],
        "/v1/responses": [
            {"input": planted["prompt"], "instructions": planted["question"]},
            {"input": planted["prompt"], "stream": True, "tools": [{"type": planted["invalid"]}]},
            {"input": [{"type": planted["invalid"]}], "user": planted["user"]},
        ],
        "/infill": [
            {"input_prefix": planted["completion"], "input_suffix": ""},
            {"input_prefix": planted["invalid"]},
        ],
        "/predict": [{"prompt": planted["completion"]}, {"prompt": 7, "x": planted["invalid"]}],
        "/health": [{}],
    }
    headers = {"authorization": authorization, "x-header": planted["header"]}
    headers["x-api-key"] = planted["wrong key"]
    with served.http(headers=headers) as http:
        for path, contents in bodies.items():
            for content in contents:
                http.post(path, json=content)
            for broken in (planted["invalid"].encode(), b'{"a": "' + planted["invalid"].encode()):
                http.post(path, content=broken)
        for path in (f"/v1/models/{planted['path']}", f"/{planted['path']}", "/v1/models"):
            http.get(path, params={"q": planted["query"]})
            http.put(path)
        http.get("/health", headers={"host": f"{planted['raw']}.example"})
        http.get("/health", headers={"origin": f"http://{planted['raw']}.example"})
    for raw in (
        f"GET /{planted['raw']} HTTP/9\r\n\r\n",
        f"{planted['raw']}\r\n\r\n",
        f"{GET}{planted['raw']}\r\n\r\n",
        f"{GET}Connection: close\r\nCookie: a={planted['raw']}\r\n\r\n",
        f"{GET}Connection: close, upgrade\r\nUpgrade: {planted['raw']}\r\n\r\n",
    ):
        send_raw(served.port, raw.encode())


def use_page(served: LocalServer) -> str:
    """Every kind of request to the page; returns the login cookie's value."""
    planted = PLANTED
    with served.http() as http:
        http.post("/ui/login", data={"username": "ann", "password": planted["wrong password"]})
        http.post("/ui/login", content=planted["invalid"].encode())
    with login(served, USER) as http:
        path = upload(http, f"{planted['file name']}.txt", planted["file"].encode())
        http.get(f"{API}/file={path}")
        http.post(f"{API}/upload", content=planted["invalid"].encode())
        question = planted["question"]
        for index, event in guard_of(served).events.items():
            for value in (question, None, file_data(path), {"value": question}):
                join(http, [value] * len(event.inputs), fn_index=index)
            inputs = [getattr(component, "value", None) for component in event.inputs]
            data = [question if value == "" else value for value in inputs]
            data = [value if isinstance(value, PLAIN) else None for value in data]
            join(http, data, fn_index=index, event_data={"files": [file_data(path)]})
        for method, route in gradio_routes(served):
            if "heartbeat" not in route and "queue/data" not in route and "logout" not in route:
                http.request(method, route, json={"session_hash": planted["query"]})
        with http.stream("GET", f"{API}/queue/data?session_hash=s") as stream:
            next(stream.iter_lines())
        inner: Any = guard_of(served).app
        wait_until(lambda: not inner.get_blocks()._queue.event_ids_to_events)
        return next(cookie.value or "" for cookie in http.cookies.jar if cookie.value)


def test_no_secret_is_logged_printed_or_counted(
    served: LocalServer, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in (None, *LOGGERS, *logging.Logger.manager.loggerDict):
        if name is None or not name.startswith(CLIENTS):
            caplog.set_level(1, name)
    use_api(served, f"Bearer {KEY}")
    use_api(served, f"Bearer {PLANTED['wrong key']}")
    cookie = use_page(served)
    with served.http(headers={"authorization": f"Bearer {KEY}"}) as http:
        metrics = http.get("/metrics").text
        public = [http.get(path).text for path in ("/health", "/", "/ui/", "/openapi.json")]
    records = [one for one in caplog.records if not one.name.startswith(CLIENTS)]
    output = capfd.readouterr()
    places = {
        "the logs": "".join(map(logging.Formatter().format, records)),
        "the output": output.out + output.err,
        "the metrics": metrics,
        "public answers": "".join(public),
    }
    assert records and "draftline_requests_total" in metrics, "they are searched at all"
    found = [
        (place, what)
        for place, text in places.items()
        for what, secret in (PLANTED | {"cookie": cookie}).items()
        if secret in text
    ]
    assert not found


def test_strangers_see_no_secret(served: LocalServer) -> None:
    """Answers to requests without key or login have nothing of what others sent."""
    use_api(served, f"Bearer {KEY}")
    use_page(served)
    secrets = [PLANTED[what] for what in PLANTED if what not in ("path", "query", "raw", "invalid")]
    with served.http() as http:
        routes = [
            ("GET", path) for path in ("/", "/metrics", "/v1/models", "/openapi.json", "/health")
        ]
        for method, path in [*routes, *gradio_routes(served)]:
            answer = http.request(method, path, json={} if method == "POST" else None)
            text = f"{answer.headers}{answer.text}"
            assert not [secret for secret in secrets if secret in text], (method, path)
            private = path not in ("/", "/health") and not path.startswith("/ui/")
            assert answer.status_code == 401 or not private, path
