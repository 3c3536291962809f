"""Models that llama.cpp has downloaded: GGUF files in one folder.

Since March 2026 it uses the hub's cache (`hub_cache`), or the same layout where LLAMA_CACHE points;
older downloads and those from other addresses are plain files in its own cache folder, as decided
by `fs_get_cache_directory` in its `common/common.cpp`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from engine.weights.catalogue.local_models.hub_cache import cached_models
from engine.weights.catalogue.local_models.local_model import (
    LocalModel,
    Program,
    gguf_problem,
    home_folder,
)
from engine.weights.catalogue.local_models.repository import gguf_files


def folders() -> list[Path]:
    """Return LLAMA_CACHE, or llama.cpp's folder in the user's cache of this platform."""
    if cache := os.environ.get("LLAMA_CACHE"):
        return [Path(cache)]
    if sys.platform == "darwin":
        return [home_folder("Library", "Caches", "llama.cpp")]
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return [Path(local, "llama.cpp")] if local else []
    caches = os.environ.get("XDG_CACHE_HOME")
    return [Path(caches, "llama.cpp") if caches else home_folder(".cache", "llama.cpp")]


def models(cache: Path) -> Iterator[LocalModel]:
    """Yield the models of llama.cpp's cache folder."""
    for file in gguf_files(cache):
        name = file.name[: -len(".gguf")]
        yield LocalModel(f"{PROGRAM.prefix}:{name}", file, problem=gguf_problem(file))
    yield from cached_models(cache, PROGRAM.prefix)


PROGRAM = Program("llamacpp", "llama.cpp", folders, models, "LLAMA_CACHE names its folder")
