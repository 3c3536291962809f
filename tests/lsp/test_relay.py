"""`draftline lsp` over stdin and stdout: one server for all windows, and what ends with what."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from engine.remote.address import (
    Address,
    AddressError,
    connect,
    listen,
    parse,
    shared_address,
    start_lock,
)
from engine.remote.framing import framed
from engine.remote.messages import SERVER, ServerInfo, to_json
from engine.remote.remote_engine import open_connection
from lsp_server.protocol.client_process import find_process, is_alive
from lsp_server.sharing import relay
from tests.support.command import FENCE, chain_model
from tests.support.listeners import answering
from tests.support.lsp import ROOT, TIMEOUT_S, Client, end_session, exit_code, listening
from tests.support.shared_server import private_runtime

URI = "file:///project/app.py"


class Windows:
    """Starts `draftline lsp` processes of one user."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.servers: set[int] = set()  # process numbers

    def open(self, *options: str, **process: Any) -> subprocess.Popen[bytes]:
        """A process that has just started."""
        command = [sys.executable, "-m", "lsp_server", "--idle-minutes", "0", *options]
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        made = subprocess.Popen(command, cwd=ROOT, **pipes | process)
        self._stack.enter_context(made)
        self._stack.callback(made.kill)
        return made

    def hello(self, *options: str, **also: Any) -> tuple[subprocess.Popen[bytes], Client]:
        """A process, and its client after `initialize`."""
        process = self.open(*options)
        client = Client.of(process)
        client.hello(**also)
        return process, client

    def server(self, client: Client) -> int:
        """The process that serves a client."""
        found: int = client.ask("draftline/info", {})["process"]
        self.servers.add(found)
        return found


@pytest.fixture
def windows(tmp_path: Path) -> Iterator[Windows]:
    with private_runtime(tmp_path / "home"), ExitStack() as stack:
        made = Windows(stack)
        yield made
        stack.close()
        for pid in made.servers:
            until(lambda pid=pid: not alive(pid))  # type: ignore[misc]
        address = shared_address()
        assert address and address.path
        until(lambda: not os.path.lexists(str(address.path)))


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a process runs. One that has ended may be there until its parent, which is not this
    process, has asked for its exit code."""
    process = find_process(pid)
    return process is not None and is_alive(process)


def leave(process: subprocess.Popen[bytes], client: Client) -> int:
    """End a session as the protocol wants it; the exit code."""
    client.ask("shutdown")
    client.notify("exit")
    return exit_code(process)


def test_windows_share_one_server_that_ends_after_the_last_of_them(windows: Windows) -> None:
    """Each has its own documents; two that start at once start one server."""
    processes = [windows.open() for _ in range(3)]
    clients = [Client.of(process) for process in processes]
    for number, client in enumerate(clients):
        client.hello(capabilities={"general": {"positionEncodings": ["utf-16"]}})
        client.open(URI, f"text {number}\n")
    assert len({windows.server(client) for client in clients}) == 1
    assert windows.servers.isdisjoint(process.pid for process in processes)
    assert leave(processes[0], clients[0]) == 0
    _, later = windows.hello()
    assert {windows.server(later)} == windows.servers


ENDS = [
    ("eof", False, 1),
    ("eof", True, 0),
    ("exit", False, 1),
    ("exit", True, 0),
    ("SIGTERM", False, 143),
    ("SIGINT", True, 130),
    ("SIGKILL", False, -9),
]


def test_the_end_of_a_window_ends_its_session_only(windows: Windows) -> None:
    _, other = windows.hello()
    for how, shutdown, code in ENDS:
        process, client = windows.hello()
        end_session(process, client, how, shutdown)
        assert exit_code(process) == code, (how, shutdown)
        assert process.stderr and process.stderr.read() == b""
        windows.server(other)
    assert len(windows.servers) == 1


def test_a_window_ends_with_its_client_even_if_the_pipe_is_open(windows: Windows) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as parent:
        process, client = windows.hello(processId=parent.pid)
        windows.server(client)
        assert process.poll() is None
        parent.kill()
        assert exit_code(process) == 1


def test_a_client_that_reads_nothing_does_not_block_the_exit(windows: Windows) -> None:
    process = windows.open()
    assert process.stdin
    body = b'{"jsonrpc":"2.0","id":%d,"method":"draftline/info"}'
    for number in range(2000):
        process.stdin.write(framed(body % number))
    process.stdin.write(framed(b'{"jsonrpc":"2.0","method":"exit"}'))
    process.stdin.flush()
    assert exit_code(process) == 1


def test_a_killed_server_ends_its_windows_and_the_next_starts_another(windows: Windows) -> None:
    """The editors' own restart then brings everything back."""
    processes, clients = zip(*(windows.hello() for _ in range(2)), strict=True)
    before = {windows.server(client) for client in clients}
    os.kill(*before, signal.SIGKILL)
    for process in processes:
        assert exit_code(process) == 1
        assert process.stderr and b"the shared server has ended" in process.stderr.read()
    _, client = windows.hello()
    assert windows.server(client) not in before


def test_a_server_of_another_model_is_not_joined(windows: Windows) -> None:
    _, one = windows.hello()
    _, other = windows.hello("--model", "/no/model")
    _, same = windows.hello("--model", "/no/model")
    assert windows.server(one) != windows.server(other) == windows.server(same)


def test_own_starts_no_server(windows: Windows) -> None:
    process, client = windows.hello("--server", "own")
    assert client.ask("draftline/info", {})["process"] == process.pid
    assert leave(process, client) == 0


def asking(uri: str, version: int = 1) -> dict[str, Any]:
    """Parameters of an edit."""
    return {"textDocument": {"uri": uri, "version": version}, "instruction": "do"}


def test_a_model_answers_through_the_relay(windows: Windows, tmp_path: Path) -> None:
    """Also for a language without a grammar."""
    chain = str(chain_model(tmp_path / "model", "x=9", FENCE))
    _, client = windows.hello(initializationOptions={"model": chain})
    windows.server(client)
    for name in ("app.py", "app.no-known-language", "app"):
        uri = f"file:///project/{name}"
        client.open(uri, "x=1\n")
        (change,) = client.ask("draftline/edit", asking(uri))["edit"]["changes"][uri]
        assert change["newText"] == "9", name


def test_two_windows_that_edit_one_file_keep_their_own_texts(
    windows: Windows, tmp_path: Path
) -> None:
    chain = str(chain_model(tmp_path / "model", "x=9", FENCE))
    clients = [windows.hello(initializationOptions={"model": chain})[1] for _ in range(2)]
    assert len({windows.server(client) for client in clients}) == 1
    for client in clients:
        client.open(URI, "x=1\n")
    one, other = clients
    identity = one.begin("draftline/edit", asking(URI))
    whole = {"textDocument": {"uri": URI, "version": 2}, "contentChanges": [{"text": "x=777\n"}]}
    other.notify("textDocument/didChange", whole)
    edits = [one.answer(identity)["result"], other.ask("draftline/edit", asking(URI, 2))]
    ranges = [edit["edit"]["changes"][URI][0]["range"]["end"]["character"] for edit in edits]
    assert ranges == [len("x=1"), len("x=777")]
    assert "changed meanwhile" in other.error("draftline/edit", asking(URI, 1))["message"]


def test_a_server_that_is_killed_while_it_edits_ends_its_windows(windows: Windows) -> None:
    process, client = windows.hello()
    server = windows.server(client)
    client.open(URI, "x=1\n")
    os.kill(server, signal.SIGSTOP)  # it has the request, and does not answer
    identity = client.begin("draftline/edit", asking(URI))
    os.kill(server, signal.SIGKILL)
    assert exit_code(process) == 1
    assert process.stderr and b"the shared server has ended" in process.stderr.read()
    assert identity not in client.answers
    _, client = windows.hello()
    assert windows.server(client) != server


def test_a_window_beside_a_stopped_server_has_an_engine_of_its_own(windows: Windows) -> None:
    """A message says why; a window that opens once the server goes on shares it again."""
    _, client = windows.hello()
    server = windows.server(client)
    os.kill(server, signal.SIGSTOP)
    process, other = windows.hello()
    assert other.ask("draftline/info", {})["process"] == process.pid
    message = other.wait_for("window/showMessage")["params"]["message"]
    assert f"process {server}, was stopped" in message and "kill -CONT" in message
    assert leave(process, other) == 0
    os.kill(server, signal.SIGCONT)
    _, client = windows.hello()
    assert windows.server(client) == server


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Address]:
    """Where the shared server is looked for."""
    with private_runtime(tmp_path / "home"):
        address = shared_address()
        assert address is not None and address.path is not None
        yield address


def test_a_server_that_accepts_and_does_not_answer_is_not_waited_for(
    shared: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "ANSWER_TIMEOUT_S", 0.05)
    with (
        answering(None, shared.path),
        pytest.raises(relay.NotAnswering, match="does not answer: end it"),
    ):
        relay.join(None, relay.Start())


def test_a_server_that_is_being_started_is_waited_for(
    shared: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers from the third attempt on: another window, which starts it, holds the lock."""
    monkeypatch.setattr(relay, "ANSWER_TIMEOUT_S", 0.05)
    info = to_json(ServerInfo(SERVER, "1", os.getpid(), "idle"))
    answer = framed(json.dumps({"jsonrpc": "2.0", "id": 1, "result": info}).encode())
    silent: list[socket.socket] = []
    with listen(shared) as listener, start_lock(shared):

        def serve() -> None:
            silent.extend(listener.accept()[0] for _ in range(2))
            with suppress(OSError):  # until the listener is shut down
                while True:
                    with listener.accept()[0] as client, suppress(OSError):  # it may not wait
                        client.recv(1 << 16)
                        client.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        connection = relay.join(None, relay.Start())
        assert connection and connection.server.process == os.getpid() and len(silent) == 2
        connection.close()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    for one in silent:
        one.close()


def test_a_server_with_too_many_waiting_clients(shared: Address) -> None:
    """Connecting to it would wait for ever."""
    with ExitStack() as stack:
        stack.enter_context(listen(shared)).listen(0)
        with pytest.raises(AddressError, match="too many clients wait"):
            while True:
                stack.enter_context(connect(shared))


# -- servers that are named ----------------------------------------------------------------------


def test_a_server_that_is_named_is_joined(windows: Windows) -> None:
    server, port = listening("/no/model")
    with server:
        process, client = windows.hello("--server", f"127.0.0.1:{port}")
        assert client.ask("draftline/info", {})["process"] == server.pid
        assert leave(process, client) == 0
        server.kill()


MISSING = "no draftline server answers there"
OTHER = "another program answers there"
FAILED = -32803
STATUS = {"experimental": {"draftline": {"status": True}}}


def refused(process: subprocess.Popen[bytes]) -> str:
    """The one message of a session without a server, whose requests fail with it, and which ends
    like any other."""
    client = Client.of(process)
    assert client.hello()["capabilities"] == {}
    message: str = client.wait_for("window/showMessage")["params"]["message"]
    assert "\n" not in message
    error = client.error("draftline/edit", {"textDocument": {"uri": URI}, "instruction": "do"})
    assert error["code"] == FAILED and message == "Draftline: " + error["message"]
    assert client.ask("shutdown") is None and process.poll() is None
    client.notify("exit")
    assert exit_code(process) == 2
    assert client.notifications.empty()
    assert process.stderr
    assert process.stderr.read().decode().split() == ("draftline: " + error["message"]).split()
    return message


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("localhost", "not an address"),
        ("192.0.2.1:80", "not a loopback address"),
        ("/no/such.sock", MISSING),
        ("127.0.0.1:9", MISSING),
    ],
)
def test_an_address_without_a_server_is_one_message_in_the_editor(
    windows: Windows, address: str, reason: str
) -> None:
    assert reason in refused(windows.open("--server", address))


ANSWERS = {
    "http": b"HTTP/1.0 400 Bad Request\r\nContent-Length: 2\r\n\r\nno",
    "ssh": b"SSH-2.0-OpenSSH_9.2\r\n",
    "garbage": bytes(range(256)) * 100,
    "not JSON": framed(b"{"),
    "no info": framed(b'{"jsonrpc":"2.0","id":1,"result":{}}'),
    "no method": framed(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}'),
    "not begun": framed(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":"no"}}'),
    "hangs up": b"",
}


@pytest.mark.parametrize(
    ("name", "at"),
    [*((name, "port") for name in ANSWERS), ("http", "socket"), ("hangs up", "socket")],
)
def test_another_program_is_one_message_in_the_editor(
    windows: Windows, tmp_path: Path, name: str, at: str
) -> None:
    with answering(ANSWERS[name], tmp_path / "s" if at == "socket" else None) as address:
        message = refused(windows.open("--server", address))
    assert address in message and (OTHER if ANSWERS[name] else MISSING) in message


@pytest.mark.parametrize("at", ["port", "socket"])
def test_a_program_that_keeps_silent_is_given_up(tmp_path: Path, at: str) -> None:
    with (
        answering(None, tmp_path / "s" if at == "socket" else None) as address,
        pytest.raises(AddressError, match="does not answer: end it, or name another"),
    ):
        open_connection(parse(address), timeout_s=0.05)


def test_an_editor_with_a_status_shows_the_reason_there(windows: Windows) -> None:
    process = windows.open("--server", "127.0.0.1:9")
    client = Client.of(process)
    client.hello(capabilities=STATUS)
    status = client.wait_for("draftline/status")["params"]
    assert status["state"] == "error" and MISSING in status["message"]
    client.write.close()
    assert exit_code(process) == 2
    assert client.notifications.empty()


def test_a_session_without_a_server_ends_with_its_client(windows: Windows) -> None:
    """Also if its pipes stay open."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as parent:
        process = windows.open("--server", "127.0.0.1:9")
        client = Client.of(process)
        client.hello(processId=parent.pid)
        assert client.wait_for("window/showMessage") and process.poll() is None
        parent.kill()
        assert exit_code(process) == 1


def test_a_path_of_a_dead_server_is_one_message_in_the_editor(windows: Windows) -> None:
    _, client = windows.hello()
    os.kill(windows.server(client), signal.SIGKILL)
    address = shared_address()
    assert address is not None
    until(lambda: not alive(*windows.servers) or not answers(address))
    assert MISSING in refused(windows.open("--server", str(address)))
    _, client = windows.hello()  # replaces the socket
    windows.server(client)


def answers(address: Any) -> bool:
    try:
        with closing(connect(address)):
            return True
    except OSError:
        return False
