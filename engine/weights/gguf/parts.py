"""The parts of a split GGUF file: `NAME-00001-of-00003.gguf`, which has the metadata, and so on."""

from __future__ import annotations

import re
from pathlib import Path

PART = re.compile(r"-(\d{5})-of-(\d{5})(\.gguf)$", re.IGNORECASE)
MAX_PARTS = 1000


def parts_of(path: Path) -> list[Path]:
    """Return the files of a model by the name of the first one, whether they exist or not."""
    part = PART.search(path.name)
    if part is None or int(part[1]) != 1:
        return [path]
    start, count = path.name[: part.start()], min(int(part[2]), MAX_PARTS)
    return [
        path.with_name(f"{start}-{number:05}-of-{part[2]}{part[3]}")
        for number in range(1, max(count, 1) + 1)
    ]


def is_later_part(path: Path) -> bool:
    """Return whether this is a part of a split GGUF file, but not the first one."""
    part = PART.search(path.name)
    return part is not None and int(part[1]) > 1


def size_of(path: Path) -> int:
    """Count the bytes of a GGUF file and its further parts. OSError where one is missing."""
    return sum(part.stat().st_size for part in parts_of(path))
