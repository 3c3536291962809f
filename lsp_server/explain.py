"""Questions about a document, and where in it or in other files the answer was copied from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from engine.prompts.builder import LANGUAGES, longest_run
from engine.prompts.fim import window
from engine.records import Piece, Request, RequestError, Step
from index.records import Span
from index.workspace import file_filter
from lsp_server.edit import current_document, display_name
from lsp_server.protocol.messages import AskParams, Progress, cancelled, failed
from lsp_server.protocol.positions import Text
from lsp_server.protocol.text_sync import Document
from lsp_server.shared_engine import NotReady, Superseded

if TYPE_CHECKING:
    from engine.engine import Engine
    from lsp_server.protocol.protocol import Server
    from lsp_server.session import Session

SYSTEM = "You answer questions about code. Be brief and exact, and quote the lines that you mean."
EXPLAIN = "Explain briefly what this code does and how."
ANSWER = 512  # tokens of an answer
LARGEST = 4096  # tokens of a document that are shown
COPIED = 16  # characters of a run that names a source
SOURCES = 8


async def ask(server: Server, session: Session, params: AskParams, title: str) -> dict[str, Any]:
    """Answer a question about a document or a part of it, streamed."""
    document = current_document(server, params.textDocument)
    slot = ("ask", document.uri)
    pieces: list[Piece] = []
    progress = Progress(server, params.workDoneToken, params.partialResultToken)

    def on_step(step: Step) -> None:
        pieces.extend(step.pieces)
        progress.text(step.text)
        if step.prefill:
            progress.report("reading", step.prefill[0] / step.prefill[1])

    try:
        progress.begin(f"{title} {display_name(document)}", lambda: session.cancel(slot))
        if session.shared_engine.loaded is None:
            progress.report("loading the model", 0.0)
        engine = await session.engine(slot)
        part = server.documents.span(document, params.range) if params.range else None
        request = request_for(engine, document, part, params.question or EXPLAIN)
        done = await session.ask(request, slot, on_step)
    except Superseded as reason:
        raise cancelled(str(reason)) from None
    except (NotReady, RequestError) as reason:
        raise failed(reason) from None
    finally:
        progress.end()
    if done.reason == "failed":
        raise failed(done.error)
    if done.reason == "cancelled":
        raise cancelled("the question was cancelled, or a newer one took its place")
    found = islice(sources(server, session, document, pieces), SOURCES)
    return {"answer": done.text, "sources": [*found]}


def request_for(
    engine: Engine, document: Document, part: tuple[int, int] | None, question: str
) -> Request:
    """The document, or a part of it, and then the question: so a second one reads only that."""
    text = document.text.text
    start, stop = part if part and part[0] < part[1] else (0, len(text))
    room = min(LARGEST, engine.context // 2)
    stop = min(stop, window(text, start, 0, room, engine.encode)[1])
    name = display_name(document)
    language = LANGUAGES.get(f".{name.rsplit('.', 1)[-1].lower()}", "")
    fence = "`" * max(3, 1 + longest_run(text[start:stop], "`"))
    content = f"{name}:\n{fence}{language}\n{text[start:stop]}\n{fence}\n\n{question}"
    messages = ({"role": "system", "content": SYSTEM}, {"role": "user", "content": content})
    return Request(
        "chat",
        path=document.path or "",
        messages=messages,
        predictions=(text[start:stop],),
        max_tokens=min(ANSWER, max(1, engine.context // 4)),
    )


def sources(
    server: Server, session: Session, document: Document, pieces: list[Piece]
) -> Iterator[dict[str, Any]]:
    """Where the accepted drafts were copied from, the longest first: what the index says, or where
    the same text stands in the document. Files that do not hold it any more are left out."""
    told: set[tuple[str, int, int]] = set()
    for run in sorted(_runs(pieces, document.text.text), key=lambda one: -len(one.text.strip())):
        quote = run.text.strip()
        if len(quote) < COPIED:
            return
        uri, text = _holder(server, session, document, run.span)
        place = _place(text.text, quote, run.span) if text else None
        if text is None or place is None or (uri, *place) in told:
            continue
        told.add((uri, *place))
        start, stop = (text.position(at, server.documents.encoding) for at in place)
        where = types.Range(types.Position(*start), types.Position(*stop))
        yield {"uri": uri, "range": where, "text": text.text[slice(*place)]}


def _runs(pieces: list[Piece], text: str) -> Iterator[Piece]:
    """Drafted pieces. What every pass ends in, a token of the model's own, parts them only where
    what they were copied from is parted as well."""
    run: Piece | None = None
    own = ""
    for piece in pieces:
        if piece.source == "model":
            own += piece.text
        elif run is not None and (joined := _joined(run, own, piece, text)):
            run, own = joined, ""
        else:
            if run is not None:
                yield run
            run, own = piece, ""
    if run is not None:
        yield run


def _joined(run: Piece, own: str, piece: Piece, text: str) -> Piece | None:
    """Two runs and what is between them as one; None where they are not of one place."""
    whole = run.text + own + piece.text
    first, second = run.span, piece.span
    if first is None and second is None:
        return Piece(whole, run.source) if _find(text, whole) else None
    if first is None or second is None or first.path != second.path:
        return None
    if second.start != first.stop + len(own):
        return None
    span = Span(first.path, first.start, second.stop, first.version)
    return Piece(whole, run.source, span)


def _place(text: str, quote: str, span: Span | None) -> tuple[int, int] | None:
    """Where a quotation stands in a text: in the span, if there is one and it still does, or
    anywhere; None for nowhere."""
    if span is not None and (found := _find(text[span.start : span.stop], quote)):
        return span.start + found[0], span.start + found[1]
    return _find(text, quote)


def _find(text: str, quote: str) -> tuple[int, int] | None:
    """The first place of a text as the model writes it, whatever line ends it has there."""
    lines = map(re.escape, quote.split("\n"))
    found = re.search(r"(?:\r\n|\r|\n)".join(lines), text)
    return found.span() if found else None


def _holder(
    server: Server, session: Session, document: Document, span: Span | None
) -> tuple[str, Text | None]:
    """URI and text of what a span is of: a buffer or a file; None for one that is gone."""
    if span is None:
        return document.uri, document.text
    for held in (document, *server.documents):
        if held.path and session.workspace and session.workspace.key(held.path) == span.path:
            return held.uri, held.text
    try:
        return Path(span.path).as_uri(), Text.of(file_filter.read(span.path))
    except file_filter.Skipped:
        return "", None
