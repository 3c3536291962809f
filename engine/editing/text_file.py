"""One text file: read strictly, replaced atomically. Nothing here guesses an encoding."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

MAX_BYTES = 8 << 20  # of a file; far more than any local model can read


class FileError(ValueError):
    """A file that cannot be read or written; the message is one line: what and the remedy."""


def read_text(path: Path) -> str:
    """The file's exact text (BOM as U+FEFF, line ends as they are). Raises FileError.

    Decoding is strict UTF-8, so `text.encode()` gives the file's bytes back.
    """
    data = _read_bytes(path)
    if b"\0" in data:
        raise FileError(f"{path}: a binary file (NUL at byte {data.index(0)}): choose a text file")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileError(
            f"{path}: not UTF-8 (byte {error.start} is 0x{data[error.start]:02x}): convert it first"
        ) from error


def _read_bytes(path: Path) -> bytes:
    """A regular file's bytes; a pipe or device is refused before it is opened."""
    try:
        mode = path.stat()
        if stat.S_ISDIR(mode.st_mode):
            raise FileError(f"{path}: a folder: name a file")
        if not stat.S_ISREG(mode.st_mode):
            raise FileError(f"{path}: not a regular file: name a text file")
        if mode.st_size > MAX_BYTES:
            raise FileError(f"{path}: {mode.st_size} bytes, more than {MAX_BYTES}: split it first")
        return path.read_bytes()
    except FileNotFoundError as error:
        raise FileError(f"{path}: no such file: check the name") from error
    except PermissionError as error:
        raise FileError(f"{path}: not readable by you: check its permissions") from error
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}: check the name and the disk") from error
    except ValueError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{str(path)!r}: not a file name: {error}") from error


def write_atomically(path: Path, text: str, was: str) -> None:
    """Replace the file by `text` in one step, if it still holds `was`. Raises FileError.

    Keeps the mode, and the owner where allowed; a symbolic link stays and its target is replaced;
    other hard links keep the old text.
    """
    target = path.resolve()
    if _read_bytes(target) != was.encode():
        raise FileError(f"{path}: changed on disk since it was read: run the edit again")
    if not os.access(target, os.W_OK):
        raise FileError(f"{path}: read-only: make it writable first")
    temporary: Path | None = None
    try:
        before = target.stat()
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}.")
        temporary = Path(name)
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
            file.flush()
            _take_on(file.fileno(), before)
            os.fsync(file.fileno())
        temporary.replace(target)
        temporary = None
        _sync_folder(target.parent)
    except OSError as error:
        remedy = "check the disk and the folder's permissions"
        raise FileError(f"{path}: not written ({error.strerror}): {remedy}") from error
    finally:
        if temporary:
            temporary.unlink(missing_ok=True)


def _take_on(file: int, before: os.stat_result) -> None:
    """The old file's owner where that is allowed, and its mode (after: chown clears bits of it)."""
    if (os.fstat(file).st_uid, os.fstat(file).st_gid) != (before.st_uid, before.st_gid):
        with contextlib.suppress(PermissionError):  # only root may give files away
            os.fchown(file, before.st_uid, before.st_gid)
    os.fchmod(file, stat.S_IMODE(before.st_mode))


def _sync_folder(folder: Path) -> None:
    """The rename itself must reach the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
