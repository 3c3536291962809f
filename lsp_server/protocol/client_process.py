"""The process of a client: whether it still runs. Its pipes may stay open when it dies."""

from __future__ import annotations

import logging
import os
import select
import sys
import time

import psutil  # type: ignore[import-untyped]

log = logging.getLogger(__name__)

WATCH_INTERVAL_S = 1.0  # seconds between two checks of a process whose end the system cannot report


def find_process(pid: int) -> psutil.Process | None:
    """Find the client's process, which notices when its number is used again.

    None, with a line in the log, if it is not visible from here; None for 0.
    """
    try:
        return psutil.Process(pid) if pid else None
    except (psutil.Error, ValueError, OverflowError):
        log.warning("the client's process %d is not visible from here: not watching it", pid)
        return None


def is_alive(process: psutil.Process) -> bool:
    """Return whether a process runs; one that nobody has waited for yet does not."""
    try:
        return bool(process.is_running()) and bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def wait_for_end(process: psutil.Process) -> None:
    """Block until a process does not run any more.

    The system reports that. Where it cannot, the process is checked every WATCH_INTERVAL_S.
    """
    try:
        _sleep_until_end(process)
    except (OSError, psutil.Error) as error:
        log.debug("the end of the process %d is not reported: %s", process.pid, error)
    while is_alive(process):
        time.sleep(WATCH_INTERVAL_S)


def _sleep_until_end(process: psutil.Process) -> None:
    """Sleep until the system reports the end of a process. OSError where it does not."""
    if sys.platform == "linux":
        descriptor = os.pidfd_open(process.pid)
        try:
            if is_alive(process):  # else the number may be another process's by now
                ended = select.poll()
                ended.register(descriptor, select.POLLIN)
                ended.poll()
        finally:
            os.close(descriptor)
    elif sys.platform == "darwin":
        queue = select.kqueue()
        try:
            flags = select.KQ_EV_ADD | select.KQ_EV_ONESHOT
            event = select.kevent(
                process.pid, select.KQ_FILTER_PROC, flags, fflags=select.KQ_NOTE_EXIT
            )
            queue.control([event], 1)
        finally:
            queue.close()
    elif sys.platform == "win32":
        process.wait()
