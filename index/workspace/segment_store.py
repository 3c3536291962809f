"""A crash-safe folder of array files, which holds the saved index of a workspace.

It contains `table`, one immutable `<name>.part` for each part that the table names with its size
and checksum, and `lock`. One process writes it, any number read it. A save is atomic: after a
crash the folder holds either the old state or the new one. A folder that is a link or belongs to
another user is neither read nor written.

The meaning of the arrays is the caller's. A SegmentStore is for one thread at a time.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from index.cache_folder import check_cache_folder, make_cache_folder
from index.os_calls import is_own, sync_folder
from index.temporary_file import sweep
from index.workspace.array_file import ArrayFile, Arrays, Damaged, FileIdentity, check, write

if TYPE_CHECKING:
    from filelock import FileLock

logger = logging.getLogger(__name__)

MAX_LOAD_ATTEMPTS = 20  # attempts, while a writer replaces the table
PART_NAME = re.compile(r"[a-z0-9]{1,64}")
CACHE_LEVELS = 2  # folders of the cache's own: a store's, and the one that holds all stores


@dataclass(frozen=True)
class Part:
    """Immutable arrays in a file of their own. A name is never reused for other contents."""

    name: str  # [a-z0-9]{1,64}
    arrays: Arrays


@dataclass(frozen=True)
class SavedState:
    """The contents of a store. Loaded arrays are read-only."""

    meta: dict[str, Any]  # JSON values
    table: Arrays
    parts: list[Part]


def new_name() -> str:
    """Make a unique name for a part."""
    return secrets.token_hex(16)


class SegmentStore:
    """A folder of saved state, which is not created before `acquire`."""

    def __init__(self, folder: Path, fingerprint: str) -> None:
        """State saved with another `fingerprint` is not loaded."""
        self.folder = Path(folder)
        self.fingerprint = fingerprint
        self._table = self.folder / "table"
        self._lock: FileLock | None = None
        self._warned = False  # whether it was warned that the folder cannot be used
        self._locked = (0, 0)  # device and inode of our lock file
        self._known: dict[str, FileIdentity] = {}  # parts that were written, or loaded and verified
        self._unverified: list[ArrayFile] = []  # parts that were loaded

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def acquire(self) -> bool:
        """Try to become the writer, without waiting for another one.

        A folder that cannot be written is logged.
        """
        from filelock import FileLock, Timeout

        if self.writable:
            return True
        self.close()
        path = self.folder / "lock"
        lock = FileLock(path, mode=0o600, thread_local=False)
        try:
            make_cache_folder(self.folder, CACHE_LEVELS)
            lock.acquire(timeout=0)
            self._locked = _identity(path)
        except Timeout:
            return False
        except OSError as error:
            lock.release(force=True)
            self._warn("cannot save the index", error)
            return False
        self._warned = False
        self._lock = lock
        return True

    @property
    def is_unusable(self) -> bool:
        """Return whether the folder could not be used at the last try, which is logged."""
        return self._warned

    @property
    def writable(self) -> bool:
        """Return whether this is the writer. False once the folder was deleted."""
        try:
            return self._lock is not None and _identity(self.folder / "lock") == self._locked
        except OSError:
            return False

    def close(self) -> None:
        """Stop being the writer."""
        if self._lock is not None:
            self._lock.release(force=True)
            self._lock = None

    def load(self, verify: bool = True) -> SavedState | None:
        """Load the saved state, memory-mapped and verified.

        None if there is none, or if it is damaged, which is logged rather than raised. `verify`
        False: the parts' contents are left to `verify`, so that loading takes no time per byte of
        theirs.
        """
        try:
            check_cache_folder(self.folder, CACHE_LEVELS)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn("cannot use the saved index", error)
            return None
        try:
            files = self._open_all()
            for file in files[:1]:
                file.check()
        except (OSError, Damaged) as error:
            logger.warning("%s; rebuilding the index", error)
            return None
        if not files:
            return None
        self._unverified = files[1:]
        return _state(files) if not verify or self.verify() else None

    def verify(self) -> bool:
        """Verify the loaded parts' contents. False if one is damaged, which is logged."""
        files, self._unverified = self._unverified, []
        try:
            for file in files:
                file.check()
        except (OSError, Damaged) as error:
            logger.warning("%s; rebuilding the index", error)
            return False
        self._known |= {file.about["name"]: file.identity for file in files}
        return True

    def put(self, part: Part) -> Part:
        """Write a part before the state that will name it, and map it in place of its arrays.

        A save that does not name it deletes it. OSError if the disk is full, RuntimeError if this
        is not the writer.
        """
        self._need_lock()
        name, size, checksum = self._write(part)
        return Part(name, self._open(name, FileIdentity(size, checksum)).arrays)

    def save(self, saved: SavedState) -> None:
        """Replace the saved state.

        Writes the missing parts, then the table, then deletes the parts that it no longer names. On
        OSError
        (disk full) the previous state stays. RuntimeError if this is not the writer, ValueError if
        the
        state cannot be stored.
        """
        self._need_lock()
        _check(saved)
        names = {part.name for part in saved.parts}
        self._clean(self._named_on_disk() | names)  # frees what a crashed writer left
        try:
            parts = [self._write(part) for part in saved.parts]
            sync_folder(self.folder)
            write(self._table, self.fingerprint, {"meta": saved.meta, "parts": parts}, saved.table)
        except OSError:
            self._clean(self._named_on_disk())  # frees the new parts
            raise
        sync_folder(self.folder)
        self._known = {name: identity for name, identity in self._known.items() if name in names}
        self._clean(names)

    def sweep(self) -> None:
        """Delete what killed writers left, unless there is a writer now, which will do so.

        Leaves a damaged store as it is.
        """
        with suppress(OSError, Damaged), SegmentStore(self.folder, self.fingerprint) as writer:
            check_cache_folder(self.folder, CACHE_LEVELS)
            sweep(self.folder)
            if any(self._left(self._named())) and writer.acquire():
                writer._clean(writer._named())

    def clear(self) -> None:
        """Delete the saved state. RuntimeError if this is not the writer."""
        self._need_lock()
        self._table.unlink(missing_ok=True)  # first: a table never names a missing part
        sync_folder(self.folder)
        self._clean(set())

    def nbytes(self) -> int:
        """Bytes on disk."""
        try:
            files = list(self._files())
        except PermissionError:
            return 0
        total = 0
        for path in files:
            with suppress(FileNotFoundError):  # the writer deleted it
                total += path.lstat().st_size
        return total

    def _need_lock(self) -> None:
        """RuntimeError unless this is the writer. Recreates a folder that was deleted."""
        if self._lock is None or not self.acquire():
            raise RuntimeError(f"{self.folder}: not the writer; call acquire() first")

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.part"

    def _files(self) -> Iterator[Path]:
        """Yield the store's files, except for the lock."""
        if self.folder.is_dir():
            for path in self.folder.iterdir():
                if path == self._table or path.suffix in (".part", ".tmp"):
                    yield path

    def _clean(self, names: set[str]) -> None:
        """Delete what killed writers left, and the parts that are not in `names`."""
        sweep(self.folder)
        for path in self._left(names):
            path.unlink(missing_ok=True)

    def _left(self, names: set[str]) -> Iterator[Path]:
        """Yield the parts in the folder that are not in `names`: regular files of this user."""
        for path in self._files():
            if path.suffix == ".part" and PART_NAME.fullmatch(path.stem) and path.stem not in names:
                with suppress(FileNotFoundError):  # the writer deleted it
                    status = path.lstat()
                    if stat.S_ISREG(status.st_mode) and is_own(status):
                        yield path

    def _warn(self, what: str, error: OSError) -> None:
        """Log an error, but once only for a folder that stays unusable."""
        if not self._warned:
            logger.warning("%s: %s: %s", what, error.filename or self.folder, error.strerror)
        self._warned = True

    def _write(self, part: Part) -> tuple[str, int, int]:
        """Store a part; its entry in the table."""
        identity = self._known.get(part.name)
        if identity is None or not self._is_on_disk(part.name, identity):
            about = {"name": part.name}
            identity = write(self._path(part.name), self.fingerprint, about, part.arrays)
            self._known[part.name] = identity
        return part.name, identity.size, identity.checksum

    def _is_on_disk(self, name: str, identity: FileIdentity) -> bool:
        try:
            return self._path(name).stat().st_size == identity.size
        except FileNotFoundError:
            return False

    def _open_all(self) -> list[ArrayFile]:
        """Return the table and its parts, mapped; [] without a table. Raises OSError or Damaged."""
        missing = ""
        for _ in range(MAX_LOAD_ATTEMPTS):
            try:
                table = ArrayFile(self._table)
            except FileNotFoundError:
                return []
            if table.fingerprint != self.fingerprint:
                raise table.damaged("has another fingerprint")
            try:
                return [table, *(self._open(*named) for named in _named(table).items())]
            except FileNotFoundError as error:  # or deleted by a newer save
                missing = error.filename
        raise Damaged(f"{missing}: missing, but named by the table")

    def _open(self, name: str, identity: FileIdentity) -> ArrayFile:
        file = ArrayFile(self._path(name))
        if file.identity != identity or file.about != {"name": name}:
            raise file.damaged("not the file named by the table")
        return file

    def _named(self) -> set[str]:
        """Return the parts named by the table on disk; none without a table.

        Raises OSError or Damaged.
        """
        try:
            return set(_named(ArrayFile(self._table)))
        except FileNotFoundError:
            return set()

    def _named_on_disk(self) -> set[str]:
        """Return the parts named by the table on disk; none if it is damaged."""
        try:
            return self._named()
        except (OSError, Damaged):
            return set()


def open_state(folder: Path) -> SavedState:
    """Return the state of a store of any fingerprint, whoever owns it, mapped and verified.

    Raises OSError or Damaged.
    """
    table = ArrayFile(folder / "table")
    files = SegmentStore(folder, table.fingerprint)._open_all()
    for file in files:
        file.check()
    return _state(files or [table])


def _state(files: list[ArrayFile]) -> SavedState:
    """Return the state that a table and its parts hold."""
    table, *others = files
    parts = [Part(file.about["name"], file.arrays) for file in others]
    return SavedState(table.about["meta"], table.arrays, parts)


def _named(table: ArrayFile) -> dict[str, FileIdentity]:
    """Return the parts named by a table. Raises Damaged."""
    named: dict[str, FileIdentity] = {}
    match table.about:
        case {"meta": dict(), "parts": list(entries)}:
            pass
        case _:
            raise table.damaged("not a table")
    for entry in entries:
        match entry:
            case [str(name), int(size), int(checksum)] if (
                PART_NAME.fullmatch(name) and name not in named
            ):
                named[name] = FileIdentity(size, checksum)
            case _:
                raise table.damaged("invalid part in its header")
    return named


def _check(saved: SavedState) -> None:
    """ValueError if the state would not be loaded exactly as saved."""
    names = [part.name for part in saved.parts]
    for name in names:
        if not PART_NAME.fullmatch(name):
            raise ValueError(
                f"part {name!r}: use 1-64 characters of a-z and 0-9, as from new_name()"
            )
    if len(set(names)) < len(names):
        raise ValueError("two parts with one name; use new_name()")
    for arrays in (saved.table, *(part.arrays for part in saved.parts)):
        check(arrays)
    try:
        same = json.loads(json.dumps(saved.meta, allow_nan=False)) == saved.meta
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"meta: {error}; use JSON values") from error
    if not same:
        raise ValueError("meta: changed by JSON; use lists instead of tuples, and str keys")


def _identity(path: Path) -> tuple[int, int]:
    """Device and inode, which another file of the same name does not share."""
    status = path.stat()
    return status.st_dev, status.st_ino
