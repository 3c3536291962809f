"""The tests' tokenizer with marks of other models."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from engine.prompts.tokenizer import Tokenizer
from tests.conftest import byte_bpe


def with_marks(folder: Path, names: Iterable[str]) -> Tokenizer:
    """The tests' tokenizer with additional special tokens."""
    size = byte_bpe(folder)
    spec = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    for number, name in enumerate(names):
        spec["added_tokens"].append({
            "id": size + number, "content": name, "special": True, "single_word": False,
            "lstrip": False, "rstrip": False, "normalized": False,
        })  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(spec), "utf-8")
    return Tokenizer(folder)
