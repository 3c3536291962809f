"""The documents that one client has open, as the client sees them.

Replaces pygls's documents, whose lines also end at form feeds, NEL and U+2028, so that an edit
behind one lands in the wrong place. An `OpenDocument` is immutable, so that a handler's copy stays
as it was across an `await`. Reads no files and sends no messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from urllib.parse import unquote, urlsplit

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from engine.editing.syntax import language_of
from engine.remote.framing import MAX_BODY_BYTES
from lsp_server.protocol.positions import Text

MAX_SHOWN_URI_CHARS = 200
MAX_OPEN_CHARS = 1 << 27  # characters of all documents that one client has open
UNNAMED = "untitled"
PLAIN = ("plaintext", "text")  # what clients call a text of no language
ENDINGS = {  # endings of file names, by the language identifiers of LSP
    "python": ".py", "javascript": ".js", "javascriptreact": ".jsx", "typescript": ".ts",
    "typescriptreact": ".tsx", "go": ".go", "rust": ".rs", "c": ".c", "cpp": ".cpp",
    "java": ".java", "json": ".json", "jsonc": ".json", "shellscript": ".sh", "sh": ".sh",
    "bash": ".sh", "html": ".html", "css": ".css", "scss": ".scss", "less": ".less", "vue": ".vue",
    "svelte": ".svelte", "xml": ".xml", "yaml": ".yaml", "toml": ".toml", "markdown": ".md",
    "restructuredtext": ".rst", "latex": ".tex", "tex": ".tex", "sql": ".sql", "lua": ".lua",
    "ruby": ".rb", "php": ".php", "csharp": ".cs", "cs": ".cs", "kotlin": ".kt", "swift": ".swift",
    "lisp": ".lisp", "clojure": ".clj", "scheme": ".scm", "racket": ".rkt",
}  # fmt: skip


class NotOpen(JsonRpcInvalidParams):
    """The URI of a document that is not open; a request is answered with "invalid params"."""

    def __init__(self, uri: str) -> None:
        super().__init__(
            f"{_shown(uri)}: not an open document: open it again, or split it if it has more than "
            f"{MAX_BODY_BYTES >> 20} MB"
        )


class TooLarge(JsonRpcInvalidParams):
    """The URI of a document that made its client's documents too large together; it is closed."""

    def __init__(self, uri: str) -> None:
        limit = f"the open documents exceed {MAX_OPEN_CHARS} characters"
        super().__init__(f"{_shown(uri)}: closed, since {limit}: close some and open it again")


@dataclass(frozen=True, slots=True)
class OpenDocument:
    """One version of an open document."""

    uri: str
    path: str | None  # set for a file: URI; undecodable bytes as surrogate escapes
    language: str
    version: int
    text: Text

    @property
    def source_path(self) -> str:
        """The path of a file, or another document's name, with an ending of its language.

        Whoever reads the text knows the language by the ending. It is added unless the name has one
        of the same language, or the client says plain text. Neovim's unnamed buffers have no name.
        """
        name = self.path or self.uri.rsplit("/", 1)[-1] or UNNAMED
        ending, given = ENDINGS.get(self.language, ""), PurePath(name).suffix
        if not ending:
            is_other = self.language.isalpha() and self.language not in PLAIN
            return f"{name}.{self.language}" if is_other and language_of(name) else name
        if language_of(name) != language_of(f"x{ending}"):
            return name + ending
        is_named = bool(language_of(name) or (given if self.path else given == ending))
        return name if is_named else name + ending


class OpenDocuments:
    """The open documents by URI.

    A message is applied completely or raises an error. Together they have at most MAX_OPEN_CHARS
    characters; a document that would exceed that is closed.
    """

    def __init__(self) -> None:
        self.encoding = "utf-16"  # encoding of positions, until `initialize` negotiates it
        self._open: dict[str, OpenDocument] = {}
        self._chars = 0  # characters of all documents

    def __iter__(self) -> Iterator[OpenDocument]:
        return iter([*self._open.values()])

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, uri: str) -> bool:
        return uri in self._open

    def get(self, uri: str) -> OpenDocument:
        """Return the current version of an open document. Raises NotOpen."""
        try:
            return self._open[uri]
        except KeyError:
            raise NotOpen(uri) from None

    def open(self, uri: str, language: str, version: int, text: str) -> OpenDocument:
        """Open a document, or replace one that is open."""
        return self._put(OpenDocument(uri, path_of(uri), language, version, Text.of(text)))

    def change(
        self, uri: str, version: int, changes: Sequence[types.TextDocumentContentChangeEvent]
    ) -> OpenDocument:
        """Apply changes in order; each refers to the text that the previous one produced."""
        document = self.get(uri)
        text = document.text
        for change in changes:
            if isinstance(change, types.TextDocumentContentChangePartial):
                text = text.change(*self.span_in(text, change.range), change.text)
            else:
                text = Text.of(change.text)
        return self._put(replace(document, version=version, text=text))

    def close(self, uri: str) -> OpenDocument:
        """Close a document and return its last version."""
        document = self.get(uri)
        del self._open[uri]
        self._chars -= len(document.text.text)
        return document

    def _put(self, document: OpenDocument) -> OpenDocument:
        """Store a document in place of its older version. Raises TooLarge."""
        if document.uri in self:
            self.close(document.uri)
        if self._chars + len(document.text.text) > MAX_OPEN_CHARS:
            raise TooLarge(document.uri)
        self._open[document.uri] = document
        self._chars += len(document.text.text)
        return document

    def offset(self, document: OpenDocument, position: types.Position) -> int:
        """Find the offset of a position, in code points."""
        return document.text.offset(position.line, position.character, self.encoding)

    def span(self, document: OpenDocument, range_: types.Range) -> tuple[int, int]:
        """Find the offsets of a range, in code points and in order."""
        return self.span_in(document.text, range_)

    def position(self, document: OpenDocument, offset: int) -> types.Position:
        """Find the position of an offset, in the client's encoding."""
        return types.Position(*document.text.position(offset, self.encoding))

    def range(self, document: OpenDocument, start: int, stop: int) -> types.Range:
        """Find the range of a span of the text, in the client's encoding."""
        return types.Range(self.position(document, start), self.position(document, stop))

    def span_in(self, text: Text, range_: types.Range) -> tuple[int, int]:
        """Find the offsets of a range as `span` does, for any text."""
        ends = (range_.start, range_.end)
        first, last = sorted(text.offset(end.line, end.character, self.encoding) for end in ends)
        return first, last


def _shown(uri: str) -> str:
    """Shorten a URI for a message."""
    return uri if len(uri) <= MAX_SHOWN_URI_CHARS else uri[:MAX_SHOWN_URI_CHARS] + "…"


def path_of(uri: str) -> str | None:
    """Return the percent-decoded path of a file: URI of this machine; None for any other URI."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    path = unquote(parts.path, errors="surrogateescape")
    return None if "\0" in path or not path.startswith("/") else path
