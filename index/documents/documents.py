"""A library of documents: add, store, search, and trace each hit to its page and position.

Documents live in one SQLite file, which several processes may share, or in memory. They are
content-addressed: a file whose content is stored already is not parsed again.
"""

from __future__ import annotations

import builtins
import hashlib
import json
import os
import re
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from index.documents import full_text
from index.documents.chunking import Chunk, split_chunks
from index.documents.embeddings import SCHEMA as VECTORS_SCHEMA
from index.documents.embeddings import Embed, VectorIndex, fuse_ranks
from index.documents.formats import MAX_FILE_BYTES, DocumentError, ParsedDocument, kind_of
from index.documents.formats.headings import Heading
from index.documents.formats.parser import DocumentParser
from index.documents.languages import detect
from index.documents.sqlite_file import OLD_DOCUMENTS, DocumentsFile
from index.os_calls import BINARY, NO_WAIT

__all__ = ["Chunk", "Document", "DocumentError", "Documents", "Heading", "Hit"]

SCHEMA_VERSION = 5  # change it whenever stored rows stop being valid
CANDIDATES = 50  # chunks that each kind of search contributes
MAX_NAME_CHARS = 255

SCHEMA = """
CREATE TABLE documents (
    place INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, name TEXT, kind TEXT, text TEXT,
    pages TEXT, headings TEXT, whole INTEGER, language TEXT
);
CREATE TABLE chunks (
    row INTEGER PRIMARY KEY AUTOINCREMENT, document TEXT, number INTEGER, start INTEGER,
    stop INTEGER, page INTEGER, heading TEXT, table_head TEXT
);
CREATE INDEX by_document ON chunks (document, number);
CREATE TABLE files (document TEXT PRIMARY KEY, data BLOB);
"""
COLUMNS = "id, name, kind, text, pages, headings, whole"
CHUNK = "c.document, c.number, w.text, c.start, c.stop, c.page, c.heading, c.table_head"
BAD_NAME = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]|(?:^|[/\\])\.\.(?:[/\\]|$)")


@dataclass(frozen=True, slots=True)
class Document:
    """A stored file. Positions are code points of `text`."""

    id: str  # a hash of the content
    name: str
    kind: str  # txt, code, or one of index.documents.formats.KINDS
    text: str
    pages: tuple[tuple[int, int], ...]  # (start, stop) of each; only a pdf has pages
    headings: tuple[Heading, ...]
    whole: bool = False  # the user wants it read as a whole instead of searched


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk found by a search."""

    chunk: Chunk
    name: str  # the document's name
    score: float  # comparable within one search only
    coverage: float  # share of the query's words, weighted by rarity, that it contains: 0 to 1
    found: tuple[str, ...] = ()  # the query's content words that it contains, in lower case
    missing: tuple[str, ...] = ()  # the others
    has_rare_word: bool = False  # one that it contains is in few chunks


class Documents:
    """A library of documents. Thread-safe."""

    def __init__(self, folder: Path | None = None, embed: Embed | None = None) -> None:
        """Open the library in `folder`, or one in memory for None.

        `embed` enables vector search; it is called with the texts of new chunks when they are added
        or at the next search.
        """
        schema = SCHEMA + full_text.SCHEMA + VECTORS_SCHEMA
        self._file = DocumentsFile(folder, schema, SCHEMA_VERSION, _copy_old)
        self._vectors = VectorIndex(embed, self._file.session) if embed else None
        self._parser = DocumentParser()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End what is being parsed, and close the file."""
        self._parser.close()
        self._file.close()

    def add(
        self, path: Path, name: str | None = None, parser: DocumentParser | None = None
    ) -> Document:
        """Parse and store a file under `name` (default: the last part of the path).

        If its content is stored already, it is only renamed. `parser`: closing it cancels the call;
        default: one that is kept until the library is closed. Raises DocumentError.
        """
        path = Path(path)
        name = path.name if name is None else name
        _check_name(name)
        return self.add_data(name, _read_bytes(path, name), parser)

    def add_data(self, name: str, data: bytes, parser: DocumentParser | None = None) -> Document:
        """`add` for the content of a file."""
        _check_name(name)
        kind = kind_of(name)
        id = content_id(name, data)
        with self._file.session(write=True) as connection:
            document = _rename(connection, id, name)
        if document is None:
            # Outside of any transaction, since this may take seconds.
            parsed = (parser or self._parser).parse(name, data)
            chunks = split_chunks(id, kind, parsed)
            with self._file.session(write=True) as connection:
                document = _rename(connection, id, name)  # added meanwhile by someone else?
                if document is None:
                    document = Document(id, name, kind, *parsed)
                    _insert(connection, document, chunks)
        if kind == "pdf":  # its pages can be shown
            with self._file.session(write=True) as connection:
                connection.execute("INSERT OR IGNORE INTO files VALUES (?, ?)", (id, data))
        if self._vectors:
            self._vectors.refresh()
        return document

    def remove(self, id: str) -> None:
        """Remove a document, if it is stored."""
        with self._file.session(write=True) as connection:
            rows = connection.execute("SELECT row FROM chunks WHERE document = ?", (id,)).fetchall()
            connection.executemany("DELETE FROM words WHERE rowid = ?", rows)
            connection.executemany("DELETE FROM vectors WHERE row = ?", rows)
            connection.execute("DELETE FROM chunks WHERE document = ?", (id,))
            connection.execute("DELETE FROM files WHERE document = ?", (id,))
            connection.execute("DELETE FROM documents WHERE id = ?", (id,))

    def set_whole(self, id: str, whole: bool) -> None:
        """Record whether a document is to be read as a whole. Searches do not depend on it."""
        with self._file.session(write=True) as connection:
            connection.execute("UPDATE documents SET whole = ? WHERE id = ?", (whole, id))

    def get(self, id: str) -> Document:
        """Return a document by its id. Raises KeyError."""
        with self._file.session() as connection:
            document = _select(connection, id)
        if document is None:
            raise KeyError(id)
        return document

    def picture(self, id: str, page: int, marks: Sequence[tuple[int, int]]) -> bytes:
        """Return a page of a pdf as a PNG in which these code points of the document are marked.

        Pages count from 1. Raises KeyError for a document or page that is not there, and
        DocumentError.
        """
        document = self.get(id)
        with self._file.session() as connection:
            row = connection.execute("SELECT data FROM files WHERE document = ?", (id,)).fetchone()
        if row is None or not 1 <= page <= len(document.pages):
            raise KeyError(id)
        start, stop = document.pages[page - 1]
        letters = max(1, _count_letters(document.text[start:stop]))
        shares = []
        for first, last in marks:
            first, last = max(start, first), min(stop, last)
            if first < last:
                before = _count_letters(document.text[start:first])
                shares.append((document.text[first:last], before / letters))
        return self._parser.picture(document.name, row[0], page - 1, shares)

    def list(self) -> builtins.list[Document]:
        """Return all documents in the order of their addition."""
        query = f"SELECT {COLUMNS} FROM documents ORDER BY place"
        with self._file.session() as connection:
            return [_from_row(*row) for row in connection.execute(query)]

    def chunks(self, id: str) -> builtins.list[Chunk]:
        """Return the chunks of a document in order."""
        query = (
            f"SELECT {CHUNK} FROM chunks AS c JOIN words AS w ON w.rowid = c.row "
            "WHERE c.document = ? ORDER BY c.number"
        )
        with self._file.session() as connection:
            return [Chunk(*row) for row in connection.execute(query, (id,))]

    def search(
        self, query: str, count: int = 8, among: Sequence[str] | None = None
    ) -> builtins.list[Hit]:
        """Return the `count` best chunks for a query, best first.

        `among`: ids of the documents to search, None for all.
        """
        candidates = max(count, CANDIDATES)
        similar = self._vectors.nearest(query, candidates, among) if self._vectors else None
        with self._file.session() as connection:
            ranking = full_text.search(connection, query, candidates, among)
            best = (ranking if similar is None else fuse_ranks(ranking, similar))[:count]
            return [*_hits(connection, query, best)]


def _count_letters(text: str) -> int:
    """Count the characters that index.documents.formats.page_picture compares."""
    return sum(map(str.isalnum, text))


def content_id(name: str, data: bytes) -> str:
    """Return the id of a document: a hash of its kind and content."""
    return hashlib.sha256(kind_of(name).encode() + b"\0" + data).hexdigest()[:32]


def _check_name(name: str) -> None:
    if not name.strip() or len(name) > MAX_NAME_CHARS or BAD_NAME.search(name):
        raise DocumentError(
            f"{name[:MAX_NAME_CHARS]!a}: not a valid document name; use one without '..' and "
            "control characters"
        )


def _read_bytes(path: Path, name: str) -> bytes:
    """Return a regular file's content, at most one byte more than is allowed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | NO_WAIT | BINARY)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or error
        raise DocumentError(f"{name}: {reason}; choose a readable file") from error
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise DocumentError(f"{name}: a folder; name the files in it")
        if not stat.S_ISREG(mode):
            raise DocumentError(f"{name}: not a regular file; choose one")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise DocumentError(f"{name}: {error.strerror}; copy it again") from error
    finally:
        os.close(descriptor)


def _rename(connection: sqlite3.Connection, id: str, name: str) -> Document | None:
    """Rename a stored document; None if there is no such document."""
    document = _select(connection, id)
    if document is None or document.name == name:
        return document
    connection.execute("UPDATE documents SET name = ? WHERE id = ?", (name, id))
    connection.execute(
        "UPDATE words SET name = ? WHERE rowid IN (SELECT row FROM chunks WHERE document = ?)",
        (name, id),
    )
    return _select(connection, id)


def _insert(connection: sqlite3.Connection, document: Document, chunks: list[Chunk]) -> None:
    language = detect(document.text)
    connection.execute(
        f"INSERT INTO documents ({COLUMNS}, language) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(document.id, document.name, document.kind, document.text),
            json.dumps(document.pages),
            json.dumps(document.headings),
            document.whole,
            language,
        ),
    )
    rows = [
        connection.execute(
            "INSERT INTO chunks (document, number, start, stop, page, heading, table_head) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                *(chunk.document, chunk.number, chunk.start, chunk.stop),
                *(chunk.page, chunk.heading, chunk.table_head),
            ),
        ).lastrowid
        for chunk in chunks
    ]
    full_text.insert(connection, chunks, document.name, language, rows)


def _copy_old(connection: sqlite3.Connection) -> None:
    """Index the documents of a file that another version has written, without parsing them."""
    query = f"SELECT {COLUMNS} FROM {OLD_DOCUMENTS} ORDER BY place"
    for row in connection.execute(query):
        document = _from_row(*row)
        parsed = ParsedDocument(document.text, document.pages, document.headings)
        _insert(connection, document, split_chunks(document.id, document.kind, parsed))


def _select(connection: sqlite3.Connection, id: str) -> Document | None:
    query = f"SELECT {COLUMNS} FROM documents WHERE id = ?"
    row = connection.execute(query, (id,)).fetchone()
    return _from_row(*row) if row else None


def _from_row(
    id: str, name: str, kind: str, text: str, pages: str, headings: str, whole: int
) -> Document:
    return Document(
        id=id,
        name=name,
        kind=kind,
        text=text,
        pages=tuple((start, stop) for start, stop in json.loads(pages)),
        headings=tuple(Heading(*each) for each in json.loads(headings)),
        whole=bool(whole),
    )


def _hits(
    connection: sqlite3.Connection, query: str, ranking: Sequence[full_text.Ranked]
) -> Iterator[Hit]:
    """Yield the chunks of a ranking, without those removed meanwhile."""
    select = (
        f"SELECT d.name, {CHUNK} FROM chunks AS c JOIN words AS w ON w.rowid = c.row "
        "JOIN documents AS d ON d.id = c.document WHERE c.row = ?"
    )
    coverage = full_text.query_coverage(connection, query, [row for row, _ in ranking])
    for (row, score), covered in zip(ranking, coverage, strict=True):
        for name, *fields in connection.execute(select, (row,)):
            yield Hit(Chunk(*fields), name, score, *covered)
