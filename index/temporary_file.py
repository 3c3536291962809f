"""Files that appear whole or not at all, through a temporary file or folder next to them.

A writer locks its temporary until it is done, and the system unlocks it when the writer dies. So an
unlocked one was left by a killed process, and the next writer in the same folder deletes it. On a
file system without such locks it stays, and so does a folder on Windows.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from index.os_calls import BINARY, IS_WINDOWS, NO_LINK, is_own, lock

NAME = re.compile(r"\.draftline-[0-9a-f]{16}\.tmp")


@contextmanager
def replacing(path: Path) -> Iterator[int]:
    """Open a temporary file, with mode 0600, that replaces `path` when the block ends.

    Yields its descriptor. The file is synced to disk and renamed. If anything fails (OSError) it is
    deleted, and `path` stays as it was. First deletes the temporary files that killed processes
    left next to `path`.
    """
    sweep(path.parent)
    descriptor, temporary = _new_file(path.parent)
    with ExitStack() as opened:
        opened.callback(os.close, descriptor)
        try:
            yield descriptor
            os.fsync(descriptor)
            if IS_WINDOWS:  # an open file can neither be renamed nor deleted there
                opened.close()
            temporary.replace(path)
        except BaseException:
            if IS_WINDOWS:
                opened.close()
            with suppress(OSError):  # the error that is raised says more
                temporary.unlink(missing_ok=True)
            raise


def write_all(descriptor: int, data: memoryview) -> int:
    """Write all of it; returns its length."""
    at = 0
    while at < len(data):
        at += os.write(descriptor, data[at:])
    return at


@contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """Make a private folder in `parent` that is deleted when the block ends."""
    descriptor, folder = _new_folder(parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # `sweep` deletes what is left
        if descriptor is not None:
            os.close(descriptor)


def sweep(folder: Path, is_kind: Callable[[int], bool] = stat.S_ISREG) -> None:
    """Delete the temporary files in a folder that killed processes of this user left.

    With `stat.S_ISDIR` the temporary folders are deleted.
    """
    try:
        with os.scandir(folder) as entries:
            found = [Path(entry) for entry in entries if NAME.fullmatch(entry.name)]
    except OSError:  # missing or unreadable: nothing can be deleted
        return
    for path in found:
        with suppress(OSError):  # its writer is alive, or another process was faster
            status = path.lstat()
            if is_kind(status.st_mode) and is_own(status):
                _delete_unlocked(path)


def _delete_unlocked(path: Path) -> None:
    """Delete a file or folder. BlockingIOError if its writer is alive."""
    with ExitStack() as opened:
        descriptor = os.open(path, os.O_RDONLY | NO_LINK)
        opened.callback(os.close, descriptor)
        lock(descriptor, wait=False)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            shutil.rmtree(path)
            return
        if IS_WINDOWS:
            opened.close()
        path.unlink()


def _new_file(folder: Path) -> tuple[int, Path]:
    """Make a new, locked file; return its descriptor and path."""
    while True:
        path = _new_path(folder)
        with _errors_name(folder):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY, 0o600)
        if _lock(descriptor, path):
            return descriptor, path


def _new_folder(parent: Path) -> tuple[int | None, Path]:
    """Make a new, locked folder; return its descriptor and path.

    On Windows, where folders have no locks, there is no descriptor.
    """
    while True:
        path = _new_path(parent)
        with _errors_name(parent):
            path.mkdir(mode=0o700)
        if IS_WINDOWS:
            return None, path
        with suppress(FileNotFoundError):  # swept before it was locked
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | NO_LINK)
            if _lock(descriptor, path):
                return descriptor, path


@contextmanager
def _errors_name(folder: Path) -> Iterator[None]:
    """Let an OSError name the folder instead of the temporary, whose name is new every time."""
    try:
        yield
    except OSError as error:
        error.filename = str(folder)
        raise


def _new_path(folder: Path) -> Path:
    return folder / f".draftline-{secrets.token_hex(8)}.tmp"


def _lock(descriptor: int, path: Path) -> bool:
    """Lock a new temporary until its descriptor is closed.

    If it was swept before that, close it and return False.
    """
    with suppress(OSError):  # a file system without locks, where nothing is swept either
        lock(descriptor)
    if path.exists():
        return True
    os.close(descriptor)
    return False
