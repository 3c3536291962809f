"""Models and servers that several files of tests use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import tiny_model
from tests.support.server import LocalServer, reciter, serve_model
from ui.api.security import AccessRules

MAX_BODY_BYTES = 20_000


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for models, with a cache that only the tests of a file use."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRAFTLINE_HOME", str(tmp_path_factory.mktemp("home")))
        yield tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def reciting(models: Path) -> Iterator[LocalServer]:
    """A server whose model answers ANSWER, or calls a tool if it must. It accepts only small
    bodies."""
    rules = AccessRules(max_body=MAX_BODY_BYTES)
    with serve_model(reciter(models / "reciter"), rules=rules, aliases=["other-name"]) as served:
        yield served


@pytest.fixture(scope="module")
def writing(models: Path) -> Iterator[LocalServer]:
    """A server whose answers depend on the whole prompt."""
    with serve_model(tiny_model(models / "writer", context=4096)) as served:
        yield served
