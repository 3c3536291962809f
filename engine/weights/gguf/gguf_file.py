"""GGUF files: their metadata, list of tensors, and rows of a tensor as f32.

Names that are not UTF-8 are read with marks in their place, as others show them.

Not `gguf.GGUFReader`, which takes 11 s for a vocabulary of 150,000 tokens where this takes 0.2 s;
dequantisation is the package's.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.weights.errors import WeightsError, shown
from engine.weights.gguf.parts import parts_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAGIC = b"GGUF"
VERSIONS = (2, 3)
STRING, ARRAY = 8, 9
SIZE = struct.Struct("<Q")  # length of a string in bytes, which precedes it

# Far above any real file, so that a hostile one takes little memory.
MAX_METADATA_BYTES = 256 << 20
MAX_ENTRIES = 8 << 20  # entries of all arrays together
MAX_ARRAY_DEPTH = 4
MAX_DIMENSIONS = 4
MAX_ALIGNMENT = 1 << 20
SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}


class Tensor(NamedTuple):
    """One tensor of the file; `shape` is in numpy's order (rows first), `start` in bytes."""

    shape: tuple[int, ...]
    kind: int  # a gguf.GGMLQuantizationType
    start: int
    part: int = 0  # the file that it is in, of a split model


@dataclass(frozen=True, slots=True)
class Gguf:
    """A parsed file, or the parts of a split one. `fields` are its metadata as plain values."""

    path: Path
    fields: dict[str, Any]
    tensors: dict[str, Tensor]
    data: tuple[mmap.mmap, ...]  # of each part

    def field(self, key: str, default: Any = None) -> Any:
        """Return the metadata at `key`; without a default a missing one is a WeightsError."""
        value = self.fields.get(key, default)
        if value is None:
            raise self.damaged(f"it has no '{key}'")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """Return the string at `key`."""
        value = self.field(key, default)
        if not isinstance(value, str):
            raise self.damaged(f"'{key}' is {shown(value)}, not a string")
        return value

    def integer(self, key: str, most: int, default: int | None = None, least: int = 1) -> int:
        """Return the integer at `key`, from `least` to `most`."""
        value = self.field(key, default)
        if type(value) is not int or not least <= value <= most:
            raise self.damaged(
                f"'{key}' is {shown(value)}, expected an integer from {least} to {most}"
            )
        return value

    def number(self, key: str, most: float, default: float | None = None) -> float:
        """Return the number at `key`, above 0 and at most `most`."""
        value = self.field(key, default)
        if type(value) not in (int, float) or not 0 < value <= most:
            raise self.damaged(f"'{key}' is {shown(value)}, expected a number from 0 to {most:g}")
        return float(value)

    def entries(self, key: str, kind: type) -> list[Any]:
        """Return the array at `key`, whose entries are all of one Python type."""
        value = self.field(key)
        if not isinstance(value, list) or not all(type(item) is kind for item in value):
            raise self.damaged(f"'{key}' is not an array of {kind.__name__}")
        return value

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor that the file must have."""
        if name not in self.tensors:
            raise self.damaged(f"it has no tensor '{name}'")
        return self.tensors[name].shape

    def stored_as(self, name: str) -> str:
        """Name a tensor's number format, such as Q4_K."""
        from gguf.constants import GGMLQuantizationType

        return str(GGMLQuantizationType(self.tensors[name].kind).name)

    def damaged(self, what: str) -> WeightsError:
        """Make the error for a damaged file."""
        return WeightsError(f"{self.path}: damaged GGUF file: {what}; fetch the file again")

    def unsupported(self, what: str) -> WeightsError:
        """Make the error for a valid file of a model that cannot run here."""
        return WeightsError(
            f"{self.path}: a GGUF with {what} is not supported; llama.cpp, Ollama or LM Studio may "
            "run it"
        )

    def row_bytes(self, name: str) -> int:
        """Count the bytes of one row (the last dimension) of a tensor as stored."""
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

        tensor = self.tensors[name]
        block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(tensor.kind)]
        return int(tensor.shape[-1] // block * block_bytes)

    def raw(self, name: str, first: int, rows: int) -> NDArray[np.uint8]:
        """Return `rows` rows from row `first` as stored: uint8 [rows, row_bytes], a view."""
        import numpy as np

        size = self.row_bytes(name)
        start = self.tensors[name].start + first * size
        data = self.data[self.tensors[name].part]
        return np.frombuffer(data, np.uint8, rows * size, start).reshape(rows, size)

    def rows(self, name: str, first: int, rows: int) -> NDArray[np.float32]:
        """Dequantise `rows` rows from row `first`: f32 [rows, columns]."""
        import numpy as np
        from gguf.constants import GGMLQuantizationType
        from gguf.quants import dequantize

        kind = GGMLQuantizationType(self.tensors[name].kind)
        raw = self.raw(name, first, rows)
        if kind == GGMLQuantizationType.F32:
            return raw.view(np.float32)
        if kind == GGMLQuantizationType.F16:
            return raw.view(np.float16).astype(np.float32)
        return np.asarray(dequantize(raw, kind), np.float32)


def in_8_bits(values: NDArray[np.float32]) -> tuple[int, NDArray[np.uint8]]:
    """Quantise rows of f32 as Q8_0: the number of the format, and uint8 [rows, row_bytes]."""
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import quantize

    kind = GGMLQuantizationType.Q8_0
    return int(kind), quantize(values, kind)


def is_gguf(path: Path) -> bool:
    """Return whether the file starts with GGUF's magic bytes."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_gguf(path: Path) -> Gguf:
    """Parse the metadata and the list of tensors of a file, or of all parts of a split one.

    WeightsError for anything cut short or malformed.
    """
    first, *others = parts_of(path)
    file = _read_part(first)
    if (count := file.fields.get("split.count", 1)) != 1 + len(others):
        raise WeightsError(
            f"{path}: one of {shown(count)} parts: name the first, and keep the names that they had"
        )
    tensors, data = dict(file.tensors), [*file.data]
    for number, other in enumerate(others, 1):
        part = _read_part(other)
        if part.fields.get("split.no") != number or part.fields.get("split.count") != count:
            raise part.damaged(f"it is no part {number + 1} of {count}")
        if twice := tensors.keys() & part.tensors.keys():
            raise part.damaged(f"tensor {shown(min(twice))} is in another part too")
        tensors |= {name: one._replace(part=number) for name, one in part.tensors.items()}
        data += part.data
    expected = file.fields.get("split.tensors.count", len(tensors))
    if others and expected != len(tensors):
        raise file.damaged(f"its parts have {len(tensors)} tensors, not {shown(expected)}")
    return replace(file, tensors=tensors, data=tuple(data))


def _read_part(path: Path) -> Gguf:
    """Parse one file."""
    try:
        if not is_gguf(path):
            raise WeightsError(f"{path}: not a GGUF file (its first four bytes are not 'GGUF')")
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError as error:
        raise WeightsError(f"{path}: {error.strerror}: fetch or copy it again") from error
    at = _Cursor(data, len(MAGIC), min(len(data), MAX_METADATA_BYTES), MAX_ENTRIES)
    try:
        return _parse(path, at)
    except struct.error as error:  # its own words speak of buffers
        raise WeightsError(
            f"{path}: truncated GGUF file ({at.reading}: the file ends there); fetch it again"
        ) from error
    except UnknownFormat as error:
        raise WeightsError(
            f"{path}: {at.reading} is in a number format that is not known here ({error}); choose "
            "another quantization, or update draftline"
        ) from error
    except (KeyError, ValueError, OverflowError) as error:
        raise WeightsError(
            f"{path}: truncated or damaged GGUF file ({at.reading}: {error}); fetch it again"
        ) from error


class UnknownFormat(ValueError):
    """The number of a format of tensors that the `gguf` package does not know."""


def version_problem(version: int) -> str:
    """Say why a file of a version cannot be read; "" if it can."""
    if version in VERSIONS:
        return ""
    if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS:
        return "it is big-endian: fetch the usual file, or convert it by gguf-convert-endian"
    return f"GGUF version {version}, only 2 and 3 can be read"


def _parse(path: Path, at: _Cursor) -> Gguf:
    if problem := version_problem(at.scalar(4)):
        raise WeightsError(f"{path}: {problem}")
    tensor_count, field_count = at.scalar(10), at.scalar(10)
    fields: dict[str, Any] = {}
    for number in range(field_count):
        at.reading = f"field {number} of {field_count}"
        key = at.string()
        at.reading = f"field {shown(key)}"
        if key in fields:
            raise ValueError("it is there twice")
        fields[key] = at.value(at.scalar(4))
    listed: dict[str, Tensor] = {}
    for number in range(tensor_count):
        at.reading = f"tensor {number} of {tensor_count}"
        name = at.string()
        at.reading = f"tensor {shown(name)}"
        if name in listed:
            raise ValueError("it is there twice")
        listed[name] = at.tensor()
    at.reading = "field 'general.alignment'"
    alignment = fields.get("general.alignment", 32)
    if type(alignment) is not int or not 1 <= alignment <= MAX_ALIGNMENT:
        raise ValueError(f"it is {shown(alignment)}, expected a power of two")
    if alignment & (alignment - 1):
        raise ValueError(f"{alignment} is not a power of two")
    start = -(-at.offset // alignment) * alignment
    return Gguf(path, fields, _placed(listed, start, at), (at.data,))


def _placed(listed: dict[str, Tensor], start: int, at: _Cursor) -> dict[str, Tensor]:
    """Place the tensors in the file, where the first one is at `start`.

    ValueError for a tensor that leaves the file or shares bytes with another.
    """
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    tensors, ranges = {}, []
    known = {int(one) for one in GGML_QUANT_SIZES}
    for name, (shape, kind, offset, _) in listed.items():
        at.reading = f"tensor {shown(name)}"
        if kind not in known:
            raise UnknownFormat(kind)
        block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
        if not shape or shape[-1] % block or not all(shape):
            raise ValueError(f"shape {list(shape)}")
        size = math.prod(shape) // block * block_bytes
        if start + offset + size > len(at.data):
            raise ValueError(f"it ends after the file does (offset {offset}, {size} bytes)")
        tensors[name] = Tensor(shape, kind, start + offset)
        ranges.append((start + offset, start + offset + size, name))
    for (_, stop, one), (begin, _, other) in pairwise(sorted(ranges)):
        if begin < stop:
            at.reading = f"tensor {shown(other)}"
            raise ValueError(f"its offset is within tensor {shown(one)}")
    return tensors


@dataclass(slots=True)
class _Cursor:
    """A reader of one value after another; struct.error or ValueError past the end."""

    data: mmap.mmap
    offset: int
    end: int  # end of the metadata, at most
    entries: int  # entries that arrays may still have
    reading: str = "header"  # what is read, for errors

    def scalar(self, kind: int) -> Any:
        if kind not in SCALARS:
            raise ValueError(f"unknown type {kind}")
        layout = "<" + SCALARS[kind]
        (value,) = struct.unpack_from(layout, self.data, self.offset)
        self.offset += struct.calcsize(layout)
        return value

    def string(self) -> str:
        return self.strings(1)[0]

    def strings(self, count: int) -> list[str]:
        """Read `count` strings, without a call for each: vocabularies have 150,000."""
        data, offset, end, size_at = self.data, self.offset, self.end, SIZE.unpack_from
        found = []
        for _ in range(count):
            (size,) = size_at(data, offset)
            start, offset = offset + SIZE.size, offset + SIZE.size + size
            if offset > end:
                raise ValueError(f"a string of {size} bytes ends after {end} bytes of metadata")
            found.append(data[start:offset].decode("utf-8", "replace"))
        self.offset = offset
        return found

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            return self.scalar(kind)
        if depth >= MAX_ARRAY_DEPTH:
            raise ValueError(f"arrays within arrays, deeper than {MAX_ARRAY_DEPTH}")
        inner, count = self.scalar(4), self.scalar(10)
        if count > min(self.entries, self.end - self.offset):  # an entry takes a byte at least
            raise ValueError(f"an array of {count} entries is too long for the file")
        self.entries -= count
        if inner in SCALARS:
            layout = f"<{count}{SCALARS[inner]}"
            values = struct.unpack_from(layout, self.data, self.offset)
            self.offset += struct.calcsize(layout)
            return list(values)
        if inner == STRING:
            return self.strings(count)
        return [self.value(inner, depth + 1) for _ in range(count)]

    def tensor(self) -> Tensor:
        """Read one entry of the tensor list; `start` is relative to the first tensor here."""
        dimensions = self.scalar(4)
        if dimensions > MAX_DIMENSIONS:
            raise ValueError(f"{dimensions} dimensions, at most {MAX_DIMENSIONS} can be read")
        shape = tuple(reversed([self.scalar(10) for _ in range(dimensions)]))
        return Tensor(shape, self.scalar(4), self.scalar(10))
