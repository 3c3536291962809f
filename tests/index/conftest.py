"""Shared parts of the index tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def no_fsync() -> Iterator[None]:
    """Skip fsync, which is slow. It only matters for power loss, which no test can cause;
    `test_files_are_synced_before_they_are_named` checks where it is called."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield
