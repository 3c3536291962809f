"""Training the drafter's weights: lower loss, reproducible, on the inputs that drafting uses."""

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
from index import Workspace
from research.train.drafter import (
    MAX_FILE_TOKENS,
    EditLesson,
    lessons,
    line_start,
    replay_answer,
    score,
    train,
)
from research.train.edit_records import RecordedEdit, read, replays
from tests.support.encoders import Bytes
from tests.support.training import make_place

LINES = st.lists(st.sampled_from(["a = 1\n", "b = a\n", "c\n", "\n"]), min_size=1, max_size=5)
FILES = st.lists(st.tuples(LINES.map("".join), LINES.map("".join)), min_size=1, max_size=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_place(tmp_path_factory.mktemp("train"))


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer(folder / "model")


# -- learning ----------------------------------------------------------------------------------


def test_training_lowers_the_loss_on_its_edits(folder: Path, tokenizer: Tokenizer) -> None:
    edits, vocab = read(folder / "edits.jsonl"), vocabulary(tokenizer)
    ngram = StdlibNgram(folder / "home", tokenizer).ngram
    assert ngram.slots, "the fixture's n-gram is not empty"
    reported: list[str] = []
    after_1 = train(edits, tokenizer, vocab, ngram, reported.append, 1)
    after_6 = train(edits, tokenizer, vocab, ngram, reported.append, 6)
    untrained = {kind: module.Weights() for kind in WEIGHT_KINDS}
    for result in score(edits, tokenizer, vocab, ngram, [untrained, after_1, after_6]):
        bits_untrained, bits_1, bits_6 = result.bits
        assert bits_untrained > bits_1 > bits_6 > 0, result
    assert len([line for line in reported if line.startswith("round ")]) == 2 * (1 + 6)
    for kind in WEIGHT_KINDS:
        assert not np.asarray(untrained[kind].values).any(), "scoring changed the weights"


def test_scores_are_per_package_and_kind(folder: Path, tokenizer: Tokenizer) -> None:
    edits, vocab = read(folder / "edits.jsonl"), vocabulary(tokenizer)
    ngram = StdlibNgram(folder / "home", tokenizer).ngram
    weights = train(edits[:2], tokenizer, vocab, ngram, rounds=1)
    scores = list(score(edits, tokenizer, vocab, ngram, [weights]))
    assert [(result.package, result.kind) for result in scores] == [
        (package, kind) for package in ("one", "two") for kind in WEIGHT_KINDS
    ]
    for result in scores:
        chosen = [edit for edit in edits if edit.package == result.package]
        recorded = replays(chosen, result.kind, tokenizer)
        bits = [
            replay_answer(lesson, vocab, ngram, weights[result.kind], line_start(tokenizer))
            for lesson in lessons(recorded, tokenizer)
        ]
        assert result.tokens == sum(len(replay.output) for replay in recorded)
        assert result.bits == [sum(bits) / result.tokens]


def test_equal_edits_give_equal_weights(folder: Path, tokenizer: Tokenizer) -> None:
    edits, vocab = read(folder / "edits.jsonl"), vocabulary(tokenizer)
    ngram = StdlibNgram(folder / "home", tokenizer).ngram
    first, again = (train(edits, tokenizer, vocab, ngram) for _ in range(2))
    other = train(edits[1:], tokenizer, vocab, ngram)
    for kind in WEIGHT_KINDS:
        values = np.asarray(first[kind].values)
        assert values.any() and values.tobytes() == np.asarray(again[kind].values).tobytes()
        assert not np.array_equal(values, np.asarray(other[kind].values))


# -- lessons -----------------------------------------------------------------------------------


@settings(max_examples=25)
@given(files=FILES, kind=st.sampled_from(WEIGHT_KINDS))
def test_lessons_hold_the_drafters_inputs(files: list[tuple[str, str]], kind: Any) -> None:
    """At each token: the first level of the tree from other files, without the file itself."""
    edits = [
        RecordedEdit(f"{n}", "p", "p 1 -> 2", f"{n}.py", before, after)
        for n, (before, after) in enumerate(files)
    ]
    recorded = replays(edits, kind, Bytes())
    prepared = list(lessons(recorded, Bytes()))  # type: ignore[arg-type]
    assert len(prepared) == len(recorded)
    for replay, lesson in zip(recorded, prepared, strict=True):
        assert lesson.output.tolist() == replay.output
        assert lesson.expected.tolist() == [*replay.prediction, -1]
        assert lesson.start == replay.start
        with Workspace(None, Bytes()) as workspace:
            for edit in edits:
                if edit.path != replay.path and edit.path in {other.path for other in recorded}:
                    workspace.update(edit.path, edit.before)
            check_files(lesson, workspace)


def check_files(lesson: EditLesson, workspace: Workspace) -> None:
    """Compare with the query that the drafter makes."""
    assert lesson.files.shape == lesson.probs.shape == (len(lesson.output), MAX_FILE_TOKENS)
    assert (lesson.files[0] == -1).all() and lesson.matches[0] == 0, "there are no tokens before it"
    for at in range(1, len(lesson.output)):
        tail = lesson.output[max(0, at - WORKSPACE_QUERY.limit) : at]
        tree = WORKSPACE_QUERY.tree(workspace, tail)
        first = [n for n, parent in enumerate(tree.parents) if parent == -1]
        tokens = [tree.tokens[n] for n in first]
        assert lesson.files[at].tolist() == tokens + [-1] * (MAX_FILE_TOKENS - len(tokens))
        probs = [np.float32(tree.probs[n]) for n in first]
        assert lesson.probs[at, : len(first)].tolist() == probs
        assert lesson.matches[at] == tree.length
