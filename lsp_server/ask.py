"""Questions about a document, and where in it or in other files the answer was copied from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from engine.infill import window
from engine.prompts import LANGUAGES
from engine.records import Piece, Request, RequestError, Step
from index import files
from index.records import Span
from lsp_server.assistant import NotReady
from lsp_server.documents import Document
from lsp_server.edit import frozen, shown
from lsp_server.text import Text
from lsp_server.wire import AskParams, Progress, failed

if TYPE_CHECKING:
    from engine.engine import Engine
    from lsp_server.protocol import Server
    from lsp_server.session import Session

SYSTEM = "You answer questions about code. Be brief and exact, and quote the lines that you mean."
EXPLAIN = "Explain briefly what this code does and how."
ANSWER = 512  # tokens of an answer
LARGEST = 4096  # tokens of a document that are shown
COPIED = 16  # characters of a run that names a source
SOURCES = 8


async def ask(server: Server, session: Session, params: AskParams, title: str) -> dict[str, Any]:
    """Answer a question about a document or a part of it, streamed."""
    document = frozen(server, params.textDocument)
    slot = ("ask", document.uri)
    pieces: list[Piece] = []
    progress = Progress(server, params.workDoneToken, params.partialResultToken)

    def on_step(step: Step) -> None:
        pieces.extend(step.pieces)
        progress.text(step.text)
        if step.prefill:
            progress.report("reading", step.prefill[0] / step.prefill[1])

    try:
        engine = session.engine()
        part = server.documents.span(document, params.range) if params.range else None
        request = request_for(engine, document, part, params.question or EXPLAIN)
        progress.begin(f"{title} {shown(document)}", lambda: session.cancel(slot))
        try:
            done = await session.ask(request, slot, on_step)
        finally:
            progress.end()
    except (NotReady, RequestError) as reason:
        raise failed(reason) from None
    if done.reason == "failed":
        raise failed(done.error)
    if done.reason == "cancelled":
        raise failed("cancelled, or a newer question took its place")
    spans = copied(pieces, document)
    return {"answer": done.text, "sources": [*located(server, spans, document)][:SOURCES]}


def request_for(
    engine: Engine, document: Document, part: tuple[int, int] | None, question: str
) -> Request:
    """The document, or a part of it, and then the question: so a second one reads only that."""
    text = document.text.text
    start, stop = part if part and part[0] < part[1] else (0, len(text))
    room = min(LARGEST, engine.target.context // 2)
    stop = min(stop, window(text, start, 0, room, engine.tokenizer.encode)[1])
    name = shown(document)
    language = LANGUAGES.get(f".{name.rsplit('.', 1)[-1].lower()}", "")
    content = f"{name}:\n```{language}\n{text[start:stop]}\n```\n\n{question}"
    messages = ({"role": "system", "content": SYSTEM}, {"role": "user", "content": content})
    return Request(
        "chat",
        path=document.path or "",
        messages=messages,
        predictions=(text[start:stop],),
        max_tokens=min(ANSWER, max(1, engine.target.context // 4)),
    )


def copied(pieces: list[Piece], document: Document) -> list[Span]:
    """Where the accepted drafts were copied from, longest first: the place that the index says, or
    where the same text stands in the document."""
    found: dict[Span, int] = {}
    for run in _runs(pieces):
        text = run.text.strip()
        span = run.span
        if span is None or span.path == document.path:
            at = document.text.text.find(text)
            if at >= 0:
                span = Span(document.uri, at, at + len(text), document.version)
        if span is not None and len(text) >= COPIED:
            found[span] = max(found.get(span, 0), len(text))
    return sorted(found, key=lambda one: -found[one])


def _runs(pieces: list[Piece]) -> Iterator[Piece]:
    """Drafted pieces; neighbours with only the model's own token between them count as one, for
    every pass ends in such a token."""
    run: Piece | None = None
    for before, piece in zip([Piece("", "model"), *pieces], pieces, strict=False):
        own = piece.source == "model"
        if run is None or (own and before.source == "model"):
            if run is not None:
                yield run
            run = None if own else piece
        elif own or piece.span is None or run.span is None:
            run = Piece(run.text + piece.text, run.source, run.span)
        else:
            span = run.span
            follows = (span.path, span.stop) == (piece.span.path, piece.span.start)
            if follows or span.path == piece.span.path:
                end = max(span.stop, piece.span.stop)
                run = Piece(run.text + piece.text, run.source, Span(span.path, span.start, end))
            else:
                yield run
                run = piece
    if run is not None:
        yield run


def located(server: Server, spans: list[Span], document: Document) -> Iterator[dict[str, Any]]:
    """Spans as the client counts; those of files that are gone are left out."""
    for span in spans:
        uri, text = span.path, document.text
        if uri != document.uri:
            uri = file_uri(span.path)
            held = next((one for one in server.documents if one.path == span.path), None)
            try:
                text = held.text if held else Text.of(files.read(span.path))
            except files.Skipped:
                continue
        start, stop = min(span.start, len(text.text)), min(span.stop, len(text.text))
        encoding = server.documents.encoding
        where = types.Range(
            types.Position(*text.position(start, encoding)),
            types.Position(*text.position(stop, encoding)),
        )
        yield {"uri": uri, "range": where, "text": text.text[start:stop]}


def file_uri(path: str) -> str:
    """The URI of a file."""
    from pathlib import Path

    return Path(path).as_uri()
