"""Rejection sampling (Leviathan et al., 2023) is exact: all runs on toy models are enumerated with
fractions."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.generate import Generation
from engine.prompts.builder import Prompt
from engine.prompts.tokenizer import Tokenizer
from engine.records import Draft, Request
from engine.sampling.rejection_sampling import Dice, acceptance, rejecting, residual, walk
from tests.oracles.probability import Enumerated, distribution
from tests.support.law import endless, tokenizer

__all__ = ["endless", "tokenizer"]  # fixtures
WORDS, LENGTH = 3, 3


def fractions(*values: Any) -> Any:
    return np.array([Fraction(value) for value in values], object)


def toy(name: str, text: tuple[int, ...]) -> Any:
    """A model of few tokens; probabilities are small fractions, some of them 0 or 1."""
    chance = random.Random(f"{name} {text}")
    while True:
        weights = [chance.choice([0, 1, 2, 5]) for _ in range(WORDS)]
        if sum(weights):
            return fractions(*(Fraction(weight, sum(weights)) for weight in weights))


def chain(text: tuple[int, ...], chance: Enumerated, q: str) -> Draft:
    """Two drawn tokens, or one: the first decides."""
    draft = Draft()
    for n in range(2):
        drawn = toy(q, text)
        token = chance.pick(drawn)
        draft.drawn[draft.add(token, n - 1, 0.5, "toy")] = drawn
        text = (*text, token)
        if token == 2:  # the length may depend on the drafted tokens
            break
    return draft


def again(text: tuple[int, ...], chance: Enumerated, q: str) -> Draft:
    """Two siblings drawn with replacement, and a child of the first."""
    draft, drawn = Draft(), toy(q, text)
    for _ in range(2):
        draft.drawn[draft.add(chance.pick(drawn), -1, 0.5, "toy")] = drawn
    below = toy(q, (*text, draft.tokens[0]))
    draft.drawn[draft.add(chance.pick(below), 0, 0.5, "toy")] = below
    return draft


def apart(text: tuple[int, ...], chance: Enumerated, q: str) -> Draft:
    """Siblings drawn without replacement."""
    draft, drawn = Draft(), toy(q, text)
    while drawn.sum():
        drawn = drawn / drawn.sum()
        token = chance.pick(drawn)
        draft.drawn[draft.add(token, -1, 0.5, "toy")] = drawn.copy()
        drawn[token] = 0
    return draft.first(2)


def chosen(text: tuple[int, ...], chance: Enumerated, q: str) -> Draft:
    """Deterministic: repeated siblings, a second level, and ids outside the vocabulary."""
    draft = Draft()
    for token, parent in ((1, -1), (0, -1), (1, -1), (2, 0), (0, 0), (-1, -1), (99, -1)):
        draft.add(token, parent, 0.5, "toy")
    return draft


def mixed(text: tuple[int, ...], chance: Enumerated, q: str) -> Draft:
    """A drawn node between two deterministic ones."""
    draft, drawn = Draft(), toy(q, text)
    draft.add(0, -1, 0.5, "toy")
    draft.drawn[draft.add(chance.pick(drawn), -1, 0.5, "toy")] = drawn
    draft.add(2, -1, 0.5, "toy")
    return draft


def narrow(text: tuple[int, ...], chance: Enumerated, q: str) -> Draft:
    """A draft model with a smaller vocabulary than the target's."""
    draft, drawn = Draft(), fractions(Fraction(1, 4), Fraction(3, 4))
    draft.drawn[draft.add(chance.pick(drawn), -1, 0.5, "toy")] = drawn
    return draft


def wide(text: tuple[int, ...], chance: Enumerated, q: str) -> Draft:
    """A draft model with a larger vocabulary."""
    draft, drawn = Draft(), fractions(*(Fraction(n, 15) for n in (1, 2, 3, 4, 5)))
    draft.drawn[draft.add(chance.pick(drawn), -1, 0.5, "toy")] = drawn
    return draft


def write(chance: Enumerated, drafter: Any, p: str, q: str) -> tuple[int, ...]:
    """A text of LENGTH tokens, drafted and verified step by step."""
    text: tuple[int, ...] = ()
    while len(text) < LENGTH:
        draft = drafter(text, chance, q)
        texts = [text]
        for token, parent in zip(draft.tokens, draft.parents, strict=True):
            texts.append((*texts[parent + 1], token))
        path, token = walk(draft, lambda row, texts=texts: toy(p, texts[row]), chance)
        text = (*text, *(draft.tokens[node] for node in path), token)
    return text[:LENGTH]


def write_plainly(chance: Enumerated, p: str) -> tuple[int, ...]:
    text: tuple[int, ...] = ()
    while len(text) < LENGTH:
        text = (*text, chance.pick(toy(p, text)))
    return text


@pytest.mark.parametrize("drafter", [chain, again, apart, chosen, mixed, narrow, wide])
@pytest.mark.parametrize("seed", range(4))
def test_texts_have_exactly_the_models_probabilities(drafter: Any, seed: int) -> None:
    p = f"p{seed}"
    expected = distribution(lambda chance: write_plainly(chance, p))
    for q in (f"q{seed}", p):  # a draft model that differs, and one that is the model itself
        assert distribution(lambda chance, q=q: write(chance, drafter, p, q)) == expected


def test_a_wrong_rule_is_noticed() -> None:
    """REST's and SDSAT's: what was residual is forgotten. Else the test above would say nothing."""

    def forgetful(chance: Enumerated) -> int:
        p = fractions("1/2", "1/5", "1/5", "1/10")
        for token in (1, 3):
            if chance.happens(p[token]):
                return token
        return chance.pick(p)

    found = distribution(forgetful)
    assert [found[n] for n in range(4)] == [Fraction(n, 1000) for n in (360, 344, 144, 152)]


def test_golden_vectors() -> None:
    """The published example."""
    p = fractions("1/2", "1/5", "1/5", "1/10")
    draft = Draft([1, 3], [-1, -1], [0.5, 0.5], ["", ""])

    def one(chance: Enumerated) -> int:
        path, token = walk(draft, lambda row: p, chance)
        return draft.tokens[path[0]] if path else token

    # behind an accepted node stands a further token, which does not count here
    assert distribution(one) == dict(enumerate(p))
    p, q = fractions("1/2", "3/10", "1/5"), fractions("1/5", "1/2", "3/10")
    assert sum(q[n] * acceptance(p, n, q) for n in range(3)) == Fraction(7, 10)
    assert residual(p, 1, q).tolist() == [1, 0, 0]


def test_where_nothing_is_left_the_model_itself_is_asked() -> None:
    p = np.array([0.25, 0.75])
    assert residual(p, 1, p).tolist() == p.tolist()
    nearly = p + np.array([1e-12, -1e-12])
    assert residual(p, 0, nearly).tolist() == p.tolist()
    certain = np.array([0.0, 1.0])
    assert residual(certain, 1, None).tolist() == [0.0, 1.0]


@given(st.integers(-(2**70), 2**70), st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_dice_pick_only_what_has_weight(seed: int, weights: list[float]) -> None:
    weights[seed % len(weights)] += 0.5
    one, other = Dice(seed, 1), Dice(seed, 1)
    found = [one.pick(np.array(weights)) for _ in range(20)]
    assert found == [other.pick(np.array(weights)) for _ in range(20)]
    assert all(weights[n] > 0 for n in found)
    assert not one.happens(0) and one.happens(1)


def test_dice_reach_the_first_and_the_last_token() -> None:
    dice = Dice(0, 1)
    found = Counter(dice.pick(np.array([0.3, 0.0, 0.7, 0.0])) for _ in range(4000))
    assert set(found) == {0, 2} and 1000 < found[0] < 1400


def test_every_seed_and_stream_gives_other_numbers() -> None:
    """Drafting and verification use independent streams."""
    rows = {Dice(seed, stream).generator.random() for seed in range(-3, 4) for stream in (1, 2)}
    assert len(rows) == 14


def test_unknown_rules_and_nan_logits_are_errors(endless: Tokenizer) -> None:
    prompt = Prompt([1])
    with pytest.raises(ValueError, match="verification 'typical': choose match or rejection"):
        Generation(Request("complete"), prompt, endless, 100, verification="typical")  # type: ignore[arg-type]
    judge = rejecting(Request("complete", temperature=1.0))
    with pytest.raises(ValueError, match="not numbers"):
        judge(Draft(), torch.full((1, 4), float("nan")), 0)
