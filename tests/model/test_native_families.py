"""Families that run natively only agree with transformers and keep the law."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.model.torch.tensor_model import TensorModel
from engine.records import Draft
from tests.model.test_families import chain
from tests.model.test_target import (
    assert_nodes_have_the_bits_of_one_token_passes,
    begin,
    load,
    some_tokens,
    some_tree,
)
from tests.support.native_families import FAMILIES, native_model

PROMPT = 31


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """family(name) -> the folder of a tiny random model, created once."""
    root = tmp_path_factory.mktemp("native")

    def make(name: str) -> Path:
        return root / name if (root / name).exists() else native_model(root / name, name)

    return make


def relative_errors(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
    """The distance of each row of logits, relative to the row's length. (A single small logit may
    be off by more: what f32 rounds differs between processors, and recurrent states amplify it.)"""
    return (ours - theirs).norm(dim=-1) / theirs.norm(dim=-1)


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_and_greedy_text_agree_with_transformers(family: Any, name: str) -> None:
    from transformers import AutoModelForCausalLM

    target = load(family(name), threads=1)
    assert isinstance(target.model, TensorModel)
    assert target.exact
    tokens = some_tokens(40, target.vocab)
    begin(target, tokens[:PROMPT])
    logits = target.forward(tokens[PROMPT - 1], chain(tokens[PROMPT:])).logits
    with torch.inference_mode():
        model = AutoModelForCausalLM.from_pretrained(family(name), dtype=torch.float32).eval()
        expected = model(input_ids=torch.tensor([tokens])).logits[0]
        assert relative_errors(logits, expected[PROMPT - 1 :]).max() < 1e-4
        answer = model.generate(
            torch.tensor([tokens]), max_new_tokens=16, do_sample=False, eos_token_id=None
        )[0].tolist()
    begin(target, tokens)
    text = [*tokens]
    while len(text) < len(answer):
        text.append(int(target.forward(text[-1], Draft()).logits[0].argmax()))
        target.keep([])
    assert text == answer


@pytest.mark.parametrize("dtype", ["f32", pytest.param("q8", marks=pytest.mark.full)])
@pytest.mark.parametrize("name", FAMILIES)
def test_nodes_of_a_tree_have_the_bits_of_one_token_passes(
    family: Any, name: str, dtype: str
) -> None:
    target = load(family(name), dtype, threads=1)
    assert target.exact
    prompt, draft = some_tokens(60, target.vocab), some_tree(24, target.vocab)
    assert_nodes_have_the_bits_of_one_token_passes(target, prompt, draft, 3)
