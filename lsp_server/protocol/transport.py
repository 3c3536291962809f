"""Clients over stdin and stdout, TCP or WebSockets.

Every client has a `Server` of its own. What is sent waits in a queue, so that a client that does
not read blocks nobody. Knows nothing of what messages mean.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import queue
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from lsp_server.protocol.framing import LARGEST, Frames, NotLsp, Unreadable, framed
from lsp_server.protocol.process import client_gone, hurry, run
from lsp_server.protocol.protocol import Server

log = logging.getLogger(__name__)

CHUNK = 1 << 16  # bytes of one reading
AHEAD = 16  # chunks that are read before they are handled
UNSENT = 1 << 28  # bytes; a client that leaves more of them unread is left
PATIENCE = 0.25  # seconds, for the last messages and again for cancelled handlers

Make = Callable[[], Server]
Incoming = AsyncGenerator[bytes | Unreadable, None]
Send = Callable[[bytes], Awaitable[None]]


class NotLoopback(ValueError):
    """A host that other machines could reach."""


def serve_stdio(make: Make, client: int | None = None) -> int:
    """One client over stdin and stdout; the exit code. `client`: its process, where known before
    `initialize` says it. From its end on the process ends soon in any case."""
    server = make()
    return run(_stdio(server, client), server.protocol.code)


def serve_tcp(make: Make, host: str, port: int) -> int:
    """Clients over TCP until a signal; the exit code. Port 0: any; stderr tells which."""
    check(host)

    async def tcp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def incoming() -> Incoming:
            frames = Frames()
            while data := await reader.read(CHUNK):
                for each in frames.feed(data):
                    yield each
                await asyncio.sleep(0)  # the others' turn; what is buffered is read without it

        async def send(body: bytes) -> None:
            writer.write(framed(body))
            await writer.drain()

        try:
            await _converse(make(), incoming(), send)
        finally:
            writer.close()
            if writer.transport.get_write_buffer_size():
                writer.transport.abort()  # it does not read

    async def listen() -> int:
        clients = await asyncio.start_server(tcp, host, port)
        return await _listening("tcp", clients.sockets[0].getsockname())

    return run(listen(), lambda: 1)


def serve_ws(make: Make, host: str, port: int) -> int:
    """Clients over WebSockets, as `serve_tcp`. Web pages are refused: any could connect here."""
    check(host)
    from websockets.asyncio.server import ServerConnection, serve
    from websockets.exceptions import ConnectionClosed

    async def ws(connection: ServerConnection) -> None:
        async def incoming() -> Incoming:
            with contextlib.suppress(ConnectionClosed):
                while True:
                    yield await connection.recv(decode=False)
                    await asyncio.sleep(0)

        async def send(body: bytes) -> None:
            try:
                await connection.send(body.decode())
            except ConnectionClosed as error:
                raise ConnectionError("the client is gone") from error

        await _converse(make(), incoming(), send)

    async def listen() -> int:
        clients = await serve(
            ws,
            host,
            port,
            origins=[None],
            compression=None,
            max_size=LARGEST,
            ping_interval=None,
            logger=_quiet("websockets"),
        )
        return await _listening("ws", next(iter(clients.sockets)).getsockname())

    return run(listen(), lambda: 1)


# -- one client --------------------------------------------------------------------------------


class _Outgoing:
    """What waits to be sent to one client. Anything may put, from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue()
        self._size = 0  # bytes that wait
        self.full = asyncio.Event()

    def put(self, body: bytes) -> None:
        if threading.get_ident() == self._thread:
            self._put(body)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is there
                self._loop.call_soon_threadsafe(self._put, body)

    def _put(self, body: bytes) -> None:
        self._size += len(body)
        if self._size > UNSENT:
            if not self.full.is_set():
                log.warning("a client does not read what is sent to it: it is left")
            self.full.set()
        else:
            self._waiting.put_nowait(body)

    async def drain(self, send: Send) -> None:
        """Send for ever, in order. Returns when the other side is gone."""
        with contextlib.suppress(OSError):
            while True:
                body = await self._waiting.get()
                await send(body)
                self._size -= len(body)
                self._waiting.task_done()

    async def flush(self) -> None:
        """Wait until all is sent."""
        await self._waiting.join()


async def _converse(server: Server, incoming: Incoming, send: Send, *also: Awaitable[Any]) -> int:
    """Serve one client until it leaves or says `exit`, or `also` ends; the exit code."""
    outgoing, protocol = _Outgoing(), server.protocol
    protocol.connect(outgoing.put)

    async def read() -> None:
        async with contextlib.aclosing(incoming) as bodies:
            async for body in bodies:
                if isinstance(body, Unreadable):
                    protocol.refuse(str(body))
                else:
                    protocol.receive(body)
                if protocol.exit_code is not None:
                    return

    sending = asyncio.ensure_future(outgoing.drain(send))
    reading = asyncio.ensure_future(read())
    others = [asyncio.ensure_future(each) for each in (outgoing.full.wait(), *also)]
    try:
        await asyncio.wait([sending, reading, *others], return_when=asyncio.FIRST_COMPLETED)
    finally:
        still = protocol.close()
        if not sending.done() and not outgoing.full.is_set():
            flushing = asyncio.ensure_future(outgoing.flush())
            await asyncio.wait([flushing, sending], timeout=PATIENCE, return_when="FIRST_COMPLETED")
            others.append(flushing)
        if still:
            await asyncio.wait(still, timeout=PATIENCE)
        for task in [sending, reading, *others]:
            task.cancel()
        ends = await asyncio.gather(sending, reading, *others, return_exceptions=True)
    for end in ends:
        if isinstance(end, NotLsp):
            log.warning("a client was refused: %s", end)
        elif isinstance(end, Exception) and not isinstance(end, OSError):
            log.error("a client was left: %s", type(end).__name__, exc_info=end)
    return protocol.code() if protocol.exit_code is None else protocol.exit_code


# -- stdin and stdout --------------------------------------------------------------------------


async def _stdio(server: Server, client: int | None) -> int:
    """Two threads do the blocking reads and writes; neither is waited for at the end."""
    loop = asyncio.get_running_loop()
    source, wire = _protected()
    chunks: asyncio.Queue[bytes] = asyncio.Queue()
    room = threading.Semaphore(AHEAD)
    writes: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()

    def tell(what: Callable[..., Any], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(what, *args)

    def read() -> None:
        data = b"-"
        while data:
            try:
                data = os.read(source, CHUNK)
            except OSError:  # a terminal that is gone
                data = b""
            if not data:
                hurry(server.protocol.code)
            room.acquire()
            tell(chunks.put_nowait, data)

    def write() -> None:
        while True:
            data, written = writes.get()
            try:
                while data:
                    data = data[os.write(wire, data) :]
            except OSError as error:
                tell(_settle, written, error)
                return
            tell(_settle, written, None)

    async def incoming() -> Incoming:
        frames = Frames()
        while data := await chunks.get():
            room.release()
            for each in frames.feed(data):
                yield each

    async def send(body: bytes) -> None:
        written = loop.create_future()
        writes.put((framed(body), written))
        await written

    for work in (read, write):
        threading.Thread(target=work, name=f"stdio-{work.__name__}", daemon=True).start()
    return await _converse(server, incoming(), send, client_gone(server, client))


def _settle(future: asyncio.Future[None], error: OSError | None) -> None:
    if not future.done():
        future.set_result(None) if error is None else future.set_exception(error)


def _protected() -> tuple[int, int]:
    """Stdin and stdout as descriptors that nothing else knows: what libraries print goes to
    stderr, and what they start does not read the protocol."""
    source, wire = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    try:
        os.dup2(2, 1)
    except OSError:  # stderr is closed
        os.dup2(nothing, 1)
    os.close(nothing)
    for descriptor in (source, wire):
        os.set_blocking(descriptor, True)
    return source, wire


# -- addresses ----------------------------------------------------------------------------------


async def _listening(kind: str, name: tuple[Any, ...]) -> int:
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    print(f"draftline: listening on {kind}://{host}:{name[1]}", file=sys.stderr, flush=True)
    return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]


def check(host: str) -> None:
    """Raises NotLoopback where a host is not this machine alone."""
    with contextlib.suppress(ValueError):
        if host == "localhost" or ipaddress.ip_address(host).is_loopback:
            return
    raise NotLoopback(f"{host}: only loopback is served (there are no keys yet): use 127.0.0.1")


def _quiet(name: str) -> logging.Logger:
    """A library's logger that says nothing about clients that come, go and are refused."""
    logger = logging.getLogger(name)
    logger.setLevel(logging.CRITICAL)
    return logger
