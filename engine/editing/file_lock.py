"""The lock that a process holds while it replaces a user's file: one Draftline at a time.

On Linux and macOS it is a lock of the file itself, so no file lies next to it, links and mounts
lead to the same lock, and it holds between users, too. The kernel ends it with its process. Nobody
is kept from reading or writing the file: what editors save is noticed by comparing. File systems
that have no locks go without. Windows, where an open file cannot be replaced, locks a file in the
cache folder for all files.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from index.cache_folder import make_cache_folder
from index.os_calls import BINARY, IS_WINDOWS, NO_LINK, NO_WAIT, lock

WAIT_SECONDS = 10.0  # seconds; another process needs milliseconds unless it is stopped
PAUSE_SECONDS = 0.005  # seconds between two tries
WINDOWS_LOCK = "edits.lock"


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Keep other Draftline processes from replacing a file without links.

    Raises BlockingIOError if one of them holds it for too long, other OSErrors if it cannot be
    opened.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        descriptor = _locked(_windows_lock() if IS_WINDOWS else file, deadline)
        try:
            if IS_WINDOWS or os.path.samestat(os.fstat(descriptor), file.lstat()):
                yield
                return
        finally:
            os.close(descriptor)  # this unlocks it


def _locked(file: Path, deadline: float, access: int = os.O_RDONLY) -> int:
    """Open and lock a file, and return its descriptor; closing that unlocks the file."""
    descriptor = os.open(file, access | NO_LINK | NO_WAIT | BINARY)
    try:
        _wait(descriptor, deadline)
    except OSError as error:
        if error.errno == errno.EBADF and access == os.O_RDONLY:
            os.close(descriptor)  # NFS locks only files that are open for writing
            return _locked(file, deadline, os.O_RDWR)
        if isinstance(error, BlockingIOError):
            os.close(descriptor)
            raise
    return descriptor


def _wait(descriptor: int, deadline: float) -> None:
    """Lock an open file. Raises BlockingIOError if another holds the lock until `deadline`."""
    while True:
        try:
            return lock(descriptor, wait=False)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(PAUSE_SECONDS)


def _windows_lock() -> Path:
    """Return the one file that is locked for all edits, in the cache folder.

    The file is made if there is none.
    """
    from engine.weights import home

    make_cache_folder(home())
    file = home() / WINDOWS_LOCK
    with suppress(FileExistsError):
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    return file
