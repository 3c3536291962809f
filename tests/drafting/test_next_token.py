"""The drafter in use: its calibration, what it learns while drafting, its texts, and the source
spans it reports for copied text."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.drafting import DraftContext, Drafter
from engine.drafting._drafting import Drafter as Native
from engine.drafting._drafting import Ngram
from engine.drafting.next_token import join_with_borders
from engine.prompts.builder import spans
from engine.records import Draft, Request
from index import Workspace
from tests.support.drafters import DEAR, edited, ids, made_up, propose, real, some_text, weights_of
from tests.support.encoders import Bytes

PassCallback = Callable[[DraftContext, Draft, list[int]], None]


def replay(
    drafter: Drafter,
    context: DraftContext,
    text: list[int],
    on_pass: PassCallback = lambda context, draft, path: None,
) -> int:
    """Feed `text` as the model's answer and return the number of passes. `on_pass` is called at the
    end of each."""
    passes = 0
    drafter.begin(context)
    while len(context.output) < len(text):
        context.capacity = 40
        draft = drafter.propose(context, None)
        assert len(draft) <= context.capacity
        children = {pair: n for n, pair in enumerate(zip(draft.parents, draft.tokens, strict=True))}
        path: list[int] = []
        for token in text[len(context.output) :]:
            child = children.get((path[-1] if path else -1, token))
            if child is None:
                break
            path.append(child)
        on_pass(context, draft, path)
        new = text[len(context.output) :][: len(path) + 1]
        context.output += new
        drafter.observe(draft, path, new, None, 0.01)
        passes += 1
    return passes


# -- calibration -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_an_edit_of_a_prediction_takes_few_passes(seed: int) -> None:
    """About one pass per change and a few more; without the prediction, many."""
    rng = random.Random(seed)
    old = [rng.randrange(300) for _ in range(800)]
    new = edited(old, seed)
    changes = sum(token >= 1000 for token in new) + len(old) - sum(t < 1000 for t in new)
    assert replay(real(), DraftContext([1, 2], [old]), new) <= len(new) / 30 + 2.5 * changes
    assert replay(real(), DraftContext([1, 2]), new) > 0.6 * len(new)


def test_probabilities_are_calibrated() -> None:
    """Over edits that were not trained on, learning on the way: tokens offered with some
    probability occur about that often."""
    offered: list[float] = []
    occurred: list[bool] = []
    weights = weights_of("trained")
    for seed in range(700, 760):
        old = some_text(seed)
        drafter = Native(made_up(), Ngram(), weights)
        drafter.begin(ids([*old, -1]), 0, ids([1, 2]))
        for token in edited(old, seed):
            first = [node for node in propose(drafter, 12) if node.parent == -1]
            offered += [node.prob for node in first]
            occurred += [node.token == token for node in first]
            drafter.commit([token], 0.2)
    probs, right = np.array(offered), np.array(occurred)
    assert abs(probs.mean() - right.mean()) < 0.02
    for low, high in ((0.02, 0.2), (0.2, 0.5), (0.5, 0.8), (0.8, 0.95), (0.95, 1.01)):
        inside = (low <= probs) & (probs < high)
        assert inside.sum() > 100
        assert abs(probs[inside].mean() - right[inside].mean()) < 0.1, (low, high)


# -- online learning -------------------------------------------------------------------------------


def test_probabilities_fall_where_drafts_are_always_wrong() -> None:
    """Every third token of the text is different in the answer: soon none is drafted there, while
    the tokens in between keep their high probabilities."""
    rng = random.Random(0)
    old = [rng.randrange(300) for _ in range(600)]
    drafter = Native(made_up(), Ngram(), weights_of("trained"))
    drafter.begin(ids([*old, -1]), 0, ids([1]))
    top_probs: list[float] = []
    for number, token in enumerate(old):
        probs = [node.prob for node in propose(drafter, 12) if node.parent == -1]
        top_probs.append(max(probs, default=0.0))
        drafter.commit([10_000 + number if number % 3 == 2 else token], 0.2)
    wrong, right = top_probs[2::3], top_probs[1::3]
    assert sum(wrong[:3]) > 0.7 * 3 and sum(wrong[-20:]) < 0.3 * 20, wrong
    assert sum(right[-20:]) > 0.7 * 20


def test_learning_carries_over_to_the_next_answer() -> None:
    first = real("zero")
    old = [n % 251 for n in range(2000)]
    passes = replay(first, DraftContext([1, 2], [old[:400]]), old[:400])
    second = real("zero")
    second.model = first.model
    assert replay(second, DraftContext([1, 2], [old[400:800]]), old[400:800]) < 0.8 * passes


def test_unprofitable_drafting_stops_and_resumes() -> None:
    """Where a pass over two tokens costs as much as two passes, drafting stops within the first
    steps of noise, and resumes as soon as the answer is a copy again."""
    rng = random.Random(0)
    old = [rng.randrange(300) for _ in range(300)]
    noise = [rng.randrange(300) for _ in range(150)]
    drafted: list[tuple[int, int]] = []

    def on_pass(context: DraftContext, draft: Draft, path: list[int]) -> None:
        drafted.append((len(context.output), len(draft)))

    drafter = real(costs=DEAR)
    replay(drafter, DraftContext([1, 2], [old]), old[:150] + noise + old[150:], on_pass)

    def drafted_between(start: int, stop: int) -> int:
        return sum(count for position, count in drafted if start <= position < stop)

    assert drafted_between(20, 150) > 60
    assert drafted_between(160, 300) <= 20
    assert drafted_between(310, 450) > 60


def test_a_replacement_seen_twice_is_drafted_first() -> None:
    rng = random.Random(3)
    filler = [[rng.randrange(100, 300) for _ in range(15)] for _ in range(5)]
    swaps: list[tuple[list[int], list[int]]] = [
        ([7], [60]), ([7, 8], [60]), ([7], [60, 61, 62]), ([7, 8, 9], [60, 61]), ([7, 8], [])
    ]  # fmt: skip
    for removed, added in swaps:
        old = [token for part in filler for token in (*part, *removed)]
        new = [token for part in filler for token in (*part, *added)]
        drafter = Native(made_up(), Ngram(), weights_of("trained"))
        drafter.begin(ids([*old, -1]), 0, ids([1]))
        committed = 2 * (15 + len(added)) + 15
        drafter.commit(new[:committed], 0.2)
        tree = propose(drafter, 30)
        assert tree[0].source == "substitution" or not added, (removed, added)
        assert tree[0].token == new[committed], (removed, added)
        drafter.commit(new[committed : committed + 1], 0.2)
        following = propose(drafter, 30)
        assert not added[1:] or following[0].token == new[committed + 1], (removed, added)


# -- texts -----------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.integers(0, 5), max_size=5), max_size=5))
def test_texts_are_joined_with_borders(texts: list[list[int]]) -> None:
    joined, starts = join_with_borders(texts)
    assert joined.tolist().count(-1) == len(texts) == len(starts)
    for start, text in zip(starts, texts, strict=True):
        assert joined[start : start + len(text) + 1].tolist() == [*text, -1]


def test_whole_files_and_hunks_have_separate_weights() -> None:
    drafter = real()
    before = {kind: weights.values.copy() for kind, weights in drafter.model.weights.items()}
    old = some_text(1)
    replay(drafter, DraftContext([1], [old], whole=True), edited(old, 5))
    assert np.array_equal(drafter.model.weights["hunk"].values, before["hunk"])
    assert not np.array_equal(drafter.model.weights["file"].values, before["file"])


# -- source spans ----------------------------------------------------------------------------------

TEXT = """def \u00e9t\u00e9(left, right):
    return '\U0001f60b' + left  # \u65e5\u672c

x = \u00e9t\u00e9(1, 2)
"""


def encoded(text: str) -> list[int]:
    return list(text.encode())


def character_spans(text: str) -> list[tuple[int, int]]:
    """For each byte of a text, the span of the character it belongs to."""
    return [(n, n + 1) for n, char in enumerate(text) for _ in char.encode()]


def pieces(
    request: Request, first: int, last: int, answer: str
) -> list[tuple[int, str, tuple[int, int] | None]]:
    """Edit `request.text[first:last]` to `answer`. For each drafted and accepted byte: its index in
    the answer, its source, and its span if it has one."""
    chosen = request.text[first:last]
    expected = encoded(f"{chosen}\n```")
    found: list[tuple[int, str, tuple[int, int] | None]] = []

    def on_pass(context: DraftContext, draft: Draft, path: list[int]) -> None:
        for depth, node in enumerate(path):
            span = draft.span(node)
            assert span is None or (span.path, span.version) == (request.path, request.version)
            bounds = span and (span.start, span.stop)
            found.append((len(context.output) + depth, draft.sources[node], bounds))

    context = DraftContext(
        encoded("prompt\n"),
        [expected, encoded(request.text[:first])],
        path=request.path,
        span=spans(request, first, last, expected, Bytes()),  # type: ignore[arg-type]
    )
    replay(real(), context, encoded(answer), on_pass)
    return found


@settings(max_examples=40)
@given(st.integers(0, len(TEXT)), st.integers(0, len(TEXT)), st.integers(0, 99))
def test_spans_point_at_the_copied_text(bound: int, other_bound: int, seed: int) -> None:
    """Whatever is selected and edited, the span of a copied byte contains its character."""
    first, last = sorted((bound, other_bound))
    rng = random.Random(seed)
    chosen = TEXT[first:last]
    answer = "".join(
        char if rng.random() < 0.95 else rng.choice(["", "\u00fc", "new name", "\U0001f44d"])
        for char in chosen
    )
    request = Request("edit", TEXT, "a.py", 7, (first, last), "do")
    data = encoded(answer)
    for number, source, bounds in pieces(request, first, last, answer):
        if bounds is not None:
            assert source == "prediction" and first <= bounds[0] < bounds[1] <= last
            assert data[number] in TEXT[slice(*bounds)].encode()


@pytest.mark.parametrize(("first", "last"), [(0, len(TEXT)), (5, 60), (41, 44)])
def test_spans_of_a_copy_are_its_characters_in_order(first: int, last: int) -> None:
    """For nearly all characters of a copy."""
    request = Request("edit", TEXT, "a.py", 7, (first, last), "do")
    exact = [(first + a, first + b) for a, b in character_spans(TEXT[first:last])]
    found = pieces(request, first, last, TEXT[first:last])
    copied = [number for number, source, _ in found if source == "prediction"]
    assert len(copied) > 0.6 * len(exact)
    wrong = [
        (number, bounds)
        for number, source, bounds in found
        if source == "prediction" and bounds != exact[number]
    ]
    assert len(wrong) <= 0.1 * len(exact), wrong


def test_no_spans_where_line_endings_differ() -> None:
    request = Request("edit", "a = 1\r\nb = 2\r\n", "a.py", 7, None, "do")
    expected = encoded("a = 1\nb = 2\n\n```")
    assert spans(request, 0, 14, expected, Bytes()) is None  # type: ignore[arg-type]
    copy = pieces(Request("edit", "a = 1\nb = 2\n", "", 7, None, "do"), 0, 12, "a = 1\nb = 2\n")
    assert copy and all(bounds is None for *_, bounds in copy), "the text has no path"


def test_the_closing_fence_has_no_span() -> None:
    request = Request("edit", "abcdef", "a.py", 7, None, "do")
    found = pieces(request, 0, 6, "abcdef\n```")
    assert [number for number, _, bounds in found if bounds is None] == [
        number for number, *_ in found if number >= 6
    ]


def test_text_from_other_files_has_spans_in_them() -> None:
    drafter_context = DraftContext(encoded("# THE HEAD OF A FILE\n"), path="/here/new.py")
    answer = f"{TEXT}what follows that is here"
    source = f"\u00e9\U0001f60b first\n# THE HEAD OF A FILE\n{answer} and goes on"
    data, found = encoded(answer), 0
    with Workspace(None, Bytes()) as workspace:
        workspace.update("/far/a.py", source, 3)

        def on_pass(context: DraftContext, draft: Draft, path: list[int]) -> None:
            nonlocal found
            for depth, node in enumerate(path):
                span = draft.span(node)
                assert (span is not None) == (draft.sources[node] == "workspace")
                if span is not None:
                    assert (span.path, span.version) == ("/far/a.py", 3)
                    byte = data[len(context.output) + depth]
                    assert byte in source[span.start : span.stop].encode()
                    found += 1

        replay(real(workspace=workspace), drafter_context, data, on_pass)
    assert found > 20


def test_files_near_the_edited_file_come_first() -> None:
    """Of two files with the same text, the one next to the edited file is reported."""
    with Workspace(None, Bytes()) as workspace:
        for name in ("/here/beside.py", "/far/newest.py"):
            workspace.update(name, "the same text in both of them\n")
        for path, expected in (("/here/new.py", "/here/beside.py"), ("", "/far/newest.py")):
            named: set[str] = set()

            def on_pass(
                context: DraftContext, draft: Draft, accepted: list[int], named: set[str] = named
            ) -> None:
                named.update(span.path for node in accepted if (span := draft.span(node)))

            context = DraftContext(encoded("the same"), path=path)
            replay(real(workspace=workspace), context, encoded(" text in both of them"), on_pass)
            assert named == {expected}
