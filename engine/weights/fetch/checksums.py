"""Checks of the size and SHA-256 of files, while they are joined or afterwards."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from engine.weights.catalogue.builtins import Builtin
from engine.weights.errors import WeightsError

CHUNK = 1 << 20


class Sink:
    """A file being joined from parts in order, hashed on the way, never longer than `size`."""

    def __init__(self, path: Path, size: int, report: Callable[[int], None]) -> None:
        self.file = path.open("wb")
        self.size, self.written, self.sha, self.report = size, 0, hashlib.sha256(), report

    def copy(self, source: IO[bytes], size: int, what: str) -> None:
        """Take exactly `size` bytes of `source`; fewer or more is a WeightsError."""
        left = size
        while chunk := source.read(min(CHUNK, left + 1)):
            left -= len(chunk)
            if left < 0:
                break
            self.file.write(chunk)
            self.sha.update(chunk)
            self.written += len(chunk)
            self.report(self.written)
        if left:
            got = f"more than {size}" if left < 0 else f"only {size - left} of {size}"
            raise WeightsError(f"{what}: holds {got} bytes; pull again or `draftline models add`")

    def close(self, expected_sha256: str, what: str) -> None:
        """Sync the file to disk and verify its size and checksum."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        check_sum(what, self.written, self.sha.hexdigest(), self.size, expected_sha256)


def check_sum(what: str, got_size: int, got_sha: str, size: int, sha256: str) -> None:
    """Raise WeightsError unless the bytes are the expected ones."""
    if (got_size, got_sha) != (size, sha256):
        raise WeightsError(
            f"{what}: truncated or altered: expected {size} bytes, SHA-256 {sha256}, "
            f"got {got_size} bytes, {got_sha}; pull again or `draftline models add` a good file"
        )


def sha256_of(path: Path, report: Callable[[int], None] = lambda done: None) -> str:
    """Compute the SHA-256 of a file, read in chunks."""
    sha, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            sha.update(chunk)
            done += len(chunk)
            report(done)
    return sha.hexdigest()


@contextmanager
def joined(target: Path, model: Builtin, report: Callable[[int], None]) -> Iterator[Sink]:
    """Open a Sink at `target` whose checksum is verified at the end; it is always closed."""
    sink = Sink(target, model.size, report)
    try:
        yield sink
        sink.close(model.sha256, model.name)
    finally:
        sink.file.close()
