"""The built-in models themselves (downloaded)."""

from __future__ import annotations

import json

import pytest

from engine import weights
from engine.model.families.gguf_tensors import settings_of
from tests.support.weights import REPOSITORY


@pytest.mark.model
def test_smollm2_encodes_this_repository_losslessly() -> None:
    from tokenizers import Tokenizer

    folder = weights.locate("smollm2-135m")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for path in sorted((REPOSITORY / "engine").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text
    generation = json.loads((folder / "generation_config.json").read_text())
    assert generation["eos_token_id"] == [2, 0]  # of a turn, and of a text


@pytest.mark.full
@pytest.mark.model
def test_the_default_model_has_its_own_head_and_end_tokens() -> None:
    folder = weights.locate(weights.DEFAULT_MODEL)
    config = settings_of(folder)
    generation = json.loads((folder / "generation_config.json").read_text())
    assert config["tie_word_embeddings"] is False
    assert generation["eos_token_id"] == [151645, 151643]
