"""Makes static corpora (engine/drafting/methods/datastore.py): of files, or of what the model itself answers.

SAM-Decoding's was made of its target model's answers to about a hundred thousand prompts, sampled
(SPEC.md 1.4); here it is as many as are given. Prompt and answer are one document. Every answer is
kept in a file as soon as it is there, so that a run which was cut short goes on where it was. How a
corpus is drafted from is not decided here.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from engine.drafting import NullDrafter
from engine.generate import Generation, generate
from engine.prompts.builder import Prompt, prompt_of
from engine.prompts.tokenizer import Tokenizer
from engine.records import Request, RequestError
from index.workspace.workspace import Workspace

if TYPE_CHECKING:
    from engine.model.torch_target import TorchTarget

LENGTH = 1024  # tokens of an answer at most, as published
TEMPERATURE, TOP_P = 0.8, 0.95  # as published
ASKING = ("turns", "prompt", "question", "instruction")  # what a record's question is called
Ids = NDArray[np.int32]
Report = Callable[[str], None]


class BadPrompts(ValueError):
    """A file of prompts that cannot be read; the message is one line."""


def from_files(roots: list[Path], tokenizer: Tokenizer) -> list[Ids]:
    """The texts of folders as a workspace has them: what is ignored, binary or secret is left out.
    By path. NotADirectoryError where a root is none."""
    with Workspace(roots, tokenizer) as workspace:
        workspace.build()
        found = sorted(workspace.documents, key=lambda document: document.path)
        return [np.array(document.tokens, np.int32) for document in found if document.size]


def prompts(file: Path) -> list[str]:
    """Of a JSONL file or a JSON list whose records have `turns` (the first is asked), `prompt`,
    `question` or `instruction` (with `input`, as alpaca's). BadPrompts for others."""
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise BadPrompts(f"{file}: unreadable ({why}): name a file of prompts") from error
    found = []
    for place, record in _records(file, text):
        asked = _question(record)
        if not asked.strip():
            names = ", ".join(ASKING)
            raise BadPrompts(f"{file}, {place}: nothing is asked: a record has one of {names}")
        found.append(asked)
    if not found:
        raise BadPrompts(f"{file}: no prompt in it: give some")
    return found


def _records(file: Path, text: str) -> Iterator[tuple[str, Any]]:
    """Every record, and where it stands."""
    try:
        if text.lstrip().startswith("["):
            for number, record in enumerate(json.loads(text), 1):
                yield f"record {number}", record
            return
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                yield f"line {number}", json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadPrompts(f"{file}: no JSON ({error}): give a list, or a record a line") from error


def _question(record: Any) -> str:
    """What a record asks; "" where it asks nothing."""
    if not isinstance(record, dict):
        return ""
    for name in ASKING:
        asked = record.get(name)
        if isinstance(asked, list):
            asked = asked[0] if asked else ""
        if isinstance(asked, str) and asked.strip():
            more = record.get("input") if name == "instruction" else None
            return f"{asked}\n\n{more}" if isinstance(more, str) and more.strip() else asked
    return ""


def from_answers(
    questions: list[str],
    model: str,
    target: TorchTarget,
    tokenizer: Tokenizer,
    kept: Path,
    length: int = LENGTH,
    seed: int = 0,
    report: Report = lambda line: None,
) -> list[Ids]:
    """Prompt and answer of each question that `model`, the target, has room for. `kept`: answers
    that are there are not asked for again, new ones are added at once. OSError where that is
    impossible."""
    known = read_kept(kept)
    documents = []
    with kept.open("a", encoding="utf-8") as out:
        if out.tell() and not _ends_a_line(kept):
            out.write("\n")  # a line that was cut short stays one
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
            place = f"prompt {number + 1} of {len(questions)}"
            key = _key(model, target.dtype_name, prompt, request)
            if key not in known:
                try:
                    known[key] = _answer(request, prompt, target, tokenizer)
                except RequestError as error:
                    report(f"{place}: left out: {error}")
                    continue
                out.write(json.dumps({"key": key, "tokens": known[key]}) + "\n")
                out.flush()
                os.fsync(out.fileno())
                report(f"{place}: {len(known[key])} tokens")
            documents.append(np.array([*prompt.ids, *known[key]], np.int32))
    return documents


def read_kept(kept: Path) -> dict[str, list[int]]:
    """Answers by key. Lines that were cut short are passed over: they are asked for again."""
    found: dict[str, list[int]] = {}
    if not kept.exists():
        return found
    for line in kept.read_bytes().split(b"\n"):
        try:
            match json.loads(line):
                case {"key": str(key), "tokens": list(tokens)} if all(
                    type(token) is int and 0 <= token < 1 << 31 for token in tokens
                ):
                    found[key] = tokens
        except (ValueError, RecursionError):
            continue
    return found


def _ends_a_line(file: Path) -> bool:
    return file.read_bytes().endswith(b"\n")


def _key(model: str, dtype: str, prompt: Prompt, request: Request) -> str:
    """What an answer depends on."""
    asked = (prompt.ids, request.max_tokens, request.temperature, request.top_p, request.seed)
    return hashlib.sha256(json.dumps([model, dtype, *asked]).encode()).hexdigest()


def _answer(
    request: Request, prompt: Prompt, target: TorchTarget, tokenizer: Tokenizer
) -> list[int]:
    answer = Generation(request, prompt, tokenizer, target.context)
    for _ in generate(answer, target, NullDrafter()):
        pass
    return answer.output
