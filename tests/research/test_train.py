"""Training the drafter's weights: it learns, it repeats, it sees what the drafter will see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.drafting import drafter_weights as module
from engine.drafting.drafter_weights import WEIGHT_KINDS
from engine.drafting.next_token import WORKSPACE_QUERY
from engine.drafting.stdlib_ngram import StdlibNgram
from engine.drafting.vocabulary import vocabulary
from engine.prompts.tokenizer import Tokenizer
from engine.research.train.drafter import (
    MAX_FILE_TOKENS,
    EditLesson,
    go_through,
    lessons,
    line_start,
    score,
    train,
)
from engine.research.train.edit_records import Edit, read, replays
from index import Workspace
from tests.support.encoders import Bytes
from tests.support.training import make_place

LINES = st.lists(st.sampled_from(["a = 1\n", "b = a\n", "c\n", "\n"]), min_size=1, max_size=5)
FILES = st.lists(st.tuples(LINES.map("".join), LINES.map("".join)), min_size=1, max_size=3)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_place(tmp_path_factory.mktemp("train"))


@pytest.fixture(scope="module")
def tokenizer(place: Path) -> Tokenizer:
    return Tokenizer(place / "model")


# -- learning ----------------------------------------------------------------------------------


def test_training_lowers_the_bits_of_the_edits_it_saw(place: Path, tokenizer: Tokenizer) -> None:
    edits, words = read(place / "edits.jsonl"), vocabulary(tokenizer)
    ngram = StdlibNgram(place / "home", tokenizer).ngram
    assert ngram.slots, "the fixture's n-gram is in use"
    said: list[str] = []
    once = train(edits, tokenizer, words, ngram, said.append, 1)
    more = train(edits, tokenizer, words, ngram, said.append, 6)
    nothing = {kind: module.Weights() for kind in WEIGHT_KINDS}
    for one in score(edits, tokenizer, words, ngram, [nothing, once, more]):
        none, first, last = one.bits
        assert none > first > last > 0, one
    assert len([line for line in said if line.startswith("round ")]) == 2 * (1 + 6)
    for kind in WEIGHT_KINDS:
        assert not np.asarray(nothing[kind].values).any(), "scoring taught something"


def test_scores_are_those_of_each_package_alone(place: Path, tokenizer: Tokenizer) -> None:
    edits, words = read(place / "edits.jsonl"), vocabulary(tokenizer)
    ngram = StdlibNgram(place / "home", tokenizer).ngram
    made = train(edits[:2], tokenizer, words, ngram, rounds=1)
    found = list(score(edits, tokenizer, words, ngram, [made]))
    assert [(one.package, one.kind) for one in found] == [
        (package, kind) for package in ("one", "two") for kind in WEIGHT_KINDS
    ]
    for one in found:
        chosen = replays([e for e in edits if e.package == one.package], one.kind, tokenizer)
        each = [
            go_through(lesson, words, ngram, made[one.kind], line_start(tokenizer))
            for lesson in lessons(chosen, tokenizer)
        ]
        assert one.tokens == sum(len(replay.output) for replay in chosen)
        assert one.bits == [sum(each) / one.tokens]


def test_the_same_edits_are_the_same_weights(place: Path, tokenizer: Tokenizer) -> None:
    edits, words = read(place / "edits.jsonl"), vocabulary(tokenizer)
    ngram = StdlibNgram(place / "home", tokenizer).ngram
    first, again = (train(edits, tokenizer, words, ngram) for _ in range(2))
    other = train(edits[1:], tokenizer, words, ngram)
    for kind in WEIGHT_KINDS:
        values = np.asarray(first[kind].values)
        assert values.any() and values.tobytes() == np.asarray(again[kind].values).tobytes()
        assert not np.array_equal(values, np.asarray(other[kind].values))


# -- lessons -----------------------------------------------------------------------------------


@settings(max_examples=25)
@given(files=FILES, kind=st.sampled_from(WEIGHT_KINDS))
def test_lessons_show_what_the_drafter_would_be_shown(
    files: list[tuple[str, str]], kind: Any
) -> None:
    """At each token the first tokens of the tree that other files give there, and no token of the
    file itself."""
    edits = [
        Edit(f"{n}", "p", "p 1 -> 2", f"{n}.py", before, after)
        for n, (before, after) in enumerate(files)
    ]
    recorded = replays(edits, kind, Bytes())
    found = list(lessons(recorded, Bytes()))  # type: ignore[arg-type]
    assert len(found) == len(recorded)
    for replay, lesson in zip(recorded, found, strict=True):
        assert lesson.output.tolist() == replay.output
        assert lesson.expected.tolist() == [*replay.prediction, -1]
        assert lesson.start == replay.start
        with Workspace(None, Bytes()) as workspace:
            for edit in edits:
                if edit.path != replay.path and edit.path in {one.path for one in recorded}:
                    workspace.update(edit.path, edit.before)
            check_files(lesson, workspace)


def check_files(lesson: EditLesson, workspace: Workspace) -> None:
    """Against the call that the drafter makes."""
    assert lesson.files.shape == lesson.probs.shape == (len(lesson.output), MAX_FILE_TOKENS)
    assert (lesson.files[0] == -1).all() and lesson.matches[0] == 0, "nothing stands before it"
    for at in range(1, len(lesson.output)):
        tail = lesson.output[max(0, at - WORKSPACE_QUERY.limit) : at]
        tree = WORKSPACE_QUERY.tree(workspace, tail)
        first = [n for n, parent in enumerate(tree.parents) if parent == -1]
        tokens = [tree.tokens[n] for n in first]
        assert lesson.files[at].tolist() == tokens + [-1] * (MAX_FILE_TOKENS - len(tokens))
        shares = [np.float32(tree.probs[n]) for n in first]
        assert lesson.probs[at, : len(first)].tolist() == shares
        assert lesson.matches[at] == tree.length
