"""A draft model's reduced output layer: which tokens it has, and that answers stay the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import Config
from engine.drafting import DraftContext, reduced_head
from engine.drafting.draft_length import ConstantLength
from engine.drafting.draft_model import DraftModel, draft_model
from engine.drafting.reduced_head import FREQUENT_TOKENS, MIN_VOCABULARY, ReducedHead
from engine.model import _kernels as kernels
from engine.model.native.native_target import NativeTarget
from engine.prompts.builder import Prompt
from engine.prompts.tokenizer import Tokenizer
from engine.records import Draft
from engine.weights import locate
from tests.support.law import SAMPLED, answer, plain, run
from tests.support.tiny_gguf import write_gguf

TEXT = "def ret(in, def):\n    ret"


@given(st.lists(st.lists(st.integers(0, 2 * MIN_VOCABULARY), max_size=20), max_size=5))
def test_it_has_the_first_ids_and_those_of_the_text(parts: list[list[int]]) -> None:
    head, text = ReducedHead(MIN_VOCABULARY, 32), []
    for part in parts:
        text += part
        head.follow(text)
        head.add(part)
    known = {token // 32 for token in text if token < MIN_VOCABULARY}
    assert head.tiles.tolist() == sorted(known | set(range(FREQUENT_TOKENS // 32)))
    assert head.tiles.dtype == np.int32


def test_a_small_vocabulary_and_a_runtime_without_tiles_have_none() -> None:
    assert reduced_head.reduced_head(MIN_VOCABULARY - 1, 32) is None
    assert reduced_head.reduced_head(MIN_VOCABULARY, 0) is None
    assert reduced_head.reduced_head(MIN_VOCABULARY, 32) is not None


class Watched(DraftModel):
    """Checks that no token is drafted whose logit was not computed."""

    def propose(self, context: DraftContext, target: Any) -> Draft:
        draft = super().propose(context, target)
        assert self.source.head is not None
        assert {token // kernels.TILE for token in draft.tokens} <= set(self.source.head.tiles)
        return draft


@pytest.mark.parametrize("head", ["own", "absent"])
@pytest.mark.parametrize("options", [{}, {"seed": 5, **SAMPLED}], ids=str)
def test_answers_are_the_same(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, head: str, options: Any
) -> None:
    """By drafts of another model, and of the same one, which can only miss what is left out."""
    models = []
    for seed in (0, 1):
        write_gguf(tmp_path / f"{seed}.gguf", head=head, seed=seed)
        folder = locate(str(tmp_path / f"{seed}.gguf"))
        models.append(NativeTarget(folder, Config(device="cpu", threads=1)))
    target, other = models
    twin = NativeTarget(target.folder, Config(device="cpu", threads=1))
    tokenizer = Tokenizer(target.folder)
    prompt = Prompt(tokenizer.encode(TEXT), max_tokens=40)
    expected, _ = plain(target, tokenizer, prompt, **options)
    monkeypatch.setattr(reduced_head, "MIN_VOCABULARY", 0)
    accepted = {}
    for frequent in (0, 2 * kernels.TILE, target.vocab - target.vocab % kernels.TILE):
        monkeypatch.setattr(reduced_head, "FREQUENT_TOKENS", frequent)
        for name, model in (("other", other), ("twin", twin)):
            drafter = draft_model(model, ConstantLength(5))
            drafter.__class__ = Watched
            _, done = run(target, tokenizer, prompt, drafter, **options)
            assert answer(done) == answer(expected), (frequent, name)
            accepted[frequent, name] = done.usage.accepted
    usage = done.usage
    assert accepted[0, "twin"] <= usage.accepted == usage.completion_tokens - usage.forwards
