"""Cheap checks that the files of a model are complete, without reading all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.weights.errors import WeightsError

MAX_HEADER_BYTES = 100_000_000  # of a safetensors file


def settings_of(folder: Path) -> dict[str, Any]:
    """The parsed config.json of a folder whose weights are complete. WeightsError otherwise."""
    for file in sorted(folder.glob("*.safetensors")):
        if not _covered(file):
            raise damaged(file, "its tensors do not fill it")
    return read_object(folder / "config.json")


def read_object(file: Path) -> dict[str, Any]:
    """A JSON object. WeightsError for anything else."""
    try:
        found = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise damaged(file, f"no JSON: {error}") from error
    if not isinstance(found, dict):
        raise damaged(file, "no JSON object")
    return found


def damaged(file: Path, why: str) -> WeightsError:
    """The error for a file of a model, in one line."""
    return WeightsError(f"{file}: damaged ({why}): copy or fetch this model again")


def _covered(file: Path) -> bool:
    """Whether a safetensors file is as long as its header says."""
    with file.open("rb") as opened:
        size = int.from_bytes(opened.read(8), "little")
        if size > MAX_HEADER_BYTES:
            return False
        try:
            header = json.loads(opened.read(size))
            header.pop("__metadata__", None)
            last = max((one["data_offsets"][1] for one in header.values()), default=0)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
            return False
    return bool(8 + size + last == file.stat().st_size)
