"""Our own messages' parameters, the errors of a request, and progress.

Names are those on the wire. Handlers annotate their parameter with one of these, and it is shaped
and checked before they are called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.exceptions import (
    JsonRpcContentModified,
    JsonRpcException,
    JsonRpcInvalidParams,
    JsonRpcRequestCancelled,
)

if TYPE_CHECKING:
    from lsp_server.protocol.protocol import Server

Identifier = types.OptionalVersionedTextDocumentIdentifier
REQUEST_FAILED = -32803


@dataclass
class EditParams:
    """Of draftline/edit and of the command draftline.edit."""

    textDocument: Identifier
    instruction: str
    range: types.Range | None = None
    keepDefinitions: bool = False  # refuse an answer that lost a function or class
    workDoneToken: Any = None
    partialResultToken: Any = None


@dataclass
class AskParams:
    """Of draftline/ask, and of draftline/explain, which has no question."""

    textDocument: Identifier
    question: str = ""
    range: types.Range | None = None
    workDoneToken: Any = None
    partialResultToken: Any = None


@dataclass
class NextEditParams:
    """Of draftline/nextEdit."""

    textDocument: Identifier
    position: types.Position


@dataclass
class ShownParams:
    """Of textDocument/didShowCompletion and didPartiallyAcceptCompletion."""

    item: types.InlineCompletionItem
    acceptedLength: int = 0  # UTF-16


def failed(reason: object) -> JsonRpcException:
    """The request was good, and what was asked for could not be done."""
    return JsonRpcException(" ".join(str(reason).split()), REQUEST_FAILED)


def cancelled(reason: str) -> JsonRpcException:
    """Whoever asked does not want it any more."""
    return JsonRpcRequestCancelled(reason)


def moved_on(name: str) -> JsonRpcException:
    """The buffer is not what the request was about any more."""
    return JsonRpcContentModified(f"{name}: the text changed meanwhile: ask again")


def token_of(value: Any) -> str | int | None:
    """A progress token. JsonRpcInvalidParams where it is none."""
    if value is None or isinstance(value, str) or type(value) is int:
        return value
    raise JsonRpcInvalidParams("params.workDoneToken: not a whole number or a text")


class Progress:
    """Progress of one request, told under the client's tokens; without them nothing is told."""

    def __init__(self, server: Server, work: Any, partial: Any = None) -> None:
        self._server = server
        self._work, self._partial = token_of(work), token_of(partial)
        self._percent = -1

    def begin(self, title: str, cancel: Callable[[], object]) -> None:
        """It starts; window/workDoneProgress/cancel calls `cancel`."""
        if self._work is not None:
            begun = types.WorkDoneProgressBegin(title=title, cancellable=True, percentage=0)
            self._server.work_done_progress.begin(self._work, begun)
            future = self._server.work_done_progress.tokens[self._work]
            future.add_done_callback(lambda asked: cancel() if asked.cancelled() else None)

    def report(self, message: str, share: float) -> None:
        """`share` of the work is done; told when the whole percents change."""
        percent = max(0, min(99, int(100 * share)))
        if self._work is not None and percent != self._percent:
            self._percent = percent
            report = types.WorkDoneProgressReport(message=message, percentage=percent)
            self._server.work_done_progress.report(self._work, report)

    def text(self, text: str) -> None:
        """More of the answer."""
        if self._partial is not None and text:
            self._server.protocol.notify(
                types.PROGRESS, types.ProgressParams(token=self._partial, value={"text": text})
            )

    def end(self, message: str | None = None) -> None:
        """It is over."""
        if self._work is not None:
            self._server.work_done_progress.end(
                self._work, types.WorkDoneProgressEnd(message=message)
            )
            self._server.work_done_progress.tokens.pop(self._work, None)
