"""What the server does itself at the messages of a client's life and of its documents.

The feature that is registered for the same message is called after the state has changed; what it
gives, or what must be awaited for it, is given on.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_type_hints

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams
from pygls.protocol import LanguageServerProtocol

from lsp_server.protocol.converter import shape

if TYPE_CHECKING:
    from lsp_server.protocol.protocol import Protocol

Steps = Generator[Any, Any, Any]  # pygls's: yields (handler, args, kwargs), gets its result
MISSING = inspect.Parameter.empty


def initialize(protocol: Protocol, params: types.InitializeParams) -> Steps:
    """Agree on capabilities and on the encoding of positions. A generator, as pygls's own is."""
    protocol.stage = "initializing"
    try:
        try:
            result = yield from LanguageServerProtocol.lsp_initialize(protocol, params)
        except ValueError as error:  # of urllib
            raise JsonRpcInvalidParams(f"params.rootUri: not a URI: {error}") from error
        encoding: Any = result.capabilities.position_encoding
        protocol.documents.encoding = str(getattr(encoding, "value", encoding))
        protocol.stage = "running"
        return result
    finally:  # also where the registered handler failed
        if protocol.stage == "initializing":
            protocol.stage = "new"


def shutdown(protocol: Protocol, params: None) -> Any:
    """Cancel all that runs; only `exit` may follow."""
    protocol.stage = "shutdown"
    protocol.cancel_others()
    return _registered(protocol, types.SHUTDOWN, params)


def leave(protocol: Protocol, params: None) -> Any:
    """`exit`: the transport ends the connection, and the process where it has but one."""
    protocol.exit_code = protocol.code()
    return _registered(protocol, types.EXIT, params)


def did_open(protocol: Protocol, params: types.DidOpenTextDocumentParams) -> Any:
    """Take over a document."""
    item = params.text_document
    protocol.documents.open(item.uri, str(item.language_id), item.version, item.text)
    return _registered(protocol, types.TEXT_DOCUMENT_DID_OPEN, params)


def did_change(protocol: Protocol, params: types.DidChangeTextDocumentParams) -> Any:
    """Make the changes of a document, all or none."""
    document = params.text_document
    protocol.documents.change(document.uri, document.version, params.content_changes)
    return _registered(protocol, types.TEXT_DOCUMENT_DID_CHANGE, params)


def did_close(protocol: Protocol, params: types.DidCloseTextDocumentParams) -> Any:
    """Forget a document."""
    protocol.documents.close(params.text_document.uri)
    return _registered(protocol, types.TEXT_DOCUMENT_DID_CLOSE, params)


def execute_command(protocol: Protocol, params: types.ExecuteCommandParams) -> Any:
    """Run a command; its arguments are shaped by the handler's annotations. Cancelling the
    request cancels it, too."""
    handler: Any = protocol.fm.commands.get(params.command)
    if handler is None:
        raise JsonRpcInvalidParams(f"params.command: {params.command[:80]!a} is not a command")
    given, kinds = list(params.arguments or []), wanted(handler)
    if not len(required(handler)) <= len(given) <= len(kinds):
        count = f"{len(given)} given, {len(kinds)} wanted"
        raise JsonRpcInvalidParams(f"params.arguments: {params.command}: {count}")
    args = [
        shape(value, kind, f"params.arguments[{number}]")
        for number, (value, kind) in enumerate(zip(given, kinds, strict=False))
    ]
    return protocol.call(handler, *args)


def cancel_progress(protocol: Protocol, params: types.WorkDoneProgressCancelParams) -> Any:
    """Cancel the future that stands for a progress; one that ended is nothing to tell."""
    if (future := protocol.progress.tokens.get(params.token)) is not None:
        future.cancel()
    return _registered(protocol, types.WINDOW_WORK_DONE_PROGRESS_CANCEL, params)


BUILTINS: dict[str, Callable[..., Any]] = {
    types.INITIALIZE: initialize,
    types.SHUTDOWN: shutdown,
    types.EXIT: leave,
    types.TEXT_DOCUMENT_DID_OPEN: did_open,
    types.TEXT_DOCUMENT_DID_CHANGE: did_change,
    types.TEXT_DOCUMENT_DID_CLOSE: did_close,
    types.WORKSPACE_EXECUTE_COMMAND: execute_command,
    types.WINDOW_WORK_DONE_PROGRESS_CANCEL: cancel_progress,
}
# Of pygls's own handlers these are not wanted: they keep documents in pygls's way.
UNWANTED = [name for name in types.METHOD_TO_TYPES if name.startswith("notebookDocument/")]


def wanted(handler: Callable[..., Any]) -> list[Any]:
    """What a handler says its parameters are, but for the server, which pygls gives it."""
    own = {each.name: each.annotation for each in _parameters(handler)}
    named = {name: kind for name, kind in own.items() if kind is not MISSING}
    function: Any = getattr(handler, "func", handler)
    while isinstance(function, partial):
        function = function.func
    hints = get_type_hints(SimpleNamespace(__annotations__=named), function.__globals__)
    return [hints.get(name, Any) for name in own]


def required(handler: Callable[..., Any]) -> list[str]:
    """The parameters that have no default."""
    return [each.name for each in _parameters(handler) if each.default is MISSING]


def _parameters(handler: Callable[..., Any]) -> list[inspect.Parameter]:
    function = getattr(handler, "func", handler)
    if isinstance(handler, partial) or function is handler:
        return [*inspect.signature(handler).parameters.values()]
    return [*inspect.signature(function).parameters.values()][1:]  # pygls's wrapper of a coroutine


def _registered(protocol: Protocol, method: str, params: Any) -> Any:
    handler = protocol.fm.features.get(method)
    return protocol.call(handler, params) if handler else None
