"""A workspace index on disk, so that a second start builds nothing.

A folder holds `table`, `<name>.part` for each part that the table names with its size and checksum,
and `lock`. One process writes the folder, any number read it. What a save leaves, wherever it dies,
is the state before it or the one after.

It knows nothing of what the arrays mean. A Store is for one thread at a time.
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

from index.workspace.array_file import ArrayFile, Arrays, Damaged, Seal, check, sync, write

if TYPE_CHECKING:
    from filelock import FileLock

logger = logging.getLogger(__name__)

TRIES = 20  # a reader's, while a writer replaces the table under it
NAME = re.compile(r"[a-z0-9]{1,64}")


@dataclass(frozen=True)
class Part:
    """Arrays that never change, in a file of their own; a name stands for one content for ever."""

    name: str  # [a-z0-9]{1,64}
    arrays: Arrays


@dataclass(frozen=True)
class Saved:
    """All that a folder holds. Loaded arrays are read-only."""

    meta: dict[str, Any]  # JSON values
    table: Arrays
    parts: list[Part]


def new_name() -> str:
    """A name that no other part has."""
    return secrets.token_hex(16)


class Store:
    """One folder of saved state. Makes nothing until it is the writer."""

    def __init__(self, folder: Path, fingerprint: str) -> None:
        """`fingerprint`: what the state depends on; state saved under another is not loaded."""
        self.folder = Path(folder)
        self.fingerprint = fingerprint
        self._table = self.folder / "table"
        self._lock: FileLock | None = None
        self._told = False  # that we cannot be
        self._locked = (0, 0)  # device and inode of the lock file that we hold
        self._known: dict[str, Seal] = {}  # parts that we wrote, or loaded and checked

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def acquire(self) -> bool:
        """Become the writer where nobody else is; never waits. False also where the folder cannot
        be written, which is logged."""
        from filelock import FileLock, Timeout

        if self.writable:
            return True
        self.close()
        path = self.folder / "lock"
        lock = FileLock(path, mode=0o600, thread_local=False)
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            mode = stat.S_IMODE(self.folder.stat().st_mode)
            if mode & 0o077:
                self.folder.chmod(mode & 0o700)
            lock.acquire(timeout=0)
            self._locked = _identity(path)
        except Timeout:
            return False
        except OSError as error:
            lock.release(force=True)
            if not self._told:
                logger.warning("%s; the index is not saved", error)
            self._told = True
            return False
        self._told = False
        self._lock = lock
        return True

    @property
    def writable(self) -> bool:
        """Whether this Store is the writer. No longer so where the folder was deleted."""
        try:
            return self._lock is not None and _identity(self.folder / "lock") == self._locked
        except OSError:
            return False

    def close(self) -> None:
        """Stop being the writer."""
        if self._lock is not None:
            self._lock.release(force=True)
            self._lock = None

    def load(self) -> Saved | None:
        """The saved state, mapped and checked; None where there is none, and where it cannot be
        used, which is logged. Never raises for what is on disk."""
        try:
            files = self._open_all()
            for file in files:
                file.check()
        except (OSError, Damaged) as error:
            logger.warning("%s; the index is built again", error)
            return None
        if not files:
            return None
        table, *others = files
        self._known |= {file.about["name"]: file.seal for file in others}
        parts = [Part(file.about["name"], file.arrays) for file in others]
        return Saved(table.about["meta"], table.arrays, parts)

    def save(self, saved: Saved) -> None:
        """Replace the saved state: parts that are not on disk are written, then the table, then
        what it does not name is deleted.

        OSError (disk full): the state before it stays, and nothing half done. RuntimeError where
        this is not the writer, ValueError for what cannot be stored.
        """
        self._need_lock()
        _check(saved)
        self._clean(self._named_on_disk())  # what a dead writer left, before the space is needed
        try:
            parts = [self._write(part) for part in saved.parts]
            sync(self.folder)
            write(self._table, self.fingerprint, {"meta": saved.meta, "parts": parts}, saved.table)
        except OSError:
            self._clean(self._named_on_disk())  # give the space back
            raise
        sync(self.folder)
        names = {part.name for part in saved.parts}
        self._known = {name: seal for name, seal in self._known.items() if name in names}
        self._clean(names)

    def clear(self) -> None:
        """Delete all that is saved. RuntimeError where this is not the writer."""
        self._need_lock()
        self._table.unlink(missing_ok=True)  # first: a table never names what is gone
        sync(self.folder)
        self._clean(set())

    def nbytes(self) -> int:
        """Bytes of what is saved."""
        try:
            files = list(self._files())
        except PermissionError:
            return 0
        total = 0
        for path in files:
            with suppress(FileNotFoundError):  # the writer was faster
                total += path.lstat().st_size
        return total

    def _need_lock(self) -> None:
        """RuntimeError unless we are the writer; a folder deleted under us is made again."""
        if self._lock is None or not self.acquire():
            raise RuntimeError(f"{self.folder}: not its writer; call acquire() first")

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.part"

    def _files(self) -> Iterator[Path]:
        """Files that are ours by name, but for the lock."""
        if self.folder.is_dir():
            for path in self.folder.iterdir():
                if path == self._table or path.suffix in (".part", ".tmp"):
                    yield path

    def _clean(self, names: set[str]) -> None:
        """Delete the parts that are not in `names`, and temporary files: we alone write."""
        for path in self._files():
            kept = path == self._table or (path.suffix == ".part" and path.stem in names)
            if not kept and not path.is_dir():
                path.unlink(missing_ok=True)

    def _write(self, part: Part) -> tuple[str, int, int]:
        """What the table says of a part, once it is stored."""
        seal = self._known.get(part.name)
        if seal is None or not self._is_on_disk(part.name, seal):
            about = {"name": part.name}
            seal = write(self._path(part.name), self.fingerprint, about, part.arrays)
            self._known[part.name] = seal
        return part.name, seal.size, seal.checksum

    def _is_on_disk(self, name: str, seal: Seal) -> bool:
        try:
            return self._path(name).stat().st_size == seal.size
        except FileNotFoundError:
            return False

    def _open_all(self) -> list[ArrayFile]:
        """The table and its parts, mapped; [] where there is no table. Raises OSError, Damaged."""
        missing = ""
        for _ in range(TRIES):
            try:
                table = ArrayFile(self._table)
            except FileNotFoundError:
                return []
            if table.fingerprint != self.fingerprint:
                raise table.damaged("saved under another fingerprint")
            try:
                return [table, *(self._open(*named) for named in _named(table).items())]
            except FileNotFoundError as error:  # or replaced since: a new table names others
                missing = error.filename
        raise Damaged(f"{missing}: missing, though the table names it")

    def _open(self, name: str, seal: Seal) -> ArrayFile:
        file = ArrayFile(self._path(name))
        if file.seal != seal or file.about != {"name": name}:
            raise file.damaged("not the file that the table names")
        return file

    def _named_on_disk(self) -> set[str]:
        """The parts that the table on disk needs, whoever wrote it; none where it is damaged."""
        try:
            return set(_named(ArrayFile(self._table)))
        except (OSError, Damaged):
            return set()


def _named(table: ArrayFile) -> dict[str, Seal]:
    """The parts that a table names. Raises Damaged."""
    named: dict[str, Seal] = {}
    match table.about:
        case {"meta": dict(), "parts": list(entries)}:
            pass
        case _:
            raise table.damaged("no table")
    for entry in entries:
        match entry:
            case [str(name), int(size), int(checksum)] if (
                NAME.fullmatch(name) and name not in named
            ):
                named[name] = Seal(size, checksum)
            case _:
                raise table.damaged("a part of another kind in its header")
    return named


def _check(saved: Saved) -> None:
    """ValueError for what could not be loaded again as it is."""
    names = [part.name for part in saved.parts]
    for name in names:
        if not NAME.fullmatch(name):
            raise ValueError(f"part {name!r}: want 1-64 of a-z and 0-9; new_name() makes one")
    if len(set(names)) < len(names):
        raise ValueError("two parts of one name; new_name() makes others")
    for arrays in (saved.table, *(part.arrays for part in saved.parts)):
        check(arrays)
    try:
        same = json.loads(json.dumps(saved.meta, allow_nan=False)) == saved.meta
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"meta: {error}; want JSON values") from error
    if not same:
        raise ValueError("meta: changed by JSON; want lists, not tuples, and str keys")


def _identity(path: Path) -> tuple[int, int]:
    """Device and inode: another file of the same name has others."""
    status = path.stat()
    return status.st_dev, status.st_ino
