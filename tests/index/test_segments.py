"""Frozen segments, and several segments queried as one, answer exactly like brute force."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index._core import Automaton, Frozen, Segments, stop_builds
from tests.oracles import naive

LARGEST_ID = 2**31 - 1
ALPHABETS = ([0], [0, 1], [0, 1, 2], [7, 0, LARGEST_ID], [*range(40), LARGEST_ID - 1, LARGEST_ID])

Label = tuple[int, int]  # path, folder
Documents = list[tuple[list[int], Label, bool]]  # tokens, label, whether it is deleted


def ids(tokens: list[int]) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.array(tokens, np.int32)


def oracle_of(documents: Documents, changed: int) -> naive.Automaton:
    slow = naive.Automaton()
    for number, (tokens, label, deleted) in enumerate(documents):
        slow.add(tokens, changed + number, *label)
        if deleted:
            slow.kill(number)
    return slow


def part_of(form: str, documents: Documents, changed: int) -> Automaton | Frozen:
    part: Automaton | Frozen
    if form == "growing":
        part = Automaton()
        for number, (tokens, label, _) in enumerate(documents):
            part.add(tokens, changed + number, *label)
    else:
        part = Frozen(
            [ids(tokens) for tokens, _, _ in documents],
            changed + np.arange(len(documents)),
            ids([path for _, (path, _), _ in documents]),
            ids([folder for _, (_, folder), _ in documents]),
        )
    if form == "mapped":
        arrays = [np.array(one) for one in (part.text, part.starts, part.order, part.ranks)]
        part = Frozen.mapped(*arrays)
        for number, (_, label, _) in enumerate(documents):
            part.label(number, changed + number, *label)
    for number, (_, _, deleted) in enumerate(documents):
        if deleted:
            part.kill(number)
    return part


@st.composite
def indexes(draw: st.DrawFn) -> tuple[list[tuple[str, Documents]], list[list[int]]]:
    """Segments of each kind, and tails to query."""
    token = st.sampled_from(draw(st.sampled_from(ALPHABETS)))
    text = st.lists(token, max_size=24)
    known = draw(st.lists(text, min_size=1, max_size=3))  # repeated texts
    label = st.tuples(st.integers(-1, 3), st.integers(-1, 2))
    document = st.tuples(st.one_of(text, st.sampled_from(known)), label, st.booleans())
    form = st.sampled_from(["growing", "frozen", "mapped"])
    parts = draw(st.lists(st.tuples(form, st.lists(document, max_size=5)), max_size=4))
    return parts, draw(st.lists(st.one_of(text, st.sampled_from(known)), min_size=1, max_size=4))


@settings(max_examples=200)
@given(
    indexes(), st.integers(0, 9), st.integers(0, 30), st.integers(-1, 3), st.integers(-1, 2),
    st.integers(0, 4), st.sampled_from([0, 2, 100]),
)  # fmt: skip
def test_answers_equal_brute_force(
    index: tuple[list[tuple[str, Documents]], list[list[int]]],
    k: int,
    limit: int,
    path: int,
    folder: int,
    least: int,
    apart: int,
) -> None:
    """`apart`: how much newer each segment is than the one before, which may have newer texts."""
    parts, tails = index
    slow = [oracle_of(documents, apart * at) for at, (_, documents) in enumerate(parts)]
    fast = [part_of(form, documents, apart * at) for at, (form, documents) in enumerate(parts)]
    for one, expected in zip(fast, slow, strict=True):
        assert (one.documents, one.size) == (expected.documents, expected.size)
        assert one.living == expected.living
        for doc in range(one.documents):
            assert one.tokens(doc).tolist() == expected.tokens(doc).tolist()
    segments, oracle = Segments(list(fast)), naive.Segments(slow)
    for tail in tails:
        found = segments.match(ids(tail), k, limit, path, folder)
        assert found == oracle.match(tail, k, limit, path, folder)
        tree = segments.tree(ids(tail), 3 * k, 3, limit, most=20)
        expected_tree = oracle.tree(tail, 3 * k, 3, limit, most=20)
        assert tree.tokens.tolist() == expected_tree.tokens.tolist()
        assert tree.parents.tolist() == expected_tree.parents.tolist()
        assert tree.probs.tolist() == expected_tree.probs.tolist()
        enough = segments.tree(ids(tail), 3 * k, 3, limit, most=20, least=least)
        if expected_tree.length < least:
            assert (enough.length, len(enough)) == (0, 0)
        else:
            assert enough.length == tree.length
            assert enough.tokens.tolist() == tree.tokens.tolist()
            assert enough.probs.tolist() == tree.probs.tolist()


@pytest.mark.parametrize("form", ["growing", "frozen", "mapped"])
@pytest.mark.parametrize("least", range(4))
def test_short_matches_behind_many_deleted_ones_are_not_found(form: str, least: int) -> None:
    tail = [*range(7)]
    deleted: Documents = [([10 + first, *tail[first:], 9], (0, 0), True) for first in range(6)]
    segments = Segments([part_of(form, [*deleted, ([20, 6, 9], (0, 0), False)], 0)])
    assert segments.tree(ids(tail), 4, 3, least=least).length == (1 if least <= 1 else 0)


@settings(max_examples=100)
@given(indexes())
def test_ranks_order_positions_by_the_text_before_them(
    index: tuple[list[tuple[str, Documents]], list[list[int]]],
) -> None:
    for _, documents in index[0]:
        frozen = Frozen([ids(tokens) for tokens, _, _ in documents])
        text = frozen.text.tolist()
        assert text == [*(t for tokens, _, _ in documents for t in (-1, *tokens)), -1]
        borders = frozen.starts.tolist()
        positions = [at for at in range(len(text) - 1) if at not in borders]
        assert frozen.order.tolist() == sorted(positions, key=lambda at: text[at::-1])
        assert [frozen.order[frozen.ranks[at]] for at in positions] == positions


@pytest.mark.parametrize("text", ["one token", "a period", "nested", "large ids", "random"])
def test_suffix_arrays_of_hard_texts(text: str) -> None:
    chance = random.Random(1)
    tokens = {
        "one token": [5] * 3000,
        "a period": [1, 2, 1, 3] * 700,
        "nested": [bin(n).count("1") % 2 for n in range(3000)],  # the Thue-Morse sequence
        "large ids": [chance.choice([0, 1 << 22, LARGEST_ID]) for _ in range(3000)],
        "random": [chance.randrange(700) for _ in range(3000)],
    }[text]
    frozen = Frozen([ids(tokens[:2000]), ids(tokens[2000:])])
    whole = frozen.text.tolist()
    order = frozen.order.tolist()
    keys = [whole[at::-1][:3001] for at in order]
    assert all(one < other for one, other in pairwise(keys))
    assert sorted(order) == [at for at in range(len(whole) - 1) if whole[at] >= 0]


@pytest.mark.parametrize("form", ["growing", "frozen", "mapped"])
def test_frequent_text_is_found(form: str) -> None:
    """More occurrences than are examined one by one, some near, some in deleted documents."""
    chance = random.Random(3)
    documents: Documents = [
        ([chance.choice([1, 1, 1, 2]) for _ in range(chance.randrange(300))], (doc, doc % 5), False)
        for doc in range(40)
    ]
    documents += [([3] * 500, (90, 7), False)]
    for deleted in (0.0, 0.5, 0.9):
        some_deleted = [
            (tokens, label, chance.random() < deleted) for tokens, label, _ in documents
        ]
        segments = Segments([part_of(form, some_deleted, 0)])
        oracle = naive.Segments([oracle_of(some_deleted, 0)])
        for tail in ([1], [2], [1, 1], [2, 1, 2], [3]):
            for path, folder in ((-1, -1), (7, 2), (90, 3), (-1, 4)):
                length, count, best = oracle.match(tail, 2000, 64, path, folder)
                for k in (1, 8, 2000):
                    found = segments.match(ids(tail), k, 64, path, folder)
                    assert found == (length, count, best[:k])


@pytest.mark.parametrize("deleted", ["none", "newest", "many"])
def test_the_newest_of_many_occurrences_are_found_wherever_they_are(deleted: str) -> None:
    """Frequent in old documents only, so that a look at the newest text does not find enough."""
    chance = random.Random(4)
    old = [[chance.choice([1, 1, 2]) for _ in range(400)] for _ in range(60)]
    new = [[chance.choice([5, 6, 1 if number % 9 == 0 else 7]) for _ in range(400)]
           for number in range(40)]  # fmt: skip
    frozen, oracle = Frozen([ids(one) for one in [*old, *new]]), naive.Automaton()
    for one in [*old, *new]:
        oracle.add(one)
    dead = {"none": [], "newest": [*range(40, 100)], "many": chance.sample(range(100), 80)}
    for doc in dead[deleted]:
        frozen.kill(doc)
        oracle.kill(doc)
    fast, slow = Segments([frozen]), naive.Segments([oracle])
    for tail in ([1], [2], [1, 1], [1, 2, 1], [5], [7, 1]):
        length, count, best = slow.match(tail, 2000)
        for k in (1, 64, 500, 2000):
            assert fast.match(tail, k) == (length, count, best[:k])


def test_many_deleted_ranks_are_skipped() -> None:
    """Whole blocks are skipped by their counts."""
    texts = [[at % 97, 5, at % 89] * 10 for at in range(600)]
    frozen, oracle = Frozen([ids(one) for one in texts]), naive.Automaton()
    for one in texts:
        oracle.add(one)
    segments, slow = Segments([frozen]), naive.Segments([oracle])
    for doc in range(599):
        frozen.kill(doc)
        oracle.kill(doc)
        if doc % 199 == 0 or doc > 595:
            for tail in ([5], [0, 5], texts[3][:7], [1000]):
                length, count, best = segments.match(tail, 2)
                assert (length, count) == slow.match(tail, 0)[:2]
                assert len(best) == min(2, count)
    frozen.kill(599)
    assert segments.match([5]) == (0, 0, [])
    assert frozen.living == 0


def test_inconsistent_arrays_are_refused() -> None:
    good = Frozen([ids([1, 2, 1]), ids([]), ids([2])])
    arrays = {
        "text": np.array(good.text),
        "starts": np.array(good.starts),
        "order": np.array(good.order),
        "ranks": np.array(good.ranks),
    }
    assert Segments([Frozen.mapped(**arrays)]).match([1, 2])[0] == 2
    for name, array in arrays.items():
        for at in range(len(array)):
            for value in (-5, -1, 0, 1, 2, 3, 4, 7, 2**30):
                bad = array.astype(np.int64)
                bad[at] = value
                changed = {**arrays, name: bad.astype(array.dtype)}
                try:
                    segments = Segments([Frozen.mapped(**changed)])
                except ValueError as error:
                    assert str(error).startswith("invalid segment: ")
                    assert "\n" not in str(error)
                    continue
                for tail in ([1], [2], [1, 2], [2, 1], [0]):
                    segments.match(tail)  # may be wrong, but must not read out of bounds
        for shorter in (array[:-1], array[:0], np.append(array, array[:1])):
            with pytest.raises(ValueError, match="invalid segment"):
                Frozen.mapped(**{**arrays, name: shorter})


ARRAYS = ("text", "starts", "order", "ranks", "keys", "followed", "tops")


@settings(max_examples=100)
@given(indexes())
def test_a_segment_mapped_unread_answers_the_same(
    index: tuple[list[tuple[str, Documents]], list[list[int]]],
) -> None:
    parts, tails = index
    for _, documents in parts:
        whole = part_of("frozen", documents, 0)
        labels = [ids([label[at] for _, label, _ in documents]) for at in (0, 1)]
        arrays = [np.array(getattr(whole, name)) for name in ARRAYS]
        mapped = Frozen.mapped(*arrays, np.arange(len(documents)), *labels)
        mapped.check()
        for number, (_, _, deleted) in enumerate(documents):
            if deleted:
                mapped.kill(number)
        assert mapped.living == whole.living
        for tail in tails:
            for near in ((-1, -1), (0, 0), (2, 1)):
                found = Segments([mapped]).match(ids(tail), 9, 64, *near)
                assert found == Segments([whole]).match(ids(tail), 9, 64, *near)


def test_damage_in_a_segment_mapped_unread_is_safe_and_found() -> None:
    good = Frozen([ids([1, 2, 1] * 30), ids([]), ids([2])])
    arrays = {name: np.array(getattr(good, name)) for name in ARRAYS}
    harmless = 0
    for name, array in arrays.items():
        for at in range(len(array)):
            for value in (-(2**31), -5, -1, 0, 1, 2, 90, 2**30, 2**31 - 1):
                bad = array.astype(np.int64)
                bad[at] = value
                changed = {**arrays, name: bad.astype(array.dtype)}
                try:
                    damaged = Frozen.mapped(**changed)
                except ValueError as error:
                    assert str(error).startswith("invalid segment: ")
                    continue
                for tail in ([1], [2], [1, 2], [2, 1, 1, 2], [0], [2**31 - 1]):
                    segments = Segments([damaged])
                    segments.match(tail, 200)
                    tree = segments.tree(tail)
                    assert (tree.tokens >= 0).all()
                try:
                    damaged.check()
                    harmless += not np.array_equal(changed[name], array)
                except ValueError as error:
                    assert str(error).startswith("invalid segment: ")
                for document in range(3):
                    damaged.kill(document)
                assert Segments([damaged]).match([1], 200) is not None
    positions = sum(text >= 0 for text in good.text.tolist())
    assert harmless <= 9 * (positions + 4), "other tokens, and ranks of borders, can be consistent"
    for name in ("keys", "followed", "tops"):
        for wrong in (arrays[name][:-1], np.append(arrays[name], arrays[name][:1])):
            with pytest.raises(ValueError, match="its keys do not fit"):
                Frozen.mapped(**{**arrays, name: wrong})


def test_mapped_arrays_live_as_long_as_the_segment() -> None:
    def make() -> Segments:
        first = Frozen([ids([1, 2, 3]), ids([2, 3, 4])])
        return Segments([Frozen.mapped(first.text, first.starts, first.order, first.ranks)])

    assert make().match([2, 3]) == (2, 1, [(0, 1, 2, 1.0)])


@pytest.mark.parametrize("tokens", [[[1, -1]], [[2], [-2147483648]]])
def test_negative_ids_are_refused(tokens: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="token id -"):
        Frozen([ids(one) for one in tokens])
    with pytest.raises(ValueError, match="expected one entry per document"):
        Frozen([ids([1])], np.arange(2))


def test_memory_of_a_frozen_segment() -> None:
    tokens = np.random.default_rng(0).integers(0, 9, 100_000).astype(np.int32)
    frozen = Frozen([tokens[at : at + 1000] for at in range(0, 100_000, 1000)])
    arrays = (frozen.text, frozen.starts, frozen.order, frozen.ranks)
    assert sum(one.nbytes for one in arrays) < frozen.nbytes < 13 * frozen.size


def test_building_can_be_stopped() -> None:
    stop_builds(True)
    try:
        with pytest.raises(RuntimeError, match="exiting"):
            Frozen([ids([1, 2, 3])])
    finally:
        stop_builds(False)
    assert Frozen([ids([1, 2, 3])]).size == 3
