"""The service of clients over stdin and stdout, Unix-domain sockets or TCP.

Each client has a `Server` of its own, where pygls has one for all. Outgoing messages are queued, so
that a client that does not read blocks nobody. Message contents are not looked at.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from engine.memory import give_back_memory
from engine.remote.address import AddressError, check_loopback, check_peer
from engine.remote.framing import Frames, NotLsp, Unreadable, framed
from lsp_server.protocol.process import client_gone, exit_soon, run
from lsp_server.protocol.protocol import Server, read_message

log = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 16  # bytes of one read
MAX_UNHANDLED_CHUNKS = 16
MIN_IDLE_S = 0.05  # seconds without clients; one that is about to connect is seen
MAX_INLINE_BODY_BYTES = 1 << 18  # bytes; larger bodies are read in a thread
MAX_UNSENT_BYTES = 64 << 20  # bytes; a client that leaves more unread is disconnected
FLUSH_TIMEOUT_S = 0.25  # seconds for the last messages, and again for cancelled handlers

MakeServer = Callable[[], Server]
Incoming = AsyncGenerator[bytes | Unreadable, None]
Send = Callable[[bytes], Awaitable[None]]


def serve_stdio(make: MakeServer, client: int | None = None) -> int:
    """Serve one client over stdin and stdout; return the exit code.

    `client` is its process id, if known before `initialize`. Once the client has left, the process
    ends soon in any case.
    """
    server = make()
    return run(_stdio(server, client), server.protocol.code)


def serve_tcp(make: MakeServer, host: str, port: int) -> int:
    """Serve clients over TCP until a signal; return the exit code.

    Port 0 means any free port, which is printed on stderr.
    """
    check_loopback(host)

    async def listen() -> int:
        listener = await listen_tcp(make, host, port)
        return await _announce(listener.sockets[0].getsockname())

    return run(listen(), lambda: 1)


def serve_socket(
    make: MakeServer, listener: socket.socket, idle_s: float, release: Callable[[], bool]
) -> int:
    """Serve clients of a Unix-domain socket until a signal, or until it is idle.

    It is idle when no client has been connected for `idle_s` seconds and `release` has removed the
    socket. Returns the exit code.
    """

    async def listen() -> int:
        server = SocketServer(make, listener)
        accepting = await server.start()
        while True:
            await server.no_client_for(idle_s)
            if release():
                accepting.close()
                return 0

    return run(listen(), lambda: 1)


async def listen_tcp(make: MakeServer, host: str, port: int) -> asyncio.Server:
    """Accept clients over TCP on the running event loop."""

    async def tcp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _serve_stream(make, reader, writer)

    return await asyncio.start_server(tcp, host, port)


async def _serve_stream(
    make: MakeServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Serve one client of a socket."""

    async def incoming() -> Incoming:
        frames = Frames()
        while data := await reader.read(CHUNK_BYTES):
            for each in frames.feed(data):
                yield each
            await asyncio.sleep(0)  # reading what is buffered does not yield to other clients

    async def send(body: bytes) -> None:
        writer.write(framed(body))
        await writer.drain()

    try:
        await _converse(make(), incoming(), send)
    finally:
        writer.close()
        if writer.transport.get_write_buffer_size():
            writer.transport.abort()  # the client does not read
        await asyncio.to_thread(give_back_memory)


class SocketServer:
    """The server of a Unix-domain socket, which knows when it has no clients.

    It accepts only clients of this user.
    """

    def __init__(self, make: MakeServer, listener: socket.socket) -> None:
        self._make, self._listener = make, listener
        self._count = 0
        self._changed = asyncio.Event()

    async def start(self) -> asyncio.Server:
        """Accept clients on the running event loop."""
        return await asyncio.start_unix_server(self._serve, sock=self._listener)

    async def no_client_for(self, seconds: float) -> None:
        """Return once no client has been connected for so long."""
        while True:
            self._changed.clear()
            if self._count:
                await self._changed.wait()
                continue
            try:
                await asyncio.wait_for(self._changed.wait(), max(seconds, MIN_IDLE_S))
            except TimeoutError:
                return

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._count += 1
        self._changed.set()
        try:
            check_peer(writer.get_extra_info("socket"), "a client")
            await _serve_stream(self._make, reader, writer)
        except AddressError as error:
            log.warning("refused a client: %s", error)
            writer.close()
        finally:
            self._count -= 1
            self._changed.set()


# -- one client --------------------------------------------------------------------------------


class _Outgoing:
    """The queue of messages to one client; pygls's writer. Any thread may write."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue()
        self._size = 0  # bytes in the queue
        self.full = asyncio.Event()

    def write(self, body: bytes) -> None:
        if threading.get_ident() == self._thread:
            self._put(body)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._put, body)

    def close(self) -> None:
        """Do nothing: the transport closes the connection."""

    def _put(self, body: bytes) -> None:
        self._size += len(body)
        if self._size > MAX_UNSENT_BYTES:
            if not self.full.is_set():
                log.warning("a client does not read its messages: disconnecting")
            self.full.set()
        else:
            self._waiting.put_nowait(body)

    async def drain(self, send: Send) -> None:
        """Send messages in order. Returns when the client is gone."""
        with contextlib.suppress(OSError):
            while True:
                body = await self._waiting.get()
                await send(body)
                self._size -= len(body)
                self._waiting.task_done()

    async def flush(self) -> None:
        """Wait until all is sent."""
        await self._waiting.join()

    def drop(self) -> None:
        """Forget what is not sent.

        It may be MAX_UNSENT_BYTES, which others may refer to for long.
        """
        self._waiting = asyncio.Queue()


async def _converse(server: Server, incoming: Incoming, send: Send, *also: Awaitable[Any]) -> int:
    """Serve one client until it leaves or sends `exit`, or one of `also` ends.

    Returns the exit code, after `server.on_close` has run.
    """
    outgoing, protocol = _Outgoing(), server.protocol
    protocol.set_writer(outgoing)

    async def read() -> None:
        async with contextlib.aclosing(incoming) as bodies:
            async for body in bodies:
                for _ in protocol.handle(await _read(body)):
                    await asyncio.sleep(0)  # its handler starts before the next message counts
                if protocol.exit_code is not None:
                    return

    sending = asyncio.ensure_future(outgoing.drain(send))
    reading = asyncio.ensure_future(read())
    others = [asyncio.ensure_future(each) for each in (outgoing.full.wait(), *also)]
    try:
        await asyncio.wait([sending, reading, *others], return_when=asyncio.FIRST_COMPLETED)
    finally:
        handlers = protocol.close()
        closing = [asyncio.ensure_future(each()) for each in server.on_close]
        if not sending.done() and not outgoing.full.is_set():
            flushing = asyncio.ensure_future(outgoing.flush())
            await asyncio.wait(
                [flushing, sending], timeout=FLUSH_TIMEOUT_S, return_when="FIRST_COMPLETED"
            )
            others.append(flushing)
        if handlers:
            await asyncio.wait(handlers, timeout=FLUSH_TIMEOUT_S)
        for task in [sending, reading, *others]:
            task.cancel()
        ends = await asyncio.gather(sending, reading, *others, *closing, return_exceptions=True)
        outgoing.drop()
    for end in ends:
        if isinstance(end, NotLsp):
            log.warning("refused a client: %s", end)
        elif isinstance(end, Exception) and not isinstance(end, OSError):
            log.error("disconnected a client: %s", type(end).__name__, exc_info=end)
    return protocol.code() if protocol.exit_code is None else protocol.exit_code


async def _read(body: bytes | Unreadable) -> Any:
    """Read a message, in a thread if that takes long."""
    if isinstance(body, Unreadable):
        return body
    if len(body) <= MAX_INLINE_BODY_BYTES:
        return read_message(body)
    return await asyncio.to_thread(read_message, body)


# -- stdin and stdout --------------------------------------------------------------------------


async def _stdio(server: Server, client: int | None) -> int:
    """Serve one client over stdin and stdout; return the exit code.

    Threads do the blocking reads and writes; nothing waits for them at the end. Reading runs ahead,
    so that a client that leaves is noticed while the event loop is busy.
    """
    loop = asyncio.get_running_loop()
    source, wire = _protected()
    chunks: asyncio.Queue[bytes] = asyncio.Queue()
    free_chunks = threading.Semaphore(MAX_UNHANDLED_CHUNKS)
    writer = ThreadPoolExecutor(1, thread_name_prefix="stdio-write")

    def read() -> None:
        data = b"-"
        while data:
            try:
                data = os.read(source, CHUNK_BYTES)
            except OSError:  # the terminal is gone
                data = b""
            if not data:
                exit_soon(server.protocol.code)
            free_chunks.acquire()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(chunks.put_nowait, data)

    def write(data: bytes) -> None:
        while data:
            data = data[os.write(wire, data) :]

    async def incoming() -> Incoming:
        frames = Frames()
        while data := await chunks.get():
            free_chunks.release()
            for each in frames.feed(data):
                yield each

    async def send(body: bytes) -> None:
        await loop.run_in_executor(writer, write, framed(body))

    threading.Thread(target=read, name="stdio-read", daemon=True).start()
    return await _converse(server, incoming(), send, client_gone(server, client))


def _protected() -> tuple[int, int]:
    """Return private descriptors of stdin and stdout, and redirect the public ones.

    What libraries print then goes to stderr, and processes they start do not read the protocol.
    """
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


async def _announce(name: tuple[Any, ...]) -> int:
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    print(f"draftline: listening on tcp://{host}:{name[1]}", file=sys.stderr, flush=True)
    return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]
