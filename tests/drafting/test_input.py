"""The native drafter with invalid or extreme input: harmless, or rejected in one line."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.drafting._drafting import Drafter, Ngram, Recycling, Vocabulary, Weights, weight_count
from tests.support.drafters import (
    KINDS_OF_WEIGHTS,
    ids,
    made_up,
    propose,
    trained,
    tree_of,
    weights_of,
)

VOCABULARY, LIBRARY = made_up(9), Ngram()
LIBRARY.count(ids([7, 8, 7, 8, 1, 7, 8, -1, 2, 3, 2, 3]), 1)
odd = st.integers(-9, 12) | st.sampled_from([300, 2**31 - 1, -(2**31)])
rooms = st.integers(0, 60)


@settings(max_examples=200)
@given(
    st.lists(odd, max_size=40),
    st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 45),
    st.lists(odd, max_size=20),
    st.lists(st.tuples(st.lists(odd, max_size=12), rooms), max_size=6),
    st.sampled_from(KINDS_OF_WEIGHTS),
    st.sampled_from([0.0, 0.2, 1e30, float("nan")]),
)
def test_arbitrary_input_never_fails(
    expected: list[int],
    start: int,
    before: list[int],
    steps: list[tuple[list[int], int]],
    kind: str,
    learning: float,
) -> None:
    """Starts outside the text, unknown tokens, broken weights: it returns a draft or none."""
    drafter = Drafter(made_up(3), LIBRARY, weights_of(kind))
    drafter.begin(ids(expected), start, ids(before))
    for committed, capacity in steps:
        tree = propose(drafter, capacity, 0.01)
        assert len(tree) <= capacity and all(node.token != -1 for node in tree)
        accepted = [tree[0].token] if tree else []
        drafter.commit([*accepted, *committed], learning)
        drafter.fit(ids(committed), learning)
        assert drafter.run >= 0


def test_nothing_is_drafted_without_text_to_copy() -> None:
    drafter = Drafter(VOCABULARY, Ngram(), Weights())
    assert propose(drafter, 10) == []
    drafter.begin(ids([]), 0, ids([]))
    assert propose(drafter, 10) == [] == propose(drafter, 0)
    drafter.begin(ids([-1, -1]), 1, ids([-1]))
    assert propose(drafter, 10) == []


def test_files_offer_tokens_of_the_vocabulary_only() -> None:
    """A damaged index may hold others, for which a model has no embedding."""
    known, beyond = 4, 1 << 20
    drafter = Drafter(VOCABULARY, Ngram(), Weights())
    drafter.begin(ids([1, 2, 3]), 3, ids([1]))
    drafter.files(ids([beyond, known, -7]), ids([-1, -1, -1]), np.full(3, 0.3), 5)
    tokens = drafter.propose(8, np.ones(9))[0]
    assert known in tokens and beyond not in tokens and -7 not in tokens


def test_mismatched_arguments_are_rejected() -> None:
    drafter = Drafter(VOCABULARY, LIBRARY, Weights())
    drafter.begin(ids([1, 2, 3]), 0, ids([1]))
    with pytest.raises(ValueError, match="capacity"):
        drafter.propose(5, np.ones(5))
    with pytest.raises(ValueError, match="capacity"):
        drafter.propose(0, np.ones(0))
    with pytest.raises(ValueError, match="capacity"):
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


@settings(max_examples=100)
@given(st.lists(st.floats(), min_size=1, max_size=60), st.sampled_from(KINDS_OF_WEIGHTS))
def test_invalid_costs_give_a_valid_draft(costs: list[float], kind: str) -> None:
    """NaN, infinite, zero or negative costs still give a tree and leave no state behind."""
    drafter = Drafter(VOCABULARY, LIBRARY, weights_of(kind))
    drafter.begin(ids([7, 8, 1, 2, 3, 4, 5, 6] * 4), 0, ids([1]))
    usual = propose(drafter, 20)
    tree = tree_of(drafter.propose(len(costs) - 1, np.array(costs)))
    assert len(tree) < len(costs)
    assert all(-1 <= node.parent < index for index, node in enumerate(tree))
    assert propose(drafter, 20) == usual


def test_room_may_exceed_what_can_be_drafted() -> None:
    text = [number % 200 for number in range(3000)]
    drafter = Drafter(made_up(), Ngram(), Weights(trained()))
    drafter.begin(ids(text), 0, ids([1]))
    assert len(propose(drafter, 30_000)) <= 30_000
    for capacity in (40, 2**31 - 1):
        with pytest.raises(ValueError, match=f"costs has 40 entries: expected .* {capacity + 1}$"):
            drafter.propose(capacity, np.ones(40))
    with pytest.raises(TypeError):
        drafter.propose(2**31, np.ones(40))


def wrongly_typed() -> dict[str, Callable[[], object]]:
    """Calls with arrays that would have to be copied, which could lose or change their values."""
    drafter, table = Drafter(VOCABULARY, LIBRARY, Weights()), Recycling(9, 2)
    floats, int64s, float_rows = np.array([1.5, 2.5]), np.array([1, 2]), np.ones((2, 2), np.float32)
    tokens, probs, int_rows = ids([1, 2]), np.ones(2), np.ones((2, 2), np.int32)
    strided = ids(range(4))[::2]
    return {
        "hashes": lambda: Vocabulary(int64s, np.zeros(2, np.uint8)),  # type: ignore[arg-type]
        "looks": lambda: Vocabulary(np.zeros(2, np.uint32), int64s),  # type: ignore[arg-type]
        "values": lambda: Weights(np.zeros(weight_count())),  # type: ignore[arg-type]
        "expected": lambda: drafter.begin(floats, 0, tokens),  # type: ignore[arg-type]
        "expected, int64": lambda: drafter.begin(int64s, 0, tokens),  # type: ignore[arg-type]
        "expected, strided": lambda: drafter.begin(strided, 0, tokens),
        "before": lambda: drafter.begin(tokens, 0, floats),  # type: ignore[arg-type]
        "files": lambda: drafter.files(floats, tokens, probs, 1),  # type: ignore[arg-type]
        "files' parents": lambda: drafter.files(tokens, floats, probs, 1),  # type: ignore[arg-type]
        "files' probs": lambda: drafter.files(tokens, tokens, float_rows[0], 1),  # type: ignore[arg-type]
        "costs": lambda: drafter.propose(1, np.ones(2, np.int64)),  # type: ignore[arg-type]
        "commit": lambda: drafter.commit([1.5], 0.0),  # type: ignore[list-item]
        "commit, array": lambda: drafter.commit(floats, 0.0),  # type: ignore[arg-type]
        "commit, text": lambda: drafter.commit("12", 0.0),  # type: ignore[arg-type]
        "fit": lambda: drafter.fit(floats, 0.1),  # type: ignore[arg-type]
        "fit's files": lambda: drafter.fit(tokens, 0.1, float_rows, float_rows, tokens),  # type: ignore[arg-type]
        "fit's probs": lambda: drafter.fit(tokens, 0.1, int_rows, int_rows, tokens),  # type: ignore[arg-type]
        "fit's matches": lambda: drafter.fit(tokens, 0.1, int_rows, float_rows, probs),  # type: ignore[arg-type]
        "count": lambda: Ngram().count(floats, 1),  # type: ignore[arg-type]
        "add": lambda: Ngram().add(floats, (1, 1, 1), 0, 1),  # type: ignore[arg-type]
        "mapped": lambda: Ngram.mapped(np.zeros(40)),  # type: ignore[arg-type]
        "mapped, strided": lambda: Ngram.mapped(np.zeros(80, np.uint8)[::2]),
        "update": lambda: table.update(floats, float_rows),  # type: ignore[arg-type]
        "update's logits": lambda: table.update(tokens, int_rows),  # type: ignore[arg-type]
        "put": lambda: table.put(floats, int_rows, float_rows),  # type: ignore[arg-type]
        "put's ids": lambda: table.put(tokens, float_rows, float_rows),  # type: ignore[arg-type]
        "put's logits": lambda: table.put(tokens, int_rows, int_rows),  # type: ignore[arg-type]
    }


@pytest.mark.parametrize("name", wrongly_typed())
def test_nothing_is_converted_silently(name: str) -> None:
    with pytest.raises(TypeError):
        wrongly_typed()[name]()


def test_out_of_range_token_ids_are_rejected() -> None:
    drafter = Drafter(VOCABULARY, LIBRARY, Weights())
    drafter.commit(np.array([1, 2], np.int64), 0.0)  # type: ignore[arg-type]
    for number in (2**31, -(2**31) - 1):
        with pytest.raises(ValueError, match=f"{number} is not a token id"):
            drafter.commit([1, number], 0.0)
    with pytest.raises(OverflowError):
        drafter.commit([2**80], 0.0)


def test_other_files_may_match_any_number_of_tokens() -> None:
    for match in (-(2**31), -5, 0, 2**31 - 1):
        drafter = Drafter(VOCABULARY, LIBRARY, weights_of("trained"))
        drafter.begin(ids([]), 0, ids([]))
        drafter.files(ids([4, 5, 6]), ids([-1, 0, 1]), np.array([np.nan, 2.0, -1.0]), match)
        assert len(propose(drafter, 9)) <= 9
        drafter.commit([4, 5, 6], 0.2)


def test_a_long_text_is_accepted_and_copied() -> None:
    rng = random.Random(0)
    old = [rng.randrange(500) for _ in range(100_000)]
    drafter = Drafter(made_up(), Ngram(), Weights(trained()))
    drafter.begin(ids(old), 90_000, ids([1]))
    drafter.commit(old[90_000:90_020], 0.2)
    assert drafter.run == 20
    best = propose(drafter, 20)
    assert [node.token for node in best if node.prob > 0.5][:10] == old[90_020:90_030]
    assert drafter.fit(ids(old[90_020:95_000]), 0.0) < 0.1 * 5000


def test_a_table_is_built_once() -> None:
    """Views of it stay valid, also in a drafter."""
    counted, tokens = Ngram(), ids([1, 2, 3, 1, 2])
    counted.count(tokens, 1)
    for ngram in (counted, Ngram.mapped(counted.table)):
        view, before = ngram.table, ngram.table.copy()
        for rebuild in (
            lambda table: table.count(ids(range(5000)), 1),
            lambda table: table.add(tokens, (1, 1, 1), 0, 1),
            Ngram.finish,
        ):
            with pytest.raises(ValueError, match="already built"):
                rebuild(ngram)
        assert (view == before).all() and (ngram.table == before).all()


@pytest.mark.parametrize("bad", ["full", "odd", "short"])
def test_a_damaged_table_is_rejected_or_harmless(bad: str) -> None:
    table = LIBRARY.table.copy()
    if bad == "full":  # an unbounded search would never end
        table[:] = 1
        drafter = Drafter(VOCABULARY, Ngram.mapped(table), Weights())
        drafter.begin(ids([]), 0, ids([1, 2, 3]))
        assert len(propose(drafter, 9)) <= 9
    else:
        with pytest.raises(ValueError, match="table"):
            Ngram.mapped(table[1:] if bad == "odd" else table[:120])
