"""A link with a delay: a proxy in this process, through which everything passes late, both ways.

Only time is added: what is sent at once arrives at once, however much it is.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue

CHUNK_BYTES = 1 << 16


@contextlib.contextmanager
def slow_link(host: str, port: int, round_trip_s: float) -> Iterator[int]:
    """Open a port of this machine behind which is `host:port`.

    It is half of `round_trip_s` away.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(
            target=_accept, args=(listening, (host, port), round_trip_s / 2), daemon=True
        ).start()
        yield listening.getsockname()[1]


def _accept(listening: socket.socket, there: tuple[str, int], delay_s: float) -> None:
    with contextlib.suppress(OSError):  # closed: the link is gone
        while True:
            near, _ = listening.accept()
            try:
                far = socket.create_connection(there)
            except OSError:
                near.close()
                continue
            for one in (near, far):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for ends in ((near, far), (far, near)):
                threading.Thread(target=_carry, args=(*ends, delay_s), daemon=True).start()


def _carry(source: socket.socket, target: socket.socket, delay_s: float) -> None:
    """Pass on what one end sends, `delay_s` later, up to its end."""
    waiting: SimpleQueue[tuple[float, bytes]] = SimpleQueue()

    def deliver() -> None:
        while True:
            due, data = waiting.get()
            time.sleep(max(0.0, due - time.monotonic()))
            with contextlib.suppress(OSError):
                if not data:
                    target.shutdown(socket.SHUT_WR)
                    return
                target.sendall(data)

    threading.Thread(target=deliver, daemon=True).start()
    data = b"-"
    while data:
        try:
            data = source.recv(CHUNK_BYTES)
        except OSError:
            data = b""
        waiting.put((time.monotonic() + delay_s, data))
