"""Training data of acceptance heads: which of a draft model's tokens the target would accept.

The four steps of SpecDec++ (Huang et al., 2024, arXiv 2405.19715): the target answers questions,
sampled; the draft model is teacher-forced along each answer and draws its own next token at every
position; both models score that token; the ratio of the scores is its acceptance probability.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from engine.drafting.draft_length import AdaptiveLength
from engine.drafting.draft_model import draft_model
from engine.prompts.tokenizer import Tokenizer
from research.train.loop import generator
from research.train.sample_file import SampleError, read_records, resume_samples
from research.train.self_distill import TrainingText, answer_question
from research.train.teacher_forcing import forced_rows

if TYPE_CHECKING:
    from engine.model.torch.torch_target import TorchTarget

MAX_ANSWER_TOKENS = 128  # tokens; 512 as published
Report = Callable[[str], None]


@dataclass(slots=True)
class Sample:
    """One answer, with the published field names.

    Published files store the lists as JSON text.
    """

    prefix: list[int]
    tokens: list[int]  # the target's answer
    draft: list[int]  # the draft model's token at each position
    p_acc: list[float]  # P(draft token is accepted)
    log_q: list[float]  # log probability of the draft token by the draft model
    log_p: list[float]  # and by the target


def make(
    questions: list[str],
    model: TorchTarget,
    draft: TorchTarget,
    tokenizer: Tokenizer,
    file: Path,
    length: int = MAX_ANSWER_TOKENS,
    seed: int = 0,
    report: Report = lambda line: None,
) -> list[Sample]:
    """Make a sample for each question with a non-empty answer, resuming from `file`."""
    header = {
        "questions": questions, "length": length, "seed": seed, "model": model.folder.name,
        "draft": draft.folder.name,
    }  # fmt: skip

    def make_one(number: int) -> dict[str, Any]:
        return asdict(
            make_sample(questions[number], model, draft, tokenizer, length, seed + number)
        )

    records = resume_samples(file, header, len(questions), make_one, report)
    samples = [Sample(**record) for record in records]
    return [sample for sample in samples if sample.tokens]


def along(
    texts: list[TrainingText],
    model: TorchTarget,
    draft: TorchTarget,
    file: Path,
    seed: int = 0,
    report: Report = lambda line: None,
) -> list[Sample]:
    """Make samples along given texts, which neither model wrote: steps two to four."""
    digest = sha256(json.dumps([asdict(text) for text in texts]).encode()).hexdigest()
    header = {
        "questions": [], "texts": digest, "seed": seed, "model": model.folder.name,
        "draft": draft.folder.name,
    }  # fmt: skip

    def make_one(number: int) -> dict[str, Any]:
        text = texts[number]
        return asdict(label(text.prefix, text.tokens, model, draft, generator(seed, number)))

    records = resume_samples(file, header, len(texts), make_one, report, "text")
    return [Sample(**record) for record in records]


def make_sample(
    question: str,
    model: TorchTarget,
    draft: TorchTarget,
    tokenizer: Tokenizer,
    length: int,
    seed: int,
) -> Sample:
    """Take steps one to four for one question."""
    answer = answer_question(
        question,
        model,
        tokenizer,
        draft_model(draft, AdaptiveLength()),  # affects only the speed
        max_tokens=length,
        temperature=1.0,
        seed=seed,
    )
    return label(answer.prefix, answer.tokens, model, draft, generator(seed, 0))


def label(
    prefix: list[int],
    tokens: list[int],
    model: TorchTarget,
    draft: TorchTarget,
    noise: torch.Generator,
) -> Sample:
    """Draw the draft model's tokens along an answer, and score them: steps two to four."""
    text, first = [*prefix, *tokens][:-1], len(prefix) - 1
    drawn: list[int] = []
    log_q: list[float] = []
    log_p: list[float] = []
    if not tokens:
        return Sample(prefix, [], [], [], [], [])
    for _, logits, _ in forced_rows(draft, text, first):
        log_probs = logits.float().cpu()[:, : model.vocab].log_softmax(-1)
        chunk = torch.multinomial(log_probs.exp(), 1, generator=noise)
        drawn += chunk[:, 0].tolist()
        log_q += log_probs.gather(1, chunk)[:, 0].tolist()
    for _, logits, _ in forced_rows(model, text, first):
        log_probs = logits.float().cpu().log_softmax(-1)
        scored = len(log_p)
        chunk = torch.tensor(drawn[scored : scored + len(log_probs)])[:, None]
        log_p += log_probs.gather(1, chunk)[:, 0].tolist()
    p_acc = torch.tensor(log_p).sub(torch.tensor(log_q)).clamp(max=0).exp().tolist()
    return Sample(prefix, tokens, drawn, p_acc, log_q, log_p)


def load_samples(file: Path) -> list[Sample]:
    """Load samples from JSON lines, or from a published JSON list. Raises SampleError."""
    samples = [_sample(where, record) for where, record in read_records(file)]
    if not samples:
        raise SampleError(f"{file}: contains no samples: make some with --questions")
    return samples


def _sample(where: str, record: Any) -> Sample:
    values: dict[str, list[Any]] = {}
    for name, kind in (("prefix", int), ("tokens", int), ("draft", int), ("p_acc", float)):
        value = record.get(name) if isinstance(record, dict) else None
        try:
            numbers = json.loads(value) if isinstance(value, str) else value
            if not isinstance(numbers, list):
                raise TypeError(name)
            values[name] = [kind(number) for number in numbers]
        except (ValueError, TypeError):
            raise SampleError(
                f"{where}: {name} is not a list of numbers: remove the record"
            ) from None
    count = len(values["tokens"])
    if not values["prefix"] or len(values["draft"]) != count or len(values["p_acc"]) != count:
        raise SampleError(f"{where}: tokens, draft and p_acc differ in length: remove the record")
    if not all(0 <= p <= 1 for p in values["p_acc"]):
        raise SampleError(f"{where}: p_acc must be between 0 and 1: remove the record")
    return Sample(**values, log_q=[], log_p=[])
