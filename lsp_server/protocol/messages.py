"""Parameters of our own methods, the errors of requests, and progress.

Fields are named as in JSON. Handlers annotate their parameter with one of these, and messages are
checked and converted before the handler runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

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


@dataclass
class EditParams:
    """Parameters of draftline/edit and of the command draftline.edit."""

    textDocument: Identifier
    instruction: str
    range: types.Range | None = None
    keepDefinitions: bool = False  # refuse an answer that loses a definition
    ownsRange: bool = False  # the client changes the range itself, and moves the answer
    workDoneToken: Any = None
    partialResultToken: Any = None


@dataclass
class AskParams:
    """Parameters of draftline/ask, and of draftline/explain, which has no question."""

    textDocument: Identifier
    question: str = ""
    range: types.Range | None = None
    workDoneToken: Any = None
    partialResultToken: Any = None


@dataclass
class ConversationMessage:
    """One message of a conversation."""

    role: Literal["user", "assistant"]
    content: str


@dataclass
class ContextItem:
    """A file or an open document, or a part of it, that a conversation is about."""

    uri: str
    range: types.Range | None = None


@dataclass
class Diagnostic:
    """A problem that the client shows."""

    uri: str
    range: types.Range
    message: str


@dataclass
class ChatParams:
    """Parameters of draftline/chat."""

    messages: Sequence[ConversationMessage]  # the whole conversation; the last one is the question
    context: Sequence[ContextItem] = ()
    diagnostics: Sequence[Diagnostic] = ()
    workDoneToken: Any = None
    partialResultToken: Any = None


@dataclass
class CommitMessageParams:
    """Parameters of draftline/commitMessage."""

    diff: str
    workDoneToken: Any = None
    partialResultToken: Any = None


@dataclass
class CursorParams:
    """Parameters of draftline/cursor: the cursor has moved to another line, or document."""

    textDocument: types.TextDocumentIdentifier
    position: types.Position


@dataclass
class NextEditParams:
    """Parameters of draftline/nextEdit."""

    textDocument: Identifier
    position: types.Position


@dataclass
class FindFilesParams:
    """Parameters of draftline/findFiles."""

    instruction: str
    textDocument: types.TextDocumentIdentifier | None = None


@dataclass
class EditFilesParams:
    """Parameters of draftline/editFiles."""

    instruction: str
    files: list[str]  # URIs
    workDoneToken: Any = None
    partialResultToken: Any = None


@dataclass
class RenamePlacesParams:
    """Parameters of draftline/renamePlaces."""

    textDocument: Identifier
    instruction: str
    range: types.Range | None = None


@dataclass
class EditTargetParams:
    """Parameters of draftline/editTarget."""

    textDocument: Identifier
    position: types.Position


@dataclass
class PlaceCodeParams:
    """Parameters of draftline/placeCode; an empty range is the cursor."""

    textDocument: Identifier
    range: types.Range
    code: str


@dataclass
class TryEditParams:
    """Parameters of draftline/tryEdit: an edit that is shown, and the user's command."""

    textDocument: Identifier
    before: str  # the document without the edit
    command: str
    warnings: list[str] = field(default_factory=list)  # of the edit, as it was made


@dataclass
class ShownParams:
    """Parameters of textDocument/didShowCompletion and didPartiallyAcceptCompletion."""

    item: types.InlineCompletionItem
    acceptedLength: int = 0  # UTF-16 code units


def failed(reason: object) -> JsonRpcException:
    """Make the error of a valid request that could not be fulfilled."""
    code = types.LSPErrorCodes.RequestFailed.value
    return JsonRpcException(" ".join(str(reason).split()), code)


def cancelled(reason: str) -> JsonRpcException:
    """Make the error of a request that is no longer wanted."""
    return JsonRpcRequestCancelled(reason)


def moved_on(name: str, where: str = "") -> JsonRpcException:
    """Make the error of a request whose document has changed since; `where` says the place."""
    return JsonRpcContentModified(f"{name}: the text changed meanwhile{where}: ask again")


def closed(name: str) -> JsonRpcException:
    """Make the error of a request whose document is no longer open."""
    return JsonRpcContentModified(
        f"{name}: closed, renamed or deleted meanwhile, so nothing was changed: open it, ask again"
    )


def _token(value: Any) -> str | int | None:
    if value is None or isinstance(value, str) or type(value) is int:
        return value
    raise JsonRpcInvalidParams("params.workDoneToken: not an integer or a string")


class Progress:
    """The progress of one request, reported under the client's tokens, if it sent any.

    Raises JsonRpcInvalidParams for invalid tokens.
    """

    def __init__(self, server: Server, work: Any, partial: Any = None) -> None:
        self._protocol, self._progress = server.protocol, server.work_done_progress
        self._work, self._partial = _token(work), _token(partial)
        self._percent = -1

    def begin(self, title: str, cancel: Callable[[], object]) -> None:
        """Start; window/workDoneProgress/cancel calls `cancel`."""
        if self._work is not None:
            begin = types.WorkDoneProgressBegin(title=title, cancellable=True, percentage=0)
            self._progress.begin(self._work, begin)
            self._progress.tokens[self._work].add_done_callback(
                lambda future: cancel() if future.cancelled() else None
            )

    def report(self, message: str, share: float) -> None:
        """Report that `share` of the work is done; sent when the percentage changes."""
        percent = max(0, min(99, int(100 * share)))
        if self._work is not None and percent != self._percent:
            self._percent = percent
            report = types.WorkDoneProgressReport(message=message, percentage=percent)
            self._progress.report(self._work, report)

    def restart(self, message: str) -> None:
        """Report that the answer is written again: its parts so far are void."""
        self._percent = -1
        self.report(message, 0.0)
        if self._partial is not None:
            part = types.ProgressParams(token=self._partial, value={"text": "", "restart": True})
            self._protocol.notify(types.PROGRESS, part)

    def text(self, text: str) -> None:
        """Send a further part of the answer."""
        if self._partial is not None and text:
            part = types.ProgressParams(token=self._partial, value={"text": text})
            self._protocol.notify(types.PROGRESS, part)

    def file(self, uri: str, index: int, of: int) -> None:
        """Report that the answer for a file begins, the `index`-th of `of`."""
        if self._partial is not None:
            part = types.ProgressParams(
                token=self._partial, value={"file": uri, "index": index, "of": of}
            )
            self._protocol.notify(types.PROGRESS, part)

    def end(self, message: str | None = None) -> None:
        """End the progress."""
        if self._work is not None:
            self._progress.end(self._work, types.WorkDoneProgressEnd(message=message))
            self._progress.tokens.pop(self._work, None)
