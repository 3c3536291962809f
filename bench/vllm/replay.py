"""Recorded edits through the drafter of a host, without a model: acceptance, and what a step costs.

A prompt holds the old file in a code block; the recorded answer repeats it, or one hunk of it, with
the changes, in a code block. Batches run in lockstep, as vLLM runs them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from bench.replay.run import garbage_collection_paused
from bench.vllm.server import DraftCounts
from engine.drafting.drafter_weights import load_weights
from engine.drafting.hosts.batch_drafter import BatchDrafter, DraftingLimits
from engine.drafting.hosts.prompt_blocks import TokenTexts
from engine.drafting.hosts.shared_text import SharedText
from engine.drafting.next_token import NextTokenModel
from engine.drafting.stdlib_ngram import StdlibNgram
from engine.drafting.vocabulary import vocabulary
from engine.model.cost_model import USUAL, USUAL_GPU, CostModel
from engine.prompts.tokenizer import Tokenizer
from engine.weights import home
from research.train.edit_records import Mode, RecordedEdit, cut

Ids = NDArray[np.int32]

ASKED = "```python\n{}```\n\nMake the change that the next release has."
VOCABULARY, MAX_CONTEXT = 1 << 20, 1 << 20  # token ids, tokens; more than any model has


class FixedCost(CostModel):
    """Usual costs, since no passes are run here that could correct them."""

    def observe(self, rows: int, context: int, seconds: float) -> None:
        pass


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """A prompt and what was written for it, in tokens; the last one ends the answer."""

    prompt: list[int]
    output: list[int]


@dataclass(slots=True)
class ReplayTally:
    """Sums over recorded answers."""

    tokens: int = 0
    steps: int = 0  # steps of requests: a pass over a batch counts once for each
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    seconds: array[float] = field(default_factory=lambda: array("d"))  # one per request, in propose

    @property
    def counts(self) -> DraftCounts:
        return DraftCounts(self.drafts, self.draft_tokens, self.accepted_tokens)

    @property
    def tokens_per_step(self) -> float:
        return self.tokens / self.steps

    def milliseconds(self, share: float) -> float:
        """Return this quantile of the drafting time of a request and step."""
        return float(np.quantile(self.seconds, share)) * 1e3


def recorded_answers(
    edits: Sequence[RecordedEdit], mode: Mode, tokenizer: Tokenizer
) -> list[RecordedAnswer]:
    """Return one answer for each edit or hunk."""
    end = [min(tokenizer.eos)]
    found = []
    for edit in edits:
        asked = [{"role": "user", "content": ASKED.format(edit.before)}]
        prompt = tokenizer.chat(asked)
        for *_, new in cut(edit, mode):
            written = tokenizer.encode(f"```python\n{new.rstrip()}\n```")
            found.append(RecordedAnswer(prompt, written + end))
    return found


# Numbers of the requests, and what vLLM passes: sampled tokens, sizes, rows.
Propose = Callable[[Sequence[int], list[list[int]], Ids, Ids], list[list[int]]]


def draftline(tokenizer: Tokenizer, tokens: int, on_cpu: bool) -> Propose:
    """Make a drafter as vLLM's proposer does, with usual costs and no history.

    Recorded answers repeat each other.
    """
    library = StdlibNgram(home(), tokenizer)
    for _ in library.build():
        pass
    cost = FixedCost(USUAL if on_cpu else USUAL_GPU)
    drafter = BatchDrafter(
        NextTokenModel(vocabulary(tokenizer), library, load_weights()),
        TokenTexts(tokenizer.token_bytes),
        SharedText((), 0),
        cost,
        DraftingLimits(tokens, MAX_CONTEXT, VOCABULARY, frozenset(tokenizer.eos)),
    )
    return lambda numbers, *batch: drafter.propose(*batch)


def play(propose: Propose, answers: Sequence[RecordedAnswer], batch: int) -> ReplayTally:
    """Replay all answers, `batch` at a time."""
    tally = ReplayTally()
    context = max(len(one.prompt) + len(one.output) for one in answers)
    rows = np.zeros((batch, context), np.int32)
    sizes = np.zeros(batch, np.int32)
    waiting = enumerate(answers)
    running = [_Row(number, one) for number, one in islice(waiting, batch)]
    with garbage_collection_paused():
        while running:
            sampled = [one.step(rows, sizes, place, tally) for place, one in enumerate(running)]
            numbers = [one.number for one in running]
            began = perf_counter()
            drafts = propose(numbers, sampled, sizes, rows)
            tally.seconds.append((perf_counter() - began) / len(running))
            for one, draft in zip(running, drafts, strict=True):
                one.draft = draft
            running = [*_replaced(running, waiting)]
    return tally


class _Row:
    """An answer in its row."""

    def __init__(self, number: int, answer: RecordedAnswer) -> None:
        self.number, self.answer, self.written = number, answer, 0
        self.draft: list[int] = []

    def step(self, rows: Ids, sizes: Ids, place: int, tally: ReplayTally) -> list[int]:
        """Verify the draft; returns the tokens of this pass, which its row has then."""
        left = self.answer.output[self.written :]
        accepted = 0
        while accepted < min(len(self.draft), len(left) - 1):
            if self.draft[accepted] != left[accepted]:
                break
            accepted += 1
        new = left[: accepted + 1]
        tokens = self.answer.prompt + self.answer.output[: self.written + len(new)]
        rows[place, : len(tokens)] = tokens
        sizes[place] = len(tokens)
        self.written += len(new)
        tally.tokens += len(new)
        tally.steps += 1
        tally.drafts += bool(self.draft)
        tally.draft_tokens += len(self.draft)
        tally.accepted_tokens += accepted
        return new


def _replaced(running: list[_Row], waiting: Iterator[tuple[int, RecordedAnswer]]) -> Iterator[_Row]:
    """Yield the rows with those that ended replaced by the next ones, or dropped."""
    for one in running:
        if one.written < len(one.answer.output):
            yield one
        elif (following := next(waiting, None)) is not None:
            yield _Row(*following)
