"""A model in another program's folder, and the bounded reading of such folders."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from engine.weights.errors import WeightsError, shown
from engine.weights.gguf.parts import is_later_part, parts_of

MAX_ENTRIES = 10_000  # entries of a folder


@dataclass(frozen=True, slots=True)
class LocalModel:
    """One model of another program, or an entry of its folder that cannot be run."""

    name: str  # as `--model` takes it: ollama:qwen2.5-coder:7b
    path: Path  # a GGUF file or a model folder
    aliases: tuple[str, ...] = ()  # other names, which several models may share
    problem: str = ""  # why it cannot be run, and the remedy
    template: Path | None = None  # a file with Ollama's template


@dataclass(frozen=True, slots=True)
class Program:
    """A program that keeps models on this machine."""

    prefix: str  # start of its models' names
    label: str
    folders: Callable[[], list[Path]]  # where it may keep models
    models: Callable[[Path], Iterator[LocalModel]]  # models of one such folder
    setting: str  # how to name another folder


def home_folder(*parts: str) -> Path:
    """Make a path in the user's home folder."""
    return Path("~", *parts).expanduser()


def entries(folder: Path) -> list[Path]:
    """List what a folder holds, sorted.

    The list is empty where there is no such folder or it may not be read. WeightsError where it
    holds too much.
    """
    try:
        with os.scandir(folder) as found:
            names = sorted(entry.name for entry in islice(found, MAX_ENTRIES + 1))
    except OSError:
        return []
    if len(names) > MAX_ENTRIES:
        raise WeightsError(f"{folder}: over {MAX_ENTRIES:,} entries: not searched for models")
    return [folder / name for name in names]


def read_json(file: Path, max_bytes: int) -> dict[str, Any]:
    """Read a JSON object of at most `max_bytes`. WeightsError for anything else."""
    try:
        if not file.is_file():  # a pipe would block
            raise WeightsError(f"{file}: no such file, or no regular one")
        with file.open("rb") as opened:
            data = opened.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise WeightsError(f"{file}: over {max_bytes >> 20} MiB, not what this file should be")
        value = json.loads(data)
    except OSError as error:
        raise WeightsError(f"{file}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{file}: no JSON: {error}") from error
    if not isinstance(value, dict):
        raise WeightsError(f"{file}: {shown(value)} instead of a JSON object")
    return value


def gguf_problem(file: Path) -> str:
    """Say why a GGUF file of this name cannot be run; "" if it may be one that can."""
    if is_later_part(file):
        return "a later part of a split GGUF file: name the first, which ends with -00001-of-..."
    if missing := [part.name for part in parts_of(file) if not part.is_file()]:
        name = f"part {missing[0]}" if len(parts_of(file)) > 1 else "its file"
        return f"{name} is missing or incomplete: download it again"
    return ""
