"""Time limits of HTTP connections, on real sockets, with a clock that the tests set."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from ui.cli import connection
from ui.cli.connection import HttpConnection

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
TIMEOUT_S = 180  # a backstop
Receive, Send = Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]


class SteppedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock stands still between calls of `advance`."""

    now = 1000.0

    def time(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


async def settle() -> None:
    """Let everything that is ready run: data on sockets, and timers that are due."""
    for _ in range(20):
        await asyncio.sleep(0)


async def until(condition: Callable[[], Any]) -> None:
    for _ in range(1_000_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("the condition never holds")


class Served:
    """A server with these connections, whose application answers once it has a whole body."""

    def __init__(self) -> None:
        self.state = ServerState()
        self.port = 0
        self.bodies: list[bytes] = []
        self.errors: list[str] = []
        self.events = asyncio.Queue[bytes]()  # of the answer to `GET /stream`

    async def app(self, scope: Any, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": []}
        if scope["path"] == "/early":
            await send(start)
            await send({"type": "http.response.body", "body": b"no"})
            return
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.errors.append("disconnect")
                return
            body, more = body + message["body"], message["more_body"]
        self.bodies.append(body)
        await send(start)
        while scope["path"] == "/stream" and (event := await self.events.get()):
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"yes"})

    @property
    def connections(self) -> list[Any]:
        return list(self.state.connections)

    @contextlib.asynccontextmanager
    async def client(self, data: bytes = b"") -> AsyncIterator[Client]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        await until(lambda: self.of(writer) is not None)
        client = Client(reader, writer, self.of(writer))
        try:
            await client.send(data)
            yield client
        finally:
            writer.close()

    def of(self, writer: asyncio.StreamWriter) -> Any:
        address = writer.get_extra_info("sockname")
        return next((one for one in self.connections if one.client == address[:2]), None)


class Client:
    def __init__(
        self, reader: asyncio.StreamReader, writer: Any, connection: HttpConnection
    ) -> None:
        self.reader, self.writer, self.connection = reader, writer, connection

    async def send(self, data: bytes) -> None:
        """Send data, and wait until the server has it."""
        expected = self.connection._received + len(data)
        self.writer.write(data)
        await until(lambda: self.connection._received >= expected or self.closed)

    @property
    def closed(self) -> bool:
        return self.connection.transport.is_closing()


def serving(test: Callable[[SteppedLoop, Served], Awaitable[None]]) -> None:
    """Run a test with a server."""

    async def run() -> None:
        loop: Any = asyncio.get_running_loop()
        served = Served()
        config = Config(served.app, interface="asgi3", log_config=None, proxy_headers=False)
        config.load()
        server = await loop.create_server(
            lambda: HttpConnection(config=config, server_state=served.state, app_state={}),
            *("127.0.0.1", 0),
        )
        served.port = server.sockets[0].getsockname()[1]
        try:
            await test(loop, served)
        finally:
            for one in served.connections:
                one.transport.abort()
            await settle()
            server.close()
            for task in served.state.tasks:
                task.cancel()
            await asyncio.gather(*served.state.tasks, return_exceptions=True)

    with asyncio.Runner(loop_factory=SteppedLoop) as runner:
        runner.run(run())


HALVES = (b"", b"G", GET[:-2], GET[:-1])


@pytest.mark.parametrize("half", HALVES)
def test_half_sent_headers_end_a_connection(half: bytes) -> None:
    """Also if more of them arrive meanwhile, and after an earlier request."""

    async def test(loop: SteppedLoop, served: Served) -> None:
        async with served.client(half) as client, served.client(GET) as second:
            assert (await second.reader.readuntil(b"yes")).startswith(b"HTTP/1.1 200")
            await second.send(half or b"G")
            loop.advance(connection.HEADER_TIMEOUT_S - 1)
            await client.send(b"X" if half == GET[:-2] else b"")
            await settle()
            assert not client.closed and not second.closed
            loop.advance(2)
            await until(lambda: client.closed and second.closed)
            with contextlib.suppress(ConnectionResetError):
                assert await client.reader.read() == b""
            await until(lambda: not served.connections)

    serving(test)


def test_a_body_that_stalls_ends_a_connection() -> None:
    """The application learns of it."""

    async def test(loop: SteppedLoop, served: Served) -> None:
        async with served.client(POST + b"x" * connection.MIN_BODY_BYTES) as client:
            loop.advance(connection.BODY_TIMEOUT_S + 1)
            await settle()
            await client.send(b"x" * (connection.MIN_BODY_BYTES - 1))
            loop.advance(connection.BODY_TIMEOUT_S + 1)
            await until(lambda: client.closed and served.errors == ["disconnect"])
        assert not served.bodies

    async def first_window(loop: SteppedLoop, served: Served) -> None:
        async with served.client(POST) as client:
            loop.advance(connection.BODY_TIMEOUT_S + 1)
            await until(lambda: client.closed)

    serving(test)
    serving(first_window)


def test_an_upload_that_makes_progress_is_never_cut() -> None:
    """However long it takes in total."""

    async def test(loop: SteppedLoop, served: Served) -> None:
        async with served.client(POST) as client:
            for _ in range(100_000 // 5000):
                await client.send(b"x" * 5000)
                loop.advance(connection.BODY_TIMEOUT_S + 1)
                await settle()
            assert (await client.reader.readuntil(b"yes")).startswith(b"HTTP/1.1 200")
        assert served.bodies == [b"x" * 100_000]

    serving(test)


def test_a_stream_is_never_cut_while_its_client_reads() -> None:
    async def test(loop: SteppedLoop, served: Served) -> None:
        request = GET.replace(b"/ ", b"/stream ", 1)
        async with served.client(request) as client:
            for number in range(5):
                event = b"event %d;" % number
                served.events.put_nowait(event)
                await client.reader.readuntil(event)
                loop.advance(10 * connection.WRITE_TIMEOUT_S)
                await settle()
            served.events.put_nowait(b"")
            await client.reader.readuntil(b"yes")
            assert not client.closed

    serving(test)


def test_a_client_that_never_reads_is_disconnected() -> None:
    """One that reads a little is not."""

    async def test(loop: SteppedLoop, served: Served) -> None:
        request = GET.replace(b"/ ", b"/stream ", 1)
        async with served.client(request) as client:
            transport = client.connection.transport
            while not client.connection.flow.write_paused:
                served.events.put_nowait(b"x" * 1_000_000)
                await settle()
            loop.advance(connection.WRITE_TIMEOUT_S - 1)
            await settle()
            size = transport.get_write_buffer_size()
            assert not client.closed and size > 0
            while transport.get_write_buffer_size() == size:
                await client.reader.read(1 << 16)
                await settle()
            loop.advance(2)
            await settle()
            assert not client.closed
            while not client.connection.flow.write_paused:
                served.events.put_nowait(b"x" * 1_000_000)
                await settle()
            for _ in range(2):
                loop.advance(connection.WRITE_TIMEOUT_S + 1)
                await settle()
            await until(lambda: client.closed and not served.connections)

    serving(test)


def test_the_rest_of_a_body_that_was_answered_has_a_time_limit() -> None:
    """However fast the client keeps sending."""

    async def test(loop: SteppedLoop, served: Served) -> None:
        request = POST.replace(b"/ ", b"/early ", 1).replace(b"100000", b"9" * 12)
        async with served.client(request) as client:
            await client.reader.readuntil(b"no")
            for _ in range(10):
                await client.send(b"x" * 10_000)
                loop.advance(connection.REST_TIMEOUT_S / 11)
                await settle()
            assert not client.closed
            loop.advance(connection.REST_TIMEOUT_S / 5)
            await until(lambda: client.closed)

    serving(test)


def test_a_connection_serves_many_requests() -> None:
    """No timer of one request ends a later one."""

    async def test(loop: SteppedLoop, served: Served) -> None:
        async with served.client() as client:
            for _ in range(10):
                await client.send(GET + GET)  # pipelined
                for _ in range(2):
                    await client.reader.readuntil(b"yes")
                body = POST.replace(b"100000", b"5") + b"words"
                await client.send(body)
                await client.reader.readuntil(b"yes")
                loop.advance(4)  # less than uvicorn's timeout of idle connections
                await settle()
            loop.advance(60)
            await until(lambda: client.closed)
        assert served.bodies == [b"", b"", b"words"] * 10

    serving(test)


def test_a_new_connection_displaces_one_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """First one with half-sent headers; never one whose request is being answered."""
    monkeypatch.setattr(connection, "MAX_CONNECTIONS", 4)

    async def test(loop: SteppedLoop, served: Served) -> None:
        async with contextlib.AsyncExitStack() as stack:
            opened: list[Client] = []

            async def open_one(data: bytes) -> Client:
                loop.advance(1)
                opened.append(await stack.enter_async_context(served.client(data)))
                await settle()
                return opened[-1]

            stream = GET.replace(b"/ ", b"/stream ", 1)
            answered, uploading = await open_one(stream), await open_one(POST)
            half, other = await open_one(GET[:-2]), await open_one(GET[:-2])
            await open_one(stream)
            assert [one.closed for one in opened] == [False, False, True, False, False]
            await open_one(stream)
            assert other.closed and not uploading.closed
            last = await open_one(stream)
            assert uploading.closed and not answered.closed and not last.closed and half.closed
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b"", "all others are being answered"
            writer.close()
            assert not answered.closed and len(served.connections) == 4

    serving(test)
