"""LSP for one client: what is answered to every message, and in which state.

Built on pygls, whose registry of features, capabilities and requests to the client stay; what it
does with documents, errors, logs and cancelling is done here instead. Bytes come from `transport`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from typing import Any, Literal, NoReturn

from lsprotocol import types
from pygls import exceptions as failures
from pygls.constants import ATTR_EXECUTE_IN_THREAD
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol

from engine.worker import one_line
from lsp_server.protocol.converter import ANYTHING, converter, parsed, plain, shape
from lsp_server.protocol.lifecycle import BUILTINS, UNWANTED, Steps, wanted
from lsp_server.protocol.text_sync import Documents

log = logging.getLogger(__name__)
logging.getLogger("pygls").setLevel(logging.WARNING)  # below that it logs the user's text

Handler = Callable[..., Any]
Stage = Literal["new", "initializing", "running", "shutdown"]


class Protocol(LanguageServerProtocol):
    """The state of one client. Every request gets exactly one answer."""

    _server: Server

    def __init__(self, server: Server, made: Any) -> None:
        self.documents = Documents()
        self.stage: Stage = "new"
        self.exit_code: int | None = None  # once the client said `exit`
        self._send: Callable[[bytes], None] | None = None
        self._running: dict[int | str, asyncio.Future[Any]] = {}  # requests without an answer
        self._tasks: set[asyncio.Future[Any]] = set()  # those, cancelled ones and notifications
        self._closed = False
        super().__init__(server, made)
        for name in UNWANTED:
            self.fm.builtin_features.pop(name, None)
        for name, handler in BUILTINS.items():
            self.fm.add_builtin_feature(name, partial(handler, self))

    # -- the transport's side ------------------------------------------------------------------

    def connect(self, send: Callable[[bytes], None]) -> None:
        """From here on bodies go to `send`, which may be called from any thread."""
        self._send = send

    def code(self) -> int:
        """The exit code that the client's end deserves now."""
        return 0 if self.stage == "shutdown" else 1

    def close(self) -> set[asyncio.Future[Any]]:
        """The client is gone: cancel what runs for it and what it was asked. What still runs."""
        if not self._closed:
            self._closed = True
            self._running.clear()
            for task in [*self._tasks]:
                task.cancel()
            for asked in [*self._request_futures.values()]:
                asked.cancel()
            for leave in self._server.closing:
                leave()
        return {task for task in self._tasks if not task.done()}

    def receive(self, body: bytes) -> None:
        """Take the body of one message."""
        try:
            message = parsed(body)
        except failures.JsonRpcParseError as error:
            self._fail(None, "a message", error)
        else:
            self._take(message)

    def refuse(self, reason: str) -> None:
        """Answer what could not be read at all."""
        self._fail(None, "a message", failures.JsonRpcParseError(reason))

    # -- messages ------------------------------------------------------------------------------

    def _take(self, message: Any) -> None:
        if not isinstance(message, dict):
            return self._invalid(None, "a message is one JSON object: batches are not in LSP")
        given, method = message.get("id"), message.get("method")
        known = given if isinstance(given, str) or type(given) is int else None
        if message.get("jsonrpc") != "2.0":
            return self._invalid(known, 'jsonrpc: not "2.0"')
        if "id" in message and known is None:
            if "method" not in message and "error" in message:
                return None  # about something we sent that the client could not read
            return self._invalid(None, "id: not a whole number or a text")
        if isinstance(method, str):
            if known is None:
                return self._take_notification(method, message.get("params"))
            return self._take_request(known, method, message.get("params"))
        if known is not None and "method" not in message and message.keys() & {"result", "error"}:
            return self._take_response(known, message)
        return self._invalid(known, "method: missing or not a text")

    def _invalid(self, identity: int | str | None, reason: str) -> None:
        self._fail(identity, "a message", failures.JsonRpcInvalidRequest(reason))

    def _take_request(self, identity: int | str, method: str, params: Any) -> None:
        try:
            if identity in self._running:
                raise failures.JsonRpcInvalidRequest("id: that of a request still running")
            handler = self._admitted(method)
            self._ctx_msg_id.set(identity)
            result = self.call(handler, self._shaped(method, handler, params))
        except Exception as error:
            self._fail(identity, method, error)
            return
        if inspect.isawaitable(result):
            self._running[identity] = self._start(result, partial(self._finish, identity, method))
        else:
            self._answer(identity, method, result)

    def _admitted(self, method: str) -> Handler:
        """The handler of a request that may come now. Raises the right error."""
        name = _shown(method)
        if self.stage == "shutdown":
            self._refused(f"{name}: the server is shut down: only exit may follow")
        if method == types.INITIALIZE and self.stage != "new":
            self._refused("initialize: was sent before: start another server for another client")
        if method != types.INITIALIZE and self.stage != "running":
            raise failures.JsonRpcServerNotInitialized(f"{name}: initialize must come first")
        if _has_answer(method) is False:
            self._refused(f"{name}: is a notification: send it without an id")
        handler: Handler | None = self._handler(method)
        if handler is None:
            raise failures.JsonRpcMethodNotFound(f"{name}: no such method")
        return handler

    def _refused(self, reason: str) -> NoReturn:
        raise failures.JsonRpcInvalidRequest(reason)

    def _take_notification(self, method: str, params: Any) -> None:
        handler = self._handler(method)
        if self.stage != "running" and method != types.EXIT:
            log.warning("%s ignored: not between initialize and shutdown", _shown(method))
        elif method == types.CANCEL_REQUEST:
            self._cancel(params)
        elif _has_answer(method):
            log.warning("%s ignored: is a request: it needs an id", _shown(method))
        elif handler is not None:
            try:
                result = self.call(handler, self._shaped(method, handler, params))
            except Exception as error:
                self.complain(method, error)
            else:
                if inspect.isawaitable(result):
                    self._start(result, partial(self._finish_notification, method))
        elif not method.startswith("$/") and method not in types.METHOD_TO_TYPES:
            log.warning("%s ignored: no such method", _shown(method))

    def _take_response(self, identity: int | str, message: dict[str, Any]) -> None:
        future = self._request_futures.pop(identity, None)
        kind = self._result_types.pop(identity, None)
        if future is None or not future.set_running_or_notify_cancel():
            return
        try:
            if "error" in message:
                error = shape(message["error"], types.ResponseError, "error")
                raise failures.JsonRpcException.from_error(error)
            result = shape(message, kind, "answer").result if kind else message["result"]
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    def _cancel(self, params: Any) -> None:
        """Answer a running request at once, and have its handler stop."""
        identity = params.get("id") if isinstance(params, dict) else None
        if not isinstance(identity, int | str):
            log.warning("$/cancelRequest ignored: params.id: not a whole number or a text")
        elif (task := self._running.pop(identity, None)) is not None:
            task.cancel()
            self._fail(identity, "request", failures.JsonRpcRequestCancelled("cancelled"))

    def cancel_others(self) -> None:
        """Answer every running request but the one that is being handled."""
        for identity in [each for each in self._running if each != self.msg_id]:
            self._cancel({"id": identity})

    # -- handlers ------------------------------------------------------------------------------

    def _handler(self, method: str) -> Handler | None:
        handler: Handler | None = self.fm.builtin_features.get(method)
        return handler or self.fm.features.get(method)

    def _shaped(self, method: str, handler: Handler, params: Any) -> Any:
        """The params as lsprotocol's type; of our own methods as the handler's annotation has it,
        or plain values where it has none or Any."""
        if method in types.METHOD_TO_TYPES:
            kind = types.METHOD_TO_TYPES[method][2]
        else:
            kinds = wanted(handler)
            kind = kinds[-1] if kinds else None
            if kind in ANYTHING:
                return params
        if kind is not None and not isinstance(params, dict | None):
            raise failures.JsonRpcInvalidParams("params: not an object")
        return shape(params or {}, kind, "params") if kind else None

    def call(self, handler: Handler, *args: Any, **kwargs: Any) -> Any:
        """What a handler gives, or what must be awaited for it."""
        if inspect.isgeneratorfunction(handler):
            return self._drive(handler(*args, **kwargs))
        if getattr(handler, ATTR_EXECUTE_IN_THREAD, False):
            future = self._server.thread_pool.submit(handler, *args, **kwargs)
            return asyncio.wrap_future(future)
        return handler(*args, **kwargs)

    def _drive(self, steps: Steps, value: Any = None) -> Any:
        """Run one of pygls's own handlers: at once as far as it goes without waiting."""
        try:
            while True:
                handler, args, kwargs = steps.send(value)
                value = self.call(handler, *args, **(kwargs or {}))
                if inspect.isawaitable(value):
                    return self._drive_later(steps, value)
        except StopIteration as end:
            return end.value

    async def _drive_later(self, steps: Steps, waiting: Awaitable[Any]) -> Any:
        value = self._drive(steps, await waiting)
        return await value if inspect.isawaitable(value) else value

    def _start(self, work: Awaitable[Any], done: Callable[..., None]) -> asyncio.Future[Any]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(done)
        return task

    def _finish(self, identity: int | str, method: str, task: asyncio.Future[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if self._running.get(identity) is not task:
            return  # answered when it was cancelled
        del self._running[identity]
        if task.cancelled():
            error = failures.JsonRpcRequestCancelled("cancelled")
        if error is not None:
            self._fail(identity, method, error)
        else:
            self._answer(identity, method, task.result())

    def _finish_notification(self, method: str, task: asyncio.Future[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.complain(method, error)

    def complain(self, method: str, error: BaseException) -> None:
        """One line in the log. Messages for a person hold no text of a document; others may."""
        ours = isinstance(error, failures.JsonRpcException)
        reason = one_line(error) if ours else type(error).__name__
        log.warning("%s failed: %s", _shown(method), reason)
        log.debug("%s failed", _shown(method), exc_info=error)

    # -- sending -------------------------------------------------------------------------------

    def _answer(self, identity: int | str, method: str, result: Any) -> None:
        try:
            self._send_data({"jsonrpc": "2.0", "id": identity, "result": result})
        except Exception as error:  # what a handler gave is no JSON
            self._fail(identity, method, error)

    def _fail(self, identity: int | str | None, method: str, error: BaseException) -> None:
        code, data = -32603, None
        if isinstance(error, failures.JsonRpcException):
            code, data = error.code, error.data
        else:
            self.complain(method, error)
        told = {"code": code, "message": one_line(error)} | ({} if data is None else {"data": data})
        self._send_data({"jsonrpc": "2.0", "id": identity, "error": told})

    def _send_data(self, data: Any) -> None:
        """Send a message. Raises where it is no JSON; a client that is gone gets nothing."""
        body = json.dumps(plain(data), allow_nan=False, separators=(",", ":")).encode()
        if self._send is not None and not self._closed:
            self._send(body)

    def send_request(self, *args: Any, **kwargs: Any) -> Any:
        """Ask the client; a client that is gone cancels it."""
        future = super().send_request(*args, **kwargs)
        if self._closed:
            future.cancel()
        return future

    def get_message_type(self, method: str) -> type[Any] | None:  # type: ignore[override]
        """lsprotocol's type of a message. (pygls's cache would keep every client for ever.)"""
        kind: type[Any] | None = types.METHOD_TO_TYPES.get(method, (None,))[0]
        return kind

    def get_result_type(self, method: str) -> type[Any] | None:  # type: ignore[override]
        """lsprotocol's type of an answer."""
        kind: type[Any] | None = types.METHOD_TO_TYPES.get(method, (None, None))[1]
        return kind


class Server(LanguageServer):
    """One client's server. Register features on it, then hand it to a transport."""

    protocol: Protocol

    def __init__(self, name: str = "draftline", version: str = "") -> None:
        self.closing: list[Callable[[], None]] = []  # called once, when the client is gone
        made = {"protocol_cls": Protocol, "converter_factory": converter}
        super().__init__(name, version or _version(), **made)  # type: ignore[arg-type]

    @property
    def documents(self) -> Documents:
        """What the client holds open."""
        return self.protocol.documents

    def report_server_error(self, error: Exception, source: Any) -> None:
        """One line in the log; pygls would show it to the user, once more than the answer does."""
        self.protocol.complain("pygls", error)


def _version() -> str:
    try:
        return installed_version("draftline")
    except PackageNotFoundError:  # run from its sources
        return "0"


def _has_answer(method: str) -> bool | None:
    """Whether LSP has an answer to it; None for methods that are not LSP's."""
    known = types.METHOD_TO_TYPES.get(method)
    return None if known is None else known[1] is not None


def _shown(method: str) -> str:
    """A method's name as a log and an error may show it, whatever was sent."""
    return ascii(method[:80])[1:-1]
