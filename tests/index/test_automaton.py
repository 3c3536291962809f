"""The suffix automaton answers exactly like brute force, for any documents, at any time."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index._core import Automaton, Frozen, Segments
from tests.oracles import naive

LARGEST_ID = 2**31 - 1
ALPHABETS = ([0], [0, 1], [0, 1, 2], [7, 0, LARGEST_ID], [*range(40), LARGEST_ID - 1, LARGEST_ID])


def ids(tokens: list[int]) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.array(tokens, np.int32)


def assert_equal_answers(
    fast: Automaton, slow: naive.Automaton, tail: list[int], k: int, limit: int
) -> None:
    for followed in (False, True):
        found = fast.match(ids(tail), k, limit, followed=followed)
        expected = slow.match(tail, k, limit, followed=followed)
        assert (found.length, found.count) == (expected.length, expected.count)
        assert found.docs.tolist() == expected.docs.tolist()
        assert found.ends.tolist() == expected.ends.tolist()
        for doc, end in zip(found.docs.tolist(), found.ends.tolist(), strict=True):
            assert fast.tokens(doc)[:end][-found.length :].tolist() == tail[-found.length :]
            following = fast.continuation(doc, end, k)
            assert following.tolist() == slow.continuation(doc, end, k).tolist()
            assert len(following) > 0 or not followed or k == 0


def assert_equal_trees(
    fast: Automaton, slow: naive.Automaton, tail: list[int], nodes: int, width: int, most: int
) -> None:
    tree = fast.tree(ids(tail), nodes, width, most=most)
    expected = slow.tree(tail, nodes, width, most=most)
    assert tree.tokens.tolist() == expected.tokens.tolist()
    assert tree.parents.tolist() == expected.parents.tolist()
    assert tree.probs.tolist() == expected.probs.tolist()
    assert len(tree) == len(expected) <= nodes


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[tuple[str, list[int]]], list[list[int]]]:
    """Operations that build an automaton, and tails to query after each."""
    token = st.sampled_from(draw(st.sampled_from(ALPHABETS)))
    document = st.lists(token, max_size=24)
    known = draw(st.lists(document, min_size=1, max_size=3))  # repeated documents
    text = st.one_of(document, st.sampled_from(known), st.sampled_from([[], known[0][:1]]))
    operation = st.tuples(
        st.sampled_from(["add", "open", "extend", "extend one by one", "kill"]), text
    )
    return draw(st.lists(operation, max_size=7)), draw(st.lists(text, min_size=1, max_size=3))


def perform(automaton: Any, name: str, tokens: list[int], living: list[bool]) -> None:
    if name == "kill" and living:
        doc = len(tokens) % len(living)
        automaton.kill(doc)
        living[doc] = False
    elif name == "add":
        automaton.add(tokens)
        living.append(True)
    elif name == "open" or not living or not living[-1]:
        automaton.open()
        living.append(True)
    elif name == "extend":
        automaton.extend(ids(tokens))
    else:
        for token in tokens:
            automaton.extend([token])


@settings(max_examples=250)
@given(programs(), st.integers(0, 9), st.integers(0, 30), st.integers(1, 8))
def test_answers_equal_brute_force_after_every_operation(
    program: tuple[list[tuple[str, list[int]]], list[list[int]]], k: int, limit: int, most: int
) -> None:
    operations, tails = program
    fast, slow = Automaton(), naive.Automaton()
    living: list[bool] = []
    for name, tokens in [*operations, ("open", [])]:
        perform(fast, name, tokens, living[:])
        perform(slow, name, tokens, living)
        assert fast.check() == ""
        assert (fast.documents, fast.size, fast.states) == (slow.documents, slow.size, slow.states)
        assert fast.living == slow.living
        assert fast.states <= max(1, 2 * fast.size)
        for document in range(fast.documents):
            assert fast.tokens(document).tolist() == slow.tokens(document).tolist()
        for tail in tails:
            assert_equal_answers(fast, slow, tail, k, limit)
            assert_equal_trees(fast, slow, tail, 3 * k, limit % 5, most=most)
        if fast.documents:  # its own end, as the context drafter queries it
            assert_equal_answers(fast, slow, fast.tokens(fast.documents - 1).tolist(), k, limit)
            assert_equal_trees(fast, slow, fast.tokens(fast.documents - 1).tolist(), 9, 3, most=99)


@settings(max_examples=100)
@given(st.lists(st.lists(st.integers(0, 2), max_size=12), max_size=4))
def test_exactly_the_substrings_are_found(documents: list[list[int]]) -> None:
    automaton = Automaton()
    for document in documents:
        automaton.add(document)
    substrings = {
        tuple(document[start:stop])
        for document in documents
        for start in range(len(document))
        for stop in range(start + 1, len(document) + 1)
    }
    for text in substrings:
        assert automaton.match(text).length == len(text)
        for token in range(4):
            longer = (*text, token)
            assert (automaton.match(longer).length == len(longer)) == (longer in substrings)


@pytest.mark.parametrize("alphabet", [1, 2, 3, 50])
@pytest.mark.parametrize("sizes", [[500], [3, 200, 0, 150, 1, 100]])
def test_frequent_text_is_counted_exactly(alphabet: int, sizes: list[int]) -> None:
    """More occurrences than the automaton walks to one by one."""
    chance = random.Random(alphabet)
    fast, slow = Automaton(), naive.Automaton()
    for size in sizes:
        document = [chance.randrange(alphabet) for _ in range(size)]
        fast.add(document)
        slow.add(document)
    fast.add([alphabet] * 300)  # frequent in older text, but not in the newest
    slow.add([alphabet] * 300)
    tails = [[chance.randrange(alphabet) for _ in range(length)] for length in (1, 1, 2, 3, 70)]
    tails += [slow.tokens(0)[-5:].tolist(), [alphabet] * 5]
    for dead in (None, len(sizes), 0, 1):
        if dead is not None and dead < fast.documents:
            fast.kill(dead)
            slow.kill(dead)
        for tail in tails:
            for k in (3, 2000):
                assert_equal_answers(fast, slow, tail, k, 64)
            assert_equal_trees(fast, slow, tail, 20, 4, most=10)
            assert_equal_trees(fast, slow, tail, 20, 4, most=5000)
        assert fast.check() == ""


def test_tree_probabilities_add_up() -> None:
    chance = random.Random(5)
    automaton = Automaton()
    automaton.add([chance.randrange(3) for _ in range(400)])
    tree = automaton.tree([1, 2], 200, 8)
    below: dict[int, float] = {}
    for parent, prob in zip(tree.parents.tolist(), tree.probs.tolist(), strict=True):
        below[parent] = below.get(parent, 0) + prob
    assert below[-1] == pytest.approx(1)
    assert max(below.values()) <= 1 + 1e-9


def test_textbook_suffix_automaton() -> None:
    """After each token: the longest suffix that occurred before, and its first end."""
    text = [1, 2, 1, 2, 3, 1, 2, 1, 2]
    automaton = Automaton()
    automaton.open()
    lengths, firsts = [], []
    for token in text:
        automaton.extend([token])
        own_end = automaton.size
        for length in range(own_end, -1, -1):
            match = automaton.match(automaton.tokens(0), k=99, limit=length)
            earlier = [end for end in match.ends.tolist() if end != own_end]
            if earlier or length == 0:
                lengths.append(match.length if earlier else 0)
                firsts.append(min(earlier, default=None))
                break
    assert lengths == [0, 0, 1, 2, 0, 1, 2, 3, 4]
    assert firsts == [None, None, 1, 2, None, 1, 2, 3, 4]
    assert automaton.states == 10


@pytest.mark.parametrize("form", ["growing", "frozen"])
def test_textbook_continuation_tree(form: str) -> None:
    """Four documents, each ended by token 0."""
    documents = ([5, 6, 7, 8, 0], [5, 6, 7, 9, 0], [5, 6, 4, 0], [5, 6, 7, 8, 0])
    automaton = Automaton()
    for document in documents:
        automaton.add(document)
    assert automaton.match([5, 6]).count == 4
    if form == "growing":
        tree = automaton.tree([5, 6], nodes=5, width=8)
    else:
        tree = Segments([Frozen([ids(one) for one in documents])]).tree([5, 6], nodes=5, width=8)
    assert tree.tokens.tolist() == [7, 8, 0, 4, 9]
    assert tree.parents.tolist() == [-1, 0, 1, -1, 0]
    paths: list[float] = []
    for parent, prob in zip(tree.parents.tolist(), tree.probs.tolist(), strict=True):
        paths.append(prob * (1 if parent < 0 else paths[parent]))
    assert paths == pytest.approx([0.75, 0.5, 0.5, 0.25, 0.25])


def test_matches_do_not_cross_documents() -> None:
    automaton = Automaton()
    automaton.add([1, 2])
    automaton.add([3, 4])
    assert automaton.match([2, 3]).length == 1
    assert automaton.match([1, 2], followed=True).length == 0
    assert automaton.continuation(0, 1, 9).tolist() == [2]
    assert automaton.tree([1], 9).tokens.tolist() == [2]
    assert len(automaton.tree([2], 9)) == 0


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda automaton: automaton.add([1, -1]), "token id -1"),
        (lambda automaton: automaton.extend(ids([-7])), "token id -7"),
        (lambda automaton: automaton.match([-1]), "token id -1"),
        (lambda automaton: automaton.tree([-1]), "token id -1"),
        (lambda automaton: automaton.match([1], -1), "k -1"),
        (lambda automaton: automaton.match([1], 1, -2), "limit -2"),
        (lambda automaton: automaton.tree([1], -3), "nodes -3"),
        (lambda automaton: automaton.tree([1], 1, -3), "width -3"),
        (lambda automaton: automaton.tree([1], most=-4), "most -4"),
        (lambda automaton: automaton.tokens(1), "document 1"),
        (lambda automaton: automaton.kill(1), "document 1"),
        (lambda automaton: automaton.label(-1, 0, 0, 0), "document -1"),
        (lambda automaton: automaton.tokens(-1), "document -1"),
        (lambda automaton: automaton.continuation(0, 4, 1), "end 4"),
        (lambda automaton: automaton.continuation(0, -1, 1), "end -1"),
        (lambda automaton: automaton.continuation(0, 1, -1), "n -1"),
    ],
)
@pytest.mark.parametrize("kind", [Automaton, naive.Automaton])
def test_invalid_arguments_change_nothing(
    kind: Callable[[], Any], call: Callable[[Any], object], says: str
) -> None:
    automaton = kind()
    automaton.add([1, 2, 3])
    with pytest.raises(ValueError, match=says) as error:
        call(automaton)
    assert "\n" not in str(error.value)
    assert (automaton.documents, automaton.size, automaton.check()) == (1, 3, "")


def test_extending_a_missing_or_deleted_document_fails() -> None:
    for automaton in (Automaton(), naive.Automaton()):
        with pytest.raises(ValueError, match="open one first"):
            automaton.extend([1])
        automaton.add([1])
        automaton.kill(0)
        with pytest.raises(ValueError, match="deleted"):
            automaton.extend([1])


@pytest.mark.parametrize("tokens", [[2**31], np.array([1.5]), ["a"], np.array([[1]], np.int32)])
def test_tokens_must_be_int32(tokens: Any) -> None:
    with pytest.raises(TypeError):
        Automaton().add(tokens)


def test_results_outlive_the_automaton() -> None:
    automaton = Automaton()
    automaton.add([1, 2, 3, 2])
    ends, rest = automaton.match([2]).ends, automaton.continuation(0, 1, 3)
    del automaton
    assert ends.tolist() == [4, 2]
    assert rest.tolist() == [2, 3, 2]


def test_nbytes_grows_with_the_tokens() -> None:
    automaton = Automaton()
    sizes = [automaton.nbytes]
    for _ in range(3):
        automaton.add(np.arange(10_000, dtype=np.int32))
        sizes.append(automaton.nbytes)
        assert automaton.nbytes >= automaton.size * 12  # token, link, list
    assert sizes == sorted(sizes)


@contextmanager
def no_forced_switches() -> Iterator[None]:
    """Threads switch only where one releases the GIL."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.parametrize("name", ["add", "extend"])
def test_long_calls_release_the_gil_and_conflicting_calls_fail(name: str) -> None:
    automaton = Automaton()
    tokens = np.random.default_rng(0).integers(0, 200, 1_000_000).astype(np.int32)
    automaton.add(tokens[:1])
    refused: list[str] = []
    go, done = threading.Lock(), threading.Event()

    def other() -> None:
        with go:
            while not refused and not done.is_set():
                try:
                    automaton.match([1])
                except RuntimeError as error:
                    refused.append(str(error))
                time.sleep(0)  # releases the GIL

    go.acquire()
    thread = threading.Thread(target=other)
    thread.start()
    with no_forced_switches():
        go.release()  # the other thread may run once this one releases the GIL
        for _ in range(20):  # on a busy machine the other one may get no turn during one call
            with suppress(RuntimeError):  # the other call came first
                getattr(automaton, name)(tokens)
            if refused:
                break
        ran_meanwhile = list(refused)
        done.set()
    thread.join()
    assert len(ran_meanwhile) == 1
    assert "another thread" in ran_meanwhile[0]
    assert automaton.match([1]).length == 1
