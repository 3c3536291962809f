"""Recorded edits, and a model whose choices are the recorded tokens.

Every pass is real; only the choice after a row that agrees with the record so far is replaced by
what was recorded there. So what is accepted is what would be accepted of a model that wrote this
edit, while the weights may be random. Of text no more is known than the tokens' bytes: neither
tokenizer nor network is needed.
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
from engine.model.torch_target import TorchTarget
from engine.records import Draft, Request, Scores

SAMPLE = Path(__file__).parents[1] / "common" / "samples" / "gpu_edits.json"
SURE = 1e30  # a logit that no other reaches; finite, as the engine asks


@dataclass(frozen=True)
class Answer:
    """A recorded edit in tokens."""

    id: str
    kind: str  # "file" or "hunk"
    whole: bool
    prompt: list[int]
    predictions: list[list[int]]
    output: list[int]

    def from_middle(self, count: int) -> Answer:
        """The `count` tokens in the middle of the answer; what is before them has been written."""
        start = max(0, (len(self.output) - count) // 2)
        prompt, output = self.prompt + self.output[:start], self.output[start : start + count]
        return Answer(self.id, self.kind, self.whole, prompt, self.predictions, output)


@dataclass(frozen=True)
class Recorded:
    """Answers, and the bytes of their tokens. As a tokenizer it only decodes."""

    answers: list[Answer]
    token_bytes: list[bytes | None]
    eos: frozenset[int] = field(default_factory=frozenset)

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(self.token_bytes[one] or b"" for one in ids).decode("utf-8", "replace")

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """As engine.drafting.vocabulary makes a tokenizer's."""
        known = self.token_bytes
        hashes = [0 if one is None else crc32(one) for one in known]
        looks = [
            OTHER if one is None else token_class(one.decode("utf-8", "replace")) for one in known
        ]
        return Vocabulary(np.array(hashes, np.uint32), np.array(looks, np.uint8))


def load(record: dict[str, Any], vocabulary: int) -> Recorded:
    """A file of bench/gpu/sample.py for a model of so many words: the tokenizer's own ids, or the
    dense ones where these are too large. ValueError where even the dense ones are."""
    ids: list[int] = record["ids"]
    if max(ids) >= vocabulary:
        ids = list(range(len(ids)))
    if len(ids) > vocabulary:
        raise ValueError(f"{len(ids)} different tokens, the model has {vocabulary}: fewer edits")
    words: list[bytes | None] = [None] * (1 + max(ids))
    for number, text in zip(ids, record["bytes"], strict=True):
        words[number] = None if text is None else text.encode("latin-1")

    def of(numbers: list[int]) -> list[int]:
        return [ids[n] for n in numbers]

    answers = [
        Answer(
            one["id"],
            one["kind"],
            one["whole"],
            of(one["prompt"]),
            [of(each) for each in one["predictions"]],
            of(one["output"]),
        )
        for one in record["answers"]
    ]
    return Recorded(answers, words)


def read(path: Path) -> dict[str, Any]:
    """A file of bench/gpu/sample.py. ValueError or OSError with one line."""
    try:
        record = json.loads(path.read_text("utf-8"))
        kinds = {one["kind"] for one in record["answers"]}
        if not kinds or len(record["ids"]) != len(record["bytes"]):
            raise ValueError("no answers")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: not made by `python -m bench gpu-sample` ({error!r})") from error
    return record


class Forced:
    """A TorchTarget whose choices are recorded. Everything else is the target's own."""

    def __init__(self, target: TorchTarget, answer: Answer) -> None:
        self.target, self.answer = target, answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)

    @torch.inference_mode()
    def forward(self, last: int, draft: Draft, hidden: bool = False) -> Scores:
        scores: Scores = self.target.forward(last, draft, hidden)
        done = len(self.target.tokens) + 1 - len(self.answer.prompt)
        ran = draft.first(len(scores.logits) - 1)
        rows, tokens = agreeing(ran, self.answer.output[done:])
        where = torch.tensor([rows, tokens]).to(scores.logits.device, non_blocking=True)
        scores.logits[where[0], where[1]] = SURE  # what the model holds likely is learnt, too
        if scores.chosen is not None:
            scores.chosen = partial(recorded, scores.chosen, rows, tokens)
        return scores


def recorded(
    chosen: Callable[[Request, int], list[int]],
    rows: list[int],
    tokens: list[int],
    request: Request,
    place: int,
) -> list[int]:
    """`Scores.chosen` with `tokens` after `rows`; the device is waited for all the same."""
    found = chosen(request, place)
    for row, token in zip(rows, tokens, strict=True):
        found[row] = token
    return found


def agreeing(draft: Draft, expected: list[int]) -> tuple[list[int], list[int]]:
    """The rows of a pass behind which the recorded text goes on, and what follows each."""
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
