"""Strict reading of text files as UTF-8, and their atomic replacement."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
import sys
import time
from pathlib import Path

from engine.atomic_write import write_atomically
from engine.editing.command_files import why_not_git
from engine.editing.file_lock import PAUSE_SECONDS, locked
from index.os_calls import (
    IS_WINDOWS,
    NO_LINK,
    NO_WAIT,
    exchange,
    has_writer,
    set_mode,
    sync_folder,
)
from index.temporary_file import sweep, temporary_folder

MAX_FILE_BYTES = 8 << 20  # bytes; far more than a local model's context
WRITER_SECONDS = 1.0  # seconds for a program that has opened the file to write, and is about to
SYSTEM_NAMESPACES = ("security.", "trusted.")  # namespaces of extended attributes

logger = logging.getLogger(__name__)


class FileError(ValueError):
    """A file that cannot be read or written; the message is one line with the remedy."""


class FileChanged(FileError):
    """A file that another program has changed since it was read."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path}: changed on disk since it was read: run the edit again")


def read_text(path: Path) -> str:
    """Read the file's exact text, with BOM and line ends.

    `text.encode()` restores its bytes. Raises FileError.
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
    """Read a regular file's bytes; refuse pipes and devices without opening them."""
    try:
        mode = path.stat()
        if stat.S_ISDIR(mode.st_mode):
            raise FileError(f"{path}: a folder: choose a file")
        if not stat.S_ISREG(mode.st_mode):
            raise FileError(f"{path}: not a regular file: choose a text file")
        if mode.st_size > MAX_FILE_BYTES:
            raise FileError(
                f"{path}: {mode.st_size} bytes, more than {MAX_FILE_BYTES}: split it first"
            )
        return path.read_bytes()
    except FileNotFoundError as error:
        raise FileError(f"{path}: no such file: check the name") from error
    except PermissionError as error:
        raise FileError(f"{path}: not readable: check its permissions") from error
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}: check the name and the disk") from error
    except ValueError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{str(path)!r}: not a valid file name: {error}") from error


def replace_text(path: Path, text: str, was: str) -> None:
    """Replace the file's text if it still is `was`.

    Raises FileError, and then it was not replaced; FileChanged if it is another text by now.

    Of several processes that do this, one at a time does. What another program saves meanwhile is
    noticed, on Linux up to the moment of the replacement and in files that are open for writing.
    The mode, the extended attributes, which include access control lists, and the owner if allowed
    stay as they are. A symbolic link is kept and its target replaced; other hard links keep the old
    text. Files from which git runs commands are refused.
    """
    target = Path(os.path.realpath(path))
    if _read_bytes(target) != was.encode():
        raise FileChanged(path)
    if why := why_not_git(path):
        raise FileError(f"{path}: {why}")
    if not os.access(target, os.W_OK):
        raise FileError(f"{path}: read-only: make it writable first")
    try:
        with locked(target):
            _replace(target, text.encode(), was.encode())
    except BlockingIOError as error:
        raise FileError(f"{path}: another process keeps it locked: try again") from error
    except FileNotFoundError as error:
        raise FileChanged(path) from error
    except OSError as error:
        remedy = "check the disk and the folder's permissions"
        raise FileError(f"{path}: not written ({error.strerror}): {remedy}") from error
    try:
        sync_folder(target.parent)
    except OSError as error:
        logger.warning(
            "%s: written, but a power failure may undo it: its folder cannot be synced (%s)",
            path,
            error.strerror,
        )


def _replace(target: Path, new: bytes, was: bytes) -> None:
    """Replace a locked file.

    Raises FileChanged unless it still is `was`, other FileErrors and OSError.
    """
    before, attributes = target.lstat(), _attributes(target)

    def copy_metadata(file: int) -> None:
        _copy_owner(file, before)
        _set_attributes(file, attributes)
        set_mode(file, stat.S_IMODE(before.st_mode))  # last: chown clears some of its bits

    def check(path: Path) -> None:
        if not os.path.samestat(path.lstat(), before) or path.read_bytes() != was:
            raise FileChanged(target)

    sweep(target.parent, stat.S_ISDIR)
    with temporary_folder(target.parent) as folder:  # its lock keeps others from sweeping it
        file = folder / "text"
        write_atomically(file, new, copy_metadata)
        check(target)
        ours = file.lstat()
        if not exchange(file, target):
            file.replace(target)
            return
        try:
            check(file)
            _await_writers(file, target)
            check(file)
        except BaseException:
            _put_back(file, target, ours)
            raise


def _await_writers(file: Path, name: Path) -> None:
    """Wait until nobody has a file open for writing who opened it when its path was `name`.

    Raises FileError if somebody keeps it open.
    """
    descriptor = os.open(file, os.O_RDONLY | NO_LINK | NO_WAIT)
    try:
        deadline = time.monotonic() + WRITER_SECONDS
        while has_writer(descriptor):
            if time.monotonic() >= deadline:
                why = "another program has it open for writing: close it there"
                raise FileError(f"{name}: {why}")
            time.sleep(PAUSE_SECONDS)
    finally:
        os.close(descriptor)


def _put_back(file: Path, target: Path, ours: os.stat_result) -> None:
    """Undo an exchange.

    If another program replaced `ours` meanwhile, its file keeps the place.
    """
    given = ours
    while True:
        back = file.lstat()
        exchange(file, target)
        if os.path.samestat(file.lstat(), given):
            return
        given = back


def _copy_owner(file: int, before: os.stat_result) -> None:
    if IS_WINDOWS:
        return
    if (os.fstat(file).st_uid, os.fstat(file).st_gid) != (before.st_uid, before.st_gid):
        with contextlib.suppress(PermissionError):  # only root may give files away
            os.fchown(file, before.st_uid, before.st_gid)


def _attributes(file: int | Path) -> dict[str, bytes]:
    """Return the extended attributes of a file; none where Python or the file system has none."""
    if sys.platform != "linux":
        return {}
    try:
        return {name: os.getxattr(file, name) for name in os.listxattr(file)}
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return {}
        raise


def _set_attributes(file: int, wanted: dict[str, bytes]) -> None:
    """Make these the extended attributes of a new file, which has inherited others from its folder.

    Those of namespaces that only the system may write stay as they are.
    """
    if sys.platform != "linux":
        return
    inherited = _attributes(file)
    for name in wanted.keys() | inherited.keys():
        if wanted.get(name) == inherited.get(name):
            continue
        try:
            if name in wanted:
                os.setxattr(file, name, wanted[name])
            else:
                os.removexattr(file, name)
        except PermissionError:
            if not name.startswith(SYSTEM_NAMESPACES):
                raise
