"""SAM-Decoding as published: which text is drafted from, how much, and as which tree."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.drafting import DraftContext
from research.methods.datastore import TreeShape, best_first_tree
from research.methods.rest import RestDrafter
from research.methods.sam import SamDrafter, SamHybridDrafter
from research.methods.suffix_lookup import BORDER
from tests.support.retrieval import FEW, GOLDEN, Other, corpus, drafted, followed, paths_of

ALPHABET = list(range(10, 60))


@pytest.mark.parametrize(
    ("context_match", "corpus_match", "source"),
    [
        (0, 0, "other"),
        (4, 0, "other"),
        (5, 0, "context"),
        (4, 9, "other"),
        (4, 10, "corpus"),
        (9, 14, "context"),  # 14 - 5 does not exceed 9
        (9, 15, "corpus"),
        (20, 15, "context"),
    ],
)
def test_which_text_is_drafted_from(context_match: int, corpus_match: int, source: str) -> None:
    """Bias 5, threshold 5; ties go to the text itself."""
    tail = ALPHABET[:20]
    prompt = [*tail[20 - context_match :], 1, 2, 3, *tail]
    static = corpus([*tail[20 - corpus_match :], 7, 8, 9])
    draft = drafted(SamHybridDrafter(Other(), static), prompt)
    assert draft.sources[0] == source
    if source == "context":
        assert draft.tokens == [1, 2, 3, *tail][:39]
    if source == "corpus":
        assert draft.tokens == [7, 8, 9]


def test_runs_have_the_published_length() -> None:
    prompt = [1, 2, 3, 4, 5, *range(100, 200), 1, 2, 3, 4, 5]
    assert drafted(SamHybridDrafter(Other()), prompt).tokens == list(range(100, 139))
    assert drafted(SamHybridDrafter(Other(), run=15), prompt).tokens == list(range(100, 114))


def test_a_shorter_match_is_used_if_too_little_follows_the_longest() -> None:
    """The longest match is near the end; a shorter one has enough tokens after it."""
    tail = [1, 2, 3, 4, 5, 6]
    prompt = [*tail[2:], *range(100, 150), *tail, 8, *tail]
    assert drafted(SamHybridDrafter(Other(), run=40), prompt).tokens == list(range(100, 139))
    assert drafted(SamHybridDrafter(Other(), run=5), prompt).tokens == [8, *tail[:3]]


def test_the_other_drafter_observes_every_step() -> None:
    other, context = Other(), DraftContext([1, 2, 3, 1, 2, 3, 1, 2, 3], capacity=9)
    drafter = SamHybridDrafter(other)
    drafter.begin(context)
    for committed in ([1, 2], [7], [5, 5]):
        draft = drafter.propose(context, None)
        context.output += committed
        drafter.observe(draft, [], committed, None, 0.0)
    assert other.begun == 1 and other.told == [[1, 2], [7], [5, 5]]


@pytest.mark.parametrize("length", range(18))
def test_the_budget_grows_with_the_match(length: int) -> None:
    """n = min(60, 1 + 4 l) nodes including the root; without a match, no draft."""
    tail = ALPHABET[:length]
    prompt = [*tail, *range(100, 200), 7, *tail]
    if not length:
        prompt = [*range(100, 200), 7]
    expected = min(60, 1 + 4 * length) - 1
    assert drafted(SamDrafter(), prompt).tokens == list(range(100, 100 + expected))


@pytest.mark.parametrize(("bias", "length"), [(0, 3), (0, 1), (2, 3), (3, 3)])
def test_the_bias_reduces_the_size_of_corpus_trees(bias: int, length: int) -> None:
    tail = ALPHABET[:length]
    static = corpus([*tail, *range(100, 200)], [*tail, 7, 7])
    tokens = drafted(SamDrafter(static, bias=bias, factor=2), [1, *tail]).tokens
    assert len(tokens) == 2 * (length - bias)
    assert tokens[:2] in ([7, 100], [])


def test_golden_static_tree() -> None:
    """The published tree without its root, which is the last token of the prompt."""
    draft = drafted(SamDrafter(corpus(*GOLDEN), most=6, bias=0), [5, 6])
    assert draft.tokens == [7, 8, 0, 4, 9]
    assert draft.parents == [-1, 0, 1, -1, 0]
    paths: list[float] = []
    for parent, prob in zip(draft.parents, draft.probs, strict=True):
        paths.append(prob * (paths[parent] if parent >= 0 else 1))
    assert paths == pytest.approx([0.75, 0.5, 0.5, 0.25, 0.25])
    assert set(draft.sources) == {"corpus"}


def reference_tree(
    documents: list[list[int]], tail: list[int], nodes: int, shape: TreeShape
) -> list[tuple[int, ...]]:
    """The oracle: a tree's paths, most probable first, with `across` and `deep` applied on the way
    down. Counts are of occurrences of the longest match."""
    length = max(n for n in range(len(tail) + 1) if n == 0 or followed(documents, tail[-n:]))
    if length < max(shape.least, 1):
        return []
    counts = Counter(
        tuple(documents[text][position : position + size])
        for text, position in followed(documents, tail[-length:])
        for size in range(1, len(documents[text]) - position + 1)
    )
    order: dict[tuple[int, ...], int] = {(): -1}
    across: Counter[int] = Counter()
    chosen: list[tuple[int, ...]] = []
    frontier = {path for path in counts if len(path) == 1}
    while frontier and len(chosen) < nodes:
        best = min(frontier, key=lambda path: (-counts[path], order[path[:-1]], path[-1]))
        frontier.remove(best)
        if across[len(best)] >= shape.across or len(best) > shape.deep:
            continue
        across[len(best)] += 1
        order[best] = len(order)
        chosen.append(best)
        frontier |= {path for path in counts if path[:-1] == best}
    return chosen


@settings(max_examples=100)
@given(
    st.lists(FEW, min_size=1, max_size=5),
    FEW,
    st.integers(1, 12),
    st.sampled_from([1, 2, 3, 100]),
    st.sampled_from([1, 2, 100]),
    st.sampled_from([1, 2]),
)
def test_trees_are_best_first_within_their_shape(
    documents: list[list[int]], tail: list[int], nodes: int, across: int, deep: int, least: int
) -> None:
    shape = TreeShape(across=across, deep=deep, least=least, width=100)
    _, draft = best_first_tree(corpus(*documents), tail, nodes, shape)
    paths = paths_of(draft)
    expected = reference_tree(documents, tail, nodes, shape)
    counts: Counter[int] = Counter(len(path) for path in paths)
    assert len(paths) == len(set(paths)) <= nodes and max(counts.values(), default=0) <= across
    if across == 100 and deep == 100:
        assert paths == expected
    assert len(paths) == len(expected)


def test_an_expected_text_is_copied_in_few_steps() -> None:
    """An expected text of n tokens takes about n / 40 steps."""
    expected = list(range(1000, 1400))
    for drafter, max_steps in ((SamHybridDrafter(Other()), 17), (SamDrafter(), 14)):
        context, steps = DraftContext([1, 2, 3], [expected], capacity=100), 0
        drafter.begin(context)
        while len(context.output) < len(expected):
            draft = drafter.propose(context, None)
            rest = expected[len(context.output) :]
            agreed = 0
            while agreed < len(draft) and draft.tokens[agreed : agreed + 1] == rest[agreed:][:1]:
                agreed += 1
            committed = rest[: agreed + 1]
            context.output += committed
            drafter.observe(draft, list(range(agreed)), committed, None, 0.0)
            steps += 1
        assert steps <= max_steps


def test_nothing_is_drafted_across_the_end_of_a_text() -> None:
    for drafter in (SamDrafter(), SamHybridDrafter(Other(), threshold=1)):
        draft = drafted(drafter, [9, 9, 3], predictions=[[1, 2, 3, 4], [5, 6]])
        assert draft.tokens == [4] and BORDER not in draft.tokens
    for static in (
        SamDrafter(corpus([1, 2, 3, 4], [5, 6]), bias=0),
        RestDrafter(corpus([1, 2, 3, 4], [5, 6])),
    ):
        assert drafted(static, [2, 3]).tokens == [4]
