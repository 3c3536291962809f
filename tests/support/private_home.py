"""A cache folder (DRAFTLINE_HOME) for the tests of one process: the user's own is neither read,
but for the weights of built-in models, nor written."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from engine.weights.builtins import BUILTINS
from engine.weights.resolve import gguf

# What tests download, once for all runs.
TEST_CACHE = Path(os.environ.get("DRAFTLINE_TEST_CACHE", "~/.cache/draftline-tests")).expanduser()


def make_home(folder: Path) -> Path:
    """An empty cache folder, but for the models that earlier runs have fetched. The weights that
    the user has are linked, so that they need not be fetched again; returns `folder`."""
    models = TEST_CACHE / "models"
    models.mkdir(parents=True, exist_ok=True)
    for name in BUILTINS:
        if weights := gguf(name):
            with suppress(OSError):  # linked before; or on another file system, which cannot link
                os.link(weights, models / weights.name)
    folder.mkdir()
    (folder / "models").symlink_to(models)
    return folder
