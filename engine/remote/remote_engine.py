"""An engine whose work another process of this machine does.

It is an `AnyEngine`. Prompts are made and answered over there; only the tokenizer, for those who
count tokens, is loaded here. One thread may use it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import select
import socket
from collections import deque
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any, NoReturn

from engine.config import Config
from engine.records import Done, Event, Request, RequestError
from engine.remote.address import (
    HELLO_TIMEOUT_S,
    Address,
    AddressError,
    NoAnswer,
    check_running,
    connect,
)
from engine.remote.any_engine import ClientEngine
from engine.remote.framing import MAX_BODY_BYTES, Frames, NotLsp, framed
from engine.remote.messages import (
    ACCEPTED,
    CANCEL,
    EVENT,
    INFO,
    SUBMIT,
    BadMessage,
    ServerInfo,
    Submission,
    done_from_json,
    event_from_json,
    info_from_json,
    to_json,
)
from engine.worker import Submitted
from index.version import own_version

CHECK_S = 0.5  # seconds between two looks at whether the server was stopped
INVALID_PARAMS = -32602
OTHER_SERVERS = (-32601, -32002)  # errors of other servers: MethodNotFound, ServerNotInitialized
CHUNK_BYTES = 1 << 16
MAX_REQUEST_CHARS = MAX_BODY_BYTES - 1024  # characters of ASCII JSON
ENDED = "the shared server has ended: run it again"


class ServerError(Exception):
    """A request that the server refused. One line."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class EngineConnection:
    """JSON-RPC over a socket: one message at a time, in order."""

    server: ServerInfo  # the server at the other end, as it was when `open_connection` asked

    def __init__(self, wire: socket.socket, address: Address) -> None:
        self.wire, self.address = wire, address
        self._frames, self._bodies = Frames(), deque[bytes]()
        self._numbers = itertools.count(1)

    def send(self, method: str, params: Any) -> int:
        """Send a request; returns its id. OSError if the server has ended."""
        number = next(self._numbers)
        self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return number

    def notify(self, method: str, params: Any) -> None:
        """Send a notification. OSError if the server has ended."""
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def receive(self) -> dict[str, Any]:
        """Wait for the next message.

        OSError at the end of the connection, BadMessage if it is none.
        """
        while not self._bodies:
            data = self.wire.recv(CHUNK_BYTES)
            if not data:
                raise ConnectionError("the connection has ended")
            for body in self._frames.feed(data):
                if not isinstance(body, bytes):
                    raise BadMessage(str(body))
                self._bodies.append(body)
        try:
            message = json.loads(self._bodies.popleft(), parse_constant=_reject)
        except (ValueError, RecursionError) as error:
            raise BadMessage("not JSON") from error
        if not isinstance(message, dict):
            raise BadMessage("not a JSON object")
        return message

    def ask(self, method: str, params: Any) -> Any:
        """Send a request and return its result, while no other one runs.

        ServerError, BadMessage, OSError.
        """
        return self._result(self.send(method, params))

    def _result(self, number: int) -> Any:
        while True:
            message = self.receive()
            if message.get("id") == number and "method" not in message:
                return result_of(message)

    def info(self, wait: bool = False) -> ServerInfo:
        """Ask who answers; with `wait`, once its model is loaded.

        AddressError if it is another program, if the connection ends or the server refuses.
        """
        return self._info(self.send(INFO, {"wait": wait}))

    def _info(self, number: int) -> ServerInfo:
        """Read who answers the request of this number."""
        try:
            return info_from_json(self._result(number))
        except (BadMessage, NotLsp) as error:
            raise self._other_program() from error
        except ServerError as error:
            if error.code in OTHER_SERVERS:
                raise self._other_program() from error
            raise AddressError(f"{self.address}: {error}") from error
        except TimeoutError as error:
            raise self._no_answer() from error

    def hello(self, timeout_s: float) -> ServerInfo:
        """Ask who answers, in time.

        NoAnswer, and what `info` raises.
        """
        number = self.send(INFO, {"wait": False})
        deadline = monotonic() + timeout_s
        while not self._answers(min(CHECK_S, timeout_s)):
            check_running(self.wire, self.address)
            if monotonic() > deadline:
                raise self._no_answer()
        self.wire.settimeout(timeout_s)
        made = self._info(number)
        self.wire.settimeout(None)
        return made

    def _answers(self, seconds: float) -> bool:
        """Return whether bytes come, or the end, within so many seconds."""
        return bool(select.select([self.wire], [], [], seconds)[0])

    def _no_answer(self) -> NoAnswer:
        return NoAnswer(
            f"{self.address}: what listens there does not answer: end it, or name another"
        )

    def close(self) -> None:
        self.wire.close()

    def _other_program(self) -> AddressError:
        return AddressError(
            f"{self.address}: another program answers there, not a draftline server: name the "
            "address that `draftline lsp --tcp` prints"
        )

    def _send(self, message: dict[str, Any]) -> None:
        self.wire.sendall(framed(json.dumps(message, separators=(",", ":")).encode()))


def result_of(message: dict[str, Any]) -> Any:
    """Return the result of a response.

    Raises ServerError.
    """
    error = message.get("error")
    if error is None:
        return message.get("result")
    fields = error if isinstance(error, dict) else {}
    code, text = fields.get("code"), fields.get("message")
    raise ServerError(code if type(code) is int else 0, text if isinstance(text, str) else "failed")


def open_connection(address: Address, timeout_s: float = HELLO_TIMEOUT_S) -> EngineConnection:
    """Connect to a draftline server.

    OSError if nothing listens there, or if the server ends at that moment; AddressError if it is
    another program, NoAnswer if it does not answer in time or was stopped.
    """
    wire = connect(address)
    connection = EngineConnection(wire, address)
    try:
        connection.server = connection.hello(timeout_s)
    except BaseException:
        wire.close()
        raise
    return connection


class RemoteJob(Submitted):
    """A request that another process answers."""

    def __init__(self, request: Request, engine: RemoteEngine) -> None:
        self.request = request
        self.number = 0  # the id of the request that submits it
        self.accepted = False  # the server has queued it, or it has ended
        self._engine = engine
        self._events: deque[Event] = deque()

    def _next(self) -> Event:
        while not self._events:
            self._engine.receive()
        return self._events.popleft()

    def cancel(self) -> None:
        """Stop after the current forward pass. The Done has the text written so far."""
        self._engine.cancel(self)

    def put(self, event: Event) -> None:
        self.accepted = True
        self._events.append(event)


class RemoteEngine(ClientEngine):
    """The loaded model of a server. A context manager."""

    def __init__(self, connection: EngineConnection) -> None:
        """Wait until the server has loaded its model. AddressError, OSError."""
        self._connection = connection
        self.server = connection.info(wait=True)
        if self.server.version != own_version():
            raise AddressError(
                f"{connection.address}: runs draftline {self.server.version}, and this is "
                f"{own_version()}: start a server of this version"
            )
        if self.server.engine is None:
            raise AddressError(f"{connection.address}: no model is loaded: use another server")
        self.info = self.server.engine
        self.folder = Path(self.server.folder)
        self.config = Config(model=self.info.model, device=self.server.device)
        self._jobs: dict[int, RemoteJob] = {}  # those that run

    def submit(self, request: Request, speculation: bool = True, *, client: str = "") -> RemoteJob:
        """Queue a request. RequestError where it cannot be answered."""
        if request.path:  # the server's current folder is another one
            request = replace(request, path=str(Path(request.path).absolute()))
        params = to_json(Submission(request, speculation, client))
        if len(json.dumps(params)) > MAX_REQUEST_CHARS:
            raise RequestError(f"over {MAX_REQUEST_CHARS >> 20} MiB: shorten it")
        job = RemoteJob(request, self)
        try:
            job.number = self._connection.send(SUBMIT, params)
        except OSError:
            job.put(Done("failed", error=ENDED))
            return job
        self._jobs[job.number] = job
        while not job.accepted:
            self.receive()
        return job

    def receive(self) -> None:
        """Wait for the next message and pass it to its job.

        RequestError if the server refuses the request of a job.
        """
        try:
            self._route(self._connection.receive())
        except (OSError, BadMessage, NotLsp) as error:
            why = ENDED if isinstance(error, OSError) else f"the server's answer: {error}"
            jobs, self._jobs = self._jobs, {}
            for job in jobs.values():
                job.put(Done("failed", error=why))

    def _route(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params")
        if method is None:
            if (job := self._jobs.pop(_id(message), None)) is not None:
                job.put(_done(message))
            return
        fields = params if isinstance(params, dict) else {}
        if (job := self._jobs.get(_id(fields))) is None:
            return
        if method == EVENT:
            job.put(event_from_json(fields.get("event")))
        elif method == ACCEPTED:
            job.accepted = True

    def cancel(self, job: RemoteJob) -> None:
        """Ask the server to end a job."""
        if job.number in self._jobs:
            with contextlib.suppress(OSError):  # `receive` reports it
                self._connection.notify(CANCEL, {"id": job.number})

    def close(self) -> None:
        """Leave the server, which cancels what runs."""
        self._connection.close()


def _done(message: dict[str, Any]) -> Done:
    """Make the end of a job from the response to its request."""
    try:
        return done_from_json(result_of(message))
    except ServerError as error:
        if error.code == INVALID_PARAMS:
            raise RequestError(str(error)) from error
        return Done("failed", error=str(error))


def _id(message: dict[str, Any]) -> int:
    number = message.get("id")
    return number if type(number) is int else 0  # no request of ours


def _reject(name: str) -> NoReturn:
    raise ValueError(name)
