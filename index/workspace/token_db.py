"""Token ids by the digest of their text, in one SQLite file that several processes share.

Trouble with the file costs time, never an answer: it is logged once, and the file made anew, or
left alone for a while. What the ids mean, and whether they fit a text, is not known here.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]
Row = tuple[Ids, NDArray[np.int32] | None]  # ids, and where they start, if that is to be kept
Done = TypeVar("Done")

WRITE = 4 << 20  # bytes of ids that are written at once,
SOON = 1.0  # or what there is after so many seconds
WAIT = 2.0  # seconds for another process to let go of the file
PAUSE = 60.0  # seconds without the file after it failed
NAMED = 900  # digests in one query, of 999 that the oldest SQLite takes

FORMAT = 0x44524601  # marks the file: another number where the table or `tokens.chunks` changes
SCHEMA = f"""
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
PRAGMA application_id = {FORMAT};
CREATE TABLE texts (digest BLOB PRIMARY KEY, used INTEGER, crc INTEGER, starts BLOB, ids BLOB);
CREATE INDEX by_use ON texts (used);
"""

# The file is of no use, now or later. ERROR: a table that is not ours.
UNUSABLE = {
    sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_SCHEMA,
    sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_CONSTRAINT,
}  # fmt: skip

log = logging.getLogger(__name__)


class Kept:
    """The ids kept in one file. Any thread may call it; no method raises an error of the file."""

    def __init__(self, path: Path, limit: int) -> None:
        """`limit`: bytes of the file, about."""
        self._path = path
        self._limit = limit
        self._lock = threading.Lock()  # of what is to be written
        self._fresh: dict[bytes, Row] = {}
        self._used: set[bytes] = set()
        self._size = 0  # bytes of ids in `_fresh`
        self._writer: threading.Thread | None = None
        self._hurry = threading.Event()
        self._file = threading.Lock()  # of the connection
        self._connection: sqlite3.Connection | None = None
        self._inode = -1  # of the file it is to
        self._resume = {"read": 0.0, "write": 0.0}  # when it is tried again, by the monotonic clock
        self._told: set[str] = set()
        self._closed = False

    def find(self, digests: Collection[bytes]) -> dict[bytes, Row]:
        """What is kept of these, exactly as it was noted."""
        with self._lock:
            found = {key: self._fresh[key] for key in digests if key in self._fresh}
        wanted = [key for key in digests if key not in found]
        if wanted:
            with self._file:
                rows = self._try("read", lambda connection: _select(connection, wanted))
            kept = {key: _unpacked(*row) for key, *row in rows or []}
            found |= {key: row for key, row in kept.items() if row}
        return found

    def note(self, used: Iterable[bytes], fresh: dict[bytes, Row]) -> None:
        """Soon to be written: what was found and used, and what is new."""
        with self._lock:
            if self._closed:
                return
            self._used.update(used)
            self._fresh |= fresh
            self._size += sum(ids.nbytes for ids, _ in fresh.values())
            if self._size >= WRITE:
                self._hurry.set()
            if self._writer is None and (self._used or self._fresh):
                self._writer = threading.Thread(target=self._write_soon, daemon=True)
                self._writer.start()

    def _write_soon(self) -> None:
        while True:
            self._hurry.wait(SOON)
            self.write()
            with self._lock:
                if not self._fresh and not self._used:
                    self._writer = None
                    return

    def write(self) -> None:
        """Write what is noted; done, or given up, when it returns."""
        with self._file:
            with self._lock:
                fresh, used = dict(self._fresh), self._used
                self._used, self._size = set(), 0
                self._hurry.clear()
            if fresh or used:
                self._try("write", lambda connection: self._insert(connection, fresh, used))
            with self._lock:  # until now `find` found them here
                for key, row in fresh.items():
                    if self._fresh.get(key) is row:
                        del self._fresh[key]

    def _insert(
        self, connection: sqlite3.Connection, fresh: dict[bytes, Row], used: Iterable[bytes]
    ) -> None:
        connection.execute("BEGIN IMMEDIATE")
        now = (_pragma(connection, "user_version") + 1) & 0x7FFFFFFF  # counts the writes
        rows = [(key, now, *_packed(*row)) for key, row in fresh.items()]
        connection.executemany("INSERT OR REPLACE INTO texts VALUES (?, ?, ?, ?, ?)", rows)
        again = [(now, key) for key in used]
        connection.executemany("UPDATE texts SET used = ? WHERE digest = ?", again)
        connection.execute(f"PRAGMA user_version = {now}")
        pages = _pragma(connection, "page_count") - _pragma(connection, "freelist_count")
        size = pages * _pragma(connection, "page_size")
        if size > self._limit:
            _evict(connection, size - self._limit * 3 // 4)

    def clear(self) -> None:
        """Forget everything, written or not."""
        with self._file:
            with self._lock:
                self._fresh, self._used, self._size = {}, set(), 0
            if os.path.exists(self._path):
                self._try("write", _clear)

    def close(self) -> None:
        """Write what is noted, and leave the file alone from then on."""
        with self._lock:
            self._closed = True
        self.write()
        with self._file:
            self._resume = dict.fromkeys(self._resume, float("inf"))
            self._disconnect()

    def nbytes(self) -> int:
        """Of the file and its journal; 0 where there is none."""
        total = 0
        for end in ("", "-wal"):
            with suppress(OSError):  # not there, or not for us to see
                total += Path(f"{self._path}{end}").stat().st_size
        return total

    def _try(self, kind: str, work: Callable[[sqlite3.Connection], Done]) -> Done | None:
        """What `work` returns, None where the file fails; a useless file is replaced first. The
        caller holds `_file`."""
        for _ in range(2):
            if time.monotonic() < self._resume[kind]:
                return None
            try:
                if self._connection is None:
                    self._connection = self._connect()
                with self._connection:
                    return work(self._connection)
            except (sqlite3.Error, OSError) as error:
                self._disconnect()
                if not _unusable(error):
                    self._leave(kind, error)
                else:
                    self._tell(f"{self._path}: {error}; made anew")
                    self._remove(kind)
        return None

    def _connect(self) -> sqlite3.Connection:
        """To the file, a new one where there is none. Raises sqlite3.Error or OSError."""
        if not os.path.exists(self._path):
            self._create()
        self._inode = self._path.stat().st_ino
        connection = sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode=rw",
            uri=True,
            timeout=WAIT,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            connection.text_factory = bytes  # a foreign file may hold any
            if _pragma(connection, "application_id") != FORMAT:
                raise sqlite3.DatabaseError("not token ids of this version")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA journal_size_limit = {WRITE}")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _create(self) -> None:
        """An empty file, which appears complete."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="new-", dir=self._path.parent) as folder:
            new = Path(folder, "ids")
            with closing(sqlite3.connect(new, isolation_level=None)) as connection:
                connection.executescript(SCHEMA)
            new.chmod(0o600)  # SQLite gives the journal the same mode
            with suppress(FileExistsError):  # another process was faster
                os.link(new, self._path)

    def _remove(self, kind: str) -> None:
        """Remove the file that was connected, unless another process has done so."""
        try:
            if self._path.stat().st_ino == self._inode:
                for end in ("-wal", "-shm", ""):
                    Path(f"{self._path}{end}").unlink(missing_ok=True)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._leave(kind, error)

    def _leave(self, kind: str, error: Exception) -> None:
        self._resume[kind] = time.monotonic() + PAUSE
        why = getattr(error, "strerror", None) or error
        self._tell(f"{self._path}: {why}; token ids are not kept until that is mended")

    def _tell(self, line: str) -> None:
        if line not in self._told:
            log.warning("%s", line)
        self._told.add(line)

    def _disconnect(self) -> None:
        if self._connection:
            self._connection.close()
        self._connection = None


def _unusable(error: Exception) -> bool:
    """Whether only a new file helps. Errors without a code are Python's, about foreign values."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return isinstance(error, sqlite3.Error) and code & 0xFF in UNUSABLE


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)


def _select(connection: sqlite3.Connection, wanted: list[bytes]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for at in range(0, len(wanted), NAMED):
        some = wanted[at : at + NAMED]
        marks = ",".join("?" * len(some))
        query = f"SELECT digest, crc, starts, ids FROM texts WHERE digest IN ({marks})"
        rows += connection.execute(query, some).fetchall()
    return rows


def _evict(connection: sqlite3.Connection, excess: int) -> None:
    """About so many bytes go, first those that were not used for longest."""
    gone = []
    length = "length(ids) + ifnull(length(starts), 0) + 100"
    for row, size in connection.execute(f"SELECT rowid, {length} FROM texts ORDER BY used, rowid"):
        gone.append((row,))
        excess -= size
        if excess <= 0:
            break
    connection.executemany("DELETE FROM texts WHERE rowid = ?", gone)  # their room is used again


def _clear(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM texts")
    connection.executescript("PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE)")


def _packed(ids: Ids, starts: NDArray[np.int32] | None) -> tuple[int, bytes | None, bytes]:
    """crc, starts and ids of a row, as little-endian int32."""
    data = ids.astype("<i4", copy=False).tobytes()
    more = None if starts is None else starts.astype("<i4", copy=False).tobytes()
    return crc32(data, crc32(more or b"")), more, data


def _unpacked(crc: Any, starts: Any, ids: Any) -> Row | None:
    """The inverse, None for what `_packed` did not make."""
    if not isinstance(ids, bytes) or not isinstance(starts, bytes | None):
        return None
    if len(ids) % 4 or len(starts or b"") % 4 or crc != crc32(ids, crc32(starts or b"")):
        return None
    places = None if starts is None else np.frombuffer(starts, "<i4").astype(np.int32, copy=False)
    return np.frombuffer(ids, "<i4").astype(np.int32, copy=False), places
