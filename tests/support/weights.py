"""What several tests of the model store ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.weights import WeightsError

REPOSITORY = Path(__file__).parents[2]


def left_over(home: Path) -> list[str]:
    """Everything below the cache that is not a lock."""
    return sorted(
        str(path.relative_to(home / "models"))
        for path in home.rglob("*")
        if path.is_file() and path.suffix != ".lock"
    )


FOLDER = [
    "config.json", "draftline.json", "generation_config.json", "model.safetensors",
    "tokenizer.json", "tokenizer_config.json",
]  # fmt: skip
READY = sorted([*(f"tiny/{name}" for name in FOLDER), "tiny.gguf"])


def fails(action: Any, *words: str) -> None:
    """The action raises a WeightsError of one line that holds all the words."""
    with pytest.raises(WeightsError) as caught:
        action()
    message = str(caught.value)
    assert "\n" not in message and all(word in message for word in words), message
