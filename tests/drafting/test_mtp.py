"""Drafting with the layer that predicts the token after the next: whatever was accepted, cached or
copied before, a draft is what the layer says of the whole text, and the answer stays the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engine.drafting import DraftContext, chain
from engine.drafting.draft_length import ConstantLength
from engine.drafting.draft_model import DraftModel
from engine.drafting.hybrid import HybridDrafter
from engine.drafting.mtp import MtpSource
from engine.drafting.registry import parse_choice
from engine.model.native.forward_pass import Array, PassRows
from engine.model.native.native_target import NativeTarget
from engine.prompts.builder import Prompt
from engine.prompts.tokenizer import Tokenizer
from engine.records import Draft
from tests.drafting.test_hybrid import Paced, Recorder, sources
from tests.model.test_mtp import NAMES, mtp_model
from tests.support.drafters import CHEAP, real
from tests.support.law import SAMPLED, answer, run

PROMPT = [40 + n * 31 % 300 for n in range(300)]  # several chunks
LENGTH = 3  # tokens of a draft


@pytest.fixture(scope="module", params=NAMES[:2])
def target(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[NativeTarget]:
    folder = tmp_path_factory.mktemp("mtp")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRAFTLINE_HOME", str(folder / "home"))
        yield mtp_model(folder / "m.gguf", request.param)


@pytest.fixture(scope="module")
def tokenizer(target: NativeTarget) -> Tokenizer:
    tokenizer = Tokenizer(target.folder)
    tokenizer.eos = frozenset()
    return tokenizer


def source(target: NativeTarget) -> MtpSource:
    return MtpSource(target.mtp_head(), target.head_tile)


def drafter(target: NativeTarget) -> DraftModel:
    return DraftModel(source(target), ConstantLength(LENGTH), "mtp")


class Mixed(DraftModel):
    """Drafts a part of the answer, and then something wrong, or what the layer says."""

    def __init__(self, target: NativeTarget, truth: list[int]) -> None:
        super().__init__(source(target), ConstantLength(LENGTH), "mtp")
        self.truth, self.chance = truth, random.Random(0)
        self.drafts: list[tuple[list[int], list[int]]] = []  # the text before each, and it

    def propose(self, context: DraftContext, target: Any) -> Draft:
        if self.chance.random() < 0.6:
            written, right = len(context.output), self.chance.randrange(4)
            wrong = (self.truth[written + right] + 1) % target.vocab
            return chain([*self.truth[written : written + right], wrong], "truth")
        draft = super().propose(context, target)
        self.drafts.append(([*context.prompt, *context.output], draft.tokens))
        return draft


def expected(target: NativeTarget, text: list[int]) -> list[int]:
    """What the layer says of a text in one pass over all of it, and behind that token by token."""
    layer, chunks = target.mtp_head(), list[Array]()
    target.begin(text, 16, "nobody")
    for _ in target.prefill(text, 16, lambda tokens, states: chunks.append(states), "nobody"):
        pass
    ids, states = np.array(text[1:]), np.concatenate(chunks)
    cache, found = layer.new_cache(len(text) + LENGTH), list[int]()
    for _ in range(LENGTH):
        base = 0 if not found else len(text) - 2 + len(found)
        rows = PassRows.of(base, [*range(-1, len(ids) - 1)])
        states = layer.run(ids, states, rows, cache)[-1:]
        ids = layer.head(states).argmax(-1)
        found.append(int(ids[0]))
    return found


def test_drafts_are_what_the_layer_says_of_the_text(
    target: NativeTarget, tokenizer: Tokenizer
) -> None:
    target.pool.clear()
    plain = Recorder()
    _, done = run(target, tokenizer, Prompt(PROMPT, max_tokens=80), plain)
    target.pool.clear()
    drafter = Mixed(target, [*plain.tokens, *range(10)])
    _, found = run(target, tokenizer, Prompt(PROMPT, max_tokens=80), drafter)
    assert answer(found) == answer(done) and len(drafter.drafts) > 9
    for text, draft in drafter.drafts:
        target.pool.clear()
        assert draft[:LENGTH] == expected(target, text)[: len(draft)] and draft


@pytest.mark.parametrize("options", [{}, SAMPLED], ids=str)
def test_the_answer_is_unchanged_whatever_is_cached(
    target: NativeTarget, tokenizer: Tokenizer, options: Any
) -> None:
    """The first time nothing is, then all but the last token; then beside copies."""
    target.pool.clear()
    plain, prompt = Recorder(), Prompt(PROMPT, max_tokens=30)
    _, done = run(target, tokenizer, prompt, plain, **options)
    target.pool.clear()
    for _ in range(2):
        _, found = run(target, tokenizer, prompt, drafter(target), **options)
        assert answer(found) == answer(done) and found.usage.drafted > 20
    for seconds in (1e-9, 1e9):
        copied, lengths = Prompt(PROMPT, [plain.tokens[:20]], max_tokens=30), Paced(seconds)
        target.pool.clear()
        copier = real("trained", CHEAP)
        both = HybridDrafter(copier, drafter(target), lengths, copier.cost)
        steps, found = run(target, tokenizer, copied, both, **options)
        assert answer(found) == answer(done)
        assert ("prediction" in sources(steps)) == (seconds == 1e9)


def test_a_runtime_without_such_layers_is_refused() -> None:
    parts: Any = SimpleNamespace(target=SimpleNamespace(folder="m"), lengths=[])
    for name in ("mtp", "auto+mtp"):
        with pytest.raises(ValueError, match="m: mtp drafts only for GGUF files on the CPU"):
            parse_choice(name).spec.build(parts, {"most": 3})
