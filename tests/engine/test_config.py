from __future__ import annotations

import pytest

from engine.config import (
    MIN_MEMORY_BYTES,
    MODEL_VARIABLE,
    SMALL_MODEL,
    USUAL_MODEL,
    default_model,
)
from engine.weights import BUILTINS
from engine.weights.memory import gguf_memory


def test_the_default_model_depends_on_the_memory_unless_the_environment_names_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(MODEL_VARIABLE)
    assert default_model(MIN_MEMORY_BYTES) == USUAL_MODEL
    assert default_model(MIN_MEMORY_BYTES - 1) == SMALL_MODEL
    monkeypatch.setenv(MODEL_VARIABLE, "/models/own.gguf")
    assert default_model(MIN_MEMORY_BYTES) == "/models/own.gguf"


def test_the_usual_model_leaves_most_of_the_memory_to_other_programs() -> None:
    assert gguf_memory(BUILTINS[USUAL_MODEL].size) < MIN_MEMORY_BYTES / 2
