"""Free memory back to the system, after work that took much of it in small pieces."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any


def give_back_memory() -> None:
    """Give free memory back to the system.

    The C library would keep what many small blocks took. Takes milliseconds, without the GIL.
    """
    if (trim := malloc_trim()) is not None:
        trim(0)


@cache
def malloc_trim() -> Any:
    """glibc's function; None with other C libraries."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
