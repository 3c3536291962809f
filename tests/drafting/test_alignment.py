"""The native drafter's alignment of the answer with the text it repeats, checked against the oracle
in tests/oracles/alignment.py on random edits of random texts."""

from __future__ import annotations

import random

import pytest

from engine.drafting._drafting import Drafter, Ngram, Weights
from tests.oracles.alignment import Aligned
from tests.support.drafters import ids, made_up

VOCABULARY, LIBRARY = made_up(9), Ngram()


def edit(seed: int) -> tuple[list[int], int, list[int]]:
    """A random text, the start of the answer in it, and the answer: a copy with random changes, in
    which one token is replaced wherever it occurs."""
    rng = random.Random(seed)
    vocab_size = rng.choice([3, 8, 60])
    text = [rng.randrange(vocab_size) for _ in range(rng.choice([0, 5, 40, 400, 2000]))]
    for _ in range(len(text) // 100):
        text[rng.randrange(len(text))] = -1
    start = position = rng.randrange(len(text) + 1)
    replaced = rng.randrange(vocab_size)
    replacement = rng.choices(range(70, 80), k=rng.randrange(4))
    change_rate = rng.choice([0.0, 0.05, 0.3])
    answer: list[int] = []
    while len(answer) < 200 and position < len(text) + 3:
        draw = rng.random() / change_rate if change_rate else 1.0
        if draw >= 1:
            piece = text[position : position + 1]
            answer += replacement if piece == [replaced] else piece
            position += 1
        elif draw < 0.4:
            answer += rng.choices(range(vocab_size), k=rng.randrange(1, 6))
        elif draw < 0.9:
            position += rng.randrange(1, 7)
        else:
            position = max(0, position + rng.randrange(-70, 1200))
    return text, start, [token for token in answer if token >= 0]


def test_alignment_matches_the_oracle() -> None:
    jumps = rules = inside = cut = 0
    for seed in range(300):
        text, start, answer = edit(seed)
        before = random.Random(seed).choices(range(9), k=seed % 15)
        drafter = Drafter(VOCABULARY, LIBRARY, Weights())
        drafter.begin(ids(text), start, ids(before))
        oracle = Aligned(text, start, before)
        for n, token in enumerate(answer):
            drafter.commit([token], 0.0)
            oracle.write(token)
            assert drafter.run == (0 if oracle.at.gap else oracle.at.run), (seed, n, oracle.at)
            inside += oracle.at.stage > 0
        jumps += oracle.jumps
        rules += len(oracle.rules)
        cut += () in oracle.rules.values()
    assert min(jumps, rules, inside) > 300 and cut > 30, (jumps, rules, inside, cut)


@pytest.mark.parametrize("before", [[], [1]])
def test_a_copy_extends_the_run_and_an_insertion_ends_it(before: list[int]) -> None:
    drafter = Drafter(VOCABULARY, LIBRARY, Weights())
    drafter.begin(ids(range(100, 140)), 5, ids(before))
    runs = []
    for token in [105, 106, 107, 9, 9, 9, 108, 109, 110, *range(119, 134)]:
        drafter.commit([token], 0.0)
        runs.append(drafter.run)
    assert runs[:10] == [1, 2, 3, 0, 0, 0, 0, 2, 3, 0] and runs[-1] >= 12
