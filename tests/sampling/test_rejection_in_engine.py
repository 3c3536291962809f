"""Rejection sampling in the decoding loop: sampled texts have the model's distribution (chi-square
tests), and greedy texts are unchanged."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.drafting import DraftContext, Drafter, NullDrafter
from engine.generate import Generation, generate
from engine.prompts.builder import Prompt
from engine.prompts.tokenizer import Tokenizer
from engine.records import Done, Draft, Request
from engine.sampling.rejection_sampling import DRAFTING, Dice, probabilities, residual
from tests.conftest import HashTarget
from tests.oracles.probability import least_likely
from tests.support.drafters import Trees, drafters
from tests.support.law import answer, endless, plain, tokenizer

__all__ = ["endless", "tokenizer"]  # fixtures
SAMPLED: list[dict[str, Any]] = [
    {"temperature": 1.0},
    {"temperature": 0.7, "top_k": 5, "top_p": 0.9},
    {"temperature": 1.5, "top_k": 4},
    {"temperature": 1.0, "top_p": 0.6},
]


class Remembering(HashTarget):
    """Caches its rows."""

    def row(self, text: list[int]) -> Any:
        known = self.__dict__.setdefault("rows", {})
        key = tuple(text[-3:])
        if key not in known:
            known[key] = super().row(text)
        return known[key]


class Drawn(NullDrafter):
    """Draws from another model: chains, or siblings with or without replacement."""

    def __init__(self, model: HashTarget, seed: int, width: int, replace: bool) -> None:
        self.model, self.width, self.replace = model, width, replace
        self.dice = Dice(seed, DRAFTING)

    def propose(self, context: DraftContext, target: Any) -> Draft:
        draft, texts = Draft(), [[*context.prompt, *context.output]]
        parents = [-1]
        for _ in range(2):
            level = []
            for parent in parents:
                q = probabilities(self.model.row(texts[parent + 1]), context.request)
                for _ in range(min(self.width, np.count_nonzero(q))):
                    node = draft.add(self.dice.pick(q), parent, 0.5, "drawn")
                    draft.drawn[node] = q
                    texts.append([*texts[parent + 1], draft.tokens[node]])
                    level.append(node)
                    if not self.replace:
                        q = residual(q, draft.tokens[node], None)
            parents = level
        return draft


def first_two(
    target: HashTarget, tokenizer: Tokenizer, drafter: Drafter, seed: int, options: Any
) -> tuple[int, ...]:
    """The first two tokens of one answer of three."""
    one = Generation(
        Request("complete", seed=seed, **options),
        Prompt([1, 2], max_tokens=3),
        tokenizer,
        target.context,
        verification="rejection",
    )
    *_, done = generate(one, target, drafter)
    assert isinstance(done, Done) and len(one.output) == 3
    return one.output[0], one.output[1]


@pytest.mark.parametrize("options", SAMPLED, ids=str)
@pytest.mark.parametrize("shape", ["chain", "siblings", "apart", "chosen"])
def test_sampled_texts_have_the_model_s_distribution(
    endless: Tokenizer, shape: str, options: Any
) -> None:
    target, other = Remembering(6, seed=1), Remembering(6, seed=2)
    request = Request("complete", **options)
    first = probabilities(target.row([1, 2]), request)
    rows = [probabilities(target.row([1, 2, n]), request) for n in range(6)]
    expected = {(a, b): float(first[a] * rows[a][b]) for a in range(6) for b in range(6)}
    counts: Counter[tuple[int, ...]] = Counter()
    for seed in range(400):
        drafter: Drafter = Drawn(other, seed, 1 if shape == "chain" else 2, shape != "apart")
        if shape == "chosen":
            drafter = Trees([2, 1, 0], 6, seed)
        counts[first_two(target, endless, drafter, seed, options)] += 1
    assert least_likely(counts, expected) < 5


def test_the_chi_square_test_detects_a_wrong_distribution() -> None:
    right = dict.fromkeys(range(4), 0.25)
    assert least_likely({0: 150, 1: 150, 2: 150, 3: 150}, right) < 0
    assert least_likely({0: 200, 1: 140, 2: 130, 3: 130}, right) > 5


def test_texts_depend_on_the_seed_only(endless: Tokenizer) -> None:
    target, other = HashTarget(30, seed=1), HashTarget(30, seed=2)

    def text(seed: int) -> str:
        *_, done = generate(
            Generation(
                Request("complete", seed=seed, temperature=1.0),
                Prompt([1, 2], max_tokens=20),
                endless,
                target.context,
                verification="rejection",
            ),
            target,
            Drawn(other, seed, 2, True),
        )
        assert isinstance(done, Done)
        return done.text

    assert text(0) == text(0) != text(1)


@settings(max_examples=20)
@given(st.integers(0, 99), st.integers(0, 30), st.lists(st.integers(0, 10), min_size=1, max_size=9))
def test_greedy_text_is_the_same_with_both_rules(
    tokenizer: Tokenizer, seed: int, room: int, ids: list[int]
) -> None:
    target, prompt = HashTarget(11, seed=seed), Prompt(ids, max_tokens=room)
    expected, truth = plain(target, tokenizer, prompt)
    for name, drafter in drafters(truth, 11).items():
        *_, done = generate(
            Generation(
                Request("complete"), prompt, tokenizer, target.context, verification="rejection"
            ),
            target,
            drafter,
        )
        assert isinstance(done, Done) and answer(done) == answer(expected), name


def test_end_tokens_and_limits_end_sampled_answers(tokenizer: Tokenizer) -> None:
    """No token follows an end token, and no answer is longer than its limit."""
    target, reasons = HashTarget(11, seed=3), set()
    for seed in range(20):
        for drafter in drafters([1, 2, 3, 0, 5, 6], 11).values():
            one = Generation(
                Request("complete", temperature=1.0, seed=seed),
                Prompt([1], max_tokens=seed % 9),
                tokenizer,
                target.context,
                verification="rejection",
            )
            *_, done = generate(one, target, drafter)
            written = one.output
            assert isinstance(done, Done) and done.usage.completion_tokens == len(written)
            assert not tokenizer.eos & set(written)
            assert len(written) == seed % 9 or done.reason == "stop"
            reasons.add(done.reason)
    assert reasons == {"stop", "length"}
