"""The page of `draftline serve`: its paths and logins, and when it is disabled."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from index.documents.embeddings import DEFAULT_NAME
from tests.support.command import draftline, environment
from tests.support.server import TIMEOUT_S, http, reciter
from ui.cli import serve
from ui.common.errors import Failure

KEY = "0123456789abcdef0123"
PASSWORD = "horse-battery"


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    serve.add_parser(parser.add_subparsers())
    return parser.parse_args(["serve", *arguments])


@pytest.fixture(autouse=True)
def unset_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (serve.API_KEY_VARIABLE, serve.AUTH_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reciter(tmp_path_factory.mktemp("models") / "reciter")


@contextlib.contextmanager
def started(
    folder: Path, *arguments: str | Path, **variables: str
) -> Iterator[tuple[Any, list[str]]]:
    """A server process and its lines on stderr, the last with its URL."""
    command = [sys.executable, "-m", "ui.cli", "serve", "--port", "0", *arguments]
    env = environment(folder) | variables
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=folder, env=env, **pipes) as process:
        try:
            lines: list[str] = []
            for line in process.stderr:  # type: ignore[union-attr]
                lines.append(line)
                if " at http" in line:
                    break
            yield process, lines
            process.terminate()  # so that it deletes its upload folder
            process.wait(TIMEOUT_S)
        finally:
            process.kill()


def url_in(line: str, suffix: str) -> str:
    match = re.fullmatch(rf"draftline: reciter at (http://[0-9.:]+){re.escape(suffix)}\n", line)
    assert match, line
    return match[1]


@pytest.mark.full
def test_page_and_api_are_on_one_port(model: Path, tmp_path: Path) -> None:
    """The server exits even while a page is open, and deletes the uploads."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with started(tmp_path, "--model", model, TMPDIR=str(temporary)) as (process, lines):
        with http(url_in(lines[-1], "/ (page) and /v1 (API)")) as client:
            for path in ("/", "/ui"):
                answer = client.get(path)
                assert (answer.status_code, answer.headers["location"]) == (307, "/ui/")
            page = client.get("/", follow_redirects=True)
            assert page.status_code == 200 and '"title":"Draftline"' in page.text.replace(" ", "")
            assert client.get("/favicon.ico").headers["content-type"].startswith("image/svg")
            assert client.get("/v1/models").json()["data"][0]["id"] == "reciter"
            assert "/ui" not in client.get("/openapi.json").text
            files = {"files": ("a.txt", b"words")}
            assert client.post("/ui/gradio_api/upload", files=files).status_code == 200
            assert [*temporary.glob("draftline-uploads-*/*/a.txt")]
            with client.stream("GET", "/ui/gradio_api/heartbeat/s") as stream:
                next(stream.iter_lines())
                process.send_signal(signal.SIGINT)
                assert process.wait(TIMEOUT_S) == 0
        assert (process.stdout.read(), process.stderr.read()) == ("", "")
        left = {one.suffix or one.name for one in temporary.rglob("*")}
        assert left <= {f"draftline-{os.getuid()}", ".lock"}, "the folder of sockets, without one"
        documents = tmp_path / "home" / "documents"
        assert not documents.exists() or documents.stat().st_mode & 0o077 == 0


def test_a_key_without_logins_disables_the_page(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(first: Any, load: Any, listening: socket.socket, page: bool) -> None:
        assert not page
        for app in (first, load()[0]):
            client = TestClient(app, "http://127.0.0.1")
            for path in ("/ui/", "/ui", "/ui/config", "/favicon.ico"):
                assert client.get(path).status_code == 401
            assert client.get("/").status_code == (503 if app is first else 404)

    monkeypatch.setattr(serve, "_serve", check)
    options = ("--port", "0", "--model", model)
    result = draftline(tmp_path, "serve", *options, DRAFTLINE_API_KEY=KEY)
    assert result.returncode == 0, result.stderr
    assert re.search(rb"no page.*--auth", result.stderr)


def test_without_the_page_s_packages_the_api_is_served(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one line says how to install them."""

    def check(first: Any, load: Any, listening: socket.socket, page: bool) -> None:
        assert not page
        client = TestClient(load()[0], "http://127.0.0.1")
        assert client.get("/ui/").status_code == 404
        assert client.get("/v1/models").json()["data"][0]["id"] == "reciter"

    monkeypatch.setattr(serve, "_serve", check)
    monkeypatch.setitem(sys.modules, "gradio", None)  # as where it is not installed
    result = draftline(tmp_path, "serve", "--port", "0", "--model", model)
    assert result.returncode == 0, result.stderr
    assert b"no page: its packages are not installed: pip install 'draftline[page]'" in (
        result.stderr
    )


@pytest.mark.parametrize("options", [[], ["--embed", "letters"]])
def test_the_embedding_model_is_one_of_the_api(
    options: list[str], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the name of its folder, or by its own name if it came with the package."""
    name = options[-1] if options else DEFAULT_NAME

    def check(first: Any, load: Any, listening: socket.socket, page: bool) -> None:
        body = {"model": name, "input": "text"}
        answer = TestClient(load()[0], "http://127.0.0.1").post("/v1/embeddings", json=body)
        assert answer.json()["model"] == name

    monkeypatch.setattr(serve, "_serve", check)
    monkeypatch.setattr(serve, "embedding", lambda chosen: lambda texts: np.ones((len(texts), 2)))
    result = draftline(tmp_path, "serve", "--port", "0", "--no-page", "--model", model, *options)
    assert result.returncode == 0, result.stderr


@pytest.mark.full
def test_a_login_does_not_replace_the_key(model: Path, tmp_path: Path) -> None:
    variables = {"DRAFTLINE_API_KEY": KEY, "DRAFTLINE_AUTH": f"ann:{PASSWORD}"}
    with started(tmp_path, "--model", model, "--host", "0.0.0.0", **variables) as (_, lines):
        url = url_in(lines[-1], "/ (page) and /v1 (API)").replace("0.0.0.0", "127.0.0.1")
        with http(url) as client:
            assert client.get("/v1/models").status_code == 401
            assert client.get("/", follow_redirects=True).status_code == 200
            assert client.get("/ui/config").status_code == 401
            form = {"username": "ann", "password": PASSWORD}
            assert client.post("/ui/login", data=form).status_code == 200
            assert client.get("/ui/config").json()["username"] == "ann"
            assert client.get("/v1/models").status_code == 401
        assert PASSWORD not in "".join(lines) and KEY not in "".join(lines)


# -- access, checked before the model is loaded ------------------------------------------------

LOOPBACK, OTHER = "127.0.0.1", "192.168.7.7"


@pytest.mark.parametrize("host", [LOOPBACK, OTHER])
@pytest.mark.parametrize("key", [None, KEY])
@pytest.mark.parametrize("user", [None, f"ann:{PASSWORD}"])
@pytest.mark.parametrize("no_page", [False, True])
def test_who_gets_a_page(host: str, key: str | None, user: str | None, no_page: bool) -> None:
    """Without a key, everyone on this machine; with a key, only users who can log in."""
    options = [*(["--api-key", key] if key else []), *(["--auth", user] if user else [])]
    args = parsed("--host", host, *options, *(["--no-page"] if no_page else []))
    if host == OTHER and key is None:
        with pytest.raises(Failure, match="set a key"):
            serve._access(args, host)
        return
    access = serve._access(args, host)
    assert access.page == (not no_page and (user is not None or key is None))
    for secret in (KEY, PASSWORD):
        assert secret not in repr(access)


def test_users_come_from_options_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(serve.AUTH_VARIABLE, f"env:{PASSWORD}")
    assert serve._users(parsed()) == [("env", PASSWORD)]
    args = parsed("--auth", f"ann:{PASSWORD}", "--auth", "ben:with:many:colons")
    assert serve._users(args) == [("ann", PASSWORD), ("ben", "with:many:colons")]


@given(st.text(max_size=12), st.text(max_size=16))
def test_valid_names_and_passwords(name: str, password: str) -> None:
    """An error is one line, and the same whatever the password is."""
    args = argparse.Namespace(auth=[f"{name}:{password}"])
    first, _, rest = f"{name}:{password}".partition(":")
    try:
        assert serve._users(args) == [(first, rest)]
    except Failure as failure:
        assert len(rest) < 12 or first != first.strip() or not first.isprintable() or not first
        other = argparse.Namespace(auth=[f"{first}:{'x' * len(rest)}"])
        with pytest.raises(Failure, match=f"^{re.escape(str(failure))}$"):
            serve._users(other)
        assert "\n" not in str(failure)
    else:
        assert len(rest) >= 12 and first


def test_duplicate_names_are_refused() -> None:
    with pytest.raises(Failure, match="twice"):
        serve._users(parsed("--auth", f"ann:{PASSWORD}", "--auth", "ann:another-password"))


@pytest.mark.full
def test_without_a_page_gradio_is_not_imported(model: Path, tmp_path: Path) -> None:
    code = (
        "import sys\nfrom ui.cli import serve\n"
        "serve._serve = lambda _, load, *__: (load(), print('gradio' in sys.modules))\n"
        "from ui.cli.main import main\nmain()"
    )
    for options, imported in ((["--no-page"], "False"), ([], "True")):
        command = [
            sys.executable,
            "-c",
            code,
            "serve",
            "--port",
            "0",
            "--model",
            str(model),
            *options,
        ]
        result = subprocess.run(
            command, env=environment(tmp_path), capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert result.stdout.strip() == imported, result.stderr
