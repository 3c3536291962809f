"""A small client of the language server for benchmarks, over pipes or TCP.

The reading thread notes when an answer arrives. The client keeps no documents, and answers the
server's own requests with null.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench.common.environment import ROOT
from engine.remote.framing import Frames, framed

TIMEOUT_S = 300.0  # seconds for any response
REQUEST_CANCELLED = -32800
Notification = dict[str, Any]  # a notification, and "at": when it done
Bodies = Callable[[], list[bytes]]  # waits for message bodies; [] at the end of the connection


class ServerError(Exception):
    """The server replied with an error, or not at all."""


@dataclass
class PendingRequest:
    """A request and, later, its response. Times are those of `time.perf_counter`."""

    number: int
    method: str
    sent: float
    at: float = 0.0  # when the response arrived
    message: dict[str, Any] = field(default_factory=dict)
    done: threading.Event = field(default_factory=threading.Event)

    def wait(self, seconds: float = TIMEOUT_S) -> PendingRequest:
        """Wait for the response. Raises ServerError after `seconds`."""
        if not self.done.wait(seconds):
            raise ServerError(f"{self.method}: no response within {seconds:.0f} s")
        return self

    @property
    def seconds(self) -> float:
        return self.at - self.sent

    @property
    def cancelled(self) -> bool:
        return self.message.get("error", {}).get("code") == REQUEST_CANCELLED

    @property
    def result(self) -> Any:
        """The result. Raises ServerError if the response is an error."""
        if error := self.message.get("error"):
            raise ServerError(f"{self.method}: {error.get('message')}")
        return self.message.get("result")


class Client:
    """One connection. `send` and `receive` carry whole message bodies."""

    def __init__(self, send: Callable[[bytes], None], receive: Bodies) -> None:
        self.notifications: list[Notification] = []
        self._send, self._receive = send, receive
        self._numbers = itertools.count(1)
        self._pending: dict[int, PendingRequest] = {}
        self._closed = False
        self._lock = threading.Lock()
        threading.Thread(target=self._read, name="answers", daemon=True).start()

    def begin(self, method: str, params: Any = None) -> PendingRequest:
        """Send a request."""
        number = next(self._numbers)
        body = self._body({"id": number, "method": method, "params": params})
        asked = PendingRequest(number, method, time.perf_counter())
        self._pending[number] = asked
        self._write(body)
        if self._closed:
            self._fail_pending()
        return asked

    def ask(self, method: str, params: Any = None) -> Any:
        """Send a request and return its result. Raises ServerError for an error."""
        return self.begin(method, params).wait().result

    def command(self, name: str, *arguments: Any) -> Any:
        """Run a command of the server and return its result."""
        params = {"command": name, "arguments": list(arguments)}
        return self.ask("workspace/executeCommand", params)

    def notify(self, method: str, params: Any = None) -> None:
        self._write(self._body({"method": method, "params": params}))

    def cancel(self, asked: PendingRequest) -> None:
        self.notify("$/cancelRequest", {"id": asked.number})

    def start(self, root: Path | None, settings: dict[str, Any] | None = None) -> None:
        """Initialize, and wait for model and index. Raises ServerError if they fail to load."""
        params = {
            "processId": os.getpid(),
            "rootUri": root.as_uri() if root else None,
            "capabilities": {"general": {"positionEncodings": ["utf-16"]}},
            "clientInfo": {"name": "bench"},
            "initializationOptions": settings,
        }
        self.ask("initialize", params)
        self.notify("initialized", {})
        while (status := self.command("draftline.status"))["state"] in ("loading", "idle"):
            time.sleep(0.1)
        if status["state"] == "error":
            raise ServerError(status["message"])
        self.command("draftline.reindex")  # returns when the index is complete

    def configure(self, **settings: Any) -> None:
        self.notify("workspace/didChangeConfiguration", {"settings": {"draftline": settings}})

    def open(self, uri: str, text: str, version: int = 1, language: str = "python") -> None:
        item = {"uri": uri, "languageId": language, "version": version, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": item})

    def change(self, uri: str, version: int, change: dict[str, Any]) -> None:
        """Send one change: {"text"} for the whole document, or {"range", "text"}."""
        document = {"uri": uri, "version": version}
        params = {"textDocument": document, "contentChanges": [change]}
        self.notify("textDocument/didChange", params)

    def close(self, uri: str) -> None:
        self.notify("textDocument/didClose", {"textDocument": {"uri": uri}})

    def complete(
        self, uri: str, position: dict[str, int], token: str | None = None
    ) -> PendingRequest:
        """Request an inline completion, as an editor does at a keystroke.

        What is streamed of it arrives as progress of `token`.
        """
        params = {
            "textDocument": {"uri": uri},
            "position": position,
            "context": {"triggerKind": 2},  # automatic
            **({"partialResultToken": token} if token else {}),
        }
        return self.begin("textDocument/inlineCompletion", params)

    def _body(self, message: dict[str, Any]) -> bytes:
        return json.dumps({"jsonrpc": "2.0", **message}).encode()

    def _write(self, body: bytes) -> None:
        with self._lock:
            try:
                self._send(body)
            except OSError as error:
                raise ServerError(f"the server is gone: {error}") from error

    def _read(self) -> None:
        while bodies := self._receive():
            now = time.perf_counter()
            for body in bodies:
                self._take(json.loads(body), now)
        self._closed = True
        self._fail_pending()

    def _fail_pending(self) -> None:
        """Fail all pending requests: the connection is closed."""
        for number in [*self._pending]:
            gone = {"id": number, "error": {"message": "the server is gone"}}
            self._take(gone, time.perf_counter())

    def _take(self, message: dict[str, Any], now: float) -> None:
        if "method" not in message:
            if asked := self._pending.pop(message["id"], None):
                asked.at, asked.message = now, message
                asked.done.set()
        elif "id" in message:
            self._write(self._body({"id": message["id"], "result": None}))
        else:
            self.notifications.append({**message, "at": now})


def _bodies(read: Callable[[], bytes]) -> Bodies:
    """Receives the bodies of messages from what `read` returns."""
    frames = Frames()

    def receive() -> list[bytes]:
        with contextlib.suppress(OSError):  # closed while it is read
            while data := read():
                if bodies := [one for one in frames.feed(data) if isinstance(one, bytes)]:
                    return bodies
        return []

    return receive


class ServerProcess:
    """A server process: `client` connects over its pipes, `connect` over TCP."""

    def __init__(self, model: str, tcp: bool = False, engine: str = "") -> None:
        """`engine`: the address of one on another machine, in place of the model."""
        command = [sys.executable, "-m", "lsp_server"]
        command += ["--engine", engine] if engine else ["--model", model]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [*command, "--tcp"] if tcp else command,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe if tcp else None,
            cwd=ROOT,
            # Set to "": through the shared server
            env={"DRAFTLINE_SERVER": "" if engine else "own"} | os.environ,
        )
        self.usage = psutil.Process(self.process.pid)
        self._port = 0
        if tcp:
            assert self.process.stderr
            line = self.process.stderr.readline()
            _, _, port = line.strip().rpartition(b":")
            if not port.isdigit():
                raise ServerError(
                    f"--tcp: the server did not start: {line.decode(errors='replace')}"
                )
            self._port = int(port)
            threading.Thread(target=self._forward_stderr, daemon=True).start()

    def client(self) -> Client:
        """Return a client over stdin and stdout."""
        wire, source = self.process.stdin, self.process.stdout
        assert wire and source
        descriptor = source.fileno()

        def send(body: bytes) -> None:
            wire.write(framed(body))
            wire.flush()

        return Client(send, _bodies(lambda: os.read(descriptor, 1 << 16)))

    @contextlib.contextmanager
    def connect(self) -> Iterator[Client]:
        """Connect a client over TCP."""
        with socket.create_connection(("127.0.0.1", self._port)) as connection:
            receive = _bodies(lambda: connection.recv(1 << 16))
            yield Client(lambda body: connection.sendall(framed(body)), receive)

    def resident(self) -> int:
        """Resident memory in bytes."""
        return int(self.usage.memory_info().rss)

    def cpu_seconds(self) -> float:
        """Processor seconds used so far."""
        times = self.usage.cpu_times()
        return float(times.user + times.system)

    def close(self) -> None:
        """End the process: by closing its stdin, or with --tcp by a signal."""
        assert self.process.stdin and self.process.stdout
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        if self._port:
            self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _forward_stderr(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            sys.stderr.buffer.write(line)
            sys.stderr.flush()
