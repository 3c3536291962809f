"""A file of named numpy arrays that is memory-mapped for reading, with checksums.

Little-endian: the magic, u32 version, u32 length of the header, the header (JSON), CRC-32 of all
that, then the arrays in the header's order, each aligned to 64 bytes; the last one ends the file.
The header holds the arrays' names, dtypes, shapes and CRC-32s, a fingerprint, and the caller's
metadata. safetensors would not do: its numpy loader copies each array, and it has neither
checksums nor atomic saves.

A file is written under a temporary name, synced and renamed into place, and immutable after that:
mapped arrays stay valid when it is replaced or deleted. Processes that modify it in place are not
defended against.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import re
import stat
import struct
import zlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from index.os_calls import BINARY, NO_LINK, NO_WAIT
from index.temporary_file import replacing, write_all

Arrays = dict[str, NDArray[Any]]  # of a dtype in DTYPES; names are ASCII identifiers

VERSION = 1
MAGIC = b"DRAFTLN\0"
PREFIX = struct.Struct("<8sII")  # magic, version, bytes of the header
CHECKSUM = struct.Struct("<I")
ALIGNMENT = 64  # bytes
STEP_BYTES = 8 << 20  # bytes of arrays that a step of `write_in_steps` takes
MAX_HEADER_BYTES = 1 << 22

# fmt: off
DTYPES = frozenset({
    "|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8",
})
# fmt: on
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


class Damaged(ValueError):
    """An unusable file; the message names it and says why."""


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """Identifies a file's contents: the header's checksum covers those of the arrays."""

    size: int
    checksum: int


class ArrayFile:
    """A memory-mapped file. Opening verifies the header; `check` verifies the arrays."""

    def __init__(self, path: Path) -> None:
        """Map the file. Raises OSError, or Damaged if `write` did not make it."""
        self.path = path
        self._map = _map(path)
        head = self._head()
        end = len(head) + CHECKSUM.size
        self.identity = FileIdentity(len(self._map), zlib.crc32(head))
        try:
            header = json.loads(head[PREFIX.size :])
        except (ValueError, RecursionError) as error:
            raise self.damaged("header is not JSON") from error
        match header:
            case {"fingerprint": str(fingerprint), "about": dict(about), "arrays": list(entries)}:
                self.fingerprint, self.about = fingerprint, about
            case _:
                raise self.damaged("invalid header")
        self.arrays: Arrays = {}  # read-only
        self._checksums: dict[str, int] = {}
        for entry in entries:
            end = self._add(entry, end + -end % ALIGNMENT)
        if end != len(self._map):
            raise self.damaged(f"{len(self._map)} bytes, expected {end}")

    def check(self) -> None:
        """Verify the arrays' checksums. Raises Damaged."""
        for name, array in self.arrays.items():
            if _checksum(array) != self._checksums[name]:
                raise self.damaged(f"'{name}' does not match its checksum")
        self._map.madvise(mmap.MADV_DONTNEED)  # drop the pages again

    def damaged(self, why: str) -> Damaged:
        """Make a `Damaged` error about this file."""
        return Damaged(f"{self.path}: {why}")

    def _head(self) -> bytes:
        """Return the verified bytes up to the header's checksum."""
        size = len(self._map)
        if size < PREFIX.size + CHECKSUM.size:
            raise self.damaged(f"only {size} bytes")
        magic, version, length = PREFIX.unpack_from(self._map)
        if magic != MAGIC:
            raise self.damaged("not a draftline array file")
        if version != VERSION:
            raise self.damaged(f"format version {version}, expected {VERSION}")
        end = PREFIX.size + length
        if length > MAX_HEADER_BYTES or end + CHECKSUM.size > size:
            raise self.damaged(f"invalid header length {length}")
        head = self._map[:end]
        if CHECKSUM.unpack_from(self._map, end)[0] != zlib.crc32(head):
            raise self.damaged("header does not match its checksum")
        return head

    def _add(self, entry: object, start: int) -> int:
        """Add the array that starts there; returns where it ends."""
        match entry:
            case [str(name), str(dtype), list(shape), int(checksum)] if (
                NAME.fullmatch(name)
                and name not in self.arrays
                and dtype in DTYPES
                and len(shape) <= 32
                and all(type(length) is int and 0 <= length < 1 << 63 for length in shape)
            ):
                kind = np.dtype(dtype)
            case _:
                raise self.damaged("invalid array in its header")
        count = math.prod(shape)
        stop = start + count * kind.itemsize
        numpy_counts = math.prod(max(length, 1) for length in shape) * kind.itemsize
        if stop > len(self._map) or numpy_counts >= 1 << 63:
            raise self.damaged(f"'{name}' exceeds the file")
        self.arrays[name] = np.frombuffer(self._map, kind, count, start).reshape(shape)
        self._checksums[name] = checksum
        return stop


def check(arrays: Arrays) -> None:
    """ValueError if `write` cannot store these arrays."""
    for name, array in arrays.items():
        if not NAME.fullmatch(name):
            raise ValueError(f"array {name!r}: use an ASCII identifier of at most 64 characters")
        if array.dtype.str not in DTYPES:
            raise ValueError(f"array '{name}': dtype {array.dtype} is not one of {sorted(DTYPES)}")
        if array.ndim > 32:
            raise ValueError(f"array '{name}': {array.ndim} dimensions, 32 at most; reshape it")


def write(path: Path, fingerprint: str, about: dict[str, Any], arrays: Arrays) -> FileIdentity:
    """Write a file atomically; call `sync` on the folder to make the rename durable.

    `about` is JSON metadata. After an OSError, which names the file, nothing is left of it.
    """
    steps = write_in_steps(path, fingerprint, about, arrays)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        identity: FileIdentity = end.value
        return identity


def write_in_steps(
    path: Path, fingerprint: str, about: dict[str, Any], arrays: Arrays
) -> Generator[int, None, FileIdentity]:
    """Write a file as `write` does, in steps of milliseconds.

    Yields the descriptor of the temporary file. If the generator is closed early, nothing is left
    of it.
    """
    check(arrays)
    try:
        with replacing(path) as descriptor:
            entries: list[list[Any]] = []
            done = 0  # bytes of this step
            for name, array in arrays.items():
                checksum = 0
                for block in _blocks(array):
                    checksum = zlib.crc32(block, checksum)
                    done += len(block)
                    if done >= STEP_BYTES:
                        yield descriptor
                        done = 0
                entries.append([name, array.dtype.str, array.shape, checksum])
            head = _head(path, {"fingerprint": fingerprint, "about": about, "arrays": entries})
            checksum = zlib.crc32(head)
            size = write_all(descriptor, memoryview(head + CHECKSUM.pack(checksum)))
            for array in arrays.values():
                size += write_all(descriptor, memoryview(bytes(-size % ALIGNMENT)))
                for block in _blocks(array):
                    size += write_all(descriptor, block)
                    done += len(block)
                    if done >= STEP_BYTES:
                        yield descriptor
                        done = 0
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    return FileIdentity(size, checksum)


def _head(path: Path, header: dict[str, Any]) -> bytes:
    """Make the bytes up to the header's checksum."""
    text = json.dumps(header, allow_nan=False).encode("ascii")
    if len(text) > MAX_HEADER_BYTES:
        raise ValueError(
            f"{path}: metadata of {len(text)} bytes, limit {MAX_HEADER_BYTES}; use an array"
        )
    return PREFIX.pack(MAGIC, VERSION, len(text)) + text


def _map(path: Path) -> mmap.mmap:
    """Map a whole file read-only. Raises OSError or Damaged."""
    descriptor = os.open(path, os.O_RDONLY | NO_WAIT | NO_LINK | BINARY)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise Damaged(f"{path}: not a regular file")
        if status.st_size == 0:
            raise Damaged(f"{path}: empty")
        return mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


def _bytes(array: NDArray[Any]) -> memoryview:
    """Return the bytes of an array in C order, without a copy."""
    return array.reshape(-1).view(np.uint8).data


def _blocks(array: NDArray[Any]) -> Iterator[memoryview]:
    """Yield the bytes of an array of any strides in C order, without a copy."""
    if not array.flags.c_contiguous:
        for part in array:
            yield from _blocks(part)
        return
    data = _bytes(array)
    yield from (data[at : at + STEP_BYTES] for at in range(0, len(data), STEP_BYTES))


def _checksum(array: NDArray[Any]) -> int:
    return zlib.crc32(_bytes(array))
