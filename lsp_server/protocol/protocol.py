"""The language server protocol for one client, on top of pygls.

pygls keeps the registry of handlers, runs them, negotiates capabilities and sends our own requests.
Its tests of incoming messages are replaced, because pygls 2.1 leaves requests with invalid params,
requests after `shutdown` and results that are not JSON without a response, accepts NaN, logs the
user's text, and lets a cancelled command run on. Bytes come from `transport`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal
from uuid import uuid4

from lsprotocol import types
from pygls import exceptions as errors
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol, lsp_method

from engine.remote.framing import Unreadable
from engine.remote.messages import INFO, SUBMIT
from engine.worker import one_line
from index.version import own_version
from lsp_server.protocol.converter import converter, parse, structure, unstructure
from lsp_server.protocol.text_sync import OpenDocuments

log = logging.getLogger(__name__)
logging.getLogger("pygls").setLevel(logging.ERROR)  # below that it logs the user's text

Handler = Callable[..., Any]
Steps = Generator[Any, Any, Any]  # a pygls built-in: yields (handler, args, kwargs) to run it
Stage = Literal["new", "running", "shutdown"]

MAX_RUNNING_REQUESTS = 1000  # requests of one client; more are refused until some have ended
CHANGE_BATCH_CHARS = 1 << 24  # characters that changes copy before other clients get a turn


@dataclass(frozen=True, slots=True)
class _Checked:
    """Params converted to lsprotocol's type, or the reason why they are not."""

    params: Any = None
    error: errors.JsonRpcException | None = None


class Protocol(LanguageServerProtocol):
    """The connection to one client. Every request gets exactly one response."""

    _server: Server

    def __init__(self, server: Server, converter: Any) -> None:
        self.documents = OpenDocuments()
        self.stage: Stage = "new"
        self.exit_code: int | None = None  # set by `exit`
        self._running: dict[int | str, str] = {}  # request id -> key in pygls's _request_futures
        # Requests that `$/cancelRequest` only asks to end: they still respond with a result.
        self.stoppable: dict[int | str | None, Callable[[], None]] = {}
        self._is_initialized = False  # by the notification `initialized`
        super().__init__(server, converter)

    def code(self) -> int:
        """Return the exit code if the client left now."""
        return 0 if self.stage == "shutdown" else 1

    def close(self) -> set[asyncio.Future[Any]]:
        """Cancel the requests of a client that is gone, and ours to it.

        Returns the handlers that still run.
        """
        self.writer = None
        self._running.clear()
        for future in [*self._request_futures.values()]:
            future.cancel()
        futures: list[Any] = [*self._request_futures.values()]  # also asyncio's, despite its type
        return {each for each in futures if isinstance(each, asyncio.Task) and not each.done()}

    # -- incoming messages -------------------------------------------------------------------------

    def handle(self, message: Any) -> Iterator[None]:
        """Handle what `read_message` has returned.

        A long message is handled in parts: yields after each, so that other clients get a turn.
        """
        for part in self._parts(message):
            self._dispatch(part)
            yield

    def _parts(self, message: Any) -> Iterator[Any]:
        """Split a message into several that together are the same didChange; yield others whole.

        Each change copies the text of its document.
        """
        checked = message.get("params") if isinstance(message, dict) else None
        params = checked.params if isinstance(checked, _Checked) else None
        if (
            not isinstance(params, types.DidChangeTextDocumentParams)
            or not params.content_changes
            or params.text_document.uri not in self.documents
            or "id" in message
            or message.get("jsonrpc") != "2.0"
        ):
            yield message  # as it is: there is nothing to split, or it is refused
            return
        document, changes, start = params.text_document, params.content_changes, 0
        while start < len(changes) and document.uri in self.documents:
            chars = len(self.documents.get(document.uri).text.text)
            stop = start + max(1, CHANGE_BATCH_CHARS // max(1, chars))
            part = types.DidChangeTextDocumentParams(document, changes[start:stop])
            yield message | {"params": _Checked(part)}
            start = stop

    def _dispatch(self, message: Any) -> None:
        if isinstance(message, Unreadable):
            return self._fail(None, "a message", errors.JsonRpcParseError(str(message)))
        if not isinstance(message, dict):
            return self._invalid(None, "a message is one JSON object: LSP has no batches")
        given, method = message.get("id"), message.get("method")
        identity = given if isinstance(given, str) or type(given) is int else None
        if message.get("jsonrpc") != "2.0":
            return self._invalid(identity, 'jsonrpc: not "2.0"')
        if "id" in message and identity is None:
            if "method" not in message and "error" in message:
                return None  # the client could not read one of our messages
            return self._invalid(None, "id: not an integer or a string")
        if isinstance(method, str):
            return self._call(method, message.get("params"), identity)
        if (
            identity is not None
            and "method" not in message
            and message.keys() & {"result", "error"}
        ):
            return self._take_response(identity, message)
        return self._invalid(identity, "method: missing or not a string")

    def _invalid(self, identity: int | str | None, reason: str) -> None:
        self._fail(identity, "a message", errors.JsonRpcInvalidRequest(reason))

    def _call(self, method: str, params: Any, identity: int | str | None) -> None:
        """Run the handler of a request, or of a notification, which has no id."""
        key = str(uuid4())
        try:
            if identity in self._running:
                raise errors.JsonRpcInvalidRequest("id: already used by a running request")
            self._admit(method, is_request=identity is not None)
            handler = self._get_handler(method)
            params = self._structured(handler, params)
            self._is_initialized |= method == types.INITIALIZED
            args: tuple[Any, ...] = (params,)
            if method == types.WORKSPACE_EXECUTE_COMMAND:  # run as the request itself: cancellable
                handler, args = self._command(params)
            if identity is not None:
                self._ctx_msg_id.set(identity)
                self._running[identity] = key
            done = partial(self._finish, key, method, identity)
            self._execute_handler(key, handler, done, args)
        except Exception as error:
            if identity is not None:
                if self._running.get(identity) == key:
                    del self._running[identity]
                self._fail(identity, method, error)
            elif not isinstance(error, errors.JsonRpcMethodNotFound):
                self._complain(method, error)
            elif not method.startswith("$/") and method not in types.METHOD_TO_TYPES:
                log.warning("%s ignored: no such method", _printable(method))

    def _admit(self, method: str, is_request: bool) -> None:
        """Raise unless the message is allowed at this stage of the client's life."""
        name, known = _printable(method), types.METHOD_TO_TYPES.get(method)
        if is_request:
            if self.stage == "shutdown":
                reason = f"{name}: the server is shut down: only exit may follow"
                raise errors.JsonRpcInvalidRequest(reason)
            if method == types.INITIALIZE and self.stage != "new":
                reason = "initialize: already sent: start another server for another client"
                raise errors.JsonRpcInvalidRequest(reason)
            if method not in (types.INITIALIZE, INFO, SUBMIT) and self.stage == "new":
                raise errors.JsonRpcServerNotInitialized(f"{name}: send initialize first")
            if len(self._request_futures) >= MAX_RUNNING_REQUESTS and method != types.SHUTDOWN:
                reason = f"{name}: {MAX_RUNNING_REQUESTS} requests are running: wait for some"
                raise errors.JsonRpcException(reason, types.LSPErrorCodes.RequestFailed.value)
            if known and known[1] is None:
                raise errors.JsonRpcInvalidRequest(f"{name}: a notification: send it without an id")
        elif self.stage != "running" and method not in (types.EXIT, types.CANCEL_REQUEST):
            raise errors.JsonRpcInvalidRequest("not between initialize and shutdown")
        elif method == types.INITIALIZED and self._is_initialized:
            raise errors.JsonRpcInvalidRequest("already sent")
        elif known and known[1] is not None:
            raise errors.JsonRpcInvalidRequest("a request needs an id")

    def _get_handler(self, method: str) -> Handler:
        if method == types.CANCEL_REQUEST:
            return self._cancel
        handler: Handler = super()._get_handler(method)
        return handler

    def _structured(self, handler: Handler, params: Any) -> Any:
        """Convert params to lsprotocol's type; for our own methods, to the handler's annotation."""
        if isinstance(params, _Checked):
            if params.error is not None:
                raise params.error
            return params.params
        parameters = _parameters(handler)
        return _as_kind(params, parameters[0].annotation if parameters else None)

    def _command(self, params: types.ExecuteCommandParams) -> tuple[Handler, tuple[Any, ...]]:
        """Find a command's handler and its arguments."""
        handler: Handler | None = self.fm.commands.get(params.command)
        if handler is None:
            reason = f"params.command: {params.command[:80]!a} is not a command"
            raise errors.JsonRpcInvalidParams(reason)
        given, parameters = params.arguments or [], _parameters(handler)
        required = [each for each in parameters if each.default is inspect.Parameter.empty]
        if not len(required) <= len(given) <= len(parameters):
            count = f"{len(given)} given, {len(parameters)} expected"
            raise errors.JsonRpcInvalidParams(f"params.arguments: {params.command}: {count}")
        return handler, tuple(
            structure(value, parameter.annotation, f"params.arguments[{number}]")
            for number, (value, parameter) in enumerate(zip(given, parameters, strict=False))
        )

    def _take_response(self, identity: int | str, message: dict[str, Any]) -> None:
        """Resolve the future of a request to the client."""
        kind = self._result_types.pop(identity, None)
        future = self._request_futures.pop(identity, None)
        if future is None or not future.set_running_or_notify_cancel():
            return
        try:
            if "error" in message:
                error = structure(message["error"], types.ResponseError, "error")
                raise errors.JsonRpcException.from_error(error)
            result = structure(message, kind, "response").result if kind else message["result"]
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    def _cancel(self, params: Any) -> None:
        """Respond to a running request at once, then stop its handler.

        (pygls responds once the handler has stopped.)
        """
        identity = params.id
        if (stop := self.stoppable.get(identity)) is not None:
            stop()
        elif (key := self._running.pop(identity, None)) is not None:
            self._fail(identity, "request", errors.JsonRpcRequestCancelled("cancelled"))
            if (future := self._request_futures.get(key)) is not None:
                future.cancel()

    def _finish(self, key: str, method: str, identity: int | str | None, future: Any) -> None:
        """Respond after a handler has ended, or log the error of a notification."""
        self._request_futures.pop(key, None)
        error = None if future.cancelled() else future.exception()
        if identity is None:
            if error is not None:
                self._complain(method, error)
            return
        if self._running.get(identity) != key:
            return  # cancelled, and responded to
        del self._running[identity]
        if future.cancelled():
            error = errors.JsonRpcRequestCancelled("cancelled")
        if error is None:
            try:
                self._send_data({"jsonrpc": "2.0", "id": identity, "result": future.result()})
            except Exception as failure:  # the result is not JSON
                error = failure
        if error is not None:
            self._fail(identity, method, error)

    # -- the client's life and its documents -------------------------------------------------------

    @lsp_method(types.INITIALIZE)
    def lsp_initialize(self, params: types.InitializeParams) -> Steps:
        """Negotiate capabilities and the encoding of positions."""
        try:
            result = yield from super().lsp_initialize(params)
        except ValueError as error:  # from urllib
            raise errors.JsonRpcInvalidParams(f"params.rootUri: not a URI: {error}") from error
        encoding: Any = result.capabilities.position_encoding
        self.documents.encoding = str(getattr(encoding, "value", encoding))
        self.stage = "running"
        return result

    @lsp_method(types.SHUTDOWN)
    def lsp_shutdown(self, *args: Any) -> Steps:
        """Cancel everything that runs; only `exit` may follow."""
        self.stage = "shutdown"
        for identity in [each for each in self._running if each != self.msg_id]:
            self._cancel(types.CancelParams(identity))
        yield from self._registered(types.SHUTDOWN, *args)

    @lsp_method(types.EXIT)
    def lsp_exit(self, *args: Any) -> Steps:
        """End the session; the transport ends the connection.

        (pygls ends the process, whoever else it serves.)
        """
        self.exit_code = self.code()
        yield from self._registered(types.EXIT, *args)

    @lsp_method(types.TEXT_DOCUMENT_DID_OPEN)
    def lsp_text_document__did_open(self, params: types.DidOpenTextDocumentParams) -> Steps:
        item = params.text_document
        self.documents.open(item.uri, str(item.language_id), item.version, item.text)
        yield from self._registered(types.TEXT_DOCUMENT_DID_OPEN, params)

    @lsp_method(types.TEXT_DOCUMENT_DID_CHANGE)
    def lsp_text_document__did_change(self, params: types.DidChangeTextDocumentParams) -> Steps:
        document = params.text_document
        self.documents.change(document.uri, document.version, params.content_changes)
        yield from self._registered(types.TEXT_DOCUMENT_DID_CHANGE, params)

    @lsp_method(types.TEXT_DOCUMENT_DID_CLOSE)
    def lsp_text_document__did_close(self, params: types.DidCloseTextDocumentParams) -> Steps:
        self.documents.close(params.text_document.uri)
        yield from self._registered(types.TEXT_DOCUMENT_DID_CLOSE, params)

    def _registered(self, method: str, *args: Any) -> Steps:
        if (handler := self.fm.features.get(method)) is not None:
            yield handler, args, None

    # -- outgoing messages -------------------------------------------------------------------------

    def _fail(self, identity: int | str | None, method: str, error: BaseException) -> None:
        """Send an error response. It has no traceback, which may hold the user's text."""
        code = error.code if isinstance(error, errors.JsonRpcException) else -32603
        if not isinstance(error, errors.JsonRpcException):
            self._complain(method, error)
        described = {"code": code, "message": one_line(error)}
        self._send_data({"jsonrpc": "2.0", "id": identity, "error": described})

    def _complain(self, method: str, error: BaseException) -> None:
        """Log an error in one line. The messages of our own errors hold no text of a document."""
        is_ours = isinstance(error, errors.JsonRpcException)
        reason = one_line(error) if is_ours else type(error).__name__
        log.warning("%s failed: %s", _printable(method), reason)
        log.debug("%s failed", _printable(method), exc_info=error)

    def _send_data(self, data: Any) -> None:
        """Send a message. Raises if it is not JSON; without a client it does nothing."""
        body = json.dumps(unstructure(data), allow_nan=False, separators=(",", ":")).encode()
        if self.writer is not None:
            self.writer.write(body)

    def send_request(self, *args: Any, **kwargs: Any) -> Any:
        """Send a request to the client; it is cancelled if the client is gone."""
        future = super().send_request(*args, **kwargs)
        if self.writer is None:
            future.cancel()
        return future

    # pygls caches these two by instance, which would keep the documents of past clients alive.

    def get_message_type(self, method: str) -> type[Any] | None:  # type: ignore[override]
        kind: type[Any] | None = types.METHOD_TO_TYPES.get(method, (None,))[0]
        return kind

    def get_result_type(self, method: str) -> type[Any] | None:  # type: ignore[override]
        kind: type[Any] | None = types.METHOD_TO_TYPES.get(method, (None, None))[1]
        return kind


class Server(LanguageServer):
    """The server of one client. Register features on it, then hand it to a transport."""

    protocol: Protocol

    def __init__(self, name: str = "draftline", version: str = "") -> None:
        self.on_close: list[Callable[[], Awaitable[None]]] = []  # run when the client is gone
        options = {"protocol_cls": Protocol, "converter_factory": converter}
        super().__init__(name, version or own_version(), **options)  # type: ignore[arg-type]

    @property
    def documents(self) -> OpenDocuments:
        """The documents that the client has open."""
        return self.protocol.documents


def read_message(body: bytes) -> Any:
    """Read the message with this body, for `Protocol.handle`.

    Any thread may read it. The params of LSP's own methods are `_Checked`.
    """
    try:
        message = parse(body)
    except errors.JsonRpcParseError as error:
        return Unreadable(str(error))
    if isinstance(message, dict):
        method = message.get("method")
        if isinstance(method, str) and (known := types.METHOD_TO_TYPES.get(method)):
            try:
                checked = _Checked(_as_kind(message.get("params"), known[2]))
            except errors.JsonRpcInvalidParams as error:
                checked = _Checked(error=error)
            message["params"] = checked
    return message


def _as_kind(params: Any, kind: Any) -> Any:
    """Convert params to a type; leave them unchanged if it says nothing.

    Raises JsonRpcInvalidParams.
    """
    if kind in (None, Any, inspect.Parameter.empty):
        return params
    if not isinstance(params, dict | None):
        raise errors.JsonRpcInvalidParams("params: not an object")
    return structure(params or {}, kind, "params")


def _parameters(handler: Handler) -> list[inspect.Parameter]:
    return [*inspect.signature(handler, eval_str=True).parameters.values()]


def _printable(method: str) -> str:
    """Make a method's name safe for logs and error messages."""
    return ascii(method[:80])[1:-1]
