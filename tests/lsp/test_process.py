"""The language server as a process: framing, exit codes, many clients, its command line."""

from __future__ import annotations

import json
import logging
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.remote.framing import MAX_BODY_BYTES, Frames, framed
from lsp_server.cli import main
from lsp_server.protocol import client_process
from tests.support.lsp import (
    COMPUTING,
    HELLO,
    ROOT,
    STATES,
    Client,
    end_session,
    exit_code,
    listening,
    place,
    started,
)

TIMEOUT_S = 60  # a backstop

# -- frames ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "before",
    [
        b"garbage\r\n\r\n",
        b"\x00\xff" * 50_000,
        b"Content-Length: many\r\n\r\n{}",
        b"Content-Length: -3\r\n\r\n{}",
        b"Content-Length: %d\r\n\r\n{}" % (MAX_BODY_BYTES + 1),
        b"Content-Len\r\n\r\n{}",
        b"Content-Length: 2000\r\n\r\n{}",
        b"Content-Type: x\r\n\r\n",
        b"Content-Length:" + b" " * (512 << 10) + b"x\r\n\r\n",
        (b"Content-Length: " + b" \t" * 4000 + b"x\r\n") * 64,
        b"Content-Length \t" * 500 + b"\r\n" + b"A" * 8000 + b" " * 100 + b"\0\r\n",
    ],
)
def test_reading_resumes_after_garbage_with_one_error(before: bytes) -> None:
    wire = before + framed(b'{"a":1}') + framed(b'{"b":2}') * 20
    for size in (1, 7, 1 << 16, 1 << 20):
        if size < 10 and len(before) > 1000:
            continue
        frames = Frames()
        found = [
            each
            for start in range(0, len(wire), size)
            for each in frames.feed(wire[start : start + size])
        ]
        assert [type(each).__name__ for each in found] == ["Unreadable"] + ["bytes"] * 21
        assert found[1:] == [b'{"a":1}'] + [b'{"b":2}'] * 20


def test_header_names_are_case_insensitive_and_other_headers_are_ignored(
    process: subprocess.Popen[bytes],
) -> None:
    client = Client.of(process)
    client.raw(b"\r\nnonsense\r\n")
    body = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": HELLO}).encode()
    client.raw(b"content-TYPE: x\r\ncontent-length:%d\r\n\r\n" % len(body) + body)
    assert "result" in client.answer(7)
    assert [each["error"]["code"] for each in client.unnamed] == [-32700]


# -- process exit -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "shutdown", "busy"),
    [
        ("eof", False, True),
        ("eof", True, False),
        ("exit", False, False),
        ("exit", True, True),
        ("SIGTERM", False, True),
        ("SIGTERM", True, False),
        ("SIGINT", False, False),
        ("SIGINT", True, True),
    ],
)
def test_the_process_exits(
    process: subprocess.Popen[bytes], how: str, shutdown: bool, busy: bool
) -> None:
    """With the right exit code, even while a handler computes forever."""
    client = Client.of(process)
    client.hello()
    if busy:
        client.begin(COMPUTING)
        client.wait_for("test/computing")
    end_session(process, client, how, shutdown)
    expected = {"SIGTERM": 143, "SIGINT": 130}.get(how, 0 if shutdown else 1)
    assert exit_code(process) == expected
    assert process.stderr and b"Traceback" not in process.stderr.read()


def test_it_exits_when_the_client_dies_while_the_pipe_is_open(
    process: subprocess.Popen[bytes],
) -> None:
    client = Client.of(process)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as parent:
        client.hello(processId=parent.pid)
        assert client.ask("test/large", {"size": 1}) == "x"
        assert process.poll() is None
        parent.kill()
        assert exit_code(process) == 1  # not reaped yet: a zombie counts as dead


@pytest.mark.skipif(sys.platform != "linux", reason="other systems tell in other ways")
def test_the_end_of_a_process_is_reported_without_checking_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checks: list[float] = []
    monkeypatch.setattr(client_process.time, "sleep", checks.append)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as parent:
        process = client_process.find_process(parent.pid)
        waiting = threading.Thread(target=client_process.wait_for_end, args=(process,), daemon=True)
        waiting.start()
        assert waiting.is_alive() and parent.poll() is None
        parent.kill()
        waiting.join(TIMEOUT_S)  # not reaped yet: a zombie counts as dead
        assert not waiting.is_alive() and checks == []


def test_a_client_that_reads_nothing_does_not_block_the_exit() -> None:
    with started("stdio") as process:
        assert process.stdin
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
        large = {"jsonrpc": "2.0", "id": 2, "method": "test/large", "params": {"size": 1 << 22}}
        for message in (hello, large, large, {"jsonrpc": "2.0", "id": 3, "method": "shutdown"}):
            process.stdin.write(framed(json.dumps(message).encode()))
        process.stdin.write(framed(b'{"jsonrpc":"2.0","method":"exit"}'))
        process.stdin.flush()
        assert exit_code(process) == 0


def test_it_exits_quietly_when_its_pipe_is_closed(process: subprocess.Popen[bytes]) -> None:
    def ask(number: int, method: str, params: Any) -> None:
        assert process.stdin
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        process.stdin.write(framed(json.dumps(message).encode()))
        process.stdin.flush()

    assert process.stdout and process.stderr
    ask(1, "initialize", HELLO)
    assert process.stdout.readline().startswith(b"Content-Length")
    process.stdout.close()
    ask(2, "test/large", {"size": 1 << 20})
    assert exit_code(process) == 1
    assert b"Traceback" not in process.stderr.read()


# -- many clients ------------------------------------------------------------------------------


def test_tcp_serves_many_clients_and_continues_when_one_disconnects() -> None:
    process, port = listening()
    with process:
        clients = [Client.on(port) for _ in range(3)]
        for number, client in enumerate(clients):
            client.hello()
            client.open("file:///same.py", f"text {number}")
        clients[0].notify("exit")
        for number, client in [*enumerate(clients)][1:]:
            text = client.ask(STATES, {"uri": "file:///same.py"})["text"]
            assert text == f"text {number}"
        web = Client.on(port)  # a web page can send this
        web.raw(b"POST / HTTP/1.1\r\nHost: x\r\n" + framed(b'{"jsonrpc":"2.0","id":1}'))
        assert "shutdown" in Client.on(port).error("shutdown")["message"]
        assert not web.answers and not web.unnamed
        process.send_signal(signal.SIGTERM)
        assert exit_code(process) == 143


def test_eight_clients_keep_their_own_documents() -> None:
    process, port = listening()
    uri, rng = "file:///same.py", random.Random(8)
    with process:
        clients = [Client.on(port) for _ in range(8)]
        texts = [f"client {number}\n" for number in range(8)]
        for client, text in zip(clients, texts, strict=True):
            client.hello()
            client.open(uri, text)
        for version in range(2, 30):
            asked = []
            for number, client in enumerate(clients):
                text, inserted = texts[number], f"{number}:{version}\n"
                offset = rng.randrange(len(text))
                before = text[:offset]
                at = place(before.count("\n"), offset - (before.rfind("\n") + 1))
                change = {"range": {"start": at, "end": at}, "text": inserted}
                document = {"uri": uri, "version": version}
                changed = {"textDocument": document, "contentChanges": [change]}
                client.notify("textDocument/didChange", changed)
                asked.append(client.begin(STATES, {"uri": uri}))
                texts[number] = before + inserted + text[offset:]
            for client, text, identity in zip(clients, texts, asked, strict=True):
                state = client.answer(identity)["result"]
                assert state == {"text": text, "version": version}
        process.send_signal(signal.SIGINT)
        assert exit_code(process) == 130


# -- the command line --------------------------------------------------------------------------


@pytest.fixture
def lsp(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, str, str]]]:
    """lsp(*arguments) -> exit code, stdout and stderr of the command, run in this process."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main([*arguments])
        return code, *capsys.readouterr()

    monkeypatch.setattr(logging, "raiseExceptions", logging.raiseExceptions)
    monkeypatch.setattr(logging.root, "handlers", [*logging.root.handlers])
    level = logging.root.level
    yield run
    logging.root.setLevel(level)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--nonsense",),
        ("--tcp", "--stdio"),
        ("--port", "99999"),
        ("--tcp", "--host", "0.0.0.0"),
        ("--tcp", "--host", "example.com"),
        ("--log-file", "/nowhere/at/all.log"),
    ],
)
def test_bad_options_are_reported_in_one_line_and_exit_with_2(
    lsp: Any, arguments: tuple[str, ...]
) -> None:
    code, out, err = lsp(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("draftline: ") and err.count("\n") == 1


def test_a_check_of_a_missing_model_exits_with_3(lsp: Any) -> None:
    code, out, err = lsp("--check", "--model", "no/such-model.gguf")
    assert (code, out) == (3, "")
    assert err.startswith("draftline: ") and err.count("\n") == 1


def test_the_command_line_imports_no_heavy_package(lsp: Any) -> None:
    code, out, _ = lsp("--version")
    assert code == 0 and out.startswith("draftline ")
    script = """if True:
        import sys
        from ui.cli.main import main
        main(["lsp", "--version"])
        print({"pygls", "torch", "numpy"} & sys.modules.keys())
    """
    found = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert found.stdout == f"{out}set()\n", found.stderr


def test_files_of_the_workspace_are_never_imported(tmp_path: Path) -> None:
    """Editors start the server in the workspace, whose files may be named like modules."""
    for name in ("argparse", "numbers", "asyncio", "lsprotocol", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')", "utf-8")
    command = [sys.executable, "-m", "lsp_server", "--version"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("draftline ")
