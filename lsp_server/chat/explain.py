"""Questions about a document, and the places that the answer was copied from."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from engine.prompts.fim import window
from engine.records import Piece, Request, RequestError
from index.records import Span
from index.workspace import file_filter
from lsp_server.chat.answering import answer
from lsp_server.chat.context import quoted
from lsp_server.editing.edit import check_secret, current_document, display_name
from lsp_server.protocol.messages import AskParams, Progress, failed
from lsp_server.protocol.positions import Text
from lsp_server.protocol.text_sync import OpenDocument

if TYPE_CHECKING:
    from engine.remote.any_engine import EditorEngine
    from index.workspace.workspace import Workspace
    from lsp_server.protocol.protocol import Server
    from lsp_server.session import Session

log = logging.getLogger(__name__)

SYSTEM_PROMPT = (
    "You answer questions about code. Be brief and exact, and quote the lines that you mean."
)
EXPLAIN_QUESTION = "Explain briefly what this code does and how."
MAX_ANSWER_TOKENS = 512
MAX_DOCUMENT_TOKENS = 4096  # tokens of the document in the prompt
MIN_QUOTE_CHARS = 16  # characters; shorter copies are not attributed
MAX_PIECES = 2 * MAX_ANSWER_TOKENS  # pieces of an answer whose sources are looked for
MAX_SOURCES = 8


async def ask(server: Server, session: Session, params: AskParams, title: str) -> dict[str, Any]:
    """Answer a question about a document or a part of it, streaming the answer as it is written."""
    document = current_document(server, params.textDocument)
    try:
        await check_secret(session, document)
    except RequestError as reason:
        raise failed(reason) from None
    part = server.documents.span(document, params.range) if params.range else None
    question = params.question or EXPLAIN_QUESTION
    made = await answer(
        session,
        ("ask", document.uri),
        Progress(server, params.workDoneToken, params.partialResultToken),
        f"{title} {display_name(document)}",
        lambda engine: request_for(engine, document, part, question),
    )
    sources = await asyncio.to_thread(
        _find_sources, (document, *session.documents), session.workspace, made.pieces
    )
    encoding = session.documents.encoding
    return {"answer": made.done.text, "sources": [source.encode(encoding) for source in sources]}


def request_for(
    engine: EditorEngine, document: OpenDocument, part: tuple[int, int] | None, question: str
) -> Request:
    """Write a prompt with the document, or a part of it, before the question.

    In this order, the next question about it reuses the KV cache.
    """
    text = document.text.text
    start, stop = part if part and part[0] < part[1] else (0, len(text))
    capacity = min(MAX_DOCUMENT_TOKENS, engine.context // 2)
    stop = min(stop, window(text, start, 0, capacity, engine.encode)[1])
    name = display_name(document)
    content = quoted(name, document.source_path, text[start:stop]) + question
    messages = ({"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": content})
    return Request(
        "chat",
        path=document.path or "",
        messages=messages,
        predictions=(text[start:stop],),
        max_tokens=min(MAX_ANSWER_TOKENS, max(1, engine.context // 4)),
        thinking=False,  # it would use up the tokens
    )


@dataclass(frozen=True, slots=True)
class _Source:
    """Text that an answer was copied from."""

    uri: str
    text: Text  # the text of the whole document or file
    start: int  # code points
    stop: int

    def encode(self, encoding: str) -> dict[str, Any]:
        """Encode the source as it is sent to the client."""
        start, stop = (self.text.position(at, encoding) for at in (self.start, self.stop))
        where = types.Range(types.Position(*start), types.Position(*stop))
        return {"uri": self.uri, "range": where, "text": self.text.text[self.start : self.stop]}


def _find_sources(
    documents: tuple[OpenDocument, ...], workspace: Workspace | None, pieces: Sequence[Piece]
) -> list[_Source]:
    """Find the sources of the accepted drafts, longest first.

    They are where the index says, or where the asked document, the first of `documents`, has the
    same text. Text that is gone is left out.
    """
    found: dict[tuple[str, int, int], _Source] = {}
    written = [piece for piece in pieces if piece.text][:MAX_PIECES]
    runs = _copied_runs(written, documents[0].text.text)
    for run in sorted(runs, key=lambda one: -len(one.text.strip())):
        quote = run.text.strip()
        if len(quote) < MIN_QUOTE_CHARS or len(found) == MAX_SOURCES:
            break
        uri, text = _source_text(documents, workspace, run.span)
        place = _locate(text.text, quote, run.span) if text else None
        if text is not None and place is not None:
            found.setdefault((uri, *place), _Source(uri, text, *place))
    return [*found.values()]


def _copied_runs(pieces: Sequence[Piece], text: str) -> Iterator[Piece]:
    """Join the drafted pieces that continue each other in their source.

    The model ends each pass with a token of its own; pieces are joined across it wherever the
    source has that token as well.
    """
    run: Piece | None = None
    own = ""
    for piece in pieces:
        if piece.source == "model":
            own += piece.text
        elif run is not None and (joined := _join(run, own, piece, text)):
            run, own = joined, ""
        else:
            if run is not None:
                yield run
            run, own = piece, ""
    if run is not None:
        yield run


def _join(run: Piece, own: str, piece: Piece, text: str) -> Piece | None:
    """Join two runs and the text between them; None unless they are adjacent in their source."""
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


def _locate(text: str, quote: str, span: Span | None) -> tuple[int, int] | None:
    """Find a quotation in a text: in the span if it is still there, else anywhere.

    None if it is gone.
    """
    if span is not None and (found := _find(text[span.start : span.stop], quote)):
        return span.start + found[0], span.start + found[1]
    return _find(text, quote)


def _find(text: str, quote: str) -> tuple[int, int] | None:
    """Find the first occurrence of a quotation, with any line ends."""
    lines = map(re.escape, quote.split("\n"))
    found = re.search(r"(?:\r\n|\r|\n)".join(lines), text)
    return found.span() if found else None


def _source_text(
    documents: tuple[OpenDocument, ...], workspace: Workspace | None, span: Span | None
) -> tuple[str, Text | None]:
    """Return URI and text of the open document or indexed file that a span is in.

    The text is None for a file that is gone, and for any other path.
    """
    if span is None:
        return documents[0].uri, documents[0].text
    for document in documents:
        key = workspace.key(document.path) if document.path and workspace else ""
        if document.path and span.path in (document.path, key):
            return document.uri, document.text
    try:
        path = os.path.realpath(span.path)
        if workspace is not None and workspace.has(path):
            return Path(path).as_uri(), Text.of(file_filter.read(path))
    except ValueError:  # Skipped, or no path
        log.debug("a source is not there any more", exc_info=True)
    return "", None
