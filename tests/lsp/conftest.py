"""Shared fixtures of the language server tests."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.support.lsp import started


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that serves `small_server` over stdio."""
    with started("stdio") as running:
        yield running
        running.kill()
