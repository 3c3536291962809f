"""The documents that one client holds open, as the client sees them.

A `Document` never changes: a message makes a new one, so that what a handler took before an
`await` stays as it was. Reads no files and answers no messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote, urlsplit

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from lsp_server.protocol.positions import Text


class NotOpen(JsonRpcInvalidParams):
    """A URI of no open document; as an answer to a request it is "invalid params"."""

    def __init__(self, uri: str) -> None:
        name = uri if len(uri) <= 200 else uri[:200] + "…"
        super().__init__(f"{name}: not an open document: send textDocument/didOpen first")


@dataclass(frozen=True, slots=True)
class Document:
    """One state of an open document."""

    uri: str
    path: str | None  # of a file: URI, undecodable bytes as surrogate escapes
    language: str
    version: int
    text: Text


class Documents:
    """The open documents by URI. Every message is taken whole or, with an error, not at all."""

    def __init__(self) -> None:
        self.encoding = "utf-16"  # of positions, until `initialize` says otherwise
        self._open: dict[str, Document] = {}

    def __iter__(self) -> Iterator[Document]:
        return iter([*self._open.values()])

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, uri: str) -> bool:
        return uri in self._open

    def get(self, uri: str) -> Document:
        """An open document as it is now. Raises NotOpen."""
        try:
            return self._open[uri]
        except KeyError:
            raise NotOpen(uri) from None

    def open(self, uri: str, language: str, version: int, text: str) -> Document:
        """Take over a document; one that is open already is replaced."""
        document = Document(uri, path_of(uri), language, version, Text.of(text))
        self._open[uri] = document
        return document

    def change(
        self, uri: str, version: int, changes: Sequence[types.TextDocumentContentChangeEvent]
    ) -> Document:
        """Make changes one after the other, each in the text that the one before left."""
        document = self.get(uri)
        text = document.text
        for change in changes:
            if isinstance(change, types.TextDocumentContentChangePartial):
                text = text.change(*self.span_in(text, change.range), change.text)
            else:
                text = Text.of(change.text)
        changed = replace(document, version=version, text=text)
        self._open[uri] = changed
        return changed

    def close(self, uri: str) -> Document:
        """Forget a document; its last state."""
        document = self.get(uri)
        del self._open[uri]
        return document

    def offset(self, document: Document, position: types.Position) -> int:
        """Where a position stands in the text, in code points."""
        return document.text.offset(position.line, position.character, self.encoding)

    def span(self, document: Document, range_: types.Range) -> tuple[int, int]:
        """Start and stop of a range in the text, in code points; turned round where it must be."""
        return self.span_in(document.text, range_)

    def position(self, document: Document, offset: int) -> types.Position:
        """An offset as the client counts."""
        return types.Position(*document.text.position(offset, self.encoding))

    def range(self, document: Document, start: int, stop: int) -> types.Range:
        """A span of the text as the client counts."""
        return types.Range(self.position(document, start), self.position(document, stop))

    def span_in(self, text: Text, range_: types.Range) -> tuple[int, int]:
        """The same of any text."""
        ends = (range_.start, range_.end)
        first, last = sorted(text.offset(end.line, end.character, self.encoding) for end in ends)
        return first, last


def path_of(uri: str) -> str | None:
    """The path that a file: URI of this machine names, percent-decoded; None for any other."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    path = unquote(parts.path, errors="surrogateescape")
    return None if "\0" in path or not path.startswith("/") else path
