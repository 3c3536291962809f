"""One file of named arrays, mapped to be read, and checked before it is believed.

Little-endian: the magic, u32 version, u32 length of the header, the header (JSON), CRC-32 of all
that, then the arrays in the header's order, each at the next multiple of 64 bytes; the last one
ends the file. The header holds the arrays' names, dtypes, shapes and CRC-32s, a fingerprint, and
what the writer says about the file.

A file is written beside its place, put on disk and renamed into it, and never changed after that:
what is mapped stays good when it is replaced or deleted. It does not defend against a process that
changes files in place. It knows nothing of what the arrays mean.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import re
import secrets
import stat
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]  # C order, of a dtype in DTYPES; names are ASCII identifiers

VERSION = 1
MAGIC = b"DRAFTLN\0"
PREFIX = struct.Struct("<8sII")  # magic, version, bytes of the header
SUM = struct.Struct("<I")
ALIGN = 64  # bytes
HEADER = 1 << 22  # bytes of a header at most

# fmt: off
DTYPES = frozenset({
    "|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8",
})
# fmt: on
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


class Damaged(ValueError):
    """A file that cannot be used; the message names it and says why."""


@dataclass(frozen=True, slots=True)
class Seal:
    """What tells a file from any other: the header's checksum covers those of the arrays."""

    size: int
    checksum: int


class ArrayFile:
    """A file, mapped. Its header was checked, its arrays are only by `check`."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, and Damaged for what `write` did not write."""
        self.path = path
        self._map = _map(path)
        head = self._head()
        end = len(head) + SUM.size
        self.seal = Seal(len(self._map), zlib.crc32(head))
        try:
            header = json.loads(head[PREFIX.size :])
        except (ValueError, RecursionError) as error:
            raise self.damaged("no JSON in its header") from error
        match header:
            case {"fingerprint": str(fingerprint), "about": dict(about), "arrays": list(entries)}:
                self.fingerprint, self.about = fingerprint, about
            case _:
                raise self.damaged("a header of another kind")
        self.arrays: Arrays = {}  # read-only
        self._sums: dict[str, int] = {}
        for entry in entries:
            end = self._add(entry, end + -end % ALIGN)
        if end != len(self._map):
            raise self.damaged(f"{len(self._map)} bytes, not {end}")

    def check(self) -> None:
        """Compare the arrays with their checksums. Raises Damaged."""
        for name, array in self.arrays.items():
            if _sum(array) != self._sums[name]:
                raise self.damaged(f"'{name}' does not match its checksum")
        self._map.madvise(mmap.MADV_DONTNEED)  # not resident until asked for

    def damaged(self, why: str) -> Damaged:
        """The error that says so."""
        return Damaged(f"{self.path}: {why}")

    def _head(self) -> bytes:
        """All up to the checksum of the header, which is right."""
        size = len(self._map)
        if size < PREFIX.size + SUM.size:
            raise self.damaged(f"only {size} bytes")
        magic, version, length = PREFIX.unpack_from(self._map)
        if magic != MAGIC:
            raise self.damaged("no index file of draftline")
        if version != VERSION:
            raise self.damaged(f"version {version}, not {VERSION}")
        end = PREFIX.size + length
        if length > HEADER or end + SUM.size > size:
            raise self.damaged(f"a header of {length} bytes")
        head = self._map[:end]
        if SUM.unpack_from(self._map, end)[0] != zlib.crc32(head):
            raise self.damaged("its header does not match its checksum")
        return head

    def _add(self, entry: object, start: int) -> int:
        """Take in the array that starts there; where it stops."""
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
                raise self.damaged("an array of another kind in its header")
        count = math.prod(shape)
        stop = start + count * kind.itemsize
        numpy_counts = math.prod(max(length, 1) for length in shape) * kind.itemsize
        if stop > len(self._map) or numpy_counts >= 1 << 63:
            raise self.damaged(f"'{name}' is too large for it")
        self.arrays[name] = np.frombuffer(self._map, kind, count, start).reshape(shape)
        self._sums[name] = checksum
        return stop


def check(arrays: Arrays) -> None:
    """ValueError for what `write` cannot store as it is."""
    for name, array in arrays.items():
        if not NAME.fullmatch(name):
            raise ValueError(f"array {name!r}: want an ASCII identifier of at most 64 letters")
        if array.dtype.str not in DTYPES:
            raise ValueError(f"array '{name}': {array.dtype}; want one of {sorted(DTYPES)}")
        if not array.flags.c_contiguous or array.ndim > 32:
            raise ValueError(f"array '{name}': not in C order; use np.ascontiguousarray")


def write(path: Path, fingerprint: str, about: dict[str, Any], arrays: Arrays) -> Seal:
    """Write a file beside its place and rename it; its name is on disk after `sync` of the folder.

    OSError names the file, and leaves nothing of it. `about` holds JSON values.
    """
    check(arrays)
    entries = [[key, each.dtype.str, each.shape, _sum(each)] for key, each in arrays.items()]
    header = {"fingerprint": fingerprint, "about": about, "arrays": entries}
    text = json.dumps(header, allow_nan=False).encode("ascii")
    if len(text) > HEADER:
        raise ValueError(f"{path}: a header of {len(text)} bytes, not {HEADER}: use an array")
    head = PREFIX.pack(MAGIC, VERSION, len(text)) + text
    checksum = zlib.crc32(head)
    made = path.with_name(f"{secrets.token_hex(16)}.tmp")
    try:
        handle = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            size = _put(handle, memoryview(head + SUM.pack(checksum)))
            for array in arrays.values():
                size += _put(handle, memoryview(bytes(-size % ALIGN)))
                size += _put(handle, _bytes(array))
            os.fsync(handle)
        finally:
            os.close(handle)
        made.replace(path)
    except OSError as error:
        made.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error
    return Seal(size, checksum)


def sync(folder: Path) -> None:
    """Put the names in a folder on disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _map(path: Path) -> mmap.mmap:
    """A whole file, read-only. Raises OSError, Damaged."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a named pipe must not hold us up
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise Damaged(f"{path}: not a regular file")
        if status.st_size == 0:
            raise Damaged(f"{path}: empty")
        return mmap.mmap(handle, status.st_size, access=mmap.ACCESS_READ)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(handle)


def _bytes(array: NDArray[Any]) -> memoryview:
    """The bytes of an array in C order, not copied."""
    return array.reshape(-1).view(np.uint8).data


def _sum(array: NDArray[Any]) -> int:
    return zlib.crc32(_bytes(array))


def _put(handle: int, data: memoryview) -> int:
    """Write all of it; its length."""
    at = 0
    while at < len(data):
        at += os.write(handle, data[at:])
    return at
