"""Parses files, and draws pages, in child processes with limits of time, memory and output.

Starting a process takes longer than parsing a small file, so one that has parsed a small text file
is kept for the next. All others end after one file: their memory is returned, and whatever a
hostile file may have broken in a library affects no other file.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Self

from index.child_environment import child_environment
from index.documents.formats import MAX_FILE_BYTES, DocumentError, ParsedDocument, kind_of, ocr
from index.documents.formats.headings import Heading
from index.os_calls import IS_WINDOWS

TIMEOUT_S = 30.0  # seconds to parse one file
SCAN_TIMEOUT_S = 600.0  # seconds to recognize one file's text; a dense page takes 5 s on 2 cores
MIN_TIMEOUT_S = 0.001  # seconds; for a socket, 0 would mean not to wait at all
MAX_TEXT_BYTES = 16 << 20  # bytes; the text of one file, in UTF-8
MAX_HEADINGS = 20_000  # headings of one file; the deepest levels of more are left out
MAX_HEADER_BYTES = 32 << 20  # bytes; pages and headings, in JSON
MAX_MEMORY_BYTES = 2 << 30  # bytes; the address space of a child process
MAX_REUSE_BYTES = 256 << 10  # bytes; after a smaller file the child process is kept
MAX_REASON_CHARS = 400
FAILED = "the parser failed ({}); save it again, or split it"
CANCELLED = "cancelled before it was read; add it again"

SANDBOX = Path(__file__).with_name("sandbox.py")
SIZES = struct.Struct(">II")  # bytes of a reply's header and text
MALFORMED = (ValueError, TypeError, LookupError, OverflowError, RecursionError)  # a reply
REUSE_KINDS = ("md", "rst", "code", "txt", "csv", "tsv")  # parsed in Python, without libraries in C


class DocumentParser:
    """The child processes that parse the files of one import. Thread-safe.

    A call of `parse` uses a process of its own, started when it is needed. Closing the parser from
    any thread ends them all, and with them the calls that are in progress.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy: set[_Child] = set()
        self._idle: list[_Child] = []
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child processes. `parse` raises DocumentError from now on."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for child in self._busy:
                child.kill(CANCELLED)
        for child in idle:
            child.end()

    def parse(self, name: str, data: bytes) -> ParsedDocument:
        """Return the text of a file, with its pages and headings. Raises DocumentError."""
        if len(data) > MAX_FILE_BYTES:
            raise DocumentError(f"{name}: over {MAX_FILE_BYTES >> 20} MiB; split it")
        header, text = self._ask(name, kind_of(name), data)
        try:
            return ParsedDocument(
                text.decode(),
                tuple((int(start), int(stop)) for start, stop in header["pages"]),
                tuple(
                    Heading(int(at), int(level), str(it)) for at, level, it in header["headings"]
                ),
            )
        except MALFORMED as error:
            raise DocumentError(f"{name}: {FAILED.format('malformed reply')}") from error

    def picture(
        self, name: str, data: bytes, page: int, marks: Sequence[tuple[str, float]]
    ) -> bytes:
        """Return a page of a pdf, counted from 0, as a PNG with texts marked.

        See `index.documents.formats.page_picture.picture`. Raises DocumentError.
        """
        what = json.dumps([page, marks]).encode()
        _, png = self._ask(name, "picture", what + b"\n" + data)
        return bytes(png)

    def _ask(self, name: str, kind: str, data: bytes) -> tuple[dict[str, Any], bytearray]:
        """Header and body of a reply. Raises DocumentError."""
        child = self._take(name, kind)
        reusable = False
        try:
            header, body = child.request(kind, data)
            reusable = kind in REUSE_KINDS and len(data) <= MAX_REUSE_BYTES
        except _ChildError as error:
            raise DocumentError(f"{name}: {error}") from error
        finally:
            self._give_back(child, reusable)
        if header.get("scanned") and ocr.is_installed():
            return self._ask(name, "scan", data)
        if "error" in header:
            raise DocumentError(f"{name}: {_one_line(str(header['error']))}")
        return header, body

    def _take(self, name: str, kind: str) -> _Child:
        """Take a child process that no other call uses."""
        with self._lock:
            if self._closed:
                raise DocumentError(f"{name}: {CANCELLED}")
            usable = self._idle and kind != "scan"  # a scan may take more CPU time
            child = self._idle.pop() if usable else _Child()
            self._busy.add(child)
            return child

    def _give_back(self, child: _Child, reusable: bool) -> None:
        with self._lock:
            self._busy.discard(child)
            if reusable and not self._closed:
                self._idle.append(child)
                return
        child.end()


class _ChildError(Exception):
    """The child process has failed: one line with a remedy."""


class _Child:
    """A child process, used by one thread at a time; any thread may kill it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None  # started by the first request
        self._connection: socket.socket | None = None
        self._killed = ""  # why

    def request(self, kind: str, data: bytes) -> tuple[dict[str, Any], bytearray]:
        """Header and body of the reply to a file. Raises _ChildError."""
        timeout = SCAN_TIMEOUT_S if kind == "scan" else TIMEOUT_S
        seconds = int(timeout + 1) * (ocr.threads() if kind == "scan" else 1)  # seconds of CPU time
        process, connection = self._start(seconds)
        try:
            if self._killed:
                raise EOFError
            return _exchange(connection, kind, data, timeout)
        except TimeoutError as error:
            raise _ChildError(
                f"not parsed within {timeout:.0f} seconds; print it to a new file or split it"
            ) from error
        except (OSError, EOFError, *MALFORMED) as error:
            self.end()
            status = f"exit status {process.returncode}"
            raise _ChildError(self._killed or FAILED.format(status)) from error

    def _start(self, seconds: int) -> tuple[subprocess.Popen[bytes], socket.socket]:
        """Start the process unless it is running, and return it with its connection.

        `seconds`: its limit of CPU time. Raises _ChildError.
        """
        if self._process and self._connection and self._process.poll() is None:
            return self._process, self._connection
        self.end()
        if IS_WINDOWS:
            raise _ChildError("documents are not read on Windows yet; use Linux, macOS or WSL")
        limits = (MAX_TEXT_BYTES, MAX_HEADINGS, MAX_MEMORY_BYTES, seconds)
        try:
            self._connection, child_end = socket.socketpair()
            with child_end:
                # -P: import nothing from the working directory; -B: write no compiled modules
                self._process = subprocess.Popen(
                    [sys.executable, "-PB", str(SANDBOX), *map(str, limits)],
                    stdin=child_end.fileno(),
                    stdout=child_end.fileno(),
                    stderr=subprocess.DEVNULL,
                    env=child_environment(),
                    start_new_session=True,  # Ctrl-C in a terminal is for the parent
                )
        except OSError as error:
            raise _ChildError(f"cannot start the parser ({error.strerror}); try again") from error
        return self._process, self._connection

    def kill(self, reason: str) -> None:
        """End the process, so that `request` raises an error with this reason."""
        self._killed = reason
        if self._process:
            self._process.kill()

    def end(self) -> None:
        """End the process, if it has been started, and wait for it."""
        if self._connection:
            self._connection.close()  # ends a process whose start was interrupted
        if self._process:
            self._process.kill()
            self._process.wait()


def _exchange(
    connection: socket.socket, kind: str, data: bytes, timeout: float
) -> tuple[dict[str, Any], bytearray]:
    """Send a file and receive the reply, whose sizes are checked."""
    deadline = monotonic() + timeout
    connection.settimeout(timeout)
    connection.sendall(f"{kind} {len(data)}\n".encode() + data)
    header_bytes, text_bytes = SIZES.unpack(_receive(connection, SIZES.size, deadline))
    if header_bytes > MAX_HEADER_BYTES or text_bytes > MAX_TEXT_BYTES:
        raise ValueError("a reply that is too large")
    header = json.loads(_receive(connection, header_bytes, deadline))
    if not isinstance(header, dict):
        raise ValueError("a reply without a header")
    return header, _receive(connection, text_bytes, deadline)


def _receive(connection: socket.socket, size: int, deadline: float) -> bytearray:
    """Receive `size` bytes. Raises EOFError if the process has ended, or TimeoutError."""
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        connection.settimeout(max(deadline - monotonic(), MIN_TIMEOUT_S))
        received = connection.recv_into(rest)
        if not received:
            raise EOFError
        rest = rest[received:]
    return data


def _one_line(reason: str) -> str:
    """Return a reason without control characters, which may come from the file."""
    return "".join(each if each.isprintable() else "\ufffd" for each in reason[:MAX_REASON_CHARS])
