"""A server before its model is loaded, and after its model has failed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from engine.records import Done, Request
from engine.worker import Job, Worker
from tests.api.test_serve import KEY, started
from tests.support.server import HELLO, TIMEOUT_S, http, reciter, serve_model, wait_until
from ui.api.security import AccessRules
from ui.api.startup import Startup, Stopped
from ui.web.shell import loading_page


def client_of(first: Startup) -> TestClient:
    return TestClient(first, "http://127.0.0.1", follow_redirects=False)


def test_it_says_how_far_it_is() -> None:
    first = Startup(AccessRules())
    client = client_of(first)
    assert client.get("/health").json() == {"status": "loading"}
    for done, total, loaded in ((0, 0, None), (1, 4, 0.25), (9, 4, 1.0)):
        first.progress("loading", done, total)
        answer = client.get("/health")
        assert answer.status_code == 503 and answer.json().get("loaded") == loaded


@pytest.mark.parametrize("path", ["/v1/models", "/v1/chat/completions", "/infill", "/", "/none"])
def test_everything_else_is_asked_to_come_back(path: str) -> None:
    first = Startup(AccessRules())
    first.progress("loading", 1, 2)
    answer = client_of(first).post(path, content=b"x" * 100)
    assert answer.status_code == 503 and int(answer.headers["retry-after"]) > 0
    error = answer.json()["error"]
    assert error["code"] == "model_loading" and "50%" in error["message"]


def test_anthropics_clients_get_their_form() -> None:
    error = client_of(Startup(AccessRules())).post("/v1/messages", json={}).json()
    assert error["type"] == "error" and error["error"]["type"] == "overloaded_error"


def test_the_page_says_that_it_is_about_to_come() -> None:
    client = client_of(Startup(AccessRules(key=KEY, pages=("/ui",)), "/ui", "<p>soon"))
    assert client.get("/").headers["location"] == client.get("/ui").headers["location"] == "/ui/"
    page = client.get("/ui/")
    assert (page.status_code, page.text) == (503, "<p>soon")
    assert "content-security-policy" in page.headers
    assert "://" not in loading_page().replace(
        "http://www.w3.org/2000/svg", ""
    )  # nothing of other servers


def test_access_is_checked_already() -> None:
    client = client_of(Startup(AccessRules(key=KEY)))
    assert client.get("/v1/models").status_code == 401
    assert client.get("/health").status_code == 503
    assert client.get("/health", headers={"host": "evil.com"}).status_code == 400
    assert client.get("/health", headers={"origin": "http://evil.com"}).status_code == 403


def test_loading_ends_with_the_server() -> None:
    first = Startup(AccessRules())
    first.stop()
    with pytest.raises(Stopped):
        first.progress("loading", 1, 2)


def test_a_server_answers_while_its_model_is_loaded(tmp_path: Path) -> None:
    model = reciter(tmp_path / "reciter")
    with started(tmp_path, "--model", model) as (_, url, lines):
        assert lines[0] == f"draftline: listening on {url} while the model loads\n"
        with http(url) as client:
            assert client.get("/health").json() == {"status": "ok"}


# -- a model that has failed -------------------------------------------------------------------


class AcceleratorError(RuntimeError):
    """Has the name of torch's error of a card, after which the card does nothing any more."""


class Panic(BaseException):
    """What libraries in Rust raise for a bug of theirs."""


def failing(error: BaseException) -> Job:
    def run(_: Any) -> Iterator[Any]:
        raise error
        yield

    return Job(Request("chat"), run)


def test_a_panic_ends_its_own_job_only() -> None:
    worker = Worker()
    for error in (Panic("index out of bounds"), ValueError("bad")):
        done = worker.submit(failing(error)).result()
        assert done.reason == "failed" and done.error == str(error)
    after = Job(Request("chat"), lambda _: iter([Done("stop")]))
    assert worker.submit(after).result().reason == "stop" and worker.failure is None
    worker.close()


def test_a_worker_that_fails_refuses_what_follows() -> None:
    started, released = threading.Event(), threading.Event()

    def run(_: Any) -> Iterator[Any]:
        started.set()
        assert released.wait(TIMEOUT_S)
        raise AcceleratorError("CUDA error:\nillegal memory access")
        yield

    worker = Worker()
    jobs = [worker.submit(Job(Request("chat"), run))]
    assert started.wait(TIMEOUT_S)
    jobs.append(worker.submit(failing(ValueError())))
    released.set()
    for job in jobs:
        done = job.result()
        assert done.reason == "failed" and "CUDA error: illegal" in str(done.error)
    wait_until(lambda: worker.failure)
    with pytest.raises(RuntimeError, match="start the program again"):
        worker.submit(failing(ValueError()))
    worker.close()


def test_a_server_says_that_its_model_has_failed(tmp_path: Path) -> None:
    with serve_model(reciter(tmp_path / "reciter")) as server, server.http() as client:
        server.engine.worker.submit(failing(AcceleratorError("CUDA error"))).result()
        wait_until(lambda: server.engine.failure)
        health = client.get("/health")
        assert health.status_code == 503 and health.json()["status"] == "failed"
        assert "start the server again" in health.json()["message"]
        answer = client.post("/v1/chat/completions", json={"messages": HELLO})
        assert answer.status_code == 503
        assert "CUDA error" in json.loads(answer.text)["error"]["message"]
