"""Training of the Token Recycling source's weights on a model's answers to questions.

The other weights are fitted on edits made by people, which say nothing about what a model considers
likely. Here the model answers some questions once, without speculation, and the logits are
recorded; then its answers are replayed while the table fills up, and only that source's weights
are updated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from engine.drafting import NullDrafter
from engine.drafting._drafting import Drafter, Ngram, Recycling, Vocabulary, Weights
from engine.drafting.drafter_weights import WEIGHT_KINDS
from engine.drafting.next_token import WeightKind, join_with_borders
from engine.drafting.recycling import WIDTH
from engine.prompts.tokenizer import Tokenizer
from engine.records import Draft
from research.train.self_distill import answer_question

if TYPE_CHECKING:
    from engine.model.torch.torch_target import TorchTarget

MAX_ANSWER_TOKENS = 128
EPOCHS = 4
LEARNING_RATE, FINAL_LEARNING_RATE = 0.1, 0.04
INITIAL_SQUARE = 0.01  # AdaGrad's sum of squares before the first update
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """A model's answer with its most likely tokens at each position."""

    prompt: list[int]
    tokens: list[int]
    ids: NDArray[np.int32]  # [tokens, WIDTH], best first
    logits: NDArray[np.float32]  # [tokens, WIDTH]: logits of `ids`


class LogitRecorder(NullDrafter):
    """A drafter that drafts nothing and records the most likely tokens."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def observe(
        self, draft: Draft, path: list[int], committed: list[int], scores: Any, seconds: float
    ) -> None:
        if committed:
            self.rows.append(scores.logits[0].float().topk(WIDTH))


def ask(
    questions: list[str],
    target: TorchTarget,
    tokenizer: Tokenizer,
    report: Report = lambda line: None,
    length: int = MAX_ANSWER_TOKENS,
) -> list[RecordedAnswer]:
    """Record the model's greedy answers, of up to `length` tokens each, without speculation."""
    found = []
    for number, text in enumerate(questions, 1):
        recorder = LogitRecorder()
        answer = answer_question(text, target, tokenizer, recorder, max_tokens=length)
        tokens = answer.tokens
        rows = recorder.rows[: len(tokens)]
        ids = np.array([row.indices.tolist() for row in rows], np.int32).reshape(-1, WIDTH)
        logits = np.array([row.values.tolist() for row in rows], np.float32).reshape(-1, WIDTH)
        found.append(RecordedAnswer(answer.prefix, tokens, ids, logits))
        report(f"question {number} of {len(questions)}: {len(tokens)} tokens")
    return found


def fit(
    answers: list[RecordedAnswer],
    vocabulary: Vocabulary,
    ngram: Ngram,
    weights: dict[WeightKind, Weights],
    size: int,
    report: Report = lambda line: None,
    rounds: int = EPOCHS,
) -> None:
    """Fit the weights of the recycling source in place, the same for both kinds of answers.

    `size`: token ids in the model's vocabulary.
    """
    trained = weights["hunk"]
    trained.squares[:] = np.inf  # freezes all other weights
    for start, stop in Weights.recycling():
        trained.squares[start:stop] = INITIAL_SQUARE
        trained.values[start:stop] = 0
    tokens = max(sum(len(answer.tokens) for answer in answers), 1)
    for number in range(rounds):
        table = Recycling(size, WIDTH)
        rate = LEARNING_RATE if number + 1 < rounds else FINAL_LEARNING_RATE
        bits = sum(
            replay_answer(answer, vocabulary, ngram, trained, table, rate) for answer in answers
        )
        report(f"answers, round {number + 1} of {rounds}: {bits / tokens:.4f} bits a token")
    keep(weights, weights)


def keep(weights: dict[WeightKind, Weights], source: dict[WeightKind, Weights]) -> None:
    """Copy the weights of the recycling source from `source`."""
    for kind in WEIGHT_KINDS:
        for start, stop in Weights.recycling():
            weights[kind].values[start:stop] = source["hunk"].values[start:stop]


def replay_answer(
    answer: RecordedAnswer,
    vocabulary: Vocabulary,
    ngram: Ngram,
    weights: Weights,
    table: Recycling,
    rate: float = 0.0,
) -> float:
    """Replay an answer as `NextTokenDrafter` would draft it, filling the table.

    Returns its cost in bits.
    """
    expected, _ = join_with_borders([answer.prompt])
    drafter = Drafter(vocabulary, ngram, weights)
    drafter.recycle(table)
    drafter.begin(expected, len(expected) - 1, np.array(answer.prompt[-1:], np.int32))
    bits, last = 0.0, answer.prompt[-1]
    for n, token in enumerate(answer.tokens):
        bits += drafter.fit(np.array([token], np.int32), rate)
        row = slice(n, n + 1)
        table.put(np.array([last], np.int32), answer.ids[row], answer.logits[row])
        last = token
    return bits
