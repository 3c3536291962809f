"""Models in the cache of the Hugging Face hub, which transformers, vLLM, llama.cpp and others fill.

    models--OWNER--NAME/refs/main             the newest commit that was fetched
    models--OWNER--NAME/snapshots/COMMIT/     its files, mostly links into
    models--OWNER--NAME/blobs/

https://huggingface.co/docs/huggingface_hub/guides/manage-cache
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from engine.weights.catalogue.local_models.local_model import (
    LocalModel,
    Program,
    entries,
    home_folder,
)
from engine.weights.catalogue.local_models.repository import is_inside, repository_models

COMMIT = re.compile(r"[0-9a-fA-F]{40,64}")


def folders() -> list[Path]:
    """Return HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE (its old name), or `hub` in HF_HOME."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if cache := os.environ.get(variable):
            return [_expanded(cache)]
    if home := os.environ.get("HF_HOME"):
        return [_expanded(home) / "hub"]
    if cache := os.environ.get("XDG_CACHE_HOME"):
        return [_expanded(cache) / "huggingface" / "hub"]
    return [home_folder(".cache", "huggingface", "hub")]


def models(cache: Path) -> Iterator[LocalModel]:
    """Yield the models of the hub's cache."""
    yield from cached_models(cache, PROGRAM.prefix)


def cached_models(cache: Path, prefix: str) -> Iterator[LocalModel]:
    """Yield the models of a folder laid out as the hub's cache, as `prefix:OWNER/NAME`."""
    for folder in entries(cache):
        kind, *names = folder.name.split("--")
        if kind == "models" and len(names) in (1, 2):
            yield from _models_of(folder, f"{prefix}:{'/'.join(names)}")


def models_of(repository: str) -> list[LocalModel]:
    """List the models of one repository in the hub's cache."""
    folder = "--".join(("models", *repository.split("/")))
    name = f"{PROGRAM.prefix}:{repository}"
    return [model for cache in folders() for model in _models_of(cache / folder, name)]


def blobs(repository: str, sha256: str) -> Iterator[Path]:
    """Find the blobs of a repository that are named by this SHA-256, as large ones are.

    What they hold is not checked.
    """
    folder = "--".join(("models", *repository.split("/")))
    for cache in folders():
        path = cache / folder / "blobs" / sha256
        if path.is_file() and not path.is_symlink():
            yield path


def _models_of(folder: Path, name: str) -> list[LocalModel]:
    """List the models of a repository's folder in the cache."""
    snapshot = _snapshot(folder)
    if snapshot is None:
        return []
    if is_inside(snapshot, folder):
        return repository_models(name, snapshot, folder)
    problem = "its snapshot is a link out of the hub's cache: download it again"
    return [LocalModel(name, snapshot, problem=problem)]


def _snapshot(folder: Path) -> Path | None:
    """Find the folder of the newest commit of a repository, if any was fetched."""
    main = folder / "refs" / "main"
    if main.is_file():
        with main.open("rb") as file:
            commit = file.read(80).decode("ascii", "replace").strip()
        if COMMIT.fullmatch(commit) and (folder / "snapshots" / commit).is_dir():
            return folder / "snapshots" / commit
    snapshots = [path for path in entries(folder / "snapshots") if path.is_dir()]
    return max(snapshots, key=lambda path: path.stat().st_mtime_ns, default=None)


def _expanded(path: str) -> Path:
    return Path(os.path.expandvars(path)).expanduser()


PROGRAM = Program("hub", "hub cache", folders, models, "HF_HOME or HF_HUB_CACHE names it")
