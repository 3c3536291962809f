"""Programs that listen where a Draftline server is expected, and are none."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

CHUNK_BYTES = 1 << 16


@contextmanager
def answering(answer: bytes | None, path: Path | None = None) -> Iterator[str]:
    """The address of a program that answers whatever it reads with some bytes; with b"" it hangs
    up, with None it keeps silent. It listens on a port, or on a Unix-domain socket at `path`."""
    with ExitStack() as stack:
        listener = socket.socket(socket.AF_UNIX if path else socket.AF_INET)
        stack.enter_context(listener)
        listener.bind(str(path) if path else ("127.0.0.1", 0))
        listener.listen()
        opened: list[socket.socket] = []

        def serve() -> None:
            with contextlib.suppress(OSError):  # the listener is closed
                while True:
                    opened.append(listener.accept()[0])
                    threading.Thread(target=_answer, args=(opened[-1], answer)).start()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield str(path) if path else f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in opened:
                with contextlib.suppress(OSError):  # the other end is closed
                    connection.shutdown(socket.SHUT_RDWR)


def _answer(connection: socket.socket, answer: bytes | None) -> None:
    with connection, contextlib.suppress(OSError):  # the other end is closed
        while connection.recv(CHUNK_BYTES):
            if answer == b"":
                return
            if answer:
                connection.sendall(answer)
