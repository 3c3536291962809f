"""Fits the drafter's weights on recorded edits: teacher-forced, one update for each token.

AdaGrad on -log P(token), over answers in random order, in a few rounds; the last one is slower.
Whole files and hunks have weights of their own. Nothing is learnt from prompts or from a model.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.drafting._drafting import Drafter, Ngram, Vocabulary, Weights
from engine.drafting.drafter_weights import WEIGHT_KINDS
from engine.drafting.next_token import WORKSPACE_QUERY, WeightKind, join_with_borders
from engine.prompts.tokenizer import Tokenizer
from engine.research.train.edit_records import Edit, Replay, other_files, replays
from index.workspace.workspace import Workspace

EPOCHS = 3
LEARNING_RATE, FINAL_LEARNING_RATE = 0.1, 0.04  # of the first rounds, of the last
INITIAL_SQUARES = (0.01, 100.0)  # AdaGrad's sums at the start: hashed features learn slowly
MAX_FILE_TOKENS = WORKSPACE_QUERY.width  # tokens at most that other files offer at each place
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class EditLesson:
    """One recorded answer, ready to be gone through again and again."""

    expected: NDArray[np.int32]
    start: int
    output: NDArray[np.int32]
    files: NDArray[np.int32]  # [tokens, WIDTH]: what other files say follows, -1: no more
    probs: NDArray[np.float32]
    matches: NDArray[np.int32]  # [tokens]: tokens that agree


def lessons(found: list[Replay], tokenizer: Tokenizer) -> Iterator[EditLesson]:
    """With what the step's other files, as they were before, say at each token."""
    files = other_files(found)
    groups: dict[tuple[str, str], list[Replay]] = defaultdict(list)
    for replay in found:
        groups[replay.step, replay.path].append(replay)
    for (step, path), group in groups.items():
        with Workspace(None, tokenizer) as workspace:
            for name, text in files[step]:
                if name != path:
                    workspace.update(name, text)
            for replay in group:
                yield lesson(replay, workspace)


def lesson(replay: Replay, workspace: Workspace) -> EditLesson:
    """One answer beside the other files in `workspace`."""
    output = np.array(replay.output, np.int32)
    files = np.full((len(output), MAX_FILE_TOKENS), -1, np.int32)
    probs = np.zeros((len(output), MAX_FILE_TOKENS), np.float32)
    matches = np.zeros(len(output), np.int32)
    for at in range(1, len(output)):
        tail = output[max(0, at - WORKSPACE_QUERY.limit) : at]
        tree = WORKSPACE_QUERY.tree(workspace, tail)
        first = np.flatnonzero(tree.parents == -1)
        files[at, : len(first)] = tree.tokens[first]
        probs[at, : len(first)] = tree.probs[first]
        matches[at] = tree.length
    expected, _ = join_with_borders([replay.prediction])
    return EditLesson(expected, replay.start, output, files, probs, matches)


def fit(
    found: list[EditLesson],
    vocabulary: Vocabulary,
    ngram: Ngram,
    before: NDArray[np.int32],
    report: Report = lambda line: None,
    rounds: int = EPOCHS,
) -> Weights:
    """Weights that expect these answers; `before` stands before each. The same every time."""
    weights = Weights()
    weights.reset(*INITIAL_SQUARES)
    order = list(range(len(found)))
    chance = random.Random(0)
    for number in range(rounds):
        chance.shuffle(order)
        rate = LEARNING_RATE if number + 1 < rounds else FINAL_LEARNING_RATE
        bits = sum(go_through(found[n], vocabulary, ngram, weights, before, rate) for n in order)
        share = bits / max(token_count(found), 1)
        report(f"round {number + 1} of {rounds}: {share:.4f} bits a token")
    return weights


def go_through(
    one: EditLesson,
    vocabulary: Vocabulary,
    ngram: Ngram,
    weights: Weights,
    before: NDArray[np.int32],
    rate: float = 0.0,
) -> float:
    """Once through an answer; its bits. At rate 0 nothing is learnt."""
    drafter = Drafter(vocabulary, ngram, weights)
    drafter.begin(one.expected, one.start, before)
    return drafter.fit(one.output, rate, one.files, one.probs, one.matches)


def train(
    edits: list[Edit],
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    ngram: Ngram,
    report: Report = lambda line: None,
    rounds: int = EPOCHS,
) -> dict[WeightKind, Weights]:
    """Weights for whole files and for hunks, from the same edits."""
    before = line_start(tokenizer)
    made: dict[WeightKind, Weights] = {}
    for kind in WEIGHT_KINDS:
        found = list(lessons(replays(edits, kind, tokenizer), tokenizer))
        report(f"{kind}: {len(found):,} answers, {token_count(found):,} tokens")
        made[kind] = fit(found, vocabulary, ngram, before, report, rounds)
    return made


@dataclass(frozen=True, slots=True)
class Score:
    """How well answers that were left out of training are expected."""

    package: str
    kind: WeightKind
    tokens: int
    bits: list[float]  # a token, by each of the weights compared


def score(
    edits: list[Edit],
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    ngram: Ngram,
    rivals: list[dict[WeightKind, Weights]],
) -> Iterator[Score]:
    """Of each package and kind, under each of the weights; nothing is learnt."""
    before = line_start(tokenizer)
    for package in sorted({edit.package for edit in edits}):
        chosen = [edit for edit in edits if edit.package == package]
        for kind in WEIGHT_KINDS:
            found = list(lessons(replays(chosen, kind, tokenizer), tokenizer))
            tokens, bits = token_count(found), []
            for weights in rivals:
                each = (go_through(one, vocabulary, ngram, weights[kind], before) for one in found)
                bits.append(sum(each) / max(tokens, 1))
            yield Score(package, kind, tokens, bits)


def line_start(tokenizer: Tokenizer) -> NDArray[np.int32]:
    """What stands before each answer: the end of a line."""
    return np.array(tokenizer.encode("\n"), np.int32)


def token_count(found: list[EditLesson]) -> int:
    """Tokens of the answers."""
    return sum(len(one.output) for one in found)


def notes(edits: list[Edit], file: Path) -> dict[str, str]:
    """What a file of weights says about itself."""
    packages = sorted({edit.package for edit in edits})
    return {"edits": file.name, "records": str(len(edits)), "packages": ", ".join(packages)}
