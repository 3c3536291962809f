"""A cache folder (DRAFTLINE_HOME) for the tests of one process: the user's own is not written, and
read only for the weights of built-in models."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.weights.catalogue.builtins import BUILTINS
from engine.weights.resolve import gguf

# What tests download, once for all runs.
TEST_CACHE = Path(os.environ.get("DRAFTLINE_TEST_CACHE", "~/.cache/draftline-tests")).expanduser()
MODELS = TEST_CACHE / "models"


@contextmanager
def private_home(folder: Path) -> Iterator[None]:
    """In the context, DRAFTLINE_HOME is `folder`, which is made. The weights that the user has, or
    an earlier run has fetched, are linked there; what this run fetches is kept for the next."""
    models = folder / "models"
    models.mkdir(parents=True)
    for name in BUILTINS:
        weights = gguf(name) or MODELS / f"{name}.gguf"
        if weights.is_file():
            (models / weights.name).symlink_to(weights)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRAFTLINE_HOME", str(folder))
        yield
    for weights in models.glob("*.gguf"):
        if not weights.is_symlink():
            _keep(weights)


def _keep(weights: Path) -> None:
    MODELS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=MODELS) as beside:
        copy = shutil.copyfile(weights, Path(beside) / weights.name)
        copy.replace(MODELS / weights.name)
