"""Attacks of one client of a shared language server on the others: leaving, floods, half-sent and
huge messages, never reading. The others are served meanwhile, and nothing is left afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.editing import brackets
from engine.remote.framing import MAX_BODY_BYTES, framed
from index.workspace.segment_set import SegmentSet
from index.workspace.segment_store import SegmentStore
from index.workspace.workspace import Workspace
from lsp_server.completion.inline import CONTEXT_CHARS
from lsp_server.next_edit.edit_history import EditHistory
from lsp_server.next_edit.rules import MAX_DOCUMENT_CHARS, find_candidates
from lsp_server.protocol.protocol import CHANGE_BATCH_CHARS, MAX_RUNNING_REQUESTS, read_message
from lsp_server.protocol.text_sync import MAX_OPEN_CHARS
from tests.support.command import FENCE, chain_model, environment
from tests.support.lsp import (
    HELLO,
    ROOT,
    STATES,
    TIMEOUT_S,
    Client,
    Direct,
    exit_code,
    listening,
    place,
)
from tests.support.lsp_editor import Editor, LocalServer, connected, local_server, parts
from tests.support.server import wait_until

MAX_GROWTH_BYTES = 100 << 20
CLIENTS = [10, pytest.param(50, marks=pytest.mark.full)]
URI = "file:///project/app.py"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(chain_model(tmp_path_factory.mktemp("chain") / "model", "x=9", FENCE))


@contextlib.contextmanager
def shared() -> Iterator[tuple[subprocess.Popen[bytes], Client, int, list[bytes]]]:
    """A server process over TCP, a well-behaved client of it, its port and the lines of its log. At
    the end the client is still served, and the log has no traceback."""
    process, port = listening()
    with process:
        log: list[bytes] = []
        assert process.stderr
        reading = threading.Thread(target=log.extend, args=(process.stderr,))
        reading.start()
        try:
            client = Client.on(port)
            client.hello()
            client.open(URI, "mine\n")
            yield process, client, port, log
            assert client.ask(STATES, {"uri": URI})["text"] == "mine\n"
        finally:
            process.kill()
            reading.join(TIMEOUT_S)
    assert b"Traceback" not in b"".join(log)


def memory(process: subprocess.Popen[bytes]) -> int:
    """Resident bytes."""
    return int(psutil.Process(process.pid).memory_info().rss)


def request(identity: int, method: str, params: Any = None) -> bytes:
    message = {"jsonrpc": "2.0", "id": identity, "method": method, "params": params}
    return framed(json.dumps(message).encode())


# -- leaving -----------------------------------------------------------------------------------


class Gate:
    """Holds up calls of a method until `opened` is set; the method itself is called afterwards."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        self.opened, self.held = threading.Event(), 0
        method, lock = getattr(owner, name), threading.Lock()

        def wait(*arguments: Any) -> Any:
            with lock:
                self.held += 1
            assert self.opened.wait(TIMEOUT_S)
            return method(*arguments)

        patch.setattr(owner, name, wait)


async def asked_to_edit(editor: Editor) -> None:
    """Ask for an edit, and check the answer."""
    uri = editor.open(URI, "x=1\n")
    params = {"textDocument": editor.doc(uri), "range": editor.span(uri, "x=1\n")}
    found = parts((await editor.ask("draftline/edit", params | {"instruction": "do"}))["edit"])
    assert [edit["newText"] for edit in found[uri]] == ["9"]
    editor.close(uri)


def folder_of_files(folder: Path, count: int = 3, lines: int = 20) -> Path:
    folder.mkdir()
    for number in range(count):
        (folder / f"f{number}.py").write_text(f"number = {number}\n" * lines, "utf-8")
    return folder


def late_client(port: int, root: Path) -> Client:
    """A client whose index changed after it was saved, and so is merged and saved at the end."""
    client = Client.on(port)
    client.hello(rootUri=folder_of_files(root).as_uri())
    for text in ("early = 1\n", "late = 1\n"):
        (root / "late.py").write_text(text, "utf-8")
        found = client.ask("workspace/executeCommand", {"command": "draftline.reindex"})
        assert found["files"] == 4
    return client


@pytest.mark.parametrize(
    ("owner", "method"), [(SegmentSet, "close"), (SegmentStore, "save")], ids=["merge", "save"]
)
def test_clients_that_leave_hold_up_nobody(
    tmp_path: Path, model: str, owner: type, method: str
) -> None:
    """While the indexes of clients that have left are merged or saved, another client is served,
    although its requests need threads, too: the server has one for all that is not indexing."""

    async def attack(server: LocalServer, patch: pytest.MonkeyPatch) -> None:
        async with connected(server.port) as other:
            await other.hello(folder_of_files(tmp_path / "own"), settings={"model": model})
            await other.ready()
            leaving = [
                await asyncio.to_thread(late_client, server.port, tmp_path / f"root{number}")
                for number in range(3)
            ]
            gate = Gate(patch, owner, method)
            for one in leaving:
                await asyncio.to_thread(one.leave)
            try:
                await other.until(lambda: gate.held >= 3)
                await asked_to_edit(other)
                assert (await other.command("reindex"))["files"] == 3
                assert not gate.opened.is_set()
            finally:
                gate.opened.set()

    with pytest.MonkeyPatch.context() as patch, local_server(tmp_path, model) as server:
        executor = ThreadPoolExecutor(1)
        server._loop.call_soon_threadsafe(server._loop.set_default_executor, executor)
        asyncio.run(attack(server, patch))
        wait_until(lambda: not index_threads())


def index_threads() -> list[str]:
    """The threads of indexes."""
    names = ("index", "compactor", "debouncer")
    return [one.name for one in threading.enumerate() if one.name.startswith(names)]


@pytest.mark.parametrize("count", CLIENTS)
def test_many_clients_connect_and_leave_at_once(tmp_path: Path, model: str, count: int) -> None:
    """At whatever stage of building their indexes: nothing of them is left."""
    root = folder_of_files(tmp_path / "root", 50)

    async def visit(server: LocalServer, number: int) -> None:
        async with connected(server.port) as one:
            await one.hello(root, settings={"model": model})
            if number % 3 == 1:
                await one.command("status")
            elif number % 3 == 2:
                uri = one.open(f"file:///{number}.py", "x=1\n")
                one.tell("workspace/didChangeWorkspaceFolders", moved(root, tmp_path))
                one.begin("draftline/edit", {"textDocument": one.doc(uri), "instruction": "do"})
                await one.command("status")

    def moved(old: Path, new: Path) -> dict[str, Any]:
        added, removed = ([{"uri": one.as_uri(), "name": one.name}] for one in (new, old))
        return {"event": {"added": added, "removed": removed}}

    async def attack(server: LocalServer) -> None:
        await asyncio.gather(*(visit(server, number) for number in range(count)))
        shared = server.shared_engine
        wait_until(lambda: not (shared.clients or shared.listeners or shared.progress))
        wait_until(lambda: not index_threads())
        async with connected(server.port) as one:
            await one.hello(root, settings={"model": model})
            await one.ready()
            assert (await one.command("reindex"))["files"] == 50
            await asked_to_edit(one)

    with local_server(tmp_path, model) as server:
        asyncio.run(attack(server))


# -- an end during a save ----------------------------------------------------------------------

HANG = """if True:
    import sys, threading
    count = 0
    def hang(event, arguments):
        global count
        if event == "os.rename" and "/index/" in str(arguments[1]):
            count += 1
            if count == {at}:
                print("held", file=sys.stderr, flush=True)
                threading.Event().wait()
    sys.addaudithook(hang)
    from tests.support.lsp import serve
    serve()
"""


@pytest.mark.parametrize(
    "at",
    [pytest.param(1, id="the first part", marks=pytest.mark.full), pytest.param(2, id="the table")],
)
def test_a_save_that_is_cut_short_by_a_signal_costs_nothing_but_time(
    tmp_path: Path, model: str, at: int
) -> None:
    """The process ends although its disk hangs, and the next one answers as if nothing was."""
    root = folder_of_files(tmp_path / "root", lines=1000)  # enough for a frozen segment
    command = [sys.executable, "-c", HANG.format(at=at), "tcp", model]
    options: dict[str, Any] = {"cwd": ROOT, "env": environment(tmp_path)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, **options) as process:
        assert process.stderr
        port = int(process.stderr.readline().rsplit(b":", 1)[1])
        client = Client.on(port)
        client.hello(rootUri=root.as_uri(), initializationOptions={})
        while process.stderr.readline() != b"held\n":
            assert process.poll() is None
        client.leave()
        process.send_signal(signal.SIGTERM)
        assert exit_code(process) == 143
    from engine.prompts.tokenizer import Tokenizer

    with Workspace([root], Tokenizer(Path(model)), tmp_path / "home") as workspace:
        workspace.build()
        assert workspace.paths == sorted(str(path) for path in root.iterdir())
        workspace.compact()
    # In the index alone: the signal may cut short another file of the cache, too, whose next
    # writer deletes what was left.
    assert not [*(tmp_path / "home/index").rglob(".draftline-*")]
    with Workspace([root], Tokenizer(Path(model)), tmp_path / "home") as workspace:
        workspace.build()
        assert len(workspace.find("number = 1\n", 2000)) == 1000


# -- half-sent messages and clients that never read -------------------------------------------


@pytest.mark.parametrize("count", CLIENTS)
def test_half_sent_messages_wait_alone(count: int) -> None:
    with shared() as (process, client, port, _):
        halves = [
            b"", b"Content-Len", b"Content-Length: 50\r\n", b"Content-Length: 50\r\n\r\n{",
            b"Content-Length: %d\r\n\r\n" % MAX_BODY_BYTES + b" " * (1 << 20), b"\xff" * 3000,
        ]  # fmt: skip
        before = memory(process)
        connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
        for number, connection in enumerate(connections):
            connection.sendall(halves[number % len(halves)])
            assert client.ask(STATES, {"uri": URI})["text"] == "mine\n"
        for connection in connections:
            connection.close()
        wait_until(lambda: memory(process) - before < MAX_GROWTH_BYTES)


@pytest.mark.parametrize("count", [1, pytest.param(8, marks=pytest.mark.full)])
def test_clients_that_never_read_are_disconnected(count: int) -> None:
    size = 4 << 20
    with shared() as (process, client, port, log):
        before = memory(process)
        connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
        for connection in connections:
            connection.sendall(request(0, "initialize", HELLO))
            with contextlib.suppress(OSError):  # it may be disconnected while it sends
                for number in range(1, 40):
                    connection.sendall(request(number, "test/large", {"size": size}))
            assert client.ask(STATES, {"uri": URI})["text"] == "mine\n"
        end = b"a client does not read its messages: disconnecting\n"
        wait_until(lambda: log.count(end) == count)
        for connection in connections:
            connection.close()
        wait_until(lambda: memory(process) - before < MAX_GROWTH_BYTES)


# -- huge and deep messages --------------------------------------------------------------------


def test_a_document_that_is_too_large_to_send_is_named_with_the_remedy() -> None:
    """A file of 20 MB: nothing is answered for it, and everything else is."""
    with shared() as (_, client, _, _):
        large = "file:///project/large.py"
        client.open(large, "x = 1\n" * (20_000_000 // 6))
        error = client.error(STATES, {"uri": large})
        assert error["message"] == (
            f"{large}: not an open document: open it again, or split it if it has more than 16 MB"
        )


@pytest.mark.full
def test_huge_bodies_are_bounded_and_leave_nothing() -> None:
    def open_body(size: int) -> bytes:
        head = b'{"jsonrpc":"2.0","method":"textDocument/didOpen","params":{"textDocument":{"uri":'
        head += b'"file:///big.py","languageId":"x","version":1,"text":"'
        return head + b"x" * (size - len(head) - 4) + b'"}}}'

    with shared() as (process, client, port, _):
        attacker = Client.on(port)
        attacker.hello()
        attacker.body(open_body(MAX_BODY_BYTES))
        assert len(attacker.ask(STATES, {"uri": "file:///big.py"})["text"]) > MAX_BODY_BYTES - 200
        attacker.notify("textDocument/didClose", {"textDocument": {"uri": "file:///big.py"}})
        before = memory(process)
        for body in (
            open_body(MAX_BODY_BYTES + 1),
            open_body(64 << 20),
            b"[" + b"[]," * (MAX_BODY_BYTES // 3 - 1) + b"1]",
            b'{"a":["\\ud800"' + b",{}" * (MAX_BODY_BYTES // 3 - 10) + b"]}",
            b'"' + b"\\u00e9" * (MAX_BODY_BYTES // 6 - 1) + b'"',
        ):
            attacker.body(body)
            assert client.ask(STATES, {"uri": URI})["text"] == "mine\n"
        assert attacker.error(STATES, {"uri": "file:///big.py"})["code"] == -32602
        codes = [each["error"]["code"] for each in attacker.unnamed]
        assert codes == [-32700, -32600, -32600, -32600]  # one for both that are too large
        wait_until(lambda: memory(process) - before < MAX_GROWTH_BYTES)


def test_open_documents_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lsp_server.protocol.text_sync.MAX_OPEN_CHARS", 1000)
    assert MAX_OPEN_CHARS >= 8 * MAX_BODY_BYTES, "several of the largest documents"
    direct = Direct("utf-16")
    direct.open("file:///a.py", "a" * 600)
    direct.open("file:///b.py", "b" * 600)  # refused
    assert "error" in direct.ask(STATES, {"uri": "file:///b.py"})
    whole = {"contentChanges": [{"text": "a" * 1001}]}
    direct.notify(
        "textDocument/didChange", {"textDocument": {"uri": "file:///a.py", "version": 2}} | whole
    )
    assert "error" in direct.ask(STATES, {"uri": "file:///a.py"})  # closed rather than outdated
    for _ in range(3):
        direct.open("file:///b.py", "b" * 1000)
        assert direct.ask(STATES, {"uri": "file:///b.py"})["result"]["text"] == "b" * 1000
        direct.notify("textDocument/didClose", {"textDocument": {"uri": "file:///b.py"}})


def test_many_changes_of_a_large_document_let_others_run() -> None:
    direct = Direct("utf-16")
    lines = CHANGE_BATCH_CHARS // 64
    direct.open(URI, "x=1\n" * lines)  # a sixteenth of what one turn copies
    span = {"start": place(5, 0), "end": place(5, 1)}
    changes = [{"range": span, "text": "y"}] * 1000 + [{"range": span, "text": "z"}]
    params = {"textDocument": {"uri": URI, "version": 2}, "contentChanges": changes}
    message = {"jsonrpc": "2.0", "method": "textDocument/didChange", "params": params}
    body = json.dumps(message).encode()
    assert sum(1 for _ in direct.server.protocol.handle(read_message(body))) == 1001 // 16 + 1
    state = direct.ask(STATES, {"uri": URI})["result"]
    assert state == {"text": "x=1\n" * 5 + "z=1\n" + "x=1\n" * (lines - 6), "version": 2}
    changes[-1] = {"range": span, "text": 5}  # all or nothing
    changes[0] = {"range": span, "text": "no"}
    direct.notify("textDocument/didChange", params)
    assert direct.ask(STATES, {"uri": URI})["result"] == state


def test_deep_json_gets_one_error() -> None:
    """At every depth, in every place: also where reading it works and copying it does not."""
    with shared() as (_, _, port, _):
        attacker = Client.on(port)
        attacker.hello()
        sent = 0
        for depth in [*range(100, 1200, 50), 5_000, 100_000, MAX_BODY_BYTES // 4]:
            for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
                if depth * len(opening) * 2 > MAX_BODY_BYTES:
                    continue
                deep = opening * depth + b"1" + closing * depth
                for head in (
                    b'{"jsonrpc":"2.0","id":"x","method":"no/such","params":%b}',
                    b'{"jsonrpc":"2.0","id":"x","method":"test/text","params":{"uri":%b}}',
                    b'{"jsonrpc":"2.0","id":"x","method":"textDocument/hover","params":%b}',
                    b'{"jsonrpc":"2.0","id":%b}',
                    b"%b",
                ):
                    attacker.body(head % deep)
                    sent += 1
        assert attacker.ask("test/large", {"size": 1}) == "x"
        assert len(attacker.unnamed) + 1 + attacker.doubles.count("x") == sent


SIZE = MAX_DOCUMENT_CHARS - 100
HOSTILE_DOCUMENTS = {
    "brackets": "(" * SIZE,
    "definitions in a line": "def f(" * (SIZE // 6),
    "definitions": "def f(\n" * (SIZE // 7),
    "escaped backticks": "`\\" * (SIZE // 2),
    "escaped quotes": '"\\' * (SIZE // 2),
    "quotes in a line": "x" * (SIZE // 2) + "'" * (SIZE // 2),
    "open strings": '"a\n' * (SIZE // 3),
    "triple quotes": "'''\\" * (SIZE // 4),
    "blocks": "){ " * (SIZE // 3),
    "one word": "a" * SIZE,
    "words": "export " * (SIZE // 7),
    "empty lines": "\n" * SIZE,
    "the name in a line": "oldname, " * (SIZE // 9),
    "calls": "oldname(\n" * (SIZE // 9),
}


@pytest.mark.parametrize("name", HOSTILE_DOCUMENTS)
def test_scanning_a_hostile_document_takes_linear_time(name: str) -> None:
    """Next edits and completions are computed between the messages of all clients. Quadratic
    scanners would take hours for these."""
    rest = HOSTILE_DOCUMENTS[name]
    for uri, head, new in (
        ("file:///a.js", "oldname = 1\n", "newname = 1\n"),
        ("file:///a.py", "def f(a):\n", "def f(a, b):\n"),
    ):
        edits = EditHistory()
        edits.record(uri, head + rest, 0, len(head), new, 1.0)
        find_candidates(edits.edits(), {uri: new + rest}, uri, 5)
    brackets.scan(rest[: 2 * CONTEXT_CHARS])


# -- floods ------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2_000, pytest.param(20_000, marks=pytest.mark.full)])
def test_a_flood_of_requests_is_bounded(count: int) -> None:
    """One client's running requests are bounded, and the others are served."""
    with shared() as (process, client, port, _):
        before = memory(process)
        attacker = Client.on(port)
        attacker.hello()
        first = attacker.begin("test/wait")
        for _ in range(count - 1):
            last = attacker.begin("test/wait")
        assert client.ask(STATES, {"uri": URI})["text"] == "mine\n"
        assert attacker.answer(last)["error"]["code"] == -32803
        with attacker.arrived:
            assert len(attacker.answers) == 1 + count - MAX_RUNNING_REQUESTS  # initialize's, too
        attacker.notify("$/cancelRequest", {"id": first})
        assert attacker.answer(first)["error"]["code"] == -32800
        assert attacker.error(STATES, {"uri": URI})["code"] == -32602  # there is room again
        attacker.leave()
        wait_until(lambda: memory(process) - before < MAX_GROWTH_BYTES)
