"""`draftline serve`: running until Ctrl-C, and invalid options. The page is tested in
tests/web/test_serve_page.py."""

from __future__ import annotations

import argparse
import contextlib
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import draftline, environment, one_line
from tests.support.server import ANSWER, HELLO, TIMEOUT_S, endless, http, wait_until
from ui.cli import serve
from ui.common.errors import Failure

KEY = "0123456789abcdef0123"
CHAT = "/v1/chat/completions"
LONG = {"messages": HELLO, "max_tokens": 30_000, "stream": True}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return endless(tmp_path_factory.mktemp("models") / "endless")


@contextlib.contextmanager
def started(
    folder: Path, *arguments: str | Path, **variables: str
) -> Iterator[tuple[Any, str, list[str]]]:
    """A server process, its URL, and its lines on stderr."""
    command = [sys.executable, "-m", "ui.cli", "serve", "--no-page", "--port", "0", *arguments]
    env = environment(folder) | variables
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=folder, env=env, **pipes) as process:
        try:
            lines = []
            for line in process.stderr:  # type: ignore[union-attr]
                lines.append(line)
                if match := re.fullmatch(r"draftline: (\S+) at (http://\S+)/v1\n", line):
                    yield process, match[2], lines
                    break
            else:
                raise AssertionError(lines)
        finally:
            process.kill()


def assert_clean_exit(process: Any) -> None:
    """Check that the process exits with 0 and without further output."""
    assert process.wait(TIMEOUT_S) == 0
    assert (process.stdout.read(), process.stderr.read()) == ("", "")


def test_serve_runs_until_ctrl_c(model: Path, tmp_path: Path) -> None:
    """It listens on loopback and needs no key. A stream in progress ends with an error."""
    options = ("--alias", "gpt-4o-mini", "--queue", "1")
    with started(tmp_path, "--model", model, *options) as (process, url, told):
        assert url.startswith("http://127.0.0.1:")
        assert any("no chat template" in line for line in told)
        with http(url) as client:
            body = {"model": "gpt-4o-mini", "messages": HELLO, "max_tokens": 3}
            answer = client.post(CHAT, json=body).json()
            assert answer["choices"][0]["message"]["content"] == ANSWER[:3]
            assert client.get("/health", headers={"host": "evil.com"}).status_code == 400
            with client.stream("POST", CHAT, json=LONG) as stream:
                lines = stream.iter_lines()
                next(lines)
                assert client.post(CHAT, json=body).status_code == 429
                process.send_signal(signal.SIGINT)
                *_, last = (line for line in lines if line)
        assert '"error"' in last and "[DONE]" not in last
        assert_clean_exit(process)


@pytest.mark.full
def test_with_a_key_other_machines_may_connect(model: Path, tmp_path: Path) -> None:
    """By any IP address and by allowed names, but by no other name. A client that does not read its
    answer does not prevent the server from exiting."""
    arguments = ("--host", "0.0.0.0", "--allow-host", "box.lan", "--alias", "*", "--model", model)
    with started(tmp_path, *arguments, DRAFTLINE_API_KEY=KEY) as (process, url, _):
        port = int(url.rsplit(":", 1)[1])
        headers = {"authorization": f"Bearer {KEY}"}
        with http(f"http://127.0.0.1:{port}") as client:
            assert client.get("/v1/models").status_code == 401
            for host, status in {
                "192.168.1.5": 200,
                f"box.lan:{port}": 200,
                socket.gethostname(): 200,
                "evil.com": 400,
            }.items():
                answer = client.get("/v1/models", headers=headers | {"host": host})
                assert answer.status_code == status
            body = LONG | {"max_tokens": 1000, "model": "m" * 300_000}
            with client.stream("POST", CHAT, json=body, headers=headers) as stream:
                assert stream.status_code == 200
                with http(f"http://127.0.0.1:{port}", headers=headers) as other:
                    wait_until(lambda: "draftline_open 0.0" in other.get("/metrics").text)
                process.send_signal(signal.SIGTERM)
                assert_clean_exit(process)


# -- invalid options, reported before the model is loaded ---------------------------------------


def usage_error(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run the command; returns the one line of its usage error."""
    parser = argparse.ArgumentParser()
    serve.add_parser(parser.add_subparsers())
    args = parser.parse_args(["serve", *arguments])
    with pytest.raises(Failure) as caught:
        args.run(args)
    assert caught.value.code == 2 and capsys.readouterr() == ("", "")
    assert re.fullmatch(r"[^\n]*: [^\n]*", str(caught.value))
    return str(caught.value)


def test_other_machines_need_a_key(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(serve.API_KEY_VARIABLE, raising=False)
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        assert "set a key in DRAFTLINE_API_KEY" in usage_error(capsys, "--host", host)
    for key in ("", "short", "k" * 15, "k" * 20 + " k", "k" * 20 + "é", "k" * 20 + "\t"):
        line = usage_error(capsys, "--host", "0.0.0.0", "--api-key", key)
        assert "16 or more" in line and (not key or key not in line)
    monkeypatch.setenv(serve.API_KEY_VARIABLE, "")
    assert "16 or more" in usage_error(capsys, "--host", "0.0.0.0")


def test_unusable_addresses_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for host in ("", "no-such-host.invalid", "a" * 100, "two words"):
        assert "name an address" in usage_error(capsys, "--host", host)
    assert "name another" in usage_error(capsys, "--host", "192.0.2.1", "--api-key", KEY)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert "name another --port" in usage_error(capsys, "--port", port)
    assert "not a folder" in usage_error(capsys, "--workspace", "nowhere")


def test_invalid_options_and_models_are_refused(tmp_path: Path) -> None:
    result = draftline(tmp_path, "serve", "--queue", "0")
    assert result.returncode == 2 and "0 is not 1 to 1000: see `" in one_line(result)
    parser = argparse.ArgumentParser()
    serve.add_parser(parser.add_subparsers())
    for wrong in (["--port", "70000"], ["--port", "x"], ["--queue", "1001"], ["--ports", "1"]):
        with pytest.raises(SystemExit):
            parser.parse_args(["serve", *wrong])
    result = draftline(tmp_path, "serve", "--port", "0", "--no-page", "--model", tmp_path)
    assert result.returncode == 3 and result.stdout == b""
    assert b"config" in result.stderr.splitlines()[-1]


def test_help_imports_no_heavy_package(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom ui.cli.main import main\nmain(['serve', '--help'])\n"
        "heavy = ('torch', 'fastapi', 'uvicorn', 'pydantic')\n"
        "print(*(name for name in heavy if name in sys.modules), file=sys.stderr)"
    )
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, env=environment(tmp_path), capture_output=True, check=True)
    assert result.stderr.strip() == b""
    for option in ("--host", "--port", "--api-key", "--allow-host", "--alias", "--queue"):
        assert option in result.stdout.decode()
