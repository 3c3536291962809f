"""Training texts for heads: a model's own answers (self-distillation), or published dialogues.

Only the assistant's turns are learned. Dialogues are in ShareGPT's format: a list of records with
`conversations` of `from` ("human", "gpt") and `value`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.drafting import Drafter, NullDrafter
from engine.generate import Generation, generate
from engine.prompts.builder import prompt_of
from engine.prompts.tokenizer import Tokenizer
from engine.records import Request
from research.train.sample_file import Report, SampleError, read_records, resume_samples

if TYPE_CHECKING:
    from engine.model.torch.torch_target import TorchTarget

MAX_ANSWER_TOKENS = 128
ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant",
         "system": "system"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TrainingText:
    """A prompt, and the answer to learn."""

    prefix: list[int]
    tokens: list[int]


def answer_question(
    question: str,
    model: TorchTarget,
    tokenizer: Tokenizer,
    drafter: Drafter | None = None,
    **options: Any,
) -> TrainingText:
    """Let the model answer a question. `options`: fields of the Request."""
    request = Request("chat", messages=({"role": "user", "content": question},), **options)
    prompt = prompt_of(request, tokenizer)
    generation = Generation(request, prompt, tokenizer, model.context)
    for _ in generate(generation, model, drafter or NullDrafter()):
        pass
    return TrainingText(prompt.ids, generation.output)


def ask(
    questions: list[str],
    model: TorchTarget,
    tokenizer: Tokenizer,
    file: Path,
    length: int = MAX_ANSWER_TOKENS,
    seed: int = 0,
    report: Report = lambda line: None,
) -> list[TrainingText]:
    """Let the model answer questions, sampled, resuming from `file`."""
    header = {
        "questions": questions, "length": length, "seed": seed, "model": model.folder.name
    }  # fmt: skip

    def make(number: int) -> dict[str, Any]:
        text = answer_question(
            questions[number],
            model,
            tokenizer,
            max_tokens=length,
            temperature=1.0,
            seed=seed + number,
        )
        return {"prefix": text.prefix, "tokens": text.tokens}

    samples = resume_samples(file, header, len(questions), make, report)
    return [text for text in (TrainingText(**sample) for sample in samples) if text.tokens]


def load(file: Path, tokenizer: Tokenizer, longest: int) -> list[TrainingText]:
    """Load a file that `ask` wrote, or published dialogues, truncated to `longest` tokens.

    Raises SampleError.
    """
    found = []
    for where, record in read_records(file):
        if isinstance(record, dict) and "conversations" in record:
            found += _turns(where, record["conversations"], tokenizer)
        elif isinstance(record, dict) and {"prefix", "tokens"} <= set(record):
            found.append(_text(where, record))
        else:
            raise SampleError(
                f"{where}: neither conversations nor prefix and tokens: remove the record"
            )
    texts = [
        TrainingText(text.prefix, text.tokens[: longest - len(text.prefix)])
        for text in found
        if len(text.prefix) < longest
    ]
    texts = [text for text in texts if text.tokens]
    if not texts:
        raise SampleError(f"{file}: contains no answer: give another file")
    return texts


def _text(where: str, record: dict[str, Any]) -> TrainingText:
    prefix, tokens = record["prefix"], record["tokens"]
    for ids in (prefix, tokens):
        if not isinstance(ids, list) or not all(isinstance(n, int) and n >= 0 for n in ids):
            raise SampleError(f"{where}: prefix or tokens are not token ids: remove the record")
    return TrainingText(prefix, tokens)


def _turns(where: str, turns: Any, tokenizer: Tokenizer) -> list[TrainingText]:
    """Make one text per assistant turn."""
    messages: list[dict[str, str]] = []
    found = []
    for turn in turns if isinstance(turns, list) else [turns]:
        role = ROLES.get(turn.get("from", "")) if isinstance(turn, dict) else None
        if role is None or not isinstance(turn.get("value"), str):
            raise SampleError(f"{where}: a turn needs from and value: remove the record")
        if role == "assistant" and messages:
            found.append(TrainingText(tokenizer.chat(messages), tokenizer.encode(turn["value"])))
        messages.append({"role": role, "content": turn["value"]})
    return found
