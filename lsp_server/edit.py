"""An edit by instruction: from a request of the client to the smallest versioned WorkspaceEdit.

The buffer is frozen when the request comes. Where it moved on meanwhile, or the answer must not
reach it, the request fails with the reason and nothing is changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any

from lsprotocol import types

from engine.editing.edits import EditRefused, apply, changes, line_count, too_long
from engine.records import Done, Request, RequestError, Step
from lsp_server.protocol.messages import (
    EditParams,
    Identifier,
    Progress,
    cancelled,
    failed,
    moved_on,
)
from lsp_server.protocol.protocol import Server
from lsp_server.protocol.text_sync import Document
from lsp_server.session import Session
from lsp_server.shared_engine import NotReady, Superseded

ANNOTATION = "draftline"


@dataclass(frozen=True, slots=True)
class Edited:
    """What became of an edit: the new text of the whole document, and figures for the client."""

    document: Document  # its text is that which was frozen
    text: str
    stats: dict[str, Any]


def frozen(server: Server, name: Identifier) -> Document:
    """The document as it is now. ContentModified where the client means another version."""
    document = server.documents.get(name.uri)
    if name.version is not None and name.version != document.version:
        raise moved_on(shown(document))
    return document


def shown(document: Document) -> str:
    """A document's name for a person."""
    return (document.path or document.uri).rsplit("/", 1)[-1]


async def edit(server: Server, session: Session, params: EditParams, wanted: str = "") -> Edited:
    """Run an edit of the frozen document; raises an error of the protocol."""
    document = frozen(server, params.textDocument)
    text = document.text.text
    selection = server.documents.span(document, params.range) if params.range else None
    request = Request(
        "edit",
        text,
        path=document.path or shown(document),
        version=document.version,
        selection=selection,
        instruction=params.instruction,
    )
    progress = Progress(server, params.workDoneToken, params.partialResultToken)
    return await run(server, session, document, request, progress, wanted or "Editing")


async def run(
    server: Server,
    session: Session,
    document: Document,
    request: Request,
    progress: Progress,
    title: str,
) -> Edited:
    """Ask the model, and align its answer with the frozen text."""
    slot = ("edit", document.uri)
    start, stop = request.selection or (0, len(request.text))
    expected = max(1, len(request.text[start:stop]))
    lines = line_count(request.text)
    written = 0
    meter = Meter()

    def on_step(step: Step) -> None:
        nonlocal written
        meter.add(step)
        written += len(step.text)
        progress.text(step.text)
        if step.prefill:
            progress.report("reading", 0.3 * step.prefill[0] / step.prefill[1])
        else:
            progress.report("writing", 0.3 + 0.7 * min(1.0, written / expected))

    progress.begin(f"{title} {shown(document)}", lambda: session.cancel(slot))
    message = None
    try:
        if session.shared_engine.loaded is None:
            progress.report("loading the model", 0.0)
        await session.engine(slot)
        if request.selection is None and (why := too_long(session.shared_engine.model, lines)):
            raise failed(f"{shown(document)}: {why}: select fewer lines")
        done = await session.ask(request, slot, on_step)
        now = server.documents.get(document.uri) if document.uri in server.documents else None
        if now is None or now.text.text != document.text.text:
            raise moved_on(shown(document))
        if done.reason == "cancelled":
            raise cancelled("the edit was cancelled, or a newer one took its place")
        new = apply(request, done)
        meter.done(done)
    except Superseded as reason:
        raise cancelled(str(reason)) from None
    except (NotReady, RequestError, EditRefused) as reason:
        message = str(reason)
        raise failed(reason) from None
    finally:
        progress.end(message)
    return Edited(now, new, meter.stats())  # typed and undone: the newer version


class Meter:
    """Figures of one answer."""

    def __init__(self) -> None:
        self.began = perf_counter()
        self.seconds = 0.0
        self.tokens = self.accepted = self.passes = self.read = self.cached = 0

    def add(self, step: Step) -> None:
        if step.prefill is None:
            self.seconds += step.seconds
            self.tokens += step.accepted + 1
            self.accepted += step.accepted
            self.passes += 1

    def done(self, done: Done) -> None:
        usage = done.usage
        self.tokens, self.accepted, self.passes = (
            usage.completion_tokens, usage.accepted, usage.forwards
        )  # fmt: skip
        self.seconds = usage.decode_seconds
        self.read, self.cached = usage.prompt_tokens, usage.cached_tokens

    def stats(self) -> dict[str, Any]:
        """As in the contract; seconds from the request to its answer."""
        return {
            "tokens": self.tokens,
            "seconds": round(perf_counter() - self.began, 3),
            "decodeSeconds": round(self.seconds, 3),
            "tokensPerSecond": round(self.tokens / self.seconds, 1) if self.seconds else None,
            "acceptedShare": round(self.accepted / self.tokens, 3) if self.tokens else None,
            "passes": self.passes,
            "promptTokens": self.read,
            "cachedTokens": self.cached,
        }


def workspace_edit(
    server: Server, document: Document, text: str, label: str
) -> types.WorkspaceEdit | None:
    """The smallest edit that makes the document's text `text`; None where it is that already."""
    parts: list[tuple[types.Range, str]] = [
        (server.documents.range(document, one.start, one.stop), one.text)
        for one in changes(document.text.text, text)
    ]
    if not parts:
        return None
    client = server.client_capabilities.workspace
    able = client.workspace_edit if client else None
    if not able or not able.document_changes:
        plain = [types.TextEdit(range=where, new_text=new) for where, new in parts]
        return types.WorkspaceEdit(changes={document.uri: plain})
    name = types.OptionalVersionedTextDocumentIdentifier(uri=document.uri, version=document.version)
    annotated = able.change_annotation_support is not None
    edits: list[types.TextEdit | types.AnnotatedTextEdit | types.SnippetTextEdit] = [
        types.AnnotatedTextEdit(annotation_id=ANNOTATION, range=where, new_text=new)
        if annotated
        else types.TextEdit(range=where, new_text=new)
        for where, new in parts
    ]
    note = types.ChangeAnnotation(label=label, needs_confirmation=True)
    return types.WorkspaceEdit(
        document_changes=[types.TextDocumentEdit(text_document=name, edits=edits)],
        change_annotations={ANNOTATION: note} if annotated else None,
    )
