"""Atomic replacement of files: a reader sees the old content or the new one, never a part."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from index.os_calls import set_mode
from index.temporary_file import replacing, write_all


def write_atomically(path: Path, data: bytes, mode: int | Callable[[int], None] = 0o644) -> None:
    """Write `data` to a temporary file next to `path`, sync it to disk, and rename it to `path`.

    `mode`: of the new file, or a function that sets the metadata of the open descriptor. On
    failure (OSError) the temporary file is deleted and `path` stays as it was.
    """
    with replacing(path) as descriptor:
        write_all(descriptor, memoryview(data))
        if callable(mode):
            mode(descriptor)
        else:
            set_mode(descriptor, mode)
