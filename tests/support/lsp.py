"""A client that exchanges raw JSON over pipes or a socket, and a small server for it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Any

from engine.remote.framing import Frames, framed
from lsp_server.protocol.protocol import Server, read_message

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 180  # a backstop for a busy machine
COMPUTING = "test/compute"  # its handler computes in a thread forever
STATES = "test/text"  # returns a document's text and version
ASYNC_STATES = "test/asyncText"  # the same from a coroutine
HELLO = {"processId": None, "rootUri": None, "capabilities": {}}
SERVE = "from tests.support.lsp import serve; serve()"


def small_server() -> Server:
    """A server with handlers of every kind."""
    server = Server("small", "1")

    @server.feature(STATES)
    def text(params: dict[str, Any]) -> dict[str, Any]:
        document = server.documents.get(params["uri"])
        return {"text": document.text.text, "version": document.version}

    @server.feature(ASYNC_STATES)
    async def async_text(params: dict[str, Any]) -> dict[str, Any]:
        return text(params)

    @server.feature(COMPUTING)
    async def compute(params: Any) -> str:
        def busy() -> None:
            while True:
                sum(range(1000))

        server.protocol.notify("test/computing", {})
        await asyncio.get_running_loop().run_in_executor(None, busy)
        return "computed"

    @server.feature("test/wait")
    async def wait(params: Any) -> None:
        server.protocol.notify("test/waiting", {})
        try:
            await asyncio.sleep(3600)
        finally:
            server.protocol.notify("test/stopped", {})

    @server.feature("test/fail")
    def fail(params: Any) -> None:
        raise ValueError("two\nlines")

    @server.feature("test/print")
    def show(params: Any) -> str:
        print("stray", flush=True)
        os.write(1, b"stray\n")
        return "printed"

    @server.feature("test/large")
    def large(params: dict[str, int]) -> str:
        return "x" * params["size"]

    @server.command("wait")
    async def wait_command() -> None:
        await wait(None)

    return server


def whole_server(model: str) -> Callable[[], Server]:
    """Makes Draftline's own servers of a model, which also return the text of a document."""
    from lsp_server.server import create
    from lsp_server.shared_engine import SharedEngine

    shared_engine = SharedEngine(model)

    def make() -> Server:
        server = create(shared_engine)

        @server.feature(STATES)
        def text(params: dict[str, Any]) -> dict[str, Any]:
            document = server.documents.get(params["uri"])
            return {"text": document.text.text, "version": document.version}

        return server

    return make


def serve() -> None:
    """Serve over the transport that the command line names (stdio or tcp) a `small_server`, or a
    `whole_server` of the model that it names."""
    from lsp_server.protocol import transport

    how, *model = sys.argv[1:]
    make = whole_server(*model) if model else small_server
    if how == "stdio":
        code = transport.serve_stdio(make)
    else:
        code = transport.serve_tcp(make, "127.0.0.1", 0)
    os._exit(code)


def started(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    """A process that runs `serve` with these arguments."""
    given = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", SERVE, *arguments], cwd=ROOT, **given | options)


def end_session(process: subprocess.Popen[bytes], client: Client, how: str, shutdown: bool) -> None:
    """End a client's session: by `exit`, the end of the input, or a signal to its process; after
    `shutdown`, if so."""
    if shutdown:
        assert client.ask("shutdown") is None
    if how == "eof":
        client.write.close()
    elif how == "exit":
        client.notify("exit")
    else:
        process.send_signal(getattr(signal, how))


def exit_code(process: subprocess.Popen[bytes]) -> int:
    """Wait until the process has exited."""
    return process.wait(TIMEOUT_S)


def listening(*model: str, **options: Any) -> tuple[subprocess.Popen[bytes], int]:
    """A process that serves `small_server`, or `whole_server`, over TCP, and its port."""
    process = started("tcp", *model, **options)
    assert process.stderr
    return process, int(process.stderr.readline().rsplit(b":", 1)[1])


def place(line: int, character: int) -> dict[str, int]:
    """A position, as JSON."""
    return {"line": line, "character": character}


class Client:
    """Sends messages and keeps those that arrive; a thread reads them."""

    def __init__(
        self, write: IO[bytes], read: Callable[[], bytes], close: Callable[[], None]
    ) -> None:
        self.write = write
        self.disconnect = write.close
        self.notifications: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self.answers: dict[Any, dict[str, Any]] = {}
        self.doubles: list[Any] = []
        self.unnamed: list[dict[str, Any]] = []  # responses with id null
        self.ids = itertools.count(1)
        self.arrived = threading.Condition()
        threading.Thread(target=self._read, args=(read, close), daemon=True).start()

    @classmethod
    def of(cls, process: subprocess.Popen[bytes]) -> Client:
        assert process.stdin and process.stdout
        # The thread's own end of the pipe: the process's may be closed and its number taken by
        # another pipe just before it reads.
        own = os.dup(process.stdout.fileno())
        return cls(process.stdin, lambda: os.read(own, 1 << 16), lambda: os.close(own))

    @classmethod
    def on(cls, port: int) -> Client:
        connection = socket.create_connection(("127.0.0.1", port))
        receive = partial(connection.recv, 1 << 16)
        client = cls(connection.makefile("wb"), receive, connection.close)
        client.disconnect = partial(connection.shutdown, socket.SHUT_RDWR)
        return client

    def send(self, message: Any) -> None:
        self.body(json.dumps(message).encode())

    def body(self, body: bytes) -> None:
        """Send the body of a message, which may be invalid."""
        self.raw(framed(body))

    def raw(self, data: bytes) -> None:
        self.write.write(data)
        self.write.flush()

    def notify(self, method: str, params: Any = None) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def begin(self, method: str, params: Any = None) -> int:
        """Send a request; returns its id."""
        identity = next(self.ids)
        self.send({"jsonrpc": "2.0", "id": identity, "method": method, "params": params})
        return identity

    def answer(self, identity: Any) -> dict[str, Any]:
        """Wait for the response to a request."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: identity in self.answers, TIMEOUT_S), identity
            return self.answers[identity]

    def ask(self, method: str, params: Any = None) -> Any:
        """The result of a request, which must not fail."""
        answer = self.answer(self.begin(method, params))
        assert "error" not in answer, answer
        return answer["result"]

    def error(self, method: str, params: Any = None) -> dict[str, Any]:
        answer = self.answer(self.begin(method, params))
        found: dict[str, Any] = answer["error"]
        return found

    def wait_for(self, method: str) -> dict[str, Any]:
        """Wait for a notification."""
        while True:
            try:
                message = self.notifications.get(timeout=TIMEOUT_S)
            except Empty:
                raise AssertionError(f"no {method}") from None
            if message["method"] == method:
                return message

    def hello(self, **also: Any) -> Any:
        """Send `initialize` and `initialized`."""
        result = self.ask("initialize", HELLO | also)
        self.notify("initialized", {})
        return result

    def open(self, uri: str, text: str) -> None:
        item = {"uri": uri, "languageId": "python", "version": 1, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": item})

    def leave(self) -> None:
        """Close the connection without a word."""
        with contextlib.suppress(OSError):  # the server has left first
            self.disconnect()

    def _read(self, read: Callable[[], bytes], close: Callable[[], None]) -> None:
        frames = Frames()
        with contextlib.suppress(OSError):
            while data := read():
                for body in frames.feed(data):
                    assert isinstance(body, bytes), body
                    self._arrive(json.loads(body))
        close()

    def _arrive(self, message: dict[str, Any]) -> None:
        with self.arrived:
            if "method" in message:
                self.notifications.put(message)
            elif message["id"] is None:
                self.unnamed.append(message)
            else:
                if message["id"] in self.answers:
                    self.doubles.append(message["id"])
                self.answers[message["id"]] = message
            self.arrived.notify_all()


class Direct:
    """The same server in this process: bodies in, messages out. Only coroutine handlers need a
    running event loop."""

    def __init__(self, encoding: str | None = None) -> None:
        self.server = small_server()
        self.sent: list[dict[str, Any]] = []
        self.server.protocol.set_writer(self)
        self.ids = itertools.count(1)
        if encoding:
            general = {"general": {"positionEncodings": [encoding]}}
            result = self.ask("initialize", HELLO | {"capabilities": general})
            assert result["result"]["capabilities"]["positionEncoding"] == encoding

    def write(self, body: bytes) -> None:
        """Called by the server to send a message, which is kept."""
        self.sent.append(json.loads(body))

    def close(self) -> None:
        """Called by the server; there is nothing to close."""

    def send(self, message: Any) -> list[dict[str, Any]]:
        """Send a message; returns what comes back at once."""
        return self.raw(json.dumps(message).encode())

    def raw(self, body: bytes) -> list[dict[str, Any]]:
        self.sent.clear()
        for _ in self.server.protocol.handle(read_message(body)):
            pass
        return [*self.sent]

    def notify(self, method: str, params: Any = None) -> list[dict[str, Any]]:
        return self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def ask(self, method: str, params: Any = None) -> dict[str, Any]:
        """The response to a request whose handler is synchronous."""
        message = {"jsonrpc": "2.0", "id": next(self.ids), "method": method, "params": params}
        (answer,) = self.send(message)
        assert answer["id"] == message["id"]
        return answer

    def open(self, uri: str, text: str) -> None:
        item = {"uri": uri, "languageId": "python", "version": 1, "text": text}
        assert self.notify("textDocument/didOpen", {"textDocument": item}) == []
