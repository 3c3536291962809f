"""The ways to place an update: every path through the graph, by an oracle that walks them all."""

from __future__ import annotations

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.editing.apply_answer import apply_answer
from engine.editing.apply_snippet import merge, ways_of
from engine.editing.edits import EditRefused
from engine.editing.merge_ways import (
    END,
    MAX_LINES,
    START,
    MergeWays,
    Run,
    merge_ways,
    only_way,
)
from engine.records import Done, Request, Usage
from tests.editing.test_apply_snippet import MARK, updates

LINES = st.lists(st.sampled_from("ab}"), max_size=3).map(tuple)


@st.composite
def graphs(draw: st.DrawFn) -> MergeWays:
    """Every node leads to nodes before it, so to the end."""
    ways = MergeWays()
    for number in range(1, draw(st.integers(2, 6))):
        runs = st.builds(Run, LINES, st.integers(0, number - 1))
        ways.nodes.append(draw(st.lists(runs, min_size=1, max_size=3)))
    ways.start = len(ways.nodes) - 1
    return ways


def texts(ways: MergeWays, node: int | None = None) -> set[tuple[str, ...]]:
    """The texts of all paths."""
    node = ways.start if node is None else node
    if not node:
        return {()}
    return {(*run, *rest) for run, after in ways.nodes[node] for rest in texts(ways, after)}


@given(graphs(), LINES)
def test_a_graph_allows_the_texts_of_its_paths(ways: MergeWays, other: tuple[str, ...]) -> None:
    every = texts(ways)
    assert tuple(ways.likeliest) in every
    listed = ways.texts(1000)  # more than five nodes of three runs can have
    assert set(listed) == every and listed[0] == tuple(ways.likeliest)
    assert not ways.texts(len(listed) - 1)
    for text in [*every, other, *(text[1:] for text in every)]:
        assert ways.allow(text) == (text in every)


@given(
    st.integers(0, 6),
    st.lists(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), max_size=3), max_size=3),
)
def test_every_choice_of_places_in_their_order_is_a_path(
    size: int, parts: list[list[tuple[int, int]]]
) -> None:
    """A part replaces `length` lines of the file from line `first`."""
    file = [f"line {number}" for number in range(size)]
    places = [
        sorted({(one, one + length) for one, length in part if one + length <= size})
        for part in parts
    ]
    options = [
        {
            first: [(after, (f"part {number}",)) for one, after in part if one == first]
            for first, _ in part
        }
        for number, part in enumerate(places)
    ]

    def placed(number: int, at: int) -> list[tuple[str, ...]]:
        if number == len(places):
            return [tuple(file[at:])]
        return [
            (*file[at:first], f"part {number}", *rest)
            for first, after in places[number]
            if first >= at
            for rest in placed(number + 1, after)
        ]

    ways, expected = merge_ways(file, options), {*placed(0, 0)}
    assert (texts(ways) if ways else set()) == expected


def test_the_ends_of_the_file_are_no_lines_of_a_text() -> None:
    ways = merge_ways([START, "a", END], [{0: [(1, (START, "new"))], 2: [(3, ("new", END))]}])
    assert ways is not None and texts(ways) == {("new", "a"), ("a", "new")}


def test_huge_graphs_are_not_built() -> None:
    assert merge_ways(["x"] * (MAX_LINES + 1), []) is None
    assert only_way(["x"] * (MAX_LINES + 1)) is None
    many = {first: [(after, ("y",)) for after in range(first, 100)] for first in range(100)}
    assert merge_ways(["x"] * 100, [many]) is not None
    assert merge_ways(["x"] * 100, [many] * 4) is None


# -- of updates --------------------------------------------------------------------------------


@given(updates())
@settings(max_examples=300)
def test_the_ways_of_a_merge(case: tuple[list[str], str]) -> None:
    """A merge is the only way."""
    file, update = case
    with contextlib.suppress(EditRefused):
        found = merge("\n".join(file), update)
        if found.text is not None:
            ways = ways_of("\n".join(file), update)
            assert ways is not None and {"\n".join(text) for text in texts(ways)} == {found.text}


FILE = ["import os", "", "def load():", "    pass", "", "def save():", "    pass"]


def test_lines_that_an_update_may_have_left_out_may_stay() -> None:
    """Its first chunk has no mark before it, but is no new version of the import."""
    found = merge("\n".join(FILE), f"LIMIT = 1\n\ndef load():\n{MARK}")
    assert found.text is None and found.ways is not None
    rest = (*FILE[2:],)
    assert texts(found.ways) >= {
        ("LIMIT = 1", "", *rest),
        ("import os", "LIMIT = 1", "", *rest),
        ("LIMIT = 1", "import os", "", *rest),
    }


def test_a_new_version_replaces_the_lines_that_it_stands_for() -> None:
    update = f"{MARK}\ndef load():\n    pass\n\ndef save(path):\n    open(path)"
    found = merge("\n".join(FILE), update)
    assert found.text == "\n".join([*FILE[:5], "def save(path):", "    open(path)"])


def test_an_answer_in_one_of_the_ways_is_accepted() -> None:
    update = f"LIMIT = 1\n\ndef load():\n{MARK}"
    found = merge("\n".join(FILE), update)
    assert found.ways is not None
    request = Request("edit", "\n".join([*FILE, ""]), update=update)
    for text in texts(found.ways):
        done = Done("stop", "\n".join(text), matched="\n```", usage=Usage(forwards=1))
        assert apply_answer(request, done) == "\n".join([*text, ""])
