"""Training of the default drafter's weights on recorded edits, teacher-forced, token by token.

AdaGrad on -log P(token), with one update per token, over the answers in random order, for a few
epochs, the last one with a lower rate. Whole files and hunks get separate weights. No prompts and
no model are involved.
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
from index.workspace.workspace import Workspace
from research.train.edit_records import RecordedEdit, Replay, other_files, replays

EPOCHS = 3
LEARNING_RATE, FINAL_LEARNING_RATE = 0.1, 0.04
INITIAL_SQUARES = (0.01, 100.0)  # AdaGrad's sums for plain features and for hashed (slow) ones
MAX_FILE_TOKENS = WORKSPACE_QUERY.width  # candidates from other files per position
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class EditLesson:
    """One recorded answer, prepared for replay."""

    expected: NDArray[np.int32]
    start: int
    output: NDArray[np.int32]
    files: NDArray[np.int32]  # [tokens, MAX_FILE_TOKENS]: next tokens in other files, or -1
    probs: NDArray[np.float32]  # [tokens, MAX_FILE_TOKENS]: probabilities of `files`
    matches: NDArray[np.int32]  # [tokens]: matching tokens before each position


def lessons(recorded: list[Replay], tokenizer: Tokenizer) -> Iterator[EditLesson]:
    """Prepare replays.

    The other files of the same step, as they were before it, are queried at each token.
    """
    files = other_files(recorded)
    groups: dict[tuple[str, str], list[Replay]] = defaultdict(list)
    for replay in recorded:
        groups[replay.step, replay.path].append(replay)
    for (step, path), group in groups.items():
        with Workspace(None, tokenizer) as workspace:
            for name, text in files[step]:
                if name != path:
                    workspace.update(name, text)
            for replay in group:
                yield lesson(replay, workspace)


def lesson(replay: Replay, workspace: Workspace) -> EditLesson:
    """Prepare one replay with the other files in `workspace`."""
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
    answers: list[EditLesson],
    vocabulary: Vocabulary,
    ngram: Ngram,
    before: NDArray[np.int32],
    report: Report = lambda line: None,
    rounds: int = EPOCHS,
) -> Weights:
    """Fit weights on these answers, each preceded by the tokens `before`. Deterministic."""
    weights = Weights()
    weights.reset(*INITIAL_SQUARES)
    order = list(range(len(answers)))
    rng = random.Random(0)
    for number in range(rounds):
        rng.shuffle(order)
        rate = LEARNING_RATE if number + 1 < rounds else FINAL_LEARNING_RATE
        bits = sum(
            replay_answer(answers[n], vocabulary, ngram, weights, before, rate) for n in order
        )
        average = bits / max(token_count(answers), 1)
        report(f"round {number + 1} of {rounds}: {average:.4f} bits a token")
    return weights


def replay_answer(
    answer: EditLesson,
    vocabulary: Vocabulary,
    ngram: Ngram,
    weights: Weights,
    before: NDArray[np.int32],
    rate: float = 0.0,
) -> float:
    """Replay an answer, learn from it, and return its cost in bits. Rate 0 only scores."""
    drafter = Drafter(vocabulary, ngram, weights)
    drafter.begin(answer.expected, answer.start, before)
    return drafter.fit(answer.output, rate, answer.files, answer.probs, answer.matches)


def train(
    edits: list[RecordedEdit],
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    ngram: Ngram,
    report: Report = lambda line: None,
    rounds: int = EPOCHS,
) -> dict[WeightKind, Weights]:
    """Fit weights for whole files and for hunks on the same edits."""
    before = line_start(tokenizer)
    weights: dict[WeightKind, Weights] = {}
    for kind in WEIGHT_KINDS:
        answers = list(lessons(replays(edits, kind, tokenizer), tokenizer))
        report(f"{kind}: {len(answers):,} answers, {token_count(answers):,} tokens")
        weights[kind] = fit(answers, vocabulary, ngram, before, report, rounds)
    return weights


@dataclass(frozen=True, slots=True)
class Score:
    """Cross-entropy of held-out answers."""

    package: str
    kind: WeightKind
    tokens: int
    bits: list[float]  # per token, for each set of weights


def score(
    edits: list[RecordedEdit],
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    ngram: Ngram,
    candidates: list[dict[WeightKind, Weights]],
) -> Iterator[Score]:
    """Score each package and kind with each set of weights."""
    before = line_start(tokenizer)
    for package in sorted({edit.package for edit in edits}):
        chosen = [edit for edit in edits if edit.package == package]
        for kind in WEIGHT_KINDS:
            answers = list(lessons(replays(chosen, kind, tokenizer), tokenizer))
            tokens, bits = token_count(answers), []
            for weights in candidates:
                total = sum(
                    replay_answer(answer, vocabulary, ngram, weights[kind], before)
                    for answer in answers
                )
                bits.append(total / max(tokens, 1))
            yield Score(package, kind, tokens, bits)


def line_start(tokenizer: Tokenizer) -> NDArray[np.int32]:
    """Encode the text before each answer: a newline."""
    return np.array(tokenizer.encode("\n"), np.int32)


def token_count(answers: list[EditLesson]) -> int:
    """Count the tokens of the answers."""
    return sum(len(answer.output) for answer in answers)


def notes(edits: list[RecordedEdit], file: Path) -> dict[str, str]:
    """Describe the edits in the metadata of a file of weights."""
    packages = sorted({edit.package for edit in edits})
    return {"edits": file.name, "records": str(len(edits)), "packages": ", ".join(packages)}
