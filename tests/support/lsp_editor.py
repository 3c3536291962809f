"""A headless editor: pytest-lsp's client with its own documents, and servers for it.

Positions are converted and edits applied independently of the server's code. Responses are plain
JSON. Nothing here asserts what the server offers.
"""

from __future__ import annotations

import asyncio
import math
import re
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcMethodNotFound
from pygls.protocol import JsonRPCRequestMessage, JsonRPCResponseMessage, default_converter
from pygls.protocol.json_rpc import JsonRPCNotification
from pytest_lsp import LanguageClient
from pytest_lsp.client import DEFAULT_CLIENT_FEATURES, register_lsp_features

from engine.remote.engine_url import EngineUrl
from lsp_server.protocol.transport import listen_tcp
from lsp_server.server import create
from lsp_server.shared_engine import SharedEngine
from tests.support.command import environment

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 180  # a backstop for a busy machine
LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
UNIT = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}
CAPABILITIES: dict[str, Any] = {
    "workspace": {
        "applyEdit": True,
        "configuration": True,
        "workspaceFolders": True,
        "workspaceEdit": {
            "documentChanges": True,
            "changeAnnotationSupport": {"groupsOnLabel": False},
        },
        "didChangeConfiguration": {"dynamicRegistration": True},
        "didChangeWatchedFiles": {"dynamicRegistration": True},
    },
    "window": {"workDoneProgress": True, "showMessage": {}},
    "textDocument": {
        "synchronization": {},
        "completion": {},
        "inlineCompletion": {},
        "codeAction": {
            "codeActionLiteralSupport": {"codeActionKind": {"valueSet": ["refactor.rewrite"]}},
            "dataSupport": True,
            "resolveSupport": {"properties": ["edit"]},
        },
    },
    "experimental": {"draftline": {"status": True, "instructionBox": True, "nextEdit": True}},
}


@cache
def _converter() -> Any:
    """pygls's converter, but messages of our own stay plain JSON."""
    made: Any = default_converter()
    for kind in (JsonRPCRequestMessage, JsonRPCResponseMessage, JsonRPCNotification):
        made.register_structure_hook(kind, lambda given, kind: kind(**given))
    made.register_structure_hook(  # lsprotocol reads an action with a command as a Command
        types.CodeActionResponse, lambda given, _: JsonRPCResponseMessage(**given)
    )
    return made


# -- documents ---------------------------------------------------------------------------------


def offset(text: str, position: dict[str, int], encoding: str) -> int:
    """The offset of a position, which must exist."""
    lines = LINE.findall(text)
    lines += [""] if not lines or lines[-1][-1] in "\r\n" else []
    line = lines[position["line"]]
    codec, unit = UNIT[encoding]
    inside = line.rstrip("\r\n").encode(codec)
    cut = position["character"] * unit
    assert cut <= len(inside), (position, line)
    return sum(map(len, lines[: position["line"]])) + len(inside[:cut].decode(codec))


def position(text: str, offset: int, encoding: str) -> dict[str, int]:
    """The position of an offset that is not inside a line end."""
    codec, unit = UNIT[encoding]
    ends = [end.end() for end in re.finditer(r"\r\n|\r|\n", text) if end.end() <= offset]
    inside = text[(ends or [0])[-1] : offset]
    return {"line": len(ends), "character": len(inside.encode(codec)) // unit}


def edited(text: str, edits: list[dict[str, Any]], encoding: str) -> str:
    """A text after text edits, which must be in order and not overlap."""
    last = 0
    parts = []
    for one in edits:
        start, stop = (offset(text, one["range"][end], encoding) for end in ("start", "end"))
        assert last <= start <= stop, edits
        parts += [text[last:start], one["newText"]]
        last = stop
    return "".join([*parts, text[last:]])


# -- the editor --------------------------------------------------------------------------------


class Editor(LanguageClient):  # type: ignore[misc]
    """Its documents, what the server has sent, and shortcuts for requests."""

    def __init__(self) -> None:
        super().__init__(converter_factory=_converter)
        self.texts: dict[str, str] = {}
        self.versions: dict[str, int] = {}
        self.encoding = "utf-16"
        self.states: list[dict[str, Any]] = []  # of draftline/status
        self.partial: dict[Any, str] = {}
        self.progress: dict[Any, list[dict[str, Any]]] = {}
        self.registered: list[str] = []  # methods
        self.applied: list[dict[str, Any]] = []  # on the server's request
        self.takes_edits: bool | None = True  # None: unsupported
        register_lsp_features(self, DEFAULT_CLIENT_FEATURES | self._features())

    def _features(self) -> dict[str, Callable[[Any], Any]]:
        def status(message: Any) -> None:
            self.states.append(message)

        def progress(message: types.ProgressParams) -> None:
            value = self.json(message.value)
            if "text" in value:
                written = "" if value.get("restart") else self.partial.get(message.token, "")
                self.partial[message.token] = written + value["text"]
            else:
                self.progress.setdefault(message.token, []).append(value)

        def register(message: types.RegistrationParams) -> None:
            self.registered += [one.method for one in message.registrations]

        def apply(message: types.ApplyWorkspaceEditParams) -> types.ApplyWorkspaceEditResult:
            edit = self.json(message.edit)
            if self.takes_edits is None:
                raise JsonRpcMethodNotFound
            if self.takes_edits:
                self.apply(edit)
                self.applied.append(edit)
            return types.ApplyWorkspaceEditResult(applied=self.takes_edits)

        return {
            "draftline/status": status,
            types.PROGRESS: progress,
            types.CLIENT_REGISTER_CAPABILITY: register,
            types.WORKSPACE_APPLY_EDIT: apply,
        }

    def json(self, value: Any) -> Any:
        """A value as JSON."""
        return self.protocol._converter.unstructure(value)

    def _typed(self, method: str, params: Any) -> Any:
        known = types.METHOD_TO_TYPES.get(method)
        kind = known[2] if known else None
        return self.protocol._converter.structure(params, kind) if kind else params

    def begin(self, method: str, params: Any, id: int | None = None) -> asyncio.Future[Any]:
        """Send a request; returns a future of its response."""
        asked = self.protocol.send_request_async(method, self._typed(method, params), msg_id=id)
        return asyncio.ensure_future(asked)

    async def ask(self, method: str, params: Any) -> Any:
        """The result of a request, as JSON."""
        return self.json(await asyncio.wait_for(self.begin(method, params), TIMEOUT_S))

    async def fails(self, method: str, params: Any) -> tuple[int, str]:
        """The code and message of a request's error."""
        return await refused(self.begin(method, params))

    async def command(self, name: str, *arguments: Any) -> Any:
        named = {"command": f"draftline.{name}", "arguments": list(arguments)}
        return await self.ask(types.WORKSPACE_EXECUTE_COMMAND, named)

    def tell(self, method: str, params: Any) -> None:
        """Send a notification."""
        self.protocol.notify(method, self._typed(method, params))

    async def hello(
        self,
        *roots: Path,
        encoding: str = "utf-16",
        settings: Any = None,
        own: Any = None,
        name: str = "editor",
        root_path: str | None = None,
        before_initialized: Callable[[], None] = lambda: None,
        **capabilities: Any,
    ) -> Any:
        """Send `initialize` and `initialized`. `settings` are the initializationOptions, `own` the
        response to workspace/configuration."""
        self.encoding = encoding
        self.set_configuration({"draftline": own} if own is not None else {})
        params = {
            "processId": None,
            "rootUri": None,
            "rootPath": root_path,
            "clientInfo": {"name": name},
            "capabilities": CAPABILITIES
            | {"general": {"positionEncodings": [encoding]}}
            | capabilities,
            "initializationOptions": settings,
            "workspaceFolders": [{"uri": root.as_uri(), "name": root.name} for root in roots],
        }
        initialize = self._typed(types.INITIALIZE, params)
        self.capabilities = initialize.capabilities  # which pytest-lsp checks the server against
        result = self.json(await self.initialize_async(initialize))
        before_initialized()
        self.initialized(types.InitializedParams())
        assert result["capabilities"]["positionEncoding"] == encoding
        return result

    async def until(self, found: Callable[[], Any]) -> Any:
        """Wait until a condition holds."""
        deadline = time.monotonic() + TIMEOUT_S
        while not (value := found()):
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.02)
        return value

    async def ready(self) -> dict[str, Any]:
        """Wait for the model and the index."""
        deadline = time.monotonic() + TIMEOUT_S
        while (status := await self.command("status"))["state"] != "ready":
            assert status["state"] != "error" and time.monotonic() < deadline, status
            await asyncio.sleep(0.05)
        await self.command("reindex")
        return await self.command("status")  # type: ignore[no-any-return]

    async def idle(self) -> None:
        """Wait until the server asks nothing of the model."""
        deadline = time.monotonic() + TIMEOUT_S
        while (await self.command("stats"))["running"]:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)

    def configure(self, **settings: Any) -> None:
        given = {"settings": {"draftline": settings}}
        self.tell(types.WORKSPACE_DID_CHANGE_CONFIGURATION, given)

    # -- documents --

    def open(self, uri: str, text: str, language: str = "python") -> str:
        self.texts[uri], self.versions[uri] = text, 1
        item = {"uri": uri, "languageId": language, "version": 1, "text": text}
        self.tell(types.TEXT_DOCUMENT_DID_OPEN, {"textDocument": item})
        return uri

    def close(self, uri: str) -> None:
        del self.texts[uri], self.versions[uri]
        self.tell(types.TEXT_DOCUMENT_DID_CLOSE, {"textDocument": {"uri": uri}})

    def at(self, uri: str, place: int | str) -> dict[str, int]:
        """The position of an offset, or of the end of a text's first occurrence."""
        text = self.texts[uri]
        found = place if isinstance(place, int) else text.index(place) + len(place)
        return position(text, found, self.encoding)

    def span(self, uri: str, part: str) -> dict[str, Any]:
        """The range of the first occurrence of a text."""
        start = self.texts[uri].index(part)
        return {"start": self.at(uri, start), "end": self.at(uri, start + len(part))}

    def type(self, uri: str, place: int | str, new: str, old: str = "") -> None:
        """Insert `new` at a place, replacing the `old` that follows it."""
        text = self.texts[uri]
        start = place if isinstance(place, int) else text.index(place) + len(place)
        stop = start + len(old)
        assert text[start:stop] == old
        where = {"start": self.at(uri, start), "end": self.at(uri, stop)}
        self._changed(uri, text[:start] + new + text[stop:], [{"range": where, "text": new}])

    def replace(self, uri: str, text: str) -> None:
        """Send the whole new text."""
        self._changed(uri, text, [{"text": text}])

    def _changed(self, uri: str, text: str, changes: list[dict[str, Any]]) -> None:
        self.versions[uri] += 1
        self.texts[uri] = text
        named = {"textDocument": self.doc(uri), "contentChanges": changes}
        self.tell(types.TEXT_DOCUMENT_DID_CHANGE, named)

    def doc(self, uri: str) -> dict[str, Any]:
        return {"uri": uri, "version": self.versions[uri]}

    def apply(self, edit: dict[str, Any]) -> None:
        """Apply a WorkspaceEdit, which must name the current versions."""
        for one in edit.get("documentChanges", []):
            assert one["textDocument"] == self.doc(one["textDocument"]["uri"])
        for uri, edits in parts(edit).items():
            self.replace(uri, edited(self.texts[uri], edits, self.encoding))


def parts(edit: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The text edits of a WorkspaceEdit by document."""
    if "documentChanges" in edit:
        return {one["textDocument"]["uri"]: one["edits"] for one in edit["documentChanges"]}
    return dict(edit.get("changes", {}))


async def refused(asked: asyncio.Future[Any]) -> tuple[int, str]:
    """The code and message of a pending request's error."""
    try:
        answer = await asyncio.wait_for(asked, TIMEOUT_S)
    except JsonRpcException as error:
        assert "\n" not in error.message
        return error.code, error.message
    raise AssertionError(f"answered: {answer}")


# -- servers -----------------------------------------------------------------------------------


@contextmanager
def serving(folder: Path, model: str | None = None, home: Path | None = None) -> Iterator[int]:
    """The port of a `local_server`."""
    with local_server(folder, model, home) as server:
        yield server.port


@contextmanager
def local_server(
    folder: Path,
    model: str | None = None,
    home: Path | None = None,
    elsewhere: EngineUrl | None = None,
) -> Iterator[LocalServer]:
    """A server of TCP on a thread of this process, with an engine of its own. `home` holds
    models; by default there are none. `elsewhere`: of another machine's engine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRAFTLINE_HOME", str(home or folder / "home"))
        # On a busy machine completions are not cut short after their first complete lines.
        patch.setattr("lsp_server.completion.inline.EAGER_AFTER_S", math.inf)
        # Nothing is read ahead but where a test asks for it.
        patch.setattr("lsp_server.completion.read_ahead.PAUSE_S", math.inf)
        server = LocalServer(model, elsewhere)
        try:
            yield server
        finally:
            server.close()


class LocalServer:
    """`port` and `shared_engine` of a server on a thread of this process."""

    def __init__(self, model: str | None, elsewhere: EngineUrl | None = None) -> None:
        self.shared_engine = SharedEngine(model, elsewhere=elsewhere)
        self.port = 0
        self._faults: list[dict[str, Any]] = []
        self._is_listening = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._is_listening.wait(TIMEOUT_S)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(self._note)
        listener = await listen_tcp(lambda: create(self.shared_engine), "127.0.0.1", 0)
        self.port = listener.sockets[0].getsockname()[1]
        self._is_listening.set()
        await self._stop.wait()
        listener.close()
        await listener.wait_closed()

    def _note(self, _: asyncio.AbstractEventLoop, fault: dict[str, Any]) -> None:
        if not isinstance(fault.get("exception"), asyncio.CancelledError):
            self._faults.append(fault)  # Python 3.11 also reports clients that the end cuts off

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(TIMEOUT_S)
        self.shared_engine.close(TIMEOUT_S)
        assert not self._thread.is_alive() and not self._faults, self._faults


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Editor]:
    """An editor, before `initialize`, connected to a server over TCP."""
    editor = Editor()
    await editor.start_tcp("127.0.0.1", port)
    try:
        yield editor
    finally:
        editor.exit(None)
        await asyncio.wait_for(editor.stop(), TIMEOUT_S)


@asynccontextmanager
async def ready(port: int, *roots: Path, **hello: Any) -> AsyncIterator[Editor]:
    """An editor that is connected to a server with a model; `hello`: of its `initialize`."""
    async with connected(port) as editor:
        await editor.hello(*roots, **hello)
        await editor.ready()
        yield editor


def asking(editor: Editor, uri: str, part: str = "", **more: Any) -> dict[str, Any]:
    """Parameters of an edit of a document; `part`: what is selected."""
    given = {"textDocument": editor.doc(uri), "instruction": "make it nine"} | more
    return given | ({"range": editor.span(uri, part)} if part else {})


@asynccontextmanager
async def started(folder: Path, *arguments: str) -> AsyncIterator[Editor]:
    """An editor, before `initialize`, and its own server process over pipes."""
    editor = Editor()
    command = [sys.executable, "-m", "lsp_server", "--log-file", str(folder / "log")]
    command += ["--server", "own", *arguments]
    await editor.start_io(*command, cwd=ROOT, env=environment(folder))
    try:
        yield editor
        await asyncio.wait_for(editor.shutdown_session(), TIMEOUT_S)
    finally:
        if editor._server.returncode is None:
            editor._server.kill()
        await asyncio.wait_for(editor.stop(), TIMEOUT_S)


class Asked:
    """The questions that an editor's user was asked, and the answer to each."""

    def __init__(self, one: Editor, answer: str | None) -> None:
        self.questions: list[types.ShowMessageRequestParams] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

        @one.feature(types.WINDOW_SHOW_MESSAGE_REQUEST)
        async def ask(params: types.ShowMessageRequestParams) -> types.MessageActionItem | None:
            self.questions.append(params)
            await self.may_answer.wait()
            return types.MessageActionItem(answer) if answer else None

    @property
    def titles(self) -> list[str]:
        return [action.title for action in self.questions[0].actions or []]
