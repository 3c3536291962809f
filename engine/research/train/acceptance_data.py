"""What an acceptance head learns from: which of a draft model's tokens a model would accept.

SpecDec++'s four steps: the model answers questions, sampled; the draft model is led along each
answer and draws its own next token at every place; both say how likely that token is; the share of
these is its probability of being accepted.
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
from engine.generate import Generation, generate
from engine.prompts.builder import prompt_of
from engine.prompts.tokenizer import Tokenizer
from engine.records import Request
from engine.research.train.loop import generator
from engine.research.train.sample_file import SampleError, read_records, resume_samples
from engine.research.train.self_distill import TrainingText
from engine.research.train.teacher_forcing import forced_rows

if TYPE_CHECKING:
    from engine.model.torch_target import TorchTarget

LENGTH = 128  # tokens of an answer; 512 as published
Report = Callable[[str], None]


@dataclass(slots=True)
class Sample:
    """One answer. The published files have the same names, and lists as text."""

    prefix: list[int]
    tokens: list[int]  # what the model wrote
    draft: list[int]  # at each place, what the draft model would have
    p_acc: list[float]  # and how likely that is accepted
    log_q: list[float]  # by the draft model
    log_p: list[float]  # by the model


def make(
    questions: list[str],
    model: TorchTarget,
    draft: TorchTarget,
    tokenizer: Tokenizer,
    file: Path,
    length: int = LENGTH,
    seed: int = 0,
    report: Report = lambda line: None,
) -> list[Sample]:
    """A sample for each question that has an answer; those in `file` are not made again."""
    start = {
        "questions": questions, "length": length, "seed": seed, "model": model.folder.name,
        "draft": draft.folder.name,
    }  # fmt: skip

    def make_one(number: int) -> dict[str, Any]:
        return asdict(one(questions[number], model, draft, tokenizer, length, seed + number))

    known = (
        Sample(**each) for each in resume_samples(file, start, len(questions), make_one, report)
    )
    return [sample for sample in known if sample.tokens]


def along(
    texts: list[TrainingText],
    model: TorchTarget,
    draft: TorchTarget,
    file: Path,
    seed: int = 0,
    report: Report = lambda line: None,
) -> list[Sample]:
    """The same along texts that neither model wrote: steps two to four."""
    known = sha256(json.dumps([asdict(text) for text in texts]).encode()).hexdigest()
    start = {
        "questions": [], "texts": known, "seed": seed, "model": model.folder.name,
        "draft": draft.folder.name,
    }  # fmt: skip

    def make_one(number: int) -> dict[str, Any]:
        text = texts[number]
        return asdict(label(text.prefix, text.tokens, model, draft, generator(seed, number)))

    made = resume_samples(file, start, len(texts), make_one, report, "text")
    return [Sample(**each) for each in made]


def one(
    question: str,
    model: TorchTarget,
    draft: TorchTarget,
    tokenizer: Tokenizer,
    length: int,
    seed: int,
) -> Sample:
    """All four steps for one question."""
    messages = ({"role": "user", "content": question},)
    request = Request("chat", messages=messages, max_tokens=length, temperature=1.0, seed=seed)
    prompt = prompt_of(request, tokenizer)
    answer = Generation(request, prompt, tokenizer, model.context)
    drafter = draft_model(draft, AdaptiveLength())  # the same answer, perhaps sooner
    for _ in generate(answer, model, drafter):
        pass
    return label(prompt.ids, answer.output, model, draft, generator(seed, 0))


def label(
    prefix: list[int],
    tokens: list[int],
    model: TorchTarget,
    draft: TorchTarget,
    noise: torch.Generator,
) -> Sample:
    """Steps two to four: what the draft model draws along an answer, and how that is accepted."""
    text, first = [*prefix, *tokens][:-1], len(prefix) - 1
    drawn: list[int] = []
    log_q: list[float] = []
    log_p: list[float] = []
    if not tokens:
        return Sample(prefix, [], [], [], [], [])
    for _, logits, _ in forced_rows(draft, text, first):
        said = logits.float().cpu()[:, : model.vocab].log_softmax(-1)
        found = torch.multinomial(said.exp(), 1, generator=noise)
        drawn += found[:, 0].tolist()
        log_q += said.gather(1, found)[:, 0].tolist()
    done = 0
    for _, logits, _ in forced_rows(model, text, first):
        said = logits.float().cpu().log_softmax(-1)
        here = torch.tensor(drawn[done : done + len(said)])[:, None]
        log_p += said.gather(1, here)[:, 0].tolist()
        done += len(said)
    p_acc = torch.tensor(log_p).sub(torch.tensor(log_q)).clamp(max=0).exp().tolist()
    return Sample(prefix, tokens, drawn, p_acc, log_q, log_p)


def load_samples(file: Path) -> list[Sample]:
    """Samples of a file: JSON lines, or a published list of them, whose lists may be text.
    BadSamples names what is wrong."""
    found = [_sample(where, record) for where, record in read_records(file)]
    if not found:
        raise SampleError(f"{file}: no samples in it: make some with --questions")
    return found


def _sample(where: str, record: Any) -> Sample:
    values: dict[str, list[Any]] = {}
    for name, kind in (("prefix", int), ("tokens", int), ("draft", int), ("p_acc", float)):
        value = record.get(name) if isinstance(record, dict) else None
        try:
            found = json.loads(value) if isinstance(value, str) else value
            if not isinstance(found, list):
                raise TypeError(name)
            values[name] = [kind(each) for each in found]
        except (ValueError, TypeError):
            raise SampleError(f"{where}: {name} is no list of numbers: leave it out") from None
    count = len(values["tokens"])
    if not values["prefix"] or len(values["draft"]) != count or len(values["p_acc"]) != count:
        raise SampleError(f"{where}: tokens, draft and p_acc differ in length: leave it out")
    if not all(0 <= each <= 1 for each in values["p_acc"]):
        raise SampleError(f"{where}: a p_acc is not between 0 and 1: leave it out")
    return Sample(**values, log_q=[], log_p=[])
