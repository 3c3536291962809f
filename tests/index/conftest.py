"""Shared parts of the index tests."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def no_fsync() -> Iterator[None]:
    """Skip fsync, which is slow. It only matters for power loss, which no test can cause;
    `test_files_are_synced_before_they_are_named` checks where it is called."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small source tree to watch."""
    root = tmp_path / "root"
    (root / "src" / "deep").mkdir(parents=True)
    for name in ("a.py", "src/b.py", "src/deep/c.py"):
        (root / name).write_text(name)
    return root


@pytest.fixture
def no_leftover_threads() -> Iterator[None]:
    """Fail if a thread that was started during the test is still running at its end."""
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before
