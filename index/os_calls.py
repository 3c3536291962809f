"""What differs between Linux, macOS and Windows: locks, owners, and flags and modes of files.

Windows has neither user ids nor modes: there the access control lists of a user's folders decide
who may read and write in them, and owners are not compared.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

IS_WINDOWS = sys.platform == "win32"
# Flags of `os.open`, where the system has them: fail at a link, do not wait at a pipe, do not
# translate line ends.
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT = getattr(os, "O_NONBLOCK", 0)
BINARY = getattr(os, "O_BINARY", 0)
LOCKED_BYTE = 0x7FFF_0000  # of a file on Windows: beyond what is read and written

if sys.platform == "win32":
    import msvcrt

    def lock(descriptor: int, wait: bool = True) -> None:
        """Lock an open file until it is closed. BlockingIOError if it is locked already, unless
        this call shall `wait`; OSError where the file system has no locks."""
        at = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, LOCKED_BYTE, os.SEEK_SET)
        try:
            while True:
                try:
                    msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
                    return
                except OSError as error:
                    if not wait:
                        raise BlockingIOError(error.errno, "it is locked") from error
        finally:
            os.lseek(descriptor, at, os.SEEK_SET)

else:
    import fcntl

    def lock(descriptor: int, wait: bool = True) -> None:
        """Lock an open file until it is closed. BlockingIOError if it is locked already, unless
        this call shall `wait`; OSError where the file system has no locks."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def is_own(status: os.stat_result) -> bool:
    """Whether a file is this user's."""
    return IS_WINDOWS or status.st_uid == os.geteuid()


def set_mode(descriptor: int, mode: int) -> None:
    """Set the mode of an open file, where the system has modes."""
    if not IS_WINDOWS:
        os.fchmod(descriptor, mode)


def sync_folder(folder: Path) -> None:
    """Make renames and deletions in a folder durable. Windows writes them itself."""
    if IS_WINDOWS:
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_start(descriptor: int, most: int) -> bytes:
    """The first bytes of an open file, `most` at most."""
    if not IS_WINDOWS:
        return os.pread(descriptor, most, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return os.read(descriptor, most)
