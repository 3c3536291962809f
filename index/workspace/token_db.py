"""A SQLite database of token ids, keyed by the digest of the text, shared by several processes.

A failing database costs time but never raises: the failure is logged once, and the file is
recreated, or not used for a while. Whether the ids fit a text is for the caller to check.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from index.cache_folder import MAX_TOKEN_DBS, keep_newest, make_cache_folder
from index.temporary_file import sweep, temporary_folder

Ids = NDArray[np.int32]
Row = tuple[Ids, NDArray[np.int32] | None]  # see `token_cache.Encoded`
Result = TypeVar("Result")

WRITE_BATCH_BYTES = 4 << 20  # bytes of ids that are written at once
WRITE_DELAY_S = 1.0  # seconds until fewer are written
BUSY_TIMEOUT_S = 2.0  # seconds to wait for a lock of another process
RETRY_DELAY_S = 60.0  # seconds after a failure
JOURNALS = ("-wal", "-shm")  # next to the file; deleted first, as SQLite reads any that is there
MAX_QUERY_KEYS = 900  # keys in one query; the oldest SQLite supports 999 parameters

APPLICATION_ID = 0x44524601  # changes with the table's layout, and with `token_cache.chunks`
SCHEMA = f"""
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
PRAGMA application_id = {APPLICATION_ID};
CREATE TABLE texts (digest BLOB PRIMARY KEY, used INTEGER, crc INTEGER, starts BLOB, ids BLOB);
CREATE INDEX by_use ON texts (used);
"""

# Errors that only a new file fixes. ERROR: a table with another layout.
UNUSABLE = {
    sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_SCHEMA,
    sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_CONSTRAINT,
}  # fmt: skip

log = logging.getLogger(__name__)


class TokenDB:
    """A database file of token ids. Safe to use from any thread; no method raises file errors."""

    def __init__(self, path: Path, limit: int) -> None:
        """Take the file, unopened. `limit`: its approximate size in bytes."""
        self._path = path
        self._limit = limit
        self._lock = threading.Lock()  # guards what is to be written
        self._fresh: dict[bytes, Row] = {}
        self._used: set[bytes] = set()
        self._size = 0  # bytes of ids in `_fresh`
        self._writer: threading.Thread | None = None
        self._write_now = threading.Event()
        self._file_lock = threading.Lock()  # guards the connection
        self._connection: sqlite3.Connection | None = None
        self._inode = -1  # the connected file's inode
        self._retry_at = {"read": 0.0, "write": 0.0}  # monotonic times
        self._logged: set[str] = set()
        self._closed = False

    def find(self, digests: Collection[bytes]) -> dict[bytes, Row]:
        """Return the known rows among these, as they were noted."""
        with self._lock:
            found = {key: self._fresh[key] for key in digests if key in self._fresh}
        missing = [key for key in digests if key not in found]
        if missing:
            with self._file_lock:
                rows = self._run("read", lambda connection: _select(connection, missing))
            rows_by_key = {key: _unpack(*row) for key, *row in rows or []}
            found |= {key: row for key, row in rows_by_key.items() if row}
        return found

    def note(self, used: Iterable[bytes], fresh: dict[bytes, Row]) -> None:
        """Record which rows were used, and new rows to write in the background."""
        with self._lock:
            if self._closed:
                return
            self._used.update(used)
            self._fresh |= fresh
            self._size += sum(ids.nbytes for ids, _ in fresh.values())
            if self._size >= WRITE_BATCH_BYTES:
                self._write_now.set()
            if self._writer is None and (self._used or self._fresh):
                self._writer = threading.Thread(target=self._write_in_background, daemon=True)
                self._writer.start()

    def _write_in_background(self) -> None:
        while True:
            self._write_now.wait(WRITE_DELAY_S)
            self.write()
            with self._lock:
                if not self._fresh and not self._used:
                    self._writer = None
                    return

    def write(self) -> None:
        """Write all noted rows. Blocks until that is done or has failed."""
        with self._file_lock:
            with self._lock:
                fresh, used = dict(self._fresh), self._used
                self._used, self._size = set(), 0
                self._write_now.clear()
            if fresh or used:
                self._run("write", lambda connection: self._insert(connection, fresh, used))
            with self._lock:  # `find` used them until now
                for key, row in fresh.items():
                    if self._fresh.get(key) is row:
                        del self._fresh[key]

    def _insert(
        self, connection: sqlite3.Connection, fresh: dict[bytes, Row], used: Iterable[bytes]
    ) -> None:
        connection.execute("BEGIN IMMEDIATE")
        now = (_pragma(connection, "user_version") + 1) & 0x7FFFFFFF  # number of this write
        rows = [(key, now, *_pack(*row)) for key, row in fresh.items()]
        connection.executemany("INSERT OR REPLACE INTO texts VALUES (?, ?, ?, ?, ?)", rows)
        again = [(now, key) for key in used]
        connection.executemany("UPDATE texts SET used = ? WHERE digest = ?", again)
        connection.execute(f"PRAGMA user_version = {now}")
        pages = _pragma(connection, "page_count") - _pragma(connection, "freelist_count")
        size = pages * _pragma(connection, "page_size")
        if size > self._limit:
            _evict(connection, size - self._limit * 3 // 4)

    def clear(self) -> None:
        """Delete all rows, written or not."""
        with self._file_lock:
            with self._lock:
                self._fresh, self._used, self._size = {}, set(), 0
            if os.path.exists(self._path):
                self._run("write", _clear)

    def close(self) -> None:
        """Write all noted rows, and never use the file again. Blocks."""
        with self._lock:
            self._closed = True
        self.write()
        with self._file_lock:
            self._retry_at = dict.fromkeys(self._retry_at, float("inf"))
            self._disconnect()

    def nbytes(self) -> int:
        """Bytes of the file and its journal; 0 if there is none."""
        total = 0
        for end in ("", "-wal"):
            with suppress(OSError):  # missing or unreadable
                total += Path(f"{self._path}{end}").stat().st_size
        return total

    def _run(self, kind: str, work: Callable[[sqlite3.Connection], Result]) -> Result | None:
        """Return the result of `work`, or None if the file fails.

        An unusable file is recreated first. The caller holds `_file_lock`.
        """
        for _ in range(2):
            if time.monotonic() < self._retry_at[kind]:
                return None
            try:
                if self._connection is None:
                    self._connection = self._connect()
                with self._connection:
                    return work(self._connection)
            except (sqlite3.Error, OSError) as error:
                self._disconnect()
                if not _unusable(error):
                    self._suspend(kind, error)
                else:
                    self._log_once(f"{self._path}: {error}; recreated")
                    self._remove(kind)
        return None

    def _connect(self) -> sqlite3.Connection:
        """Open the file, creating it if needed. Raises sqlite3.Error or OSError."""
        make_cache_folder(self._path.parent)
        sweep(self._path.parent, stat.S_ISDIR)
        if not os.path.exists(self._path):
            self._create()
        self._inode = self._path.stat().st_ino
        connection = sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode=rw",
            uri=True,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            connection.text_factory = bytes  # a foreign file may hold any
            if _pragma(connection, "application_id") != APPLICATION_ID:
                raise sqlite3.DatabaseError("not token ids of this version")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA journal_size_limit = {WRITE_BATCH_BYTES}")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _create(self) -> None:
        """Create an empty database atomically."""
        with temporary_folder(self._path.parent) as folder:
            new = folder / "ids"
            with closing(sqlite3.connect(new, isolation_level=None)) as connection:
                connection.executescript(SCHEMA)
            new.chmod(0o600)  # the journal inherits it
            with suppress(FileExistsError):  # another process was faster
                os.link(new, self._path)
        keep_newest(self._path.parent.glob("*.sqlite"), MAX_TOKEN_DBS, JOURNALS)

    def _remove(self, kind: str) -> None:
        """Remove the connected file, unless another process has replaced it."""
        try:
            if self._path.stat().st_ino == self._inode:
                for end in (*JOURNALS, ""):
                    Path(f"{self._path}{end}").unlink(missing_ok=True)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._suspend(kind, error)

    def _suspend(self, kind: str, error: Exception) -> None:
        self._retry_at[kind] = time.monotonic() + RETRY_DELAY_S
        where = getattr(error, "filename", None) or self._path
        why = getattr(error, "strerror", None) or error
        self._log_once(f"{where}: {why}; not caching token ids, retrying later")

    def _log_once(self, line: str) -> None:
        if line not in self._logged:
            log.warning("%s", line)
        self._logged.add(line)

    def _disconnect(self) -> None:
        if self._connection:
            self._connection.close()
        self._connection = None


def _unusable(error: Exception) -> bool:
    """Return whether only a new file helps.

    Errors without a code are Python's, about invalid values.
    """
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return isinstance(error, sqlite3.Error) and code & 0xFF in UNUSABLE


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)


def _select(connection: sqlite3.Connection, missing: list[bytes]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for at in range(0, len(missing), MAX_QUERY_KEYS):
        some = missing[at : at + MAX_QUERY_KEYS]
        marks = ",".join("?" * len(some))
        query = f"SELECT digest, crc, starts, ids FROM texts WHERE digest IN ({marks})"
        rows += connection.execute(query, some).fetchall()
    return rows


def _evict(connection: sqlite3.Connection, excess: int) -> None:
    """Delete the least recently used rows, of about so many bytes."""
    gone = []
    length = "length(ids) + ifnull(length(starts), 0) + 100"
    for row, size in connection.execute(f"SELECT rowid, {length} FROM texts ORDER BY used, rowid"):
        gone.append((row,))
        excess -= size
        if excess <= 0:
            break
    connection.executemany("DELETE FROM texts WHERE rowid = ?", gone)  # the freed pages are reused


def _clear(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM texts")
    connection.executescript("PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE)")


def _pack(ids: Ids, starts: NDArray[np.int32] | None) -> tuple[int, bytes | None, bytes]:
    """Pack a row: its crc, starts and ids, in little-endian int32."""
    data = ids.astype("<i4", copy=False).tobytes()
    more = None if starts is None else starts.astype("<i4", copy=False).tobytes()
    return crc32(data, crc32(more or b"")), more, data


def _unpack(crc: Any, starts: Any, ids: Any) -> Row | None:
    """Unpack a row of `_pack`; None if it is damaged."""
    if not isinstance(ids, bytes) or not isinstance(starts, bytes | None):
        return None
    if len(ids) % 4 or len(starts or b"") % 4 or crc != crc32(ids, crc32(starts or b"")):
        return None
    places = None if starts is None else np.frombuffer(starts, "<i4").astype(np.int32, copy=False)
    return np.frombuffer(ids, "<i4").astype(np.int32, copy=False), places
