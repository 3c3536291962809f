"""The native drafter and input that nobody means: harmless, or refused in one line."""

from __future__ import annotations

import random

import numpy as np
import pytest
from drafters import KINDS_OF_WEIGHTS, ids, made_up, propose, trained, weights_of
from hypothesis import given, settings
from hypothesis import strategies as st

from engine._drafting import Drafter, Ngram, Vocabulary, Weights, weight_count

VOCABULARY, LIBRARY = made_up(9), Ngram()
LIBRARY.count(ids([7, 8, 7, 8, 1, 7, 8, -1, 2, 3, 2, 3]), 1)
odd = st.integers(-9, 12) | st.sampled_from([300, 2**31 - 1, -(2**31)])
rooms = st.integers(0, 60)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(odd, max_size=40),
    st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 45),
    st.lists(odd, max_size=20),
    st.lists(st.tuples(st.lists(odd, max_size=12), rooms), max_size=6),
    st.sampled_from(KINDS_OF_WEIGHTS),
    st.sampled_from([0.0, 0.2, 1e30, float("nan")]),
)
def test_nothing_makes_it_fail(
    expected: list[int],
    start: int,
    before: list[int],
    steps: list[tuple[list[int], int]],
    kind: str,
    learning: float,
) -> None:
    """Starts outside the text, tokens that there are not, broken weights: a draft, or none."""
    drafter = Drafter(made_up(3), LIBRARY, weights_of(kind))
    drafter.begin(ids(expected), start, ids(before))
    for committed, room in steps:
        tree = propose(drafter, room, 0.01)
        assert len(tree) <= room and all(node.token != -1 for node in tree)
        accepted = [tree[0].token] if tree else []
        drafter.commit([*accepted, *committed], learning)
        drafter.fit(ids(committed), learning)
        assert drafter.run >= 0


def test_nothing_to_copy_is_nothing_drafted() -> None:
    drafter = Drafter(VOCABULARY, Ngram(), Weights())
    assert propose(drafter, 10) == []
    drafter.begin(ids([]), 0, ids([]))
    assert propose(drafter, 10) == [] == propose(drafter, 0)
    drafter.begin(ids([-1, -1]), 1, ids([-1]))
    assert propose(drafter, 10) == []


def test_what_does_not_fit_together_is_refused() -> None:
    drafter = Drafter(VOCABULARY, LIBRARY, Weights())
    drafter.begin(ids([1, 2, 3]), 0, ids([1]))
    with pytest.raises(ValueError, match="room"):
        drafter.propose(5, np.ones(5))
    with pytest.raises(ValueError, match="room"):
        drafter.propose(0, np.ones(0))
    with pytest.raises(ValueError, match="room"):
        drafter.propose(-1, np.ones(5))
    with pytest.raises(ValueError, match=str(weight_count())):
        Weights(np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="hashes and looks"):
        Vocabulary(np.zeros(2, np.uint32), np.zeros(3, np.uint8))
    for nodes, parents, probs in (([1, 2], [-1], [1.0, 1.0]), ([1, 2], [-1, 0], [1.0])):
        with pytest.raises(ValueError, match="files"):
            drafter.files(ids(nodes), ids(parents), np.array(probs), 3)
    for parent in (1, 7, -2):
        with pytest.raises(ValueError, match="parent"):
            drafter.files(ids([1, 2]), ids([-1, parent]), np.ones(2), 3)
    wide = np.ones((3, 4), np.int32)
    for files, probs, matches in (
        (wide, None, None),
        (wide, np.ones((3, 3), np.float32), ids([1, 1, 1])),
        (wide, np.ones((3, 4), np.float32), ids([1])),
        (wide[:2], np.ones((2, 4), np.float32), ids([1, 1])),
        (np.ones((3, 40), np.int32), np.ones((3, 40), np.float32), ids([1, 1, 1])),
    ):
        with pytest.raises(ValueError, match="files"):
            drafter.fit(ids([1, 2, 3]), 0.1, files, probs, matches)


def test_other_files_may_agree_in_any_number_of_tokens() -> None:
    for match in (-(2**31), -5, 0, 2**31 - 1):
        drafter = Drafter(VOCABULARY, LIBRARY, weights_of("trained"))
        drafter.begin(ids([]), 0, ids([]))
        drafter.files(ids([4, 5, 6]), ids([-1, 0, 1]), np.array([np.nan, 2.0, -1.0]), match)
        assert len(propose(drafter, 9)) <= 9
        drafter.commit([4, 5, 6], 0.2)


def test_a_long_text_is_taken_and_copied() -> None:
    chance = random.Random(0)
    old = [chance.randrange(500) for _ in range(100_000)]
    drafter = Drafter(made_up(), Ngram(), Weights(trained()))
    drafter.begin(ids(old), 90_000, ids([1]))
    drafter.commit(old[90_000:90_020], 0.2)
    assert drafter.run == 20
    best = propose(drafter, 20)
    assert [node.token for node in best if node.prob > 0.5][:10] == old[90_020:90_030]
    assert drafter.fit(ids(old[90_020:95_000]), 0.0) < 0.1 * 5000


@pytest.mark.parametrize("bad", ["full", "odd", "short"])
def test_a_damaged_table_is_refused_or_says_nothing(bad: str) -> None:
    table = LIBRARY.table.copy()
    if bad == "full":  # a search would never end
        table[:] = 1
        drafter = Drafter(VOCABULARY, Ngram.mapped(table), Weights())
        drafter.begin(ids([]), 0, ids([1, 2, 3]))
        assert len(propose(drafter, 9)) <= 9
    else:
        with pytest.raises(ValueError, match="table"):
            Ngram.mapped(table[1:] if bad == "odd" else table[:120])
