"""A hostile engine of another machine: its answers end, whatever it sends, and the places that it
names are only looked at if they are the client's own."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import threading
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from engine.records import Done, Request
from engine.remote import link, link_engine
from engine.remote.address import AddressError
from engine.remote.engine_url import EngineUrl
from engine.remote.http_engine import HttpEngine
from engine.remote.link import LinkError
from engine.remote.messages import BadMessage
from engine.remote.openai_engine import OpenAiEngine
from engine.remote.tokenizer_files import digest_of, read_files, read_sent
from tests.support.lsp_editor import Editor, connected, local_server

TIMEOUT_S = 180  # a backstop for a busy machine
MAX_MEMORY = 100 << 20  # bytes of Python's objects that an answer may take
QUESTION = Request("chat", messages=({"role": "user", "content": "x"},), max_tokens=8)
CHARS = 8 * link_engine.MAX_TOKEN_CHARS
QUOTE = "a quotation that is long enough to be a source of it all"
Chunks = Iterator[bytes]


class HostileServer:
    """Answers each path with the chunks of a function, as long as anybody reads them."""

    def __init__(self) -> None:
        self.answers: dict[str, Callable[[], Chunks]] = {}
        self.headers: dict[str, str] = {}  # of the answers to `encoded`
        self.encoded = ""  # a path
        self.head: Callable[[], Chunks] | None = None  # in place of an answer to GET
        self.ended = threading.Event()  # an answer was given, or nobody reads it any more
        self.url = ""

    def answer(self, path: str, chunks: Callable[[], Chunks]) -> None:
        self.answers[path] = chunks
        self.ended.clear()


@contextmanager
def hostile() -> Iterator[HostileServer]:
    server = HostileServer()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                if server.head is not None:
                    return self.send(server.head())
                self.start()
                self.send(server.answers[self.path]())
            except OSError:
                server.ended.set()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.do_GET()

        def start(self) -> None:
            self.send_response(200 if self.path in server.answers else 404)
            for name, value in server.headers.items() if self.path == server.encoded else ():
                self.send_header(name, value)
            self.end_headers()

        def send(self, chunks: Chunks) -> None:
            for chunk in chunks:
                self.wfile.write(chunk)
            server.ended.set()

        def log_message(self, *args: Any) -> None:
            """Log nothing."""

        def handle(self) -> None:
            with contextlib.suppress(KeyError):  # no such path
                super().handle()

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        made.daemon_threads = True
        server.url = f"http://127.0.0.1:{made.server_port}"
        threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        made.shutdown()


def event(**choice: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


@pytest.fixture
def server() -> Iterator[HostileServer]:
    with hostile() as server:
        server.answer("/v1/models", lambda: iter([b'{"data": [{"id": "m"}]}']))
        yield server


@contextmanager
def openai(server: HostileServer, chunks: Callable[[], Chunks]) -> Iterator[OpenAiEngine]:
    """A connected engine whose chats are answered by the chunks."""
    with OpenAiEngine(EngineUrl(f"{server.url}/v1", is_openai=True)) as engine:
        server.answer("/v1/chat/completions", chunks)
        yield engine


def answered(server: HostileServer, engine: OpenAiEngine | HttpEngine, request: Request) -> Done:
    """The end of an answer, after which nobody reads the server's any more."""
    done = engine.submit(request).result()
    assert server.ended.wait(TIMEOUT_S), "the client has hung up"
    return done


@pytest.mark.parametrize("field", ["content", "reasoning_content"])
@pytest.mark.parametrize("size", [1, 7, 1 << 16])
def test_a_text_has_as_many_characters_as_its_tokens_may_have(
    server: HostileServer, field: str, size: int
) -> None:
    one = event(delta={field: "x" * size})
    with openai(server, lambda: repeat(one)) as engine:
        done = answered(server, engine, QUESTION)
    assert done.reason == "length" and done.text + done.reasoning == "x" * CHARS


@pytest.mark.parametrize("kind", ["edit", "chat"])
def test_an_answer_without_a_limit_ends(server: HostileServer, kind: Any) -> None:
    asked = {"text": "a = 1\n", "instruction": "x"} if kind == "edit" else {}
    request = Request(kind, messages=QUESTION.messages, **asked)
    flood = chain([event(delta={"content": "```\n"})], repeat(event(delta={"content": "x" * 9999})))
    with openai(server, lambda: flood) as engine:
        done = answered(server, engine, request)
    assert done.reason == "length"
    assert len(done.text) <= link_engine.max_chars(request, engine.context)


@pytest.mark.parametrize(
    ("chunk", "why"),
    [
        (event(delta={}), "does not end"),
        (b": still here\n", "does not end"),
        (b"x" * 65536, "does not end|a line over"),
        (b"data: " + b"[" * 65536, "does not end|a line over"),
    ],
)
def test_what_is_no_text_ends_too(server: HostileServer, chunk: bytes, why: str) -> None:
    with openai(server, lambda: repeat(chunk)) as engine:
        done = answered(server, engine, QUESTION)
    assert done.reason == "failed" and done.error and str(server.url) in done.error
    assert any(each in done.error for each in why.split("|")) and "\n" not in done.error


def test_signs_of_life_are_not_waited_for_forever(
    server: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "MAX_SILENCE_S", -1.0)
    with openai(server, lambda: repeat(b": still here\n")) as engine:
        done = answered(server, engine, QUESTION)
    assert done.reason == "failed" and "has not answered" in str(done.error)


def bomb(size: int) -> Chunks:
    """So many mebibytes of JSON arrays, compressed."""
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    part = b"[]," * (1 << 20)
    return iter(
        [packer.compress(b'{"data":[')]
        + [packer.compress(part) for _ in range(size // 3)]
        + [packer.flush()]
    )


def test_a_list_of_models_is_bounded(server: HostileServer) -> None:
    """As it is sent, and as it is once decompressed; what is parsed of it takes little memory."""
    url = EngineUrl(f"{server.url}/v1", is_openai=True)
    packed = [*bomb(300)]
    tracemalloc.start()
    try:
        for encoding, chunks in (("gzip", lambda: iter(packed)), ("", lambda: repeat(b"[" * 999))):
            server.encoded, server.headers = "/v1/models", {"content-encoding": encoding}
            if not encoding:
                server.headers = {}
            server.answer("/v1/models", chunks)
            with pytest.raises(LinkError, match="an answer over 8 MiB"):
                OpenAiEngine(url)
        assert tracemalloc.get_traced_memory()[1] < MAX_MEMORY
    finally:
        tracemalloc.stop()


def test_encodings_that_were_not_asked_for(server: HostileServer) -> None:
    server.encoded = "/v1/models"
    url = EngineUrl(f"{server.url}/v1", is_openai=True)
    for encoding, why in (("br", "answers in br"), ("gzip", "is not gzip")):
        server.headers = {"content-encoding": encoding}
        with pytest.raises(LinkError, match=why):
            OpenAiEngine(url)


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n", b""])
def test_headers_end(server: HostileServer, head: bytes) -> None:
    server.head = lambda: chain([head], repeat(b"x" * 999 if not head else b"a: b\r\n"))
    with pytest.raises(LinkError):
        OpenAiEngine(EngineUrl(f"{server.url}/v1", is_openai=True))
    assert server.ended.wait(TIMEOUT_S)


# -- Draftline's own protocol ------------------------------------------------------------------


@pytest.fixture
def draftline(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[HostileServer]:
    """A server that says that it has a model, and sends its tokenizer."""
    monkeypatch.setenv("DRAFTLINE_HOME", str(tmp_path / "home"))
    files = read_files(tiny())
    model = {
        "model": "m", "device": "cpu", "dtype": "q8", "context": 4096, "fills_middle": False,
        "prefill_tokens_per_s": 100.0,
    }  # fmt: skip
    of_server = {
        "server": "draftline", "version": "x", "process": 1, "state": "ready", "engine": model,
    }  # fmt: skip
    info = {
        "protocol": 1, "version": "x", "server": of_server, "tokenizer": digest_of(files),
        "forget_after_s": 1, "delete_within_s": 1,
    }  # fmt: skip
    with hostile() as server:
        server.answer("/v1/draftline/info", lambda: iter([json.dumps(info).encode()]))
        server.answer("/v1/draftline/tokenizer", lambda: iter([json.dumps(files).encode()]))
        yield server


@pytest.mark.parametrize(
    "chunk",
    [
        b'{"event": {}}\n',
        json.dumps({"event": {"pieces": [["x" * 999, "model", None]]}}).encode() + b"\n",
        b"\n",
        b"x" * 65536,
    ],
)
def test_an_answer_of_a_draftline_server_ends(draftline: HostileServer, chunk: bytes) -> None:
    with HttpEngine(EngineUrl(draftline.url)) as engine:
        draftline.answer("/v1/draftline/submit", lambda: repeat(chunk))
        done = answered(draftline, engine, QUESTION)
    assert done.reason == "failed" and "does not end" in str(done.error)


def test_a_tokenizer_ends(draftline: HostileServer) -> None:
    draftline.answer("/v1/draftline/tokenizer", lambda: repeat(b"[" * 65536))
    with pytest.raises(LinkError, match="an answer over 64 MiB"):
        HttpEngine(EngineUrl(draftline.url))
    draftline.answer("/v1/draftline/tokenizer", lambda: iter([b'{"tokenizer.json": [[[]]]}']))
    with pytest.raises(AddressError, match="not the files of a tokenizer"):
        HttpEngine(EngineUrl(draftline.url))


def test_the_files_of_a_tokenizer_are_read_as_json_reads_them(tiny: Any) -> None:
    files = read_files(tiny())
    for texts in (files, {}, {"a": '"\\\n\u00e9', "": ""}):
        for indent in (None, 2):
            assert read_sent(json.dumps(texts, indent=indent).encode()) == texts
    for wrong in (b"", b"[]", b'{"a": []}', b'{"a": {"b": "c"}}', b'{"a"', b'{"a": "b"} x'):
        with pytest.raises(BadMessage):
            read_sent(wrong)
    with pytest.raises(BadMessage):
        read_sent(json.dumps({str(number): "" for number in range(99)}).encode())


# -- the places that a server names ------------------------------------------------------------


@asynccontextmanager
async def editor(server: HostileServer, root: Path) -> AsyncIterator[Editor]:
    with local_server(root.parent, elsewhere=EngineUrl(server.url)) as lsp:
        async with connected(lsp.port) as one:
            await one.hello(root, settings={"debounceMs": 0})
            yield one


@pytest.mark.asyncio
async def test_only_own_files_are_sources(draftline: HostileServer, tmp_path: Path) -> None:
    """Other files are neither opened, which a pipe would tell, nor shown."""
    root = tmp_path / "root"
    root.mkdir()
    text = f"# here is {QUOTE} and more\n"
    for file in (root / "own.py", root / ".env", tmp_path / "outside.py"):
        file.write_text(text)
    (root / "ask.py").write_text("x = 1\n")
    (root / "link.py").symlink_to(tmp_path / "outside.py")
    os.mkfifo(root / "pipe.py")
    os.mkfifo(tmp_path / "pipe.py")
    answered = json.dumps({"revision": "1", "missing": []}).encode()
    paths = {
        "own": str(root / "own.py"),
        "not indexed": str(root / ".env"),
        "link": str(root / "link.py"),
        "pipe": str(root / "pipe.py"),
        "outside": str(tmp_path / "outside.py"),
        "outside, from the root": str(root / ".." / "outside.py"),
        "pipe outside": str(tmp_path / "pipe.py"),
        "device": "/dev/zero",
        "relative": "own.py",
        "NUL": f"{root}/own.py\0",
        "address": (root / "own.py").as_uri(),
        "none": "",
        "long": "/a" * 99999,
    }

    def answer(path: str, start: int) -> Chunks:
        span = {"path": path, "start": start, "stop": start + 5}
        step = {"event": {"pieces": [[QUOTE, "workspace", span]]}}
        done = {"done": {"reason": "stop", "text": QUOTE}}
        return iter([json.dumps(one).encode() + b"\n" for one in (step, done)])

    async with editor(draftline, root) as one:
        uri = one.open((root / "ask.py").as_uri(), "x = 1\n")
        draftline.answers = AnyWorkspace(draftline.answers, answered)
        await one.ready()
        for name, path in paths.items():
            for start in (0, 2**52):
                draftline.answer("/v1/draftline/submit", lambda p=path, s=start: answer(p, s))  # type: ignore[misc]
                asked = {"textDocument": one.doc(uri), "question": f"What is {name}?"}
                sources = (await one.ask("draftline/ask", asked))["sources"]
                own = [(root / "own.py").as_uri()] if name == "own" else []
                assert [source["uri"] for source in sources] == own, name


class AnyWorkspace(dict[str, Callable[[], Chunks]]):
    """Answers that take any workspace as well."""

    def __init__(self, answers: dict[str, Callable[[], Chunks]], workspace: bytes) -> None:
        super().__init__(answers)
        self._workspace = workspace

    def __contains__(self, path: object) -> bool:
        return super().__contains__(path) or "/workspaces/" in str(path)

    def __missing__(self, path: str) -> Callable[[], Chunks]:
        if "/workspaces/" not in path:
            raise KeyError(path)
        return lambda: iter([self._workspace])
