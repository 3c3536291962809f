"""The process of a client: whether it still runs. Its pipes may stay open when it dies."""

from __future__ import annotations

import logging

import psutil  # type: ignore[import-untyped]

log = logging.getLogger(__name__)

WATCH_INTERVAL_S = 1.0  # seconds between two checks of the process


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
