"""What model names stand for, and what is ready in the cache. Nothing is changed.

models/NAME/            the ready folder; draftline.json in it says what it is, and is written last
models/NAME.gguf        the weights of a built-in model; those of a user's GGUF file stay there
models/NAME.lock        held by the process that fetches, prepares or removes NAME
models/.partial/NAME/   work in progress: never counts, and is cleaned under the lock
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from engine.weights.catalogue.builtins import BUILTINS
from engine.weights.catalogue.local_models import (
    gguf_files,
    gguf_problem,
    in_hub_cache,
    ollama_template,
    path_of_local,
)
from engine.weights.errors import WeightsError
from engine.weights.gguf.parts import parts_of, size_of

# Formats of a ready folder; raised when its content changes, so that no version takes another's.
FORMAT = 1  # the folder has weights
MAX_NAMED = 5  # files named in an error
GGUF_FORMAT = 3  # it is that of a GGUF file, where the weights stay


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model in the cache. `folder` is ready to load; `gguf` has the weights of a built-in."""

    name: str
    folder: Path | None
    gguf: Path | None

    @property
    def folder_bytes(self) -> int:
        return folder_bytes(self.folder) if self.folder else 0

    @property
    def gguf_bytes(self) -> int:
        return size_of(self.gguf) if self.gguf else 0


def home() -> Path:
    """Return the cache folder: DRAFTLINE_HOME, or the user's cache directory."""
    moved = os.environ.get("DRAFTLINE_HOME")
    return Path(moved or platformdirs.user_cache_dir("draftline")).expanduser().absolute()


def find(name: str) -> Path | None:
    """Find the ready folder of a model; None if it must be fetched or prepared first.

    Fetches nothing. WeightsError, with near matches, for a name that no model can have.
    """
    if name in BUILTINS:
        known = {"sha256": BUILTINS[name].sha256, "gguf": f"../{name}.gguf"}
        return _ready(models_folder() / name, **known) if gguf(name) else None
    path = path_of(name)
    if path is not None and path.is_dir():
        return _own_folder(path)
    if path is not None:
        return _ready(gguf_folder(path), gguf=str(path.resolve()), **identity(path, name))
    if _is_hub_id(name):
        return _own_hub_copy(name)
    raise _unknown(name)


def path_of(name: str) -> Path | None:
    """Find the GGUF file or model folder that a name stands for.

    The name is a path, a model that another program has downloaded (`ollama:qwen2.5-coder:7b`), or
    a hub id that the hub's cache holds and ours does not. None for any other name; WeightsError for
    a model that a program lacks.
    """
    if name in BUILTINS or not name:
        return None
    if (path := path_of_local(name)) is not None:
        return path
    path = Path(name).expanduser()
    if path.is_file() and (problem := gguf_problem(path)):
        raise WeightsError(f"{path}: {problem}")
    if path.is_dir():
        return _gguf_in(path) or path
    if path.is_file():
        return path
    return in_hub_cache(name) if _is_hub_id(name) and not _own_hub_copy(name) else None


def _gguf_in(folder: Path) -> Path | None:
    """Find the one GGUF file of a folder that is no model folder itself.

    WeightsError where there are several.
    """
    if (folder / "config.json").exists() or (folder / "draftline.json").exists():
        return None
    files = gguf_files(folder)
    if len(files) > 1:
        some = ", ".join(file.name for file in files[:MAX_NAMED])
        raise WeightsError(f"{folder}: {len(files)} GGUF files: name one of them, as {some}")
    if files and (problem := gguf_problem(files[0])):
        raise WeightsError(f"{files[0]}: {problem}")
    return files[0] if files else None


def gguf(name: str) -> Path | None:
    """Find the GGUF file of a model, if it exists."""
    if name in BUILTINS:
        path = models_folder() / f"{name}.gguf"
        return path if path.is_file() and path.stat().st_size == BUILTINS[name].size else None
    found = path_of(name)
    return found.absolute() if found is not None and found.is_file() else None


def installed() -> list[ResolvedModel]:
    """List every model in the cache, built-in ones first."""
    found = []
    for name in BUILTINS:
        if (model := ResolvedModel(name, find(name), gguf(name))) and (model.folder or model.gguf):
            found.append(model)
    for record in sorted(models_folder().glob("*/draftline.json")):
        name = _record(record.parent).get("name", "")
        if name and name not in BUILTINS and _ready(record.parent, name=name):
            found.append(ResolvedModel(name, record.parent, gguf_of(record.parent)))
    return found


def models_folder() -> Path:
    """Return the folder of the models in the cache."""
    return home() / "models"


def key_of(name: str) -> str:
    """Return the cache's name for a model: that of its folder and lock."""
    in_cache = next((m.folder.name for m in installed() if m.folder and m.name == name), None)
    if in_cache is None and (path := path_of(name)) is not None and path.is_file():
        return gguf_folder(path).name
    return in_cache or name.replace("/", "--")


def gguf_folder(path: Path) -> Path:
    """Return the folder of a user's GGUF file."""
    place = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:12]
    return models_folder() / f"{path.stem}-{place}"


def gguf_of(folder: Path) -> Path | None:
    """Find the GGUF file with the weights of a folder in the cache; None for any other folder."""
    record = _record(folder) if folder.parent == models_folder() else {}
    name = record.get("gguf")
    return folder / name if isinstance(name, str) else None


def identity(path: Path, name: str = "") -> dict[str, Any]:
    """Identify a version of a file by its name, size and time stamp, without reading it.

    `name`: the name that stands for it; with one of Ollama's its template counts, too.
    """
    modified = max(part.stat().st_mtime_ns for part in parts_of(path))
    found = {"name": str(path.resolve()), "size": size_of(path), "modified": modified}
    if template := ollama_template(name):
        found["template"] = hashlib.sha256(template.encode()).hexdigest()
    return found


def _own_hub_copy(repository: str) -> Path | None:
    """Find the ready folder of a hub model that was fetched here."""
    return _ready(models_folder() / repository.replace("/", "--"), name=repository)


def _is_hub_id(name: str) -> bool:
    return re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name) is not None and not name.endswith(".gguf")


def _unknown(name: str) -> WeightsError:
    near = difflib.get_close_matches(name.lower(), BUILTINS, n=3, cutoff=0.4)
    near += [key for key in BUILTINS if name and name.lower() in key and key not in near]
    if re.fullmatch(r"[\w.-]+:[\w.-]+", name):  # as Ollama writes names
        near = [f"ollama:{name}"]
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return WeightsError(
        f"unknown model '{name}': {hint}a model is one of {', '.join(BUILTINS)}, an existing "
        "folder or GGUF file, a hub id such as Qwen/Qwen2.5-Coder-7B-Instruct, or one that another "
        "program has, such as ollama:qwen2.5-coder:7b"
    )


def _own_folder(path: Path) -> Path:
    """Check a user's model folder, or that of a GGUF file in the cache.

    WeightsError names what is missing.
    """
    if gguf_of(path):
        return path
    for needed in ("config.json", "tokenizer.json", "*.safetensors"):
        if not any(path.glob(needed)):
            raise WeightsError(
                f"{path}: this folder has no {needed}; a model folder holds config.json, "
                "tokenizer.json and safetensors (pickled weights are not read), or one GGUF file"
            )
    return path


def _record(folder: Path) -> dict[str, Any]:
    """Read the draftline.json of a folder; {} if it is missing or unreadable."""
    try:
        value = json.loads((folder / "draftline.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _ready(folder: Path, **expected: Any) -> Path | None:
    """Return the folder if it is ready, else None.

    It is if it was finished in this format from this very source and is still complete.
    """
    record = _record(folder)
    if record.get("format") != (GGUF_FORMAT if "gguf" in record else FORMAT):
        return None
    if any(record.get(key) != value for key, value in expected.items()):
        return None
    files = record.get("files", {})
    for name, size in files.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != size:
            return None
    return folder if files else None


def folder_bytes(folder: Path) -> int:
    """Add up the sizes of a folder's files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
