"""The SQLite file that documents are kept in: made, opened, shared with other processes.

It appears complete, in write-ahead mode, and every change is one transaction. What is in its tables
is not known here.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from index.documents.formats import DocumentError

FILE = "documents.sqlite"
OURS = 0x44524602  # marks the file
WAIT = 30.0  # seconds for another process to finish writing

REMEDIES = {
    sqlite3.SQLITE_BUSY: "another process is writing; try again",
    sqlite3.SQLITE_LOCKED: "another process is writing; try again",
    sqlite3.SQLITE_FULL: "free some space",
    sqlite3.SQLITE_CORRUPT: "remove it to start anew",
    sqlite3.SQLITE_NOTADB: "remove it to start anew",
}

log = logging.getLogger(__name__)


class DocumentsFile:
    """One connection to it. Any thread may call."""

    def __init__(self, folder: Path | None, schema: str, version: int) -> None:
        """`folder` None: in memory. `version`: a file of another one is emptied. Raises
        DocumentError."""
        self._lock = threading.Lock()
        self._path = folder / FILE if folder else None
        try:
            self._connection = _connected(self._path, schema, version)
        except (sqlite3.Error, OSError) as error:
            raise self._trouble(error) from error

    @contextmanager
    def session(self, write: bool = False) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it or nothing. Trouble with the file is a DocumentError."""
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                yield self._connection
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                raise self._trouble(error) from error
            finally:
                with suppress(sqlite3.ProgrammingError):  # it is closed
                    if self._connection.in_transaction:
                        self._connection.rollback()

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._connection.close()

    def _trouble(self, error: Exception) -> DocumentError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        remedy = REMEDIES.get(code, "see that this is a file of Draftline's, in a folder of yours")
        why = getattr(error, "strerror", None) or error
        return DocumentError(f"{self._path or 'documents in memory'}: {why}; {remedy}")


def _connected(path: Path | None, schema: str, version: int) -> sqlite3.Connection:
    """To the file, a new one where there is none. Raises sqlite3.Error or OSError."""
    if path and not path.exists():
        _create(path, schema, version)
    connection = sqlite3.connect(
        path or ":memory:", timeout=WAIT, isolation_level=None, check_same_thread=False
    )
    try:
        if path is None:
            _fill(connection, schema, version)
        elif _pragma(connection, "application_id") != OURS:
            raise sqlite3.DatabaseError("not a file of documents")
        elif _pragma(connection, "user_version") != version:
            _renew(connection, path, schema, version)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA journal_size_limit = {16 << 20}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _create(path: Path, schema: str, version: int) -> None:
    """An empty file, which appears complete."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="new-", dir=path.parent) as folder:
        new = Path(folder, FILE)
        with closing(sqlite3.connect(new, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            _fill(connection, schema, version)
        new.chmod(0o600)  # SQLite gives the journal the same mode
        with suppress(FileExistsError):  # another process was faster
            os.link(new, path)


def _fill(connection: sqlite3.Connection, schema: str, version: int) -> None:
    for statement in filter(str.strip, schema.split(";")):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {OURS}")
    connection.execute(f"PRAGMA user_version = {version}")


def _renew(connection: sqlite3.Connection, path: Path, schema: str, version: int) -> None:
    """Empty a file of another version, unless another process has just done so."""
    connection.execute("BEGIN IMMEDIATE")
    if _pragma(connection, "user_version") != version:
        log.warning("%s: made by another version of Draftline; emptied, add its files anew", path)
        find = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        while row := connection.execute(f"{find} ORDER BY sql LIKE '%VIRTUAL%' DESC").fetchone():
            connection.execute(f'DROP TABLE "{row[0]}"')
        _fill(connection, schema, version)
    connection.execute("COMMIT")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)
