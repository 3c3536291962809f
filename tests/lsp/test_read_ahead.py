"""What is read before a completion is asked for, and when nothing is.

Most tests run on a virtual clock; the last ones have a server with a model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from lsprotocol import types

from engine import Engine
from engine.records import Done, Event, Request, RequestError
from engine.worker import Job, ended_job
from lsp_server.completion import read_ahead
from lsp_server.completion.read_ahead import ReadAhead
from lsp_server.protocol.text_sync import OpenDocument, OpenDocuments
from lsp_server.session import Session
from tests.lsp.test_in_flight import VirtualTimeLoop
from tests.support.command import EOS, chain_model
from tests.support.held_model import held_at_step
from tests.support.lsp_editor import Editor, LocalServer, local_server, ready
from tests.support.planted_secrets import ALPHANUMERIC, chars

URI = "file:///project/app.py"
TEXT = "".join(f"a{n} = {n}\n" for n in range(40))
WRITTEN = "xyz=1,abc+de"  # each character occurs once, so its successor is unique


class IdleEngine:
    """An engine that notes what it is to read ahead."""

    info = SimpleNamespace(prefill_tokens_per_s=1000.0, fills_middle=True)
    context = 4096

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.fault: Exception | None = None

    def encode(self, text: str) -> list[int]:
        return [*text.encode()]

    def submit(self, request: Request, *arguments: Any, **options: Any) -> Job:
        return ended_job(request, "client", Done("stop"))

    def read_ahead(self, request: Request) -> Job:
        if self.fault:
            raise self.fault
        job = Job(request, lambda cancelled: iter(()))
        self.jobs.append(job)
        return job


class Client:
    """A session with an idle engine; `loaded` and `starting` tell whether that is there."""

    def __init__(self, **settings: Any) -> None:
        self.engine, self.documents = IdleEngine(), OpenDocuments()
        beside = SimpleNamespace(state="idle", loaded=None)
        self.shared: Any = SimpleNamespace(
            engine=None,
            local=self.engine,
            loaded=self.engine,
            elsewhere=None,
            state="ready",
            configure=lambda *wish: None,
            for_completions=beside,
        )
        self.shared.engines = (self.shared, beside)
        self.session = Session(self.shared, self.documents, lambda method, params: None, "client")
        self.session.configure(settings)
        self.ahead = ReadAhead(self.session)

    @property
    def read(self) -> list[tuple[str, str]]:
        """The texts before and after the cursor that were read."""
        return [(job.request.text, job.request.suffix or "") for job in self.engine.jobs]

    def open(self, text: str = TEXT, uri: str = URI) -> OpenDocument:
        document = self.documents.open(uri, "python", 1, text)
        self.session.on_open(document)
        self.ahead.on_open(document)
        return document

    def move(self, line: int, uri: str = URI) -> None:
        document = self.documents.get(uri)
        offset = self.documents.offset(document, types.Position(line, 0))
        self.ahead.on_cursor(document, offset)

    def type(self, text: str, uri: str = URI) -> None:
        change = types.TextDocumentContentChangeWholeDocument(text)
        version = self.documents.get(uri).version + 1
        document = self.documents.change(uri, version, [change])
        self.session.on_change(document, [change])

    async def pause(self, seconds: float = 1.0) -> None:
        """Let time pass, and what it started end."""
        await asyncio.sleep(seconds)
        while tasks := list(self.session._tasks):
            await asyncio.wait(tasks)
            await asyncio.sleep(0)


def run(body: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await body()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(whole())


def before(line: int) -> str:
    return "".join(TEXT.splitlines(keepends=True)[:line])


def test_a_place_is_read_once_after_a_pause() -> None:
    async def body() -> None:
        client = Client()
        client.open()
        client.move(10)
        await client.pause(read_ahead.PAUSE_S / 2)
        client.move(20)
        assert client.read == []
        await client.pause()
        assert [text for text, _ in client.read] == [before(20)]
        assert client.read[0][1] and TEXT.startswith(before(20) + client.read[0][1])
        client.move(20)
        await client.pause()
        assert len(client.read) == 1
        client.move(5)
        await client.pause()
        assert [text for text, _ in client.read[1:]] == [before(5)]

    run(body)


def test_a_document_is_read_from_its_start_where_the_cursor_is_not_told() -> None:
    async def body() -> None:
        client = Client()
        client.open()
        await client.pause()
        assert [text for text, _ in client.read] == [""]
        client.move(20)
        client.open(uri="file:///project/other.py")  # in the background
        await client.pause()
        assert [text for text, _ in client.read[1:]] == [before(20)]

    run(body)


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_typing_and_requests_stop_it(seconds: float) -> None:
    """Before it begins, and while it reads."""

    async def body() -> None:
        async def type_in(client: Client) -> None:
            client.type(TEXT + "b")

        async def ask(client: Client) -> None:
            await client.session.ask(Request("chat"), ("chat", ""))

        for stop in (type_in, ask):
            client = Client()
            client.open()
            client.move(20)
            await client.pause(seconds)
            await stop(client)
            await client.pause()
            assert len(client.read) == (seconds > 0), stop
            assert all(job.cancelled() for job in client.engine.jobs)

    run(body)


@pytest.mark.parametrize(
    ("settings", "uri", "text"),
    [
        ({"ghostText": False}, URI, TEXT),
        ({"ghostText": {"python": False}}, URI, TEXT),
        ({"languages": ["go"]}, URI, TEXT),
        ({"disabledGlobs": ["app.*"]}, URI, TEXT),
        ({}, "file:///project/.env", TEXT),
        ({}, URI, f"{TEXT}token = 'ghp_{chars(Random(1), ALPHANUMERIC, 36)}'\n"),
        ({}, URI, "a = 1\n" * (read_ahead.MAX_CHARS // 6 + 1)),
    ],
)
def test_documents_without_completions_secrets_and_large_ones_are_not_read(
    settings: dict[str, Any], uri: str, text: str
) -> None:
    async def body() -> None:
        client = Client(**settings)
        client.open(text, uri)
        client.move(2, uri)
        await client.pause()
        assert client.read == []
        client.session.enabled = False
        client.move(3, uri)
        await client.pause()
        assert client.read == []

    run(body)


def test_nothing_is_read_while_turned_off_or_busy_or_after_it_is_closed() -> None:
    async def body() -> None:
        client = Client()
        client.open()
        client.session.enabled = False
        client.move(1)
        await client.pause()
        client.session.enabled = True
        waiting: Any = asyncio.get_running_loop().create_future()
        client.session._waiting[waiting] = ("chat", "")
        client.move(2)
        await client.pause()
        client.session._waiting.clear()
        client.move(3)
        client.documents.close(URI)
        client.session.on_close(URI)
        await client.pause()
        assert client.read == []

    run(body)


def test_it_waits_for_the_model_and_never_loads_one() -> None:
    async def body() -> None:
        client = Client()
        client.shared.local, client.shared.state = None, "loading"
        client.open()
        client.move(20)
        await client.pause()
        client.session.resume_reading()
        await client.pause()
        assert client.read == []
        client.shared.local, client.shared.state = client.engine, "ready"
        client.session.resume_reading()
        await client.pause()
        assert [text for text, _ in client.read] == [before(20)]
        client.session.resume_reading()  # nothing is left
        await client.pause()
        assert len(client.read) == 1

    run(body)


@pytest.mark.parametrize("fault", [RequestError("too long"), RuntimeError("closed")])
def test_an_engine_that_refuses_is_no_fault(fault: Exception) -> None:
    async def body() -> None:
        client = Client()
        client.engine.fault = fault
        client.open()
        client.move(20)
        await client.pause()
        client.engine.fault = None
        client.move(21)
        await client.pause()
        assert [text for text, _ in client.read] == [before(21)]

    run(body)


# -- with a model ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    root = tmp_path_factory.mktemp("ahead")
    with local_server(root, str(chain_model(root / "model", WRITTEN, EOS))) as server:
        yield server


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Job, Done]]:
    """The jobs that have ended, in order."""
    found: list[tuple[Job, Done]] = []
    put = Job.put

    def note(job: Job, event: Event) -> None:
        if isinstance(event, Done):
            found.append((job, event))
        put(job, event)

    monkeypatch.setattr(Job, "put", note)
    return found


def opened(server: LocalServer, **settings: Any) -> Any:
    return ready(server.port, settings={"debounceMs": 0, "maxTimeMs": 60_000} | settings)


def at(one: Editor, place: int, uri: str = URI) -> dict[str, Any]:
    return {"textDocument": {"uri": uri}, "position": one.at(uri, place)}


async def inline(one: Editor, place: int, uri: str = URI) -> str:
    asked = at(one, place, uri) | {"context": {"triggerKind": 2}}
    items = (await one.ask("textDocument/inlineCompletion", asked))["items"]
    return str(items[0]["insertText"])


@pytest.mark.asyncio
async def test_the_next_completion_finds_its_prompt(
    server: LocalServer, ended: list[tuple[Job, Done]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And offers the same text."""
    text = f"{TEXT}\n\nb = 2\n"
    place, answers = len(f"{TEXT}\n"), []
    async with opened(server) as one:
        engine: Any = server.shared_engine.engine
        for uri, seconds in (("file:///a/app.py", 1e6), ("file:///b/app.py", 0.0)):
            monkeypatch.setattr(read_ahead, "PAUSE_S", seconds)
            engine.parts.target.pool.sequences.clear()
            one.open(uri, text)
            one.tell("draftline/cursor", at(one, place, uri))
            if not seconds:
                await one.until(lambda: ended)
                assert ended[0][0].request.text and not ended[0][1].text
            answers.append(await inline(one, place, uri))
            usage = ended.pop()[1].usage
            assert usage.cached_tokens == (0 if seconds else usage.prompt_tokens - 1)
            ended.clear()
    assert answers == [WRITTEN, WRITTEN]


@pytest.mark.asyncio
async def test_a_key_ends_it_and_is_answered(
    server: LocalServer, ended: list[tuple[Job, Done]], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"{TEXT * 8}\n"
    jobs: list[Job] = []

    def note(engine: Engine, request: Request) -> Job:
        jobs.append(begin(engine, request))
        return jobs[-1]

    begin = Engine.read_ahead
    monkeypatch.setattr(Engine, "read_ahead", note)
    async with opened(server) as one:
        one.open(URI, text)
        await one.command("status")
        with held_at_step(1):
            monkeypatch.setattr(read_ahead, "PAUSE_S", 0.0)
            one.tell("draftline/cursor", at(one, len(text)))
            await one.until(lambda: jobs)
            one.type(URI, len(text), "x")
            await one.until(jobs[-1].cancelled)
            monkeypatch.setattr(read_ahead, "PAUSE_S", 1e6)
        assert await inline(one, len(text) + 1)
        assert [job for job, _ in ended][:1] == jobs


@pytest.mark.asyncio
async def test_bad_notifications_are_ignored(
    server: LocalServer, ended: list[tuple[Job, Done]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(server) as one:
        one.open(URI, "a = 1\n\n")
        start = {"line": 0, "character": 0}
        for params in (
            None,
            {},
            {"textDocument": {"uri": URI}},
            {"textDocument": {"uri": URI}, "position": {"line": -1, "character": "x"}},
            {"textDocument": {"uri": "file:///unknown.py"}, "position": start},
            {"textDocument": 7, "position": start},
        ):
            one.tell("draftline/cursor", params)
        await one.command("status")
        assert not ended and not one.log_messages and not one.messages
        monkeypatch.setattr(read_ahead, "PAUSE_S", 0.0)
        far = {"line": 10**6, "character": 10**6}
        one.tell("draftline/cursor", {"textDocument": {"uri": URI}, "position": far})
        await one.until(lambda: ended)
        assert ended[0][0].request.text == "a = 1\n\n"
