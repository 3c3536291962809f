"""Answers other programs of this user with an engine of this process, by the engine's own methods
(`engine.remote.messages`), over a Unix-domain socket. The client's side is a `RemoteEngine`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import socketserver
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.aio import Cancellation
from engine.records import Done, RequestError
from engine.remote.address import (
    Address,
    AddressError,
    check_peer,
    listen,
    shared_address,
    start_lock,
)
from engine.remote.framing import Frames, NotLsp, framed
from engine.remote.messages import (
    ACCEPTED,
    CANCEL,
    EVENT,
    INFO,
    SERVER,
    SUBMIT,
    BadMessage,
    ServerInfo,
    submission_from_json,
    to_json,
)
from engine.worker import one_line
from index.version import own_version

if TYPE_CHECKING:
    from engine.engine import Engine

log = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 16
INVALID_PARAMS, METHOD_NOT_FOUND = -32602, -32601
ENDED = "the server that answered has ended: run it again"


def address_of(folder: Path) -> Address | None:
    """The socket of a program of this user that shares its engine of the model in `folder`. As
    `shared_address`."""
    return shared_address(str(folder), ("engine",))


class EngineServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Shares an engine until it is closed. A context manager."""

    daemon_threads = True

    def __init__(self, engine: Engine, address: Address) -> None:
        """Start listening. AddressError where another program shares this model, OSError."""
        self.engine, self.address = engine, address
        self.clients = 0  # that have come
        with start_lock(address):
            listener = listen(address)
        super().__init__(str(address.path), _Client, bind_and_activate=False)
        self.socket.close()
        self.socket = listener  # which is for this user only
        threading.Thread(target=self.serve_forever, name="draftline-sharing", daemon=True).start()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        try:
            check_peer(request, "a client")
        except AddressError:
            return False
        self.clients += 1
        return True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that fails leaves: the engine and the others go on."""

    def close(self) -> None:
        """Accept no more clients."""
        self.shutdown()
        self.server_close()
        assert self.address.path is not None
        self.address.path.unlink(missing_ok=True)

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Client(socketserver.BaseRequestHandler):
    """One connection: a thread reads it, and each request has one that answers it."""

    server: EngineServer
    request: socket.socket

    def setup(self) -> None:
        self.name = f"terminal-{self.server.clients}"
        self.running: dict[int, Cancellation] = {}
        self.sending = threading.Lock()

    def handle(self) -> None:
        frames = Frames()
        with contextlib.suppress(OSError, NotLsp):
            while data := self.request.recv(CHUNK_BYTES):
                for body in frames.feed(data):
                    if isinstance(body, bytes):
                        self.take(body)

    def finish(self) -> None:
        for one in [*self.running.values()]:
            one.cancel()
        self.server.engine.forget(client=self.name)

    def take(self, body: bytes) -> None:
        """Act on a message; one that is none is ignored."""
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            return
        if not isinstance(message, dict):
            return
        method, number, params = message.get("method"), message.get("id"), message.get("params")
        if method == CANCEL:
            named = params.get("id") if isinstance(params, dict) else None
            if type(named) is int and (running := self.running.get(named)) is not None:
                running.cancel()
        elif type(number) is not int:
            return
        elif method == INFO:
            self.reply(number, result=to_json(self.info()))
        elif method == SUBMIT:
            self.running[number] = Cancellation()
            threading.Thread(target=self.submit, args=(number, params), daemon=True).start()
        else:
            self.reply(number, error={"code": METHOD_NOT_FOUND, "message": "no such method"})

    def info(self) -> ServerInfo:
        engine = self.server.engine
        return ServerInfo(
            SERVER,
            own_version(),
            os.getpid(),
            "ready",
            model=engine.config.model,
            folder=str(engine.folder),
            device=engine.config.device,
            engine=engine.info,
        )

    def submit(self, number: int, params: Any) -> None:
        """Run a request and send its events. A client that is gone ends it."""
        try:
            self.reply(number, result=to_json(self.answer(number, params)))
        except (BadMessage, RequestError) as error:
            self.reply(number, error={"code": INVALID_PARAMS, "message": str(error)})
        except Exception as error:  # the client must not wait for ever
            log.exception("a request failed")
            self.reply(number, result=to_json(Done("failed", error=one_line(error))))
        finally:
            del self.running[number]

    def answer(self, number: int, params: Any) -> Done:
        running = self.running[number]
        submission = submission_from_json(params)
        try:
            job = self.server.engine.submit(
                submission.request,
                submission.speculation,
                client=self.name,
                cancelled=lambda: running.cancelled,
                urgency=submission.urgency,
            )
        except RuntimeError as error:  # the engine is closed, or has failed
            return Done("failed", error=str(error))
        running.attach(job)
        self.send({"method": ACCEPTED, "params": {"id": number}})
        done = Done("cancelled")
        for event in job:
            if isinstance(event, Done):
                done = event
            elif not self.send(
                {"method": EVENT, "params": {"id": number, "event": to_json(event)}}
            ):
                running.cancel()
        if done.reason == "cancelled" and not running.cancelled:
            return Done("failed", done.text, error=ENDED)
        return done

    def reply(self, number: int, **outcome: Any) -> None:
        self.send({"id": number} | outcome)

    def send(self, message: dict[str, Any]) -> bool:
        """Send a message; False if the client is gone."""
        body = json.dumps({"jsonrpc": "2.0"} | message, separators=(",", ":")).encode()
        try:
            with self.sending:
                self.request.sendall(framed(body))
        except OSError:
            return False
        return True
