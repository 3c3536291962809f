"""The relay to the server that all windows share: `draftline lsp` over stdin and stdout.

It joins this user's server, or starts one if none runs, and copies bytes both ways, a chunk as soon
as it has it. It imports neither torch nor pygls. The client's own messages are only watched for
what ends the session: `shutdown`, `exit`, and the client's process.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.remote.address import (
    Address,
    AddressError,
    NoAnswer,
    listen,
    shared_address,
    start_lock,
)
from engine.remote.framing import Frames, NotLsp
from engine.remote.remote_engine import EngineConnection, open_connection

log = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 16
START_TIMEOUT_S = 120.0  # seconds for the first answer of a server that was just started
ANSWER_TIMEOUT_S = 15.0  # seconds for the first answer of a server that runs
EXIT_TIMEOUT_S = 0.8  # seconds from the end of a session to the end of this process
MAX_WATCHED_BYTES = 1 << 18  # bytes of a message that may be one of these
WATCHED = re.compile(rb'"(initialize|shutdown|exit)"')
OK, ENDED = 0, 1  # exit codes
EXIT_CODES = {signal.SIGTERM: 143, signal.SIGINT: 130}


@dataclass(frozen=True, slots=True)
class Start:
    """The way to start the shared server.

    It has the server's command line, a model that overrides the one that clients configure, and
    options about next edits that do so, too.
    """

    options: Sequence[str] = ()
    model: str | None = None
    next_edits: tuple[str, ...] = ()


class NotAnswering(Exception):
    """A shared server that runs, but does not answer. One line with the problem and a remedy."""


def join(address: Address | None, start: Start) -> EngineConnection | None:
    """Connect to the server at an address, or to the shared one, which is started if none runs.

    None where the system has no sockets to share one. Raises NotAnswering, AddressError, OSError.
    """
    if address is not None:
        try:
            return open_connection(address)
        except OSError as error:
            reason = error.strerror or str(error)
            raise AddressError(
                f"{address}: no draftline server answers there ({reason}): start it, or leave "
                "--server out"
            ) from error
    shared = shared_address(start.model, start.next_edits)
    if shared is None:
        log.warning("no Unix-domain sockets here: this window has an engine of its own")
        return None
    try:
        return _reach(shared)
    except OSError:  # none runs, or it ends at this moment
        pass
    with start_lock(shared):  # until it answers: others then know that it is starting
        try:  # another window may have started one meanwhile
            return open_connection(shared, ANSWER_TIMEOUT_S)
        except NoAnswer as error:
            raise NotAnswering(str(error)) from error
        except OSError:
            _start(shared, start)
        try:
            return open_connection(shared, START_TIMEOUT_S)
        except OSError as error:
            why = f"see {log_file(shared)}, or try --server own"
            raise AddressError(f"the shared server ended as it started: {why}") from error


def _reach(shared: Address) -> EngineConnection:
    """Connect to the shared server, once it answers, as long as another window starts it.

    Raises NotAnswering, AddressError, OSError.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            return open_connection(shared, ANSWER_TIMEOUT_S)
        except NoAnswer as error:
            with start_lock(shared, wait=False) as held:
                if held or error.is_stopped or time.monotonic() > deadline:
                    raise NotAnswering(str(error)) from error


def log_file(address: Address) -> Path:
    """Return the path of the log of a server that this module has started."""
    assert address.path is not None
    return address.path.with_suffix(".log")


def _start(address: Address, start: Start) -> None:
    """Start the server, which takes over a socket that listens already.

    Whoever connects waits until it is there.
    """
    model = [*start.next_edits, *(["--model", start.model] if start.model else [])]
    listener = listen(address)
    try:
        written = os.open(log_file(address), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            server = [sys.executable, "-P", "-m", "lsp_server"]  # -P: not the working folder's
            subprocess.Popen(
                [
                    *server,
                    "--listen-fd",
                    str(listener.fileno()),
                    *start.options,
                    *start.next_edits,
                    *model,
                ],
                cwd="/",  # keeps no folder in use
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
                pass_fds=[listener.fileno()],
                start_new_session=True,  # it outlives this window
            )
        finally:
            os.close(written)
    finally:
        listener.close()


# -- copying -----------------------------------------------------------------------------------


def relay(connection: EngineConnection, client: int | None = None) -> int:
    """Copy between stdin and stdout and a server until the session ends; return the exit code.

    `client`: the client's process, if known before `initialize`. The caller must then end the
    process by `os._exit`: a thread may still wait for stdin.
    """
    session = _Session(connection.wire)
    for number, code in EXIT_CODES.items():
        signal.signal(number, lambda *_, code=code: os._exit(code))
    if client is not None:
        watch_process(client)
    threading.Thread(target=session.send, name="send", daemon=True).start()
    try:
        while data := connection.wire.recv(CHUNK_BYTES):
            write(data)
    except OSError:  # the server or the client is gone
        log.debug("copying has ended", exc_info=True)
    if not session.is_ending:
        print("draftline: the shared server has ended: start it again", file=sys.stderr, flush=True)
    return session.code


class _Session:
    """The client's side of a session."""

    def __init__(self, wire: socket.socket) -> None:
        self.is_ending = False  # the client leaves
        self._was_shut_down = False
        self._wire = wire
        self._frames: Frames | None = Frames()

    @property
    def code(self) -> int:
        """The exit code if the client left now."""
        return OK if self.is_ending and self._was_shut_down else ENDED

    def send(self) -> None:
        """Copy stdin to the server. At its end the session ends."""
        try:
            while data := os.read(0, CHUNK_BYTES):
                self._watch(data)  # first: the server may answer an `exit` at once
                self._wire.sendall(data)
            self._end()
            self._wire.shutdown(socket.SHUT_WR)
        except OSError:
            log.debug("the client or the server is gone", exc_info=True)

    def _watch(self, data: bytes) -> None:
        """Look at what the client sent for what concerns its end."""
        if self._frames is None:
            return
        try:
            bodies = self._frames.feed(data)
        except NotLsp:
            self._frames = None
            return
        for body in bodies:
            if isinstance(body, bytes) and len(body) <= MAX_WATCHED_BYTES and WATCHED.search(body):
                self._take(body)

    def _take(self, body: bytes) -> None:
        """Look at a message that may be `initialize`, `shutdown` or `exit`."""
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            return  # the server says what is wrong with it
        method = message.get("method") if isinstance(message, dict) else None
        if method == "shutdown":
            self._was_shut_down = True
        elif method == "exit":
            self._end()
        elif method == "initialize":
            params = message.get("params")
            pid = params.get("processId") if isinstance(params, dict) else None
            if type(pid) is int:
                watch_process(pid)

    def _end(self) -> None:
        """Begin the end of the session: the process ends soon, whatever the server does."""
        self.is_ending = True
        timer = threading.Timer(EXIT_TIMEOUT_S, lambda: os._exit(self.code))
        timer.daemon = True
        timer.start()


def watch_process(pid: int) -> None:
    """End this process when the client's is dead, even if its pipes are open."""

    def watch() -> None:
        from lsp_server.protocol.client_process import find_process, wait_for_end

        if (process := find_process(pid)) is not None:
            wait_for_end(process)
            os._exit(ENDED)

    threading.Thread(target=watch, name="watch", daemon=True).start()


def write(data: bytes) -> None:
    """Write all of the data to the client."""
    while data:
        data = data[os.write(1, data) :]
