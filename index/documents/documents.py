"""Documents that questions are asked about: added, kept, searched, traced to page and place.

They live in one SQLite file of a folder, which several processes may use, or in memory. A document
is its content: what is here already is not parsed again. Nothing is fetched; no model is known.
"""

from __future__ import annotations

import builtins
import hashlib
import json
import os
import re
import sqlite3
import stat
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from index.documents import full_text
from index.documents.chunking import Chunk, chunks
from index.documents.embeddings import SCHEMA as VECTORS
from index.documents.embeddings import Embed, Meaning, fused
from index.documents.formats import LARGEST, DocumentError, kind_of, parse
from index.documents.formats.headings import Heading
from index.documents.sqlite_file import DocumentsFile

__all__ = ["Chunk", "Document", "DocumentError", "Documents", "Heading", "Hit"]

VERSION = 1  # of the file: another number where what is parsed, cut or kept changes
LOOKED_AT = 50  # chunks that each way of searching brings
LONGEST_NAME = 255

SCHEMA = """
CREATE TABLE documents (
    place INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, name TEXT, kind TEXT, text TEXT,
    pages TEXT, headings TEXT, whole INTEGER
);
CREATE TABLE chunks (
    row INTEGER PRIMARY KEY AUTOINCREMENT, document TEXT, number INTEGER, start INTEGER,
    stop INTEGER, page INTEGER, heading TEXT
);
CREATE INDEX by_document ON chunks (document, number);
"""
COLUMNS = "id, name, kind, text, pages, headings, whole"
CHUNK = "c.document, c.number, w.text, c.start, c.stop, c.page, c.heading"
BAD_NAME = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]|(?:^|[/\\])\.\.(?:[/\\]|$)")


@dataclass(frozen=True, slots=True)
class Document:
    """The text of a file. Places are code points of `text`."""

    id: str  # of its content
    name: str
    kind: str  # pdf, docx, html, md, rst, txt, code
    text: str
    pages: tuple[tuple[int, int], ...]  # (start, stop) of each; only a pdf has them
    headings: tuple[Heading, ...]
    whole: bool = False  # the user wants it read whole, not searched

    def page(self, place: int) -> int | None:
        """The page of a place, from 1; of a place between two pages, the first of them."""
        return bisect_right([start for start, _ in self.pages], place) or None


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk that was found."""

    chunk: Chunk
    name: str  # of its document
    score: float  # to compare within one search only
    share: float  # of the query's words, weighed by rarity, that the chunk holds: 0 to 1


class Documents:
    """What was added, until it is removed. Any thread may call."""

    def __init__(self, folder: Path | None = None, embed: Embed | None = None) -> None:
        """`folder`: where they are kept; None: in memory. `embed`: search by meaning too; it is
        called with the texts of new chunks when they are added, or at the next search."""
        self._file = DocumentsFile(folder, SCHEMA + full_text.SCHEMA + VECTORS, VERSION)
        self._meaning = Meaning(embed, self._file.session) if embed else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def add(self, path: Path, name: str | None = None) -> Document:
        """Read a file, unless its content is here already; then only its name is new. `name`: what
        it is called; None: the last part of the path. Raises DocumentError."""
        path = Path(path)
        name = path.name if name is None else name
        _check_name(name)
        return self.add_data(name, _bytes(path, name))

    def add_data(self, name: str, data: bytes) -> Document:
        """`add` with a file's content."""
        _check_name(name)
        kind = kind_of(name)
        id = hashlib.sha256(kind.encode() + b"\0" + data).hexdigest()[:32]
        with self._file.session(write=True) as connection:
            document = _named(connection, id, name)
        if document is None:
            parsed = parse(name, data)  # outside of any transaction: it may take seconds
            text, pages, headings = parsed.text, parsed.pages, parsed.headings
            found = chunks(id, parsed)
            with self._file.session(write=True) as connection:
                document = _named(connection, id, name)  # by another thread or process
                if document is None:
                    document = Document(id, name, kind, text, pages, headings)
                    _insert(connection, document, found)
        if self._meaning:
            self._meaning.refresh()
        return document

    def remove(self, id: str) -> None:
        """Forget a document. Nothing happens where it is not here."""
        with self._file.session(write=True) as connection:
            rows = connection.execute("SELECT row FROM chunks WHERE document = ?", (id,)).fetchall()
            connection.executemany("DELETE FROM words WHERE rowid = ?", rows)
            connection.executemany("DELETE FROM vectors WHERE row = ?", rows)
            connection.execute("DELETE FROM chunks WHERE document = ?", (id,))
            connection.execute("DELETE FROM documents WHERE id = ?", (id,))

    def choose(self, id: str, whole: bool) -> None:
        """Note that a document is to be read whole, or searched. It changes nothing here: who
        searches says `among` which."""
        with self._file.session(write=True) as connection:
            connection.execute("UPDATE documents SET whole = ? WHERE id = ?", (whole, id))

    def get(self, id: str) -> Document:
        """KeyError where it is not here."""
        with self._file.session() as connection:
            document = _document(connection, id)
        if document is None:
            raise KeyError(id)
        return document

    def list(self) -> builtins.list[Document]:
        """All documents, in the order in which they were added."""
        query = f"SELECT {COLUMNS} FROM documents ORDER BY place"
        with self._file.session() as connection:
            return [_unpacked(*row) for row in connection.execute(query)]

    def chunks(self, id: str) -> builtins.list[Chunk]:
        """The chunks of a document, in order: all its text but the blanks between them."""
        query = (
            f"SELECT {CHUNK} FROM chunks AS c JOIN words AS w ON w.rowid = c.row "
            "WHERE c.document = ? ORDER BY c.number"
        )
        with self._file.session() as connection:
            return [Chunk(*row) for row in connection.execute(query, (id,))]

    def search(
        self, query: str, count: int = 8, among: Sequence[str] | None = None
    ) -> builtins.list[Hit]:
        """The chunks that answer a query best, best first. `among`: ids of the documents that are
        searched; None: all."""
        looked_at = max(count, LOOKED_AT)
        alike = self._meaning.nearest(query, looked_at, among) if self._meaning else None
        with self._file.session() as connection:
            found = full_text.ranked(connection, query, looked_at, among)
            best = (found if alike is None else fused(found, alike))[:count]
            return [*_hits(connection, query, best)]


def _check_name(name: str) -> None:
    if not name.strip() or len(name) > LONGEST_NAME or BAD_NAME.search(name):
        raise DocumentError(
            f"{name[:LONGEST_NAME]!a}: not a name for a document; give it a plain one, "
            "without '..' and control characters"
        )


def _bytes(path: Path, name: str) -> bytes:
    """A file's content, or a little more of it than is allowed."""
    try:
        # A pipe does not wait.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        why = getattr(error, "strerror", None) or error
        raise DocumentError(f"{name}: {why}; name a file that can be read") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise DocumentError(f"{name}: not a regular file; name one")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(LARGEST + 1)
    except OSError as error:
        raise DocumentError(f"{name}: {error.strerror}; copy it anew") from error
    finally:
        os.close(descriptor)


def _named(connection: sqlite3.Connection, id: str, name: str) -> Document | None:
    """A document that is here, by its newest name from now on."""
    document = _document(connection, id)
    if document is None or document.name == name:
        return document
    connection.execute("UPDATE documents SET name = ? WHERE id = ?", (name, id))
    connection.execute(
        "UPDATE words SET name = ? WHERE rowid IN (SELECT row FROM chunks WHERE document = ?)",
        (name, id),
    )
    return _document(connection, id)


def _insert(connection: sqlite3.Connection, document: Document, found: list[Chunk]) -> None:
    connection.execute(
        f"INSERT INTO documents ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            *(document.id, document.name, document.kind, document.text),
            json.dumps(document.pages),
            json.dumps([(each.start, each.level, each.title) for each in document.headings]),
            document.whole,
        ),
    )
    rows = [
        connection.execute(
            "INSERT INTO chunks (document, number, start, stop, page, heading) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (chunk.document, chunk.number, chunk.start, chunk.stop, chunk.page, chunk.heading),
        ).lastrowid
        for chunk in found
    ]
    full_text.insert(connection, found, document.name, rows)


def _document(connection: sqlite3.Connection, id: str) -> Document | None:
    query = f"SELECT {COLUMNS} FROM documents WHERE id = ?"
    row = connection.execute(query, (id,)).fetchone()
    return _unpacked(*row) if row else None


def _unpacked(
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
    connection: sqlite3.Connection, query: str, found: Sequence[tuple[int, float]]
) -> Iterator[Hit]:
    """Chunks by their rows; what was removed meanwhile is left out."""
    whole = (
        f"SELECT d.name, {CHUNK} FROM chunks AS c JOIN words AS w ON w.rowid = c.row "
        "JOIN documents AS d ON d.id = c.document WHERE c.row = ?"
    )
    shares = full_text.shares(connection, query, [row for row, _ in found])
    for (row, score), share in zip(found, shares, strict=True):
        for name, *fields in connection.execute(whole, (row,)):
            yield Hit(Chunk(*fields), name, score, share)
