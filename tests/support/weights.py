"""Assertions shared by the tests of engine/weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.weights import WeightsError

REPOSITORY = Path(__file__).parents[2]


def left_over(home: Path) -> list[str]:
    """All files in the cache but locks, relative to its models folder."""
    return sorted(
        str(path.relative_to(home / "models"))
        for path in home.rglob("*")
        if path.is_file() and path.suffix != ".lock"
    )


FOLDER = [
    "draftline.json", "generation_config.json", "tokenizer.json",
    "tokenizer_config.json",
]  # fmt: skip
READY = sorted([*(f"tiny/{name}" for name in FOLDER), "tiny.gguf"])


def fails(action: Any, *words: str) -> None:
    """Assert that `action` raises a one-line WeightsError that contains all `words`."""
    with pytest.raises(WeightsError) as caught:
        action()
    message = str(caught.value)
    assert "\n" not in message and all(word in message for word in words), message
