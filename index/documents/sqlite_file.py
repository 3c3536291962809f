"""The SQLite file that holds documents, shared with other processes.

A new file appears complete, in write-ahead mode, and every change is one transaction. The tables
are defined by the caller.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from index.cache_folder import make_cache_folder
from index.documents.formats import DocumentError
from index.temporary_file import sweep, temporary_folder

FILE_NAME = "documents.sqlite"
OLD_DOCUMENTS = "old_documents"  # the table of documents while a file is upgraded
CACHE_LEVELS = 2  # folders of the cache's own: a user's, and the one that holds all users'
APPLICATION_ID = 0x44524602
LOCK_TIMEOUT_S = 30.0  # seconds to wait for another process's writing
MAX_JOURNAL_BYTES = 16 << 20

REMEDIES = {
    sqlite3.SQLITE_BUSY: "another process is writing; try again",
    sqlite3.SQLITE_LOCKED: "another process is writing; try again",
    sqlite3.SQLITE_FULL: "free some space",
    sqlite3.SQLITE_CORRUPT: "delete it to start over",
    sqlite3.SQLITE_NOTADB: "delete it to start over",
}
DEFAULT_REMEDY = "check that Draftline made this file and that you may write to its folder"

Copy = Callable[[sqlite3.Connection], None]  # from the table OLD_DOCUMENTS into new tables

logger = logging.getLogger(__name__)


class DocumentsFile:
    """A thread-safe connection to the file."""

    def __init__(self, folder: Path | None, schema: str, version: int, copy: Copy) -> None:
        """Open or create the file in `folder`, or a database in memory for None.

        In a file of another schema version, `copy` fills the new tables from the old documents.
        Raises DocumentError.
        """
        self._lock = threading.Lock()
        self._path = folder / FILE_NAME if folder else None
        try:
            self._connection = _connect(self._path, schema, version, copy)
        except (sqlite3.Error, OSError) as error:
            raise self._error(error) from error

    @contextmanager
    def session(self, write: bool = False) -> Iterator[sqlite3.Connection]:
        """Begin a transaction, rolled back if the body raises.

        SQLite errors become DocumentError.
        """
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                yield self._connection
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                raise self._error(error) from error
            finally:
                with suppress(sqlite3.ProgrammingError):  # closed
                    if self._connection.in_transaction:
                        self._connection.rollback()

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _error(self, error: Exception) -> DocumentError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        reason = getattr(error, "strerror", None) or error
        remedy = REMEDIES.get(code, DEFAULT_REMEDY)
        where = getattr(error, "filename", None) or self._path or "documents in memory"
        return DocumentError(f"{where}: {reason}; {remedy}")


def _connect(path: Path | None, schema: str, version: int, copy: Copy) -> sqlite3.Connection:
    """Connect to the file, which is created or upgraded. Raises sqlite3.Error or OSError."""
    if path:
        make_cache_folder(path.parent, CACHE_LEVELS)
        sweep(path.parent, stat.S_ISDIR)
        if not path.exists():
            _create(path, schema, version)
    connection = sqlite3.connect(
        path or ":memory:", timeout=LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )
    try:
        if path is None:
            _create_tables(connection, schema, version)
        elif _pragma(connection, "application_id") != APPLICATION_ID:
            raise sqlite3.DatabaseError("not a file of documents")
        elif _pragma(connection, "user_version") != version:
            _upgrade(connection, path, schema, version, copy)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA journal_size_limit = {MAX_JOURNAL_BYTES}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _create(path: Path, schema: str, version: int) -> None:
    """Make an empty file next to `path` and link it there once it is complete."""
    with temporary_folder(path.parent) as folder:
        new = folder / FILE_NAME
        with closing(sqlite3.connect(new, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            _create_tables(connection, schema, version)
        new.chmod(0o600)  # SQLite gives the journal the same mode
        with suppress(FileExistsError):  # another process was first
            os.link(new, path)


def _create_tables(connection: sqlite3.Connection, schema: str, version: int) -> None:
    for statement in filter(str.strip, schema.split(";")):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {version}")


def _upgrade(
    connection: sqlite3.Connection, path: Path, schema: str, version: int, copy: Copy
) -> None:
    """Recreate the tables with the same documents, unless another process has just done so."""
    connection.execute("BEGIN IMMEDIATE")
    if _pragma(connection, "user_version") != version:
        connection.execute(f"ALTER TABLE documents RENAME TO {OLD_DOCUMENTS}")
        find = (
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' "
            f"AND name <> '{OLD_DOCUMENTS}'"
        )
        # Virtual tables first: dropping one drops the tables behind it.
        while row := connection.execute(f"{find} ORDER BY sql LIKE '%VIRTUAL%' DESC").fetchone():
            connection.execute(f'DROP TABLE "{row[0]}"')
        _create_tables(connection, schema, version)
        connection.execute("SAVEPOINT empty")
        try:
            copy(connection)
        except (sqlite3.Error, ValueError, TypeError):  # tables that this version does not know
            connection.execute("ROLLBACK TO empty")
            logger.warning(
                "%s: written by another version of Draftline; emptied, add its documents again",
                path,
            )
        connection.execute("RELEASE empty")
        connection.execute(f"DROP TABLE {OLD_DOCUMENTS}")
    connection.execute("COMMIT")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)
