"""Fits what a model's own table of successors is worth, on that model's answers to questions.

The edits that the other weights are fitted on were written by people; what a model holds likely
says nothing about them. So the model answers some questions plainly, once, with the rows of its
logits; then its answers are gone through as they were written, the table filling on the way, and
only the weights of that table are learnt.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from engine.drafting import NullDrafter
from engine.drafting._drafting import Drafter, Ngram, Recycling, Vocabulary, Weights
from engine.drafting.drafter_weights import WEIGHT_KINDS
from engine.drafting.methods.token_recycling import WIDTH
from engine.drafting.next_token import WeightKind, join_with_borders
from engine.generate import Generation, generate
from engine.prompts.builder import prompt_of
from engine.prompts.tokenizer import Tokenizer
from engine.records import Draft, Request

if TYPE_CHECKING:
    from engine.model.torch_target import TorchTarget

MAX_ANSWER_TOKENS = 128  # tokens of an answer
EPOCHS = 4
LEARNING_RATE, FINAL_LEARNING_RATE = 0.1, 0.04
INITIAL_SQUARE = 0.01  # AdaGrad's sums at the start
Report = Callable[[str], None]


class QuestionError(ValueError):
    """A file of questions that cannot be read; the message is one line."""


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """What a model wrote, and what it held likely at each token."""

    prompt: list[int]
    tokens: list[int]
    ids: NDArray[np.int32]  # [tokens, WIDTH], best first
    logits: NDArray[np.float32]  # beside them


class LogitRecorder(NullDrafter):
    """Drafts nothing and keeps what the model held likely."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def observe(
        self, draft: Draft, path: list[int], committed: list[int], scores: Any, seconds: float
    ) -> None:
        if committed:
            self.rows.append(scores.logits[0].float().topk(WIDTH))


def read_questions(file: Path) -> list[str]:
    """The questions of a JSONL file whose records have `turns` (the first is asked) or `prompt`.
    BadQuestions with one line."""
    try:
        whole = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise QuestionError(f"{file}: unreadable: {why}: name a file of questions") from error
    found = []
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            record = json.loads(line)
            text = record["turns"][0] if "turns" in record else record["prompt"]
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise QuestionError(
                f"{file}, line {number}: {error!r}: a record has turns (a list) or prompt"
            ) from error
        if not isinstance(text, str) or not text.strip():
            raise QuestionError(f"{file}, line {number}: the question is no text: leave it out")
        found.append(text)
    if not found:
        raise QuestionError(f"{file}: no question in it: give some")
    return found


def ask(
    questions: list[str],
    target: TorchTarget,
    tokenizer: Tokenizer,
    report: Report = lambda line: None,
    length: int = MAX_ANSWER_TOKENS,
) -> list[RecordedAnswer]:
    """The model's answers, greedily and plainly, `length` tokens at most each."""
    found = []
    for number, text in enumerate(questions, 1):
        messages = ({"role": "user", "content": text},)
        request = Request("chat", messages=messages, max_tokens=length)
        prompt = prompt_of(request, tokenizer)
        listener = LogitRecorder()
        answer = Generation(request, prompt, tokenizer, target.context)
        for _ in generate(answer, target, listener):
            pass
        tokens = answer.output
        rows = listener.rows[: len(tokens)]
        ids = np.array([row.indices.tolist() for row in rows], np.int32).reshape(-1, WIDTH)
        logits = np.array([row.values.tolist() for row in rows], np.float32).reshape(-1, WIDTH)
        found.append(RecordedAnswer(prompt.ids, tokens, ids, logits))
        report(f"question {number} of {len(questions)}: {len(tokens)} tokens")
    return found


def fit(
    found: list[RecordedAnswer],
    vocabulary: Vocabulary,
    ngram: Ngram,
    weights: dict[WeightKind, Weights],
    size: int,
    report: Report = lambda line: None,
    rounds: int = EPOCHS,
) -> None:
    """Learn the table's own weights and no others, in place; a table has rows for `size` ids.
    Both kinds of answers get the same ones."""
    learnt = weights["hunk"]
    learnt.squares[:] = np.inf  # what is known of everything else stays
    for start, stop in Weights.recycling():
        learnt.squares[start:stop] = INITIAL_SQUARE
        learnt.values[start:stop] = 0
    tokens = max(sum(len(one.tokens) for one in found), 1)
    for number in range(rounds):
        table = Recycling(size, WIDTH)
        rate = LEARNING_RATE if number + 1 < rounds else FINAL_LEARNING_RATE
        bits = sum(go_through(one, vocabulary, ngram, learnt, table, rate) for one in found)
        report(f"answers, round {number + 1} of {rounds}: {bits / tokens:.4f} bits a token")
    keep(weights, weights)


def keep(weights: dict[WeightKind, Weights], known: dict[WeightKind, Weights]) -> None:
    """Take the table's weights over from others."""
    for kind in WEIGHT_KINDS:
        for start, stop in Weights.recycling():
            weights[kind].values[start:stop] = known["hunk"].values[start:stop]


def go_through(
    one: RecordedAnswer,
    vocabulary: Vocabulary,
    ngram: Ngram,
    weights: Weights,
    table: Recycling,
    rate: float = 0.0,
) -> float:
    """Once through an answer as `NextToken` would draft it, filling the table; its bits."""
    expected, _ = join_with_borders([one.prompt])
    drafter = Drafter(vocabulary, ngram, weights)
    drafter.recycle(table)
    drafter.begin(expected, len(expected) - 1, np.array(one.prompt[-1:], np.int32))
    bits, last = 0.0, one.prompt[-1]
    for n, token in enumerate(one.tokens):
        bits += drafter.fit(np.array([token], np.int32), rate)
        row = slice(n, n + 1)
        table.put(np.array([last], np.int32), one.ids[row], one.logits[row])
        last = token
    return bits
