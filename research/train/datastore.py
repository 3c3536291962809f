"""Building static corpora for drafting, from files or from the model's own answers.

SAM-Decoding's corpus held its target model's sampled answers to about 100,000 prompts. Prompt and
answer form one document. Every answer is appended to a file at once, so that an interrupted run
resumes. `research.methods.datastore` drafts from corpora.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from engine.drafting import NullDrafter
from engine.generate import Generation, generate
from engine.prompts.builder import Prompt, prompt_of
from engine.prompts.tokenizer import Tokenizer
from engine.records import Request, RequestError
from index.workspace.workspace import Workspace

if TYPE_CHECKING:
    from engine.model.torch.torch_target import TorchTarget

MAX_ANSWER_TOKENS = 1024  # tokens, as published
TEMPERATURE, TOP_P = 0.8, 0.95  # as published
Ids = NDArray[np.int32]
Report = Callable[[str], None]


def from_files(roots: list[Path], tokenizer: Tokenizer) -> list[Ids]:
    """Tokenize the files of folders, sorted by path and filtered as in a workspace.

    No ignored, binary or secret files are read. Raises NotADirectoryError.
    """
    with Workspace(roots, tokenizer) as workspace:
        workspace.build()
        documents = sorted(workspace.documents, key=lambda document: document.path)
        return [np.array(document.tokens, np.int32) for document in documents if document.size]


def from_answers(
    questions: list[str],
    model: str,
    target: TorchTarget,
    tokenizer: Tokenizer,
    file: Path,
    length: int = MAX_ANSWER_TOKENS,
    seed: int = 0,
    report: Report = lambda line: None,
) -> list[Ids]:
    """Answer each question that fits into the context of `target`.

    Returns each prompt with its answer. `model`: the target's name. Answers in `file` are reused,
    new ones are appended. Raises OSError.
    """
    answers = read_answers(file)
    documents = []
    with file.open("a", encoding="utf-8") as out:
        if out.tell() and not _ends_with_newline(file):
            out.write("\n")  # terminate a partial line
        for number, text in enumerate(questions):
            request = Request(
                "chat",
                messages=({"role": "user", "content": text},),
                max_tokens=length,
                temperature=TEMPERATURE,
                top_p=TOP_P,
                seed=seed + number,
            )
            prompt = prompt_of(request, tokenizer)
            progress = f"prompt {number + 1} of {len(questions)}"
            key = _key(model, target.dtype_name, prompt, request)
            if key not in answers:
                try:
                    answers[key] = _answer(request, prompt, target, tokenizer)
                except RequestError as error:
                    report(f"{progress}: skipped: {error}")
                    continue
                out.write(json.dumps({"key": key, "tokens": answers[key]}) + "\n")
                out.flush()
                os.fsync(out.fileno())
                report(f"{progress}: {len(answers[key])} tokens")
            documents.append(np.array([*prompt.ids, *answers[key]], np.int32))
    return documents


def read_answers(file: Path) -> dict[str, list[int]]:
    """Read answers by key.

    Damaged lines are skipped; their questions are asked again.
    """
    answers: dict[str, list[int]] = {}
    if not file.exists():
        return answers
    for line in file.read_bytes().split(b"\n"):
        try:
            match json.loads(line):
                case {"key": str(key), "tokens": list(tokens)} if all(
                    type(token) is int and 0 <= token < 1 << 31 for token in tokens
                ):
                    answers[key] = tokens
        except (ValueError, RecursionError):
            continue
    return answers


def _ends_with_newline(file: Path) -> bool:
    return file.read_bytes().endswith(b"\n")


def _key(model: str, dtype: str, prompt: Prompt, request: Request) -> str:
    """Hash everything that an answer depends on."""
    inputs = (prompt.ids, request.max_tokens, request.temperature, request.top_p, request.seed)
    return hashlib.sha256(json.dumps([model, dtype, *inputs]).encode()).hexdigest()


def _answer(
    request: Request, prompt: Prompt, target: TorchTarget, tokenizer: Tokenizer
) -> list[int]:
    answer = Generation(request, prompt, tokenizer, target.context)
    for _ in generate(answer, target, NullDrafter()):
        pass
    return answer.output
