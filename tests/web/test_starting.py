"""What the server answers while the model loads."""

from __future__ import annotations

import json
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.hostile_texts import SAID as HOSTILE
from tests.support.server import http
from ui.api.security import AccessRules
from ui.api.starting import Starting, answering
from ui.cli.serve import options
from ui.web.shell import with_shell


@given(st.text(), st.integers(0, 9), st.integers(0, 9))
def test_any_progress_is_told_and_escaped(stage: str, done: int, total: int) -> None:
    starting = Starting("model", page=True)
    starting.progress(stage + HOSTILE, done, total)
    status, _, body = starting.answer("/health")
    told = json.loads(body)
    assert status == 503 and (told["done"], told["total"]) == (done, total)
    assert told["stage"].endswith(HOSTILE) and told["status"] == "loading"
    status, _, page = starting.answer("/ui/")
    assert status == 200 and HOSTILE.encode() not in page and b"<progress" in page


@pytest.mark.parametrize("page", [True, False])
def test_programs_are_told_to_retry(page: bool) -> None:
    starting = Starting("model", page)
    for path in (
        "/v1/chat/completions",
        "/v1/messages",
        "/favicon.ico",
        *(() if page else ("/ui/",)),
    ):
        status, headers, body = starting.answer(path)
        assert status == 503 and dict(headers)[b"retry-after"] == b"1"
        assert "Loading model" in json.loads(body)["error"]["message"]
    assert starting.answer("/")[0] == (307 if page else 503)


def test_the_socket_passes_to_the_next_application() -> None:
    """Hosts are checked already, and nobody is turned away between the two applications."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        rules = AccessRules(pages=("/ui",))
        for name in ("first", "second"):
            with (
                answering(Starting(name, page=True), rules, listening, options()),
                http(url) as client,
            ):
                assert name in client.get("/ui/").text
                assert client.get("/v1/models").status_code == 503
                assert client.get("/ui/", headers={"host": "evil.example"}).status_code == 400
                assert "frame-ancestors" in client.get("/ui/").headers["content-security-policy"]
        with socket.create_connection(listening.getsockname()):
            pass


def test_the_outline_is_before_the_scripts_of_the_page() -> None:
    page = with_shell(b"<body><gradio-app>x</gradio-app></body>").decode()
    assert page.startswith("<body><style>") and page.endswith("<gradio-app>x</gradio-app></body>")
    assert page.count('id="shell"') == 1 and "Loading the page" in page
    assert with_shell(b"not the page") == b"not the page"
