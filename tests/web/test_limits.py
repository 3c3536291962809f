"""Uploads and events sent to the page that are too large, interrupted or invalid."""

from __future__ import annotations

import select
import socket

import pytest

from index.documents.formats import MAX_FILE_BYTES
from tests.support.page import API, paged, upload
from tests.support.server import TIMEOUT_S, LocalServer, wait_until
from ui.web import app, gradio_guard

served = paged()

POSTS = ["/ui/login", *(f"{API}/{route}" for route in ("queue/join", "cancel", "reset", "upload"))]
MULTIPART = {"content-type": "multipart/form-data; boundary=b"}
PART = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'


@pytest.mark.parametrize("path", POSTS)
def test_a_large_content_length_is_refused(served: LocalServer, path: str) -> None:
    """The server answers before the body is sent."""
    size = 2_000_000_000 if path.endswith("upload") else 100_000_000
    line = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", served.port), TIMEOUT_S) as connection:
        connection.sendall(line)
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("path", POSTS)
def test_a_large_chunked_body_is_refused_while_it_is_read(
    served: LocalServer, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No part of it is kept."""
    monkeypatch.setattr(gradio_guard, "MAX_UPLOAD_BYTES", 9 << 20)
    is_upload = path.endswith("upload")
    kind = "application/json" if not is_upload else MULTIPART["content-type"]
    if path.endswith("login"):
        kind = "application/x-www-form-urlencoded"
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
    sent, chunk = 0, b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
    with socket.create_connection(("127.0.0.1", served.port), TIMEOUT_S) as connection:
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        if is_upload:
            connection.sendall(f"{len(PART):x}\r\n".encode() + PART + b"\r\n")
        while sent < 100 and not select.select([connection], [], [], 0)[0]:
            connection.sendall(chunk)
            sent += 1
        response = connection.recv(65536)
    assert sent < 60, "60 chunks do not fit into the socket buffers"
    assert response.startswith((b"HTTP/1.1 413 ", b"HTTP/1.1 400 ")), (
        "400: a form field is too large"
    )
    assert not [path for path in app.UPLOADS.iterdir() if path.is_file()]


def test_a_large_file_is_refused(served: LocalServer) -> None:
    """It is not kept, and the next upload works."""
    with served.http() as http:
        before = sorted(app.UPLOADS.iterdir())
        large = {"files": ("large.txt", b" " * (MAX_FILE_BYTES + 1))}
        answer = http.post(f"{API}/upload", files=large)
        assert answer.status_code == 413 and "size" in answer.text
        assert sorted(app.UPLOADS.iterdir()) == before
        assert upload(http, "small.txt", b"some words")


def test_an_interrupted_upload_is_not_kept(served: LocalServer) -> None:
    head = f"POST {API}/upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n"
    kind = f"Content-Type: {MULTIPART['content-type']}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", served.port), TIMEOUT_S) as connection:
        connection.sendall(f"{head}{kind}".encode() + PART + b"half of it")
        wait_until(lambda: [path for path in app.UPLOADS.iterdir() if path.is_file()])
    wait_until(lambda: not [path for path in app.UPLOADS.iterdir() if path.is_file()])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[" * 200_000,
        b'{"data":' * 50_000,
        b'{"data": "x"}',
        b'{"data": [], "fn_index": 99999, "session_hash": "s"}',
        b'{"data": [], "fn_index": -1, "session_hash": "s"}',
        b'{"data": [], "fn_index": "0", "session_hash": {"a": 1}}',
        b'{"data": [NaN], "session_hash": "s", "api_name": "/nothing"}',
        b"\xff\xfe",
    ],
)
def test_invalid_events_are_refused(served: LocalServer, body: bytes) -> None:
    with served.http() as http:
        answer = http.post(
            f"{API}/queue/join", content=body, headers={"content-type": "application/json"}
        )
        assert 400 <= answer.status_code < 500, answer.text
        assert http.get("/ui/config").status_code == 200, "the page still works"
