"""A server with the page, and requests to it without a browser."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from engine import Config, Engine
from tests.support.server import LocalServer, reciter, serve_app
from ui.api import app as api
from ui.api.security import AccessRules
from ui.web import app as web
from ui.web import gradio_guard

API = "/ui/gradio_api"
SECRET = b"nobody but me may read this"
ANN, BEN = ("ann", "horse-battery"), ("ben", "staple-correct")
ROUTES = [
    ("GET", "/ui/"),
    ("GET", "/ui/config"),
    ("GET", "/ui/theme.css"),
    ("GET", "/ui/assets/none.js"),
    ("GET", "/ui/nowhere"),
    ("GET", "/ui/page.png?document=d&page=1"),
    ("POST", "/ui/login"),
    ("POST", f"{API}/queue/join"),
    ("GET", f"{API}/queue/data?session_hash=s"),  # these two stream
    ("GET", f"{API}/heartbeat/s"),
    ("GET", f"{API}/upload_progress?upload_id=u"),
    ("POST", f"{API}/upload"),
    ("POST", f"{API}/cancel"),
    ("GET", f"{API}/file=/etc/passwd"),
    ("OPTIONS", f"{API}/queue/join"),
]


@contextlib.contextmanager
def reciting(factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine that always answers ANSWER, with its own cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRAFTLINE_HOME", str(factory.mktemp("home")))
        model = reciter(factory.mktemp("models") / "reciter")
        with Engine(Config(model=str(model), library=False)) as engine:
            yield engine


@contextlib.contextmanager
def page(engine: Engine, *users: tuple[str, str]) -> Iterator[LocalServer]:
    """A server with the page."""
    app = api.app(engine, AccessRules(pages=("/ui",)))
    web.mount(app, engine, app.state.jobs, None, users)
    with serve_app(app) as port:
        yield LocalServer(engine, app, port)
    app.state.page.close()


def paged(*users: tuple[str, str]) -> Any:
    """A fixture: a server with the page and its own engine."""

    @pytest.fixture(scope="module")
    def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
        with reciting(tmp_path_factory) as engine, page(engine, *users) as served:
            yield served

    return served


def guard_of(served: LocalServer) -> gradio_guard.GradioGuard:
    [mounted] = [route for route in served.app.routes if getattr(route, "path", "") == "/ui"]
    guard: gradio_guard.GradioGuard = mounted.app
    return guard


def gradio_routes(served: LocalServer) -> list[tuple[str, str]]:
    """Method and path of all routes of Gradio, with parameters filled in."""
    inner: Any = guard_of(served).app
    return [
        (method.upper(), "/ui" + re.sub(r"{[^}]*}", "x", path))
        for path, methods in inner.openapi()["paths"].items()
        for method in methods
    ]


def upload(http: httpx.Client, name: str = "a.txt", data: bytes = b"words") -> str:
    """Upload a file; returns its path on the server."""
    answer = http.post(f"{API}/upload", files={"files": (name, data)})
    assert answer.status_code == 200, answer.text
    [path] = answer.json()
    return str(path)


def event_with_inputs(http: httpx.Client, inputs: int) -> int:
    """The index of an event with this number of inputs."""
    events = http.get("/ui/config").json()["dependencies"]
    return int(next(event["id"] for event in events if len(event["inputs"]) == inputs))


def join(http: httpx.Client, data: list[Any], **fields: Any) -> httpx.Response:
    """Send a UI event."""
    body = {"data": data, "fn_index": 0, "session_hash": "s"} | fields
    return http.post(f"{API}/queue/join", json=body)


def file_data(path: Any) -> dict[str, Any]:
    """A reference to a file, as Gradio's frontend sends it."""
    return {"path": path, "meta": {"_type": "gradio.FileData"}, "orig_name": "a.txt"}


@contextlib.contextmanager
def login(served: LocalServer, user: tuple[str, str]) -> Iterator[httpx.Client]:
    with served.http() as http:
        form = {"username": user[0], "password": user[1]}
        assert http.post("/ui/login", data=form).json() == {"success": True}
        yield http
