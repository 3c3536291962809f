"""Cheap checks of a model folder's files, without reading the weights.

A folder may be incomplete or hostile: only regular files of it are opened, their headers are
bounded, and every tensor must be where the header says.
"""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from engine.weights.config_json import check_config, stretched, text_part
from engine.weights.errors import WeightsError, shown

MAX_HEADER_BYTES = 8 << 20  # bytes of a safetensors file's header: 70,000 tensors
MAX_JSON_BYTES = 64 << 20  # bytes; the largest tokenizer.json of a known model has 34 MB
MAX_JSON_OBJECTS = 4 << 20  # objects and arrays: each takes some 60 bytes of memory
MAX_FILES = 1000  # safetensors files of a model
INDEX = "model.safetensors.index.json"

# fmt: off
DTYPE_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E5M2FNUZ": 8,
    "F8_E4M3FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "F64": 64, "I64": 64, "U64": 64, "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}
# fmt: on


class TensorInfo(NamedTuple):
    """What a safetensors header says of one tensor."""

    dtype: str
    shape: tuple[int, ...]


def config_of(folder: Path) -> dict[str, Any]:
    """Read and check the config.json of a folder.

    Returns its settings with the context that the model has; of a composite model, those of its
    text part. WeightsError where it cannot be used.
    """
    file = folder / "config.json"
    settings = read_object(file)
    check_config(file, settings)
    return stretched(text_part(settings))


def tensors_of(folder: Path) -> dict[str, TensorInfo]:
    """List every tensor of a folder's safetensors files.

    WeightsError for a file that is damaged or leads out of the folder, and for a name in two files.
    """
    files = sorted(folder.glob("*.safetensors"))
    if len(files) > MAX_FILES:
        raise WeightsError(f"{folder}: {len(files)} safetensors files: keep those of one model")
    found: dict[str, TensorInfo] = {}
    for file in files:
        tensors = _header(file)
        if twice := found.keys() & tensors.keys():
            raise damaged(file, f"tensor {shown(min(twice))} is in another file too")
        found |= tensors
    if (folder / INDEX).exists():
        _check_index(folder / INDEX, {file.name for file in files})
    return found


def read_object(file: Path) -> dict[str, Any]:
    """Read a JSON object. WeightsError for anything else."""
    try:
        with regular(file).open("rb") as opened:
            found = _parsed(opened.read(MAX_JSON_BYTES + 1))
    except (ValueError, RecursionError) as error:
        raise damaged(file, f"no JSON: {error}") from error
    if not isinstance(found, dict):
        raise damaged(file, "no JSON object")
    return found


def regular(file: Path) -> Path:
    """Return the file that a path leads to, if it is a regular one that the folder may have.

    A link may lead to another file of the folder or, as in the hub's cache, to a blob next to it.
    WeightsError otherwise.
    """
    try:
        place, folder = file.resolve(), file.parent.resolve()
    except RuntimeError as error:  # a loop of links
        raise WeightsError(f"{file}: {error}: copy or fetch this model again") from error
    inside = [folder]
    if folder.parent.name == "snapshots":
        inside.append(folder.parent.parent / "blobs")
    if not any(place.is_relative_to(one) for one in inside):
        raise WeightsError(f"{file}: a link out of the model's folder: copy the file into it")
    if not place.is_file():
        raise WeightsError(f"{file}: no such file, or no regular one: fetch this model again")
    return place


def damaged(file: Path, why: str) -> WeightsError:
    """Make the error for a file of a model, in one line."""
    return WeightsError(f"{file}: damaged ({why}): copy or fetch this model again")


def _parsed(data: bytes) -> Any:
    """Parse JSON of bounded size. ValueError or RecursionError."""
    if len(data) > MAX_JSON_BYTES:
        raise ValueError(f"over {MAX_JSON_BYTES >> 20} MiB")
    if data.count(b"{") + data.count(b"[") > MAX_JSON_OBJECTS:
        raise ValueError(f"over {MAX_JSON_OBJECTS} objects and arrays")
    return json.loads(data)


def _header(file: Path) -> dict[str, TensorInfo]:
    """Read the tensors of a safetensors file, which must fill it without gap or overlap."""
    with regular(file).open("rb") as opened:
        size, available = int.from_bytes(opened.read(8), "little"), file.stat().st_size - 8
        if size > min(available, MAX_HEADER_BYTES):
            raise damaged(file, f"its header of {size} bytes is cut short or too long")
        try:
            header = _parsed(opened.read(size))
        except (ValueError, RecursionError) as error:
            raise damaged(file, f"its header is no JSON: {error}") from error
    if not isinstance(header, dict):
        raise damaged(file, "its header is no JSON object")
    header.pop("__metadata__", None)
    found, places = {}, [(0, 0)]
    for name, entry in header.items():
        try:
            found[name], place = _tensor(entry)
        except (ValueError, KeyError, TypeError) as error:
            raise damaged(file, f"tensor {shown(name)}: {error}") from error
        places.append(place)
    places.sort()
    for (_, stop), (start, _) in pairwise([*places, (available - size, available - size)]):
        if stop != start:
            raise damaged(file, f"its tensors do not fill it: one ends at {stop}, not {start}")
    return found


def _tensor(entry: dict[str, Any]) -> tuple[TensorInfo, tuple[int, int]]:
    """Read one entry of a header, and the bytes that it covers."""
    dtype, shape, (start, stop) = entry["dtype"], entry["shape"], entry["data_offsets"]
    if dtype not in DTYPE_BITS:
        raise ValueError(f"unknown dtype {shown(dtype)}")
    if not all(type(number) is int and 0 <= number < 1 << 48 for number in (*shape, start, stop)):
        raise ValueError(f"shape {shape} at {start} to {stop}")
    if len(shape) > 8 or (stop - start) * 8 != math.prod(shape) * DTYPE_BITS[dtype]:
        raise ValueError(f"{dtype} of shape {shape} does not take {stop - start} bytes")
    return TensorInfo(dtype, tuple(shape)), (start, stop)


def _check_index(file: Path, names: set[str]) -> None:
    """Check that the folder has the files that a sharded model's index names.

    WeightsError where it does not.
    """
    places = read_object(file).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(place, str) for place in places.values()):
        raise damaged(file, "'weight_map' does not map tensors to files")
    if absent := set(places.values()) - names:
        raise damaged(file, f"'weight_map' names {shown(min(absent))}, which is not in the folder")
