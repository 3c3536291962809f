"""Recorded edits, and a model that is forced to choose the recorded tokens.

Every pass is real; only the choice after a row that agrees with the record so far is replaced by
the recorded token. So acceptance is that of a model that wrote this edit, although the weights may
be random. Only the bytes of the tokens are known: neither a tokenizer nor a network is needed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch

from engine.drafting._drafting import Vocabulary
from engine.drafting.vocabulary import OTHER, token_class
from engine.model.torch.torch_target import TorchTarget
from engine.records import Draft, Request, Scores

SAMPLE = Path(__file__).parents[1] / "common" / "samples" / "gpu_edits.json"
FORCED_LOGIT = 1e30  # logit above all others, and finite as the engine requires


@dataclass(frozen=True)
class RecordedAnswer:
    """A recorded edit as token ids."""

    id: str
    kind: str  # "file" or "hunk"
    whole: bool
    prompt: list[int]
    predictions: list[list[int]]
    output: list[int]

    def from_middle(self, count: int) -> RecordedAnswer:
        """Return the same edit with only the middle `count` tokens to write."""
        start = max(0, (len(self.output) - count) // 2)
        prompt, output = self.prompt + self.output[:start], self.output[start : start + count]
        return RecordedAnswer(self.id, self.kind, self.whole, prompt, self.predictions, output)


@dataclass(frozen=True)
class RecordedEdits:
    """Answers and the bytes of their tokens; as a tokenizer it can only decode."""

    answers: list[RecordedAnswer]
    token_bytes: list[bytes | None]
    eos: frozenset[int] = field(default_factory=frozenset)
    lead: tuple[int, ...] = ()  # decoding drops no blank
    reasoning: None = None

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(self.token_bytes[one] or b"" for one in ids).decode("utf-8", "replace")

    def own_text(self, token: int) -> str | None:
        return self._own_texts[token]

    @cached_property
    def _own_texts(self) -> list[str | None]:
        known = self.token_bytes
        return [one.decode() if one and one.isascii() else None for one in known]

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Like engine.drafting.vocabulary's of a tokenizer."""
        known = self.token_bytes
        hashes = [0 if one is None else crc32(one) for one in known]
        looks = [
            OTHER if one is None else token_class(one.decode("utf-8", "replace")) for one in known
        ]
        return Vocabulary(np.array(hashes, np.uint32), np.array(looks, np.uint8))


def load(record: dict[str, Any], vocabulary: int) -> RecordedEdits:
    """Load recorded edits for a model with `vocabulary` tokens.

    Uses the tokenizer's ids, or the dense ones where those are too large. Raises ValueError if even
    the dense ids are.
    """
    ids: list[int] = record["ids"]
    if max(ids) >= vocabulary:
        ids = list(range(len(ids)))
    if len(ids) > vocabulary:
        raise ValueError(
            f"{len(ids)} different tokens, the model has {vocabulary}: name fewer edits"
        )
    words: list[bytes | None] = [None] * (1 + max(ids))
    for number, text in zip(ids, record["bytes"], strict=True):
        words[number] = None if text is None else text.encode("latin-1")

    def of(numbers: list[int]) -> list[int]:
        return [ids[n] for n in numbers]

    answers = [
        RecordedAnswer(
            one["id"],
            one["kind"],
            one["whole"],
            of(one["prompt"]),
            [of(each) for each in one["predictions"]],
            of(one["output"]),
        )
        for one in record["answers"]
    ]
    return RecordedEdits(answers, words)


def read(path: Path) -> dict[str, Any]:
    """Read a file of `gpu-sample`. Raises ValueError or OSError with a one-line message."""
    try:
        record = json.loads(path.read_text("utf-8"))
        kinds = {one["kind"] for one in record["answers"]}
        if not kinds or len(record["ids"]) != len(record["bytes"]):
            raise ValueError("no answers")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: not made by `python -m bench gpu-sample` ({error!r})") from error
    return record


class ForcedTarget:
    """A TorchTarget that is forced to choose the recorded tokens."""

    def __init__(self, target: TorchTarget, answer: RecordedAnswer) -> None:
        self.target, self.answer = target, answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)

    @torch.inference_mode()
    def forward(self, last: int, draft: Draft, hidden: bool = False) -> Scores:
        scores: Scores = self.target.forward(last, draft, hidden)
        done = len(self.target.tokens) + 1 - len(self.answer.prompt)
        ran = draft.first(scores.rows - 1)
        rows, tokens = agreeing_rows(ran, self.answer.output[done:])
        if scores.chosen is None or scores.likely is None:
            where = torch.tensor([rows, tokens])
            scores.logits[where[0], where[1]] = FORCED_LOGIT  # drafters also learn from them
        else:
            scores.chosen = partial(forced_choices, scores.chosen, rows, tokens)
            scores.likely = partial(forced_likely, scores.likely, rows, tokens)
        return scores


def forced_choices(
    chosen: Callable[[Request, int], list[int]],
    rows: list[int],
    tokens: list[int],
    request: Request,
    place: int,
) -> list[int]:
    """`Scores.chosen` with `tokens` after `rows`; it still waits for the device."""
    found = chosen(request, place)
    for row, token in zip(rows, tokens, strict=True):
        found[row] = token
    return found


def forced_likely(
    likely: Callable[[int], tuple[Any, Any]], rows: list[int], tokens: list[int], width: int
) -> tuple[Any, Any]:
    """`Scores.likely` where `tokens` are the most likely ones after `rows`."""
    ids, logits = (found.copy() for found in likely(width))
    for row, token in zip(rows, tokens, strict=True):
        others = ids[row] != token
        ids[row, 1:] = ids[row][others][: width - 1]
        logits[row, 1:] = logits[row][others][: width - 1]
        ids[row, 0], logits[row, 0] = token, FORCED_LOGIT
    return ids, logits


def agreeing_rows(draft: Draft, expected: list[int]) -> tuple[list[int], list[int]]:
    """Return the rows of a pass that agree with the recorded text.

    Returns the token that follows each, too.
    """
    rows: list[int] = []
    tokens: list[int] = []
    at = -1
    for token in expected:
        rows.append(at + 1)
        tokens.append(token)
        nodes = range(at + 1, len(draft))
        found = (n for n in nodes if draft.parents[n] == at and draft.tokens[n] == token)
        at = next(found, -1)
        if at < 0:
            break
    return rows, tokens
