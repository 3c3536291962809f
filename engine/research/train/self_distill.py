"""Texts that heads learn to continue: a model's own answers, or published dialogues.

Only what the assistant says is learnt. Published: ShareGPT's format, a list of records with
`conversations` of `from` ("human", "gpt") and `value`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.drafting import NullDrafter
from engine.generate import Generation, generate
from engine.prompts.builder import prompt_of
from engine.prompts.tokenizer import Tokenizer
from engine.records import Request
from engine.research.train.sample_file import Report, SampleError, read_records, resume_samples

if TYPE_CHECKING:
    from engine.model.torch_target import TorchTarget

MAX_ANSWER_TOKENS = 128  # tokens of an answer
ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant",
         "system": "system"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TrainingText:
    """A prompt, and the answer that is learnt."""

    prefix: list[int]
    tokens: list[int]


def ask(
    questions: list[str],
    model: TorchTarget,
    tokenizer: Tokenizer,
    file: Path,
    length: int = MAX_ANSWER_TOKENS,
    seed: int = 0,
    report: Report = lambda line: None,
) -> list[TrainingText]:
    """The model's answers, sampled; those in `file` are not made again."""
    start = {
        "questions": questions, "length": length, "seed": seed, "model": model.folder.name
    }  # fmt: skip

    def one(number: int) -> dict[str, Any]:
        messages = ({"role": "user", "content": questions[number]},)
        request = Request(
            "chat", messages=messages, max_tokens=length, temperature=1.0, seed=seed + number
        )
        prompt = prompt_of(request, tokenizer)
        answer = Generation(request, prompt, tokenizer, model.context)
        for _ in generate(answer, model, NullDrafter()):
            pass
        return {"prefix": prompt.ids, "tokens": answer.output}

    made = (
        TrainingText(**each) for each in resume_samples(file, start, len(questions), one, report)
    )
    return [text for text in made if text.tokens]


def load(file: Path, tokenizer: Tokenizer, longest: int) -> list[TrainingText]:
    """Of a file that `ask` wrote, or of published dialogues; cut at `longest` tokens, as published.
    BadSamples with one line."""
    found = []
    for where, record in read_records(file):
        if isinstance(record, dict) and "conversations" in record:
            found += _turns(where, record["conversations"], tokenizer)
        elif isinstance(record, dict) and {"prefix", "tokens"} <= set(record):
            found.append(_text(where, record))
        else:
            raise SampleError(f"{where}: neither conversations nor prefix and tokens: leave it out")
    found = [TrainingText(one.prefix, one.tokens[: longest - len(one.prefix)]) for one in found
             if len(one.prefix) < longest]  # fmt: skip
    if not any(one.tokens for one in found):
        raise SampleError(f"{file}: no answer in it: give another file")
    return [one for one in found if one.tokens]


def _text(where: str, record: dict[str, Any]) -> TrainingText:
    prefix, tokens = record["prefix"], record["tokens"]
    for ids in (prefix, tokens):
        if not isinstance(ids, list) or not all(isinstance(one, int) and one >= 0 for one in ids):
            raise SampleError(f"{where}: prefix or tokens are no list of ids: leave it out")
    return TrainingText(prefix, tokens)


def _turns(where: str, turns: Any, tokenizer: Tokenizer) -> list[TrainingText]:
    """An answer for each of the assistant's turns."""
    messages: list[dict[str, str]] = []
    found = []
    for turn in turns if isinstance(turns, list) else [turns]:
        role = ROLES.get(turn.get("from", "")) if isinstance(turn, dict) else None
        if role is None or not isinstance(turn.get("value"), str):
            raise SampleError(f"{where}: a turn needs from and value: leave it out")
        if role == "assistant" and messages:
            found.append(TrainingText(tokenizer.chat(messages), tokenizer.encode(turn["value"])))
        messages.append({"role": role, "content": turn["value"]})
    return found
