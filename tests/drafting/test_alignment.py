"""Where the native drafter believes the answer to be in the text that it repeats: the oracle of
tests/oracles/alignment.py beside it, on edits of random texts."""

from __future__ import annotations

import random

import pytest

from engine.drafting._drafting import Drafter, Ngram, Weights
from tests.oracles.alignment import Aligned
from tests.support.drafters import ids, made_up

VOCABULARY, LIBRARY = made_up(9), Ngram()


def edit(seed: int) -> tuple[list[int], int, list[int]]:
    """A text, where the answer starts, and the answer: its pieces, changed here and there, with one
    token replaced by others wherever it stands."""
    chance = random.Random(seed)
    kinds = chance.choice([3, 8, 60])
    text = [chance.randrange(kinds) for _ in range(chance.choice([0, 5, 40, 400, 2000]))]
    for _ in range(len(text) // 100):
        text[chance.randrange(len(text))] = -1
    start = at = chance.randrange(len(text) + 1)
    swapped, by = chance.randrange(kinds), chance.choices(range(70, 80), k=chance.randrange(4))
    changes = chance.choice([0.0, 0.05, 0.3])
    answer: list[int] = []
    while len(answer) < 200 and at < len(text) + 3:
        kind = chance.random() / changes if changes else 1.0
        if kind >= 1:
            piece = text[at : at + 1]
            answer += by if piece == [swapped] else piece
            at += 1
        elif kind < 0.4:
            answer += chance.choices(range(kinds), k=chance.randrange(1, 6))
        elif kind < 0.9:
            at += chance.randrange(1, 7)
        else:
            at = max(0, at + chance.randrange(-70, 1200))
    return text, start, [one for one in answer if one >= 0]


def test_the_place_in_the_text_is_the_oracle_s() -> None:
    jumps = rules = inside = cut = 0
    for seed in range(300):
        text, start, answer = edit(seed)
        before = random.Random(seed).choices(range(9), k=seed % 15)
        drafter = Drafter(VOCABULARY, LIBRARY, Weights())
        drafter.begin(ids(text), start, ids(before))
        oracle = Aligned(text, start, before)
        for n, one in enumerate(answer):
            drafter.commit([one], 0.0)
            oracle.write(one)
            assert drafter.run == (0 if oracle.at.gap else oracle.at.run), (seed, n, oracle.at)
            inside += oracle.at.stage > 0
        jumps += oracle.jumps
        rules += len(oracle.rules)
        cut += () in oracle.rules.values()
    assert min(jumps, rules, inside) > 300 and cut > 30, (jumps, rules, inside, cut)


@pytest.mark.parametrize("before", [[], [1]])
def test_a_copy_runs_and_an_insertion_ends_it(before: list[int]) -> None:
    drafter = Drafter(VOCABULARY, LIBRARY, Weights())
    drafter.begin(ids(range(100, 140)), 5, ids(before))
    runs = []
    for one in [105, 106, 107, 9, 9, 9, 108, 109, 110, *range(119, 134)]:
        drafter.commit([one], 0.0)
        runs.append(drafter.run)
    assert runs[:10] == [1, 2, 3, 0, 0, 0, 0, 2, 3, 0] and runs[-1] >= 12
