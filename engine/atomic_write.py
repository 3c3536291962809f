"""Atomic replacement of files: a reader sees the old content or the new one, never a part."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def write_atomically(path: Path, data: bytes, mode: int | Callable[[int], None] = 0o644) -> None:
    """Write `data` to a temporary file beside `path`, sync it to disk, and rename it to `path`.

    `mode`: of the new file, or a function that sets owner and mode of the open descriptor. On
    failure (OSError) the temporary file is deleted and `path` stays as it was.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if callable(mode):
                mode(descriptor)
            else:
                os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
