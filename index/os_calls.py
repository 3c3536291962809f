"""Calls that differ between Linux, macOS and Windows: locks, owners, flags and modes of files.

Linux alone can exchange paths, and tell whether a file is open for writing elsewhere.

Windows has neither user ids nor modes: there the access control lists of a user's folders decide
who may read and write in them, and owners are not compared.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from pathlib import Path

IS_WINDOWS = sys.platform == "win32"
# Flags of `os.open`, where the system has them: fail at a link, do not wait at a pipe, do not
# translate line ends.
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT = getattr(os, "O_NONBLOCK", 0)
BINARY = getattr(os, "O_BINARY", 0)
LOCKED_BYTE = 0x7FFF_0000  # offset in a file on Windows, beyond the contents
AT_CWD, RENAME_EXCHANGE = -100, 2  # arguments of renameat2, from Linux's headers
NOT_SUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)  # the system cannot do it

if sys.platform == "win32":
    import msvcrt

    def lock(descriptor: int, wait: bool = True) -> None:
        """Lock an open file until it is closed.

        BlockingIOError if it is locked already, unless this call shall `wait`; OSError where the
        file system has no locks.
        """
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
        """Lock an open file until it is closed.

        BlockingIOError if it is locked already, unless this call shall `wait`; OSError where the
        file system has no locks.
        """
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def is_own(status: os.stat_result) -> bool:
    """Return whether a file is this user's."""
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
    """Read the first bytes of an open file, `most` at most."""
    if not IS_WINDOWS:
        return os.pread(descriptor, most, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return os.read(descriptor, most)


def exchange(one: Path, other: Path) -> bool:
    """Exchange what two paths of one file system name, at once: no moment misses either.

    False where the system or the file system cannot do so; raises OSError.
    """
    if sys.platform != "linux":
        return False
    import ctypes

    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:  # an old C library
        return False
    names = os.fsencode(one), os.fsencode(other)
    if call(AT_CWD, names[0], AT_CWD, names[1], RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in NOT_SUPPORTED:
        return False
    raise OSError(code, os.strerror(code), str(other))


def has_writer(descriptor: int) -> bool:
    """Return whether a file that is open here to be read is open somewhere to be written.

    False where the system cannot tell. Network file systems may say True of any file.
    """
    if sys.platform != "linux":
        return False
    try:
        # Linux grants a read lease only while nobody has the file open for writing. Whoever opens
        # it in the moment until the lease is given back sends this process SIGURG, which does
        # nothing, instead of SIGIO, which would end it.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    return False
