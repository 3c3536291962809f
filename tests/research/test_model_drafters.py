"""Model-based drafters never change an answer, whether the model runs in bf16 or q8."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.drafting import Drafter, NullDrafter
from engine.drafting.draft_model import draft_model
from engine.generate import Generation, generate
from engine.model.torch.torch_target import TorchTarget
from engine.prompts.builder import Prompt
from engine.prompts.tokenizer import Tokenizer
from engine.records import Done, Request
from research.methods.eagle import eagle
from research.methods.eagle_head import shape_of, untrained_head
from research.methods.sdsat import SdsatDrafter, install_embeddings
from research.methods.specdec import AcceptanceHead, specdec
from tests.conftest import tiny_model
from tests.model.test_target import load
from tests.support.law import SAMPLED, answer, run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("types") / "model", "qwen2")


def untrained_drafters(target: TorchTarget, draft: TorchTarget) -> dict[str, Drafter]:
    """One untrained drafter of each kind."""
    ids = install_embeddings(target, torch.ones(2, target.model.width))
    return {
        "draft model": draft_model(draft),
        "specdec++": specdec(draft, AcceptanceHead(draft.model.width)),
        "eagle": eagle(target, untrained_head(shape_of(target.settings), 0), 20, 3, 4),
        "sdsat": SdsatDrafter(ids),
        "sdsat, tree": SdsatDrafter(ids, tree=True),
    }


@pytest.mark.parametrize("dtype", ["bf16", "q8"])
def test_no_model_drafter_changes_the_answer(folder: Path, dtype: str) -> None:
    target, draft = load(folder, dtype, threads=1), load(folder, dtype, threads=1)
    tokenizer, prompt = Tokenizer(folder), Prompt([40, 41, 42, 43], max_tokens=24)
    tokenizer.eos = frozenset()
    options: dict[str, Any]
    for options in ({}, SAMPLED):
        _, expected = run(target, tokenizer, prompt, NullDrafter(), **options)
        for name, drafter in untrained_drafters(target, draft).items():
            _, done = run(target, tokenizer, prompt, drafter, **options)
            assert answer(done) == answer(expected), name
            assert done.usage.drafted > 10
    for name, drafter in untrained_drafters(target, draft).items():
        request = Request("complete", temperature=1.0, seed=1)
        *_, end = generate(
            Generation(request, prompt, tokenizer, target.context, verification="rejection"),
            target,
            drafter,
        )
        assert isinstance(end, Done) and end.usage.completion_tokens == 24, name
