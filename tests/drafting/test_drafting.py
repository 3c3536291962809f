"""The native drafter, called directly: its trees, its state and its fitting. Only the quality of
drafts is tested here; other tests check that drafts never change an answer."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.drafting._drafting import Drafter, Ngram, Weights, layout, weight_count
from tests.support.drafters import (
    edited,
    ids,
    made_up,
    propose,
    some_text,
    trained,
    tree_of,
    weights_of,
)

VOCABULARY, LIBRARY = made_up(9), Ngram()
LIBRARY.count(ids([7, 8, 7, 8, 1, 7, 8, -1, 2, 3, 2, 3]), 1)
FREE = np.zeros(200)

token = st.integers(0, 6)
tokens = st.lists(token, max_size=40)
texts = st.lists(token | st.just(-1), max_size=60)
odd = st.integers(-9, 12) | st.sampled_from([300, 2**31 - 1, -(2**31)])
rooms = st.integers(0, 60)


class Setup(NamedTuple):
    """A drafter's inputs: texts, weights, and the answer so far."""

    expected: list[int]
    start: int
    before: list[int]
    answer: list[int]
    kind: str
    files: list[tuple[int, int, float]]

    def drafter(self, weights: Weights | None = None) -> Drafter:
        """A drafter at the end of the answer, with the drafts from other files already added."""
        drafter = Drafter(VOCABULARY, LIBRARY, weights or weights_of(self.kind))
        drafter.begin(ids(self.expected), self.start, ids(self.before))
        drafter.commit(self.answer, 0.0)
        self.add_files(drafter)
        return drafter

    def add_files(self, drafter: Drafter) -> None:
        nodes = [(token, min(parent, n - 1), p) for n, (token, parent, p) in enumerate(self.files)]
        drafter.files(
            ids(n[0] for n in nodes), ids(n[1] for n in nodes), np.array([n[2] for n in nodes]), 4
        )


setups = st.builds(
    Setup,
    texts,
    st.integers(0, 60),
    tokens,
    tokens,
    st.sampled_from(["trained", "zero", "random"]),
    st.lists(st.tuples(st.integers(0, 8), st.integers(-1, 9), st.floats(0, 1)), max_size=12),
)


# -- trees -----------------------------------------------------------------------------------------

# the stopping rule, as in core/drafter.cpp
CAUTION, MOST, LEAST, AHEAD = 2.2, 0.9, 1e-4, 8


@given(setups, rooms, st.floats(0, 1))
def test_a_tree_is_well_formed(setup: Setup, capacity: int, price: float) -> None:
    drafter = setup.drafter()
    tree = propose(drafter, capacity, price)
    assert len(tree) <= capacity
    offered = {*setup.expected, *setup.before, *setup.answer, *(node[0] for node in setup.files)}
    assert {node.token for node in tree} <= (offered | {7, 8, 1, 2, 3}) - {-1}
    for n, node in enumerate(tree):
        assert -1 <= node.parent < n and 0 < node.prob <= 1
        if node.source == "prediction":
            assert setup.expected[node.place] == node.token
    for parent in range(-1, len(tree)):
        children = [node for node in tree if node.parent == parent]
        assert len({node.token for node in children}) == len(children)
        assert sum(node.prob for node in children) <= 1 + 1e-5
    paths = tree.paths()
    assert all(p >= np.float32(LEAST) for p in paths) and paths == sorted(paths, reverse=True)


@given(setups, rooms, st.floats(0, 1))
def test_proposing_again_gives_the_same_tree(setup: Setup, capacity: int, price: float) -> None:
    drafter = setup.drafter()
    tree, run = propose(drafter, capacity, price), drafter.run
    assert propose(drafter, capacity, price) == tree and drafter.run == run
    propose(drafter, capacity // 2)
    assert propose(drafter, capacity, price) == tree == propose(setup.drafter(), capacity, price)


def min_path_prob(costs: list[float], index: int, expected: float) -> float:
    """The lowest path probability at which node `index` is worth its cost."""
    last = min(index + AHEAD, len(costs) - 1)
    own, shared = costs[index + 1] - costs[index], (costs[last] - costs[index]) / (last - index)
    share = min(own, shared) / costs[0]
    return min(MOST, CAUTION * share * math.sqrt(expected * costs[0] / costs[index]))


def ideal_paths(drafter: Drafter, costs: list[float]) -> list[float]:
    """Path probabilities of the tree that the stopping rule defines: best first, up to the first
    node that is not worth its cost."""
    full, kept = propose(drafter, 400).paths(), [1.0]
    for index, path in enumerate(full[: len(costs) - 1]):
        if path < min_path_prob(costs, index, sum(kept)):
            break
        kept.append(path)
    return kept[1:]


@given(
    setups,
    st.lists(st.floats(0, 1), min_size=1, max_size=60),
    st.sampled_from([0.01, 0.1, 1.0]),
)
def test_a_tree_grows_as_long_as_it_pays(setup: Setup, steps: list[float], scale: float) -> None:
    """Every node is worth its cost, and what is pruned without being expanded is small."""
    costs = np.cumsum([1.0, *(scale * step for step in steps)])
    drafter, expected = setup.drafter(), 1.0
    paths = tree_of(drafter.propose(len(steps), costs)).paths()
    for index, path in enumerate(paths):
        assert path >= min_path_prob(costs.tolist(), index, expected) - 1e-6
        expected += path
    assert 1 + sum(ideal_paths(drafter, costs.tolist())) <= 2 * expected


def test_a_tree_is_nearly_ideal() -> None:
    """Unpromising nodes are not expanded; over many edits this costs almost nothing."""
    actual = ideal = 0.0
    for seed in range(60):
        old = some_text(seed)
        new = edited(old, seed)
        costs = (1 + [0.0, 0.02, 0.1][seed % 3] * np.arange([9, 17, 65][seed // 3 % 3])).tolist()
        drafter = Drafter(made_up(), Ngram(), weights_of("trained"))
        drafter.begin(ids([*old, -1]), 0, ids([1, 2]))
        for start in range(0, len(new), 20):
            actual += 1 + sum(tree_of(drafter.propose(len(costs) - 1, np.array(costs))).paths())
            ideal += 1 + sum(ideal_paths(drafter, costs))
            drafter.commit(new[start : start + 20], 0.0)
    assert actual >= 0.97 * ideal


@given(setups, rooms, st.floats(0, 1))
def test_near_certain_tokens_are_always_drafted(setup: Setup, capacity: int, price: float) -> None:
    drafter = setup.drafter()
    certain = [path for path in propose(drafter, capacity).paths() if path >= MOST / 0.95 + 1e-6]
    assert propose(drafter, capacity, price).paths()[: len(certain)] == certain


@given(
    setups,
    st.sampled_from([("files", "workspace"), ("substitutions", "substitution")]),
)
def test_a_disabled_part_drafts_nothing(setup: Setup, pair: tuple[str, str]) -> None:
    part, source = pair
    drafter = setup.drafter()
    drafter.leave_out(part)
    assert source not in {node.source for node in propose(drafter, 40)}


def test_an_empty_library_drafts_nothing() -> None:
    drafter = Drafter(VOCABULARY, Ngram(), Weights())
    drafter.begin(ids([5, 4, 3, 2, 1, 0, 6]), 0, ids([1]))
    assert "library" not in {node.source for node in propose(drafter, 20)}


@given(setups)
def test_without_siblings_a_tree_is_a_chain(setup: Setup) -> None:
    drafter = setup.drafter()
    drafter.leave_out("siblings")
    tree = propose(drafter, 20)
    assert [node.parent for node in tree] == list(range(-1, len(tree) - 1))
    with pytest.raises(ValueError, match="'sibling'"):
        drafter.leave_out("sibling")


# -- state -----------------------------------------------------------------------------------------


@given(setups, st.lists(st.integers(0, 40), max_size=5), rooms)
def test_state_depends_only_on_committed_tokens(
    setup: Setup, cuts: list[int], capacity: int
) -> None:
    """Committed in pieces or at once, with or without drafts in between, by a new or a reused
    drafter."""
    reused = Drafter(VOCABULARY, LIBRARY, weights_of(setup.kind))
    reused.begin(ids([3, 2, 1] * 5), 3, ids([1, 1]))
    reused.commit([3, 3, 3, 2, 1, 0, 2], 0.0)
    reused.begin(ids(setup.expected), setup.start, ids(setup.before))
    bounds = [0, *sorted(min(cut, len(setup.answer)) for cut in cuts), len(setup.answer)]
    for start, stop in pairwise(bounds):
        propose(reused, capacity)
        reused.commit(setup.answer[start:stop], 0.0)
    fitted = Drafter(VOCABULARY, LIBRARY, weights_of(setup.kind))
    fitted.begin(ids(setup.expected), setup.start, ids(setup.before))
    fitted.fit(ids(setup.answer), 0.0)
    fresh = setup.drafter()
    for drafter in (reused, fitted):
        setup.add_files(drafter)
        assert propose(drafter, capacity) == propose(fresh, capacity)
        assert drafter.run == fresh.run


@given(setups)
def test_weights_are_unchanged_at_learning_rate_zero(setup: Setup) -> None:
    weights = weights_of(setup.kind)
    before = weights.values.copy(), weights.squares.copy()
    drafter = Drafter(VOCABULARY, LIBRARY, weights)
    drafter.begin(ids(setup.expected), setup.start, ids(setup.before))
    propose(drafter, 20)
    drafter.commit(setup.answer, 0.0)
    drafter.fit(ids(setup.answer), 0.0)
    assert np.array_equal(weights.values, before[0]) and np.array_equal(weights.squares, before[1])


@given(setups, token)
def test_commit_and_fit_learn_the_same(setup: Setup, token: int) -> None:
    """Both make the same update, after which the token is more probable."""
    drafted, read = weights_of(setup.kind), weights_of(setup.kind)
    drafter, reader = setup.drafter(drafted), setup.drafter(read)

    def probabilities() -> tuple[float, float]:
        """The token's probability, and the probability that no offered token comes next."""
        first = [node for node in propose(setup.drafter(drafted), 60) if node.parent == -1]
        found = next((node.prob for node in first if node.token == token), 0.0)
        return found, 1 - sum(node.prob for node in first)

    before, unoffered = probabilities()
    propose(drafter, 20)
    drafter.commit([token], 0.01)
    if np.array_equal(drafted.values, weights_of(setup.kind).values):
        assert max(before, unoffered) > 0.97, "only expected tokens leave the weights unchanged"
        return
    reader.fit(ids([token]), 0.01)
    assert np.array_equal(drafted.values, read.values)
    assert np.array_equal(drafted.squares, read.squares)
    assert before == 0 or probabilities()[0] >= before


@given(setups)
def test_drafts_from_other_files_are_used_only_once(setup: Setup) -> None:
    drafter = setup.drafter()
    drafter.commit([6, 5], 0.0)
    assert all(node.source != "workspace" for node in propose(drafter, 40))


# -- fitting ---------------------------------------------------------------------------------------


def test_the_layout_is_a_stable_string() -> None:
    assert layout() == layout() and layout()
    assert weight_count() * 2 * 2 < 1 << 20, "two sets are shipped in half precision"


def bits(values: Any, seeds: range) -> float:
    """Bits per token over random edits."""
    count = total = 0.0
    for seed in seeds:
        rng = random.Random(seed)
        old = [rng.randrange(200) for _ in range(200)]
        new = edited(old, seed)
        drafter = Drafter(made_up(), Ngram(), Weights(values))
        drafter.begin(ids([*old, -1]), 0, ids([1]))
        total += drafter.fit(ids(new), 0.0)
        count += len(new)
    return total / count


def test_fitting_lowers_the_bits_of_unseen_texts() -> None:
    unseen = range(500, 510)
    assert bits(trained(), unseen) < 0.5 * bits(None, unseen)
    drafter = Drafter(made_up(), Ngram(), weights := Weights())
    losses = []
    for _ in range(4):
        drafter.begin(ids(range(100, 160)), 0, ids([1]))
        losses.append(drafter.fit(ids([*range(100, 130), 5, *range(131, 160)]), 0.1))
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0] / 3
    assert np.isfinite(weights.values).all() and np.isfinite(weights.squares).all()
