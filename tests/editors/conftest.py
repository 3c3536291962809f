"""What the tests of all editors share: how the real server is started, where artefacts go."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.neovim import newest, pinned

ROOT = Path(__file__).resolve().parent.parent.parent
SERVER = [sys.executable, "-m", "lsp_server", "--server", "own"]
ARTEFACTS = ROOT / "build" / "editors" / "artefacts"


@pytest.fixture(scope="session")
def server_command() -> list[str]:
    """The program and arguments that an editor starts; the default model, as for a user."""
    return SERVER


@pytest.fixture(scope="session")
def server_environment() -> dict[str, str]:
    """The environment in which `server_command` finds the packages of this checkout."""
    paths = [os.environ.get("PYTHONPATH", ""), str(ROOT)]
    return dict(os.environ) | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}


@pytest.fixture(scope="session")
def artefacts() -> Path:
    """The folder for screens and logs, to be looked at."""
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    return ARTEFACTS


@pytest.fixture(scope="module", params=["0.11", "0.12"])
def program(request: pytest.FixtureRequest) -> Path:
    """Neovim, of each version that the plugin supports."""
    return pinned() if request.param == "0.11" else newest()
