"""HTTP connections with time limits, which uvicorn lacks for all but idle ones.

A client must send its request, and read the response, at a minimum pace. Nothing limits the time
that the server takes, the length of a stream, or an upload that makes progress.
"""

from __future__ import annotations

import asyncio
from operator import itemgetter
from typing import Any, Literal

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_TIMEOUT_S = 20.0  # seconds from the connection, or a request's first byte, to its headers
BODY_TIMEOUT_S = 30.0  # seconds in which at least MIN_BODY_BYTES of a body must arrive
MIN_BODY_BYTES = 4096
REST_TIMEOUT_S = 30.0  # seconds for the rest of a body that was answered before its end
WRITE_TIMEOUT_S = 60.0  # seconds in which a client must read some of what is being sent
MAX_PIECES = 2048  # pieces of a body, unless they have MIN_PIECE_BYTES on average
MIN_PIECE_BYTES = 64
TOO_SMALL_PIECES = "the body comes in too small pieces: send larger chunks"
MAX_CONNECTIONS = 768  # connections; of the 1024 files that a process may usually open

# What a connection waits for, and how expendable that makes it: the lowest is closed first.
Waiting = Literal["headers", "rest", "reader", "body"]
EXPENDABLE: tuple[Waiting, ...] = ("headers", "rest", "reader", "body")


class CountedPieces(h11.Connection):
    """A parser of requests that refuses bodies in tiny chunks.

    Each tiny chunk costs as much as a large one.
    """

    pieces = size = 0  # chunks and bytes of the body that is being received
    too_small = False

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.pieces = self.size = 0
        elif isinstance(event, h11.Data):
            self.pieces += 1
            self.size += len(event.data)
            if self.pieces > MAX_PIECES and self.size < self.pieces * MIN_PIECE_BYTES:
                self.too_small = True
                raise h11.RemoteProtocolError(TOO_SMALL_PIECES)
        return event


class HttpConnection(H11Protocol):
    """One client's connection."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conn = self._parser = CountedPieces(h11.SERVER)
        self.access_log = False  # requests are private, whoever listens to uvicorn's logger
        self._received = 0  # bytes
        self._request: tuple[Waiting, object] | None = (
            None  # what is awaited, and after which cycle
        )
        self._since = 0.0  # when that began
        self._request_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # so that writing is paused while anything is unread
        self._watch_request()
        self._make_room()

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        super().data_received(data)
        self._watch_request()

    def send_400_response(self, msg: str) -> None:
        """Answer an invalid request, unless its response has begun, and close the connection."""
        if self.cycle is not None and self.conn.our_state is not h11.IDLE:
            self.cycle.disconnected = True  # what its handler sends now would come after this
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(TOO_SMALL_PIECES if self._parser.too_small else msg)
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._awaited() == "headers":  # uvicorn's timer for idle connections is running
            self._stop_request_timer()
            self._since = self.loop.time()
        else:
            self._watch_request()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_write_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_request_timer()
        self._stop_write_timer()

    # -- the request --------------------------------------------------------------------------

    def _awaited(self) -> Waiting | None:
        """Tell what the client has to send next; None while the server has a whole request."""
        cycle = self.cycle
        if cycle is None or (cycle.response_complete and not cycle.more_body):
            return "headers"
        if not cycle.more_body:
            return None
        return "rest" if cycle.response_complete else "body"

    def _watch_request(self) -> None:
        """Start the timer for what is awaited now, unless it is running already."""
        awaited = self._awaited()
        request = awaited and (awaited, self.cycle)
        if request == self._request:
            return
        self._stop_request_timer()
        self._request, self._since = request, self.loop.time()
        if awaited == "headers":
            self._request_timer = self.loop.call_later(HEADER_TIMEOUT_S, self.transport.abort)
        elif awaited == "rest":
            self._request_timer = self.loop.call_later(REST_TIMEOUT_S, self.transport.abort)
        elif awaited == "body":
            self._watch_body()

    def _watch_body(self) -> None:
        self._request_timer = self.loop.call_later(
            BODY_TIMEOUT_S, self._check_body, self._received, self.flow.read_paused
        )

    def _check_body(self, received: int, was_paused: bool) -> None:
        """Close the connection unless the client made progress.

        It stays open, too, if it is the server that does not read at the moment.
        """
        paused = was_paused or self.flow.read_paused
        if self._received - received < MIN_BODY_BYTES and not paused:
            self.transport.abort()
        else:
            self._watch_body()

    def _stop_request_timer(self) -> None:
        self._request = None
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    # -- the response -------------------------------------------------------------------------

    def _watch_reader(self) -> None:
        size = self.transport.get_write_buffer_size()
        self._write_timer = self.loop.call_later(WRITE_TIMEOUT_S, self._check_reader, size)

    def _check_reader(self, size: int) -> None:
        """Close the connection unless the client has read some of the `size` bytes."""
        if self.transport.get_write_buffer_size() >= size:
            self.transport.abort()
        else:
            self._watch_reader()

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    # -- the number of connections ------------------------------------------------------------

    def _waits_for(self) -> Waiting | None:
        """Tell what the client keeps the server waiting for."""
        return "reader" if self.flow.write_paused else self._awaited()

    def _make_room(self) -> None:
        """Close a connection if there are too many.

        It is one that waits for its client, or this new one if there is none.
        """
        others = [
            other
            for other in self.connections
            if isinstance(other, HttpConnection) and not other.transport.is_closing()
        ]
        if len(others) <= MAX_CONNECTIONS:
            return
        waiting = [
            (EXPENDABLE.index(waits_for), other._since, other)
            for other in others
            if other is not self and (waits_for := other._waits_for()) is not None
        ]
        victim = min(waiting, key=itemgetter(0, 1))[-1] if waiting else self
        victim.transport.abort()
