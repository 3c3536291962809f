"""Record what a model finds likely along its own answers to the edits of `bench decode`.

    python -m bench decode --model NAME --methods plain --kinds file,edit --repeats 1 --answers FILE
    python -m bench replay-answers FILE OUT --model NAME
    python -m bench replay --answers OUT --model NAME [--mode hunk]

OUT is FILE with the model's LIKELY most likely tokens at each token of an edit's answer, from which
Token Recycling and LogitSpec draft. The model reads all prompts and answers once.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from bench.common.cli import argument_parser
from bench.common.engine_thread import in_engine_thread
from bench.common.report import say, write_text
from bench.common.tasks import EDITS, Task, every_task
from engine import DEFAULT_MODEL, Config, Engine
from engine.prompts.builder import edit_texts, fence_language, prompt_of
from engine.prompts.tokenizer import Tokenizer
from engine.weights import WeightsError
from research.train.edit_records import EditError, Replay

LIKELY = 16  # tokens recorded at each place
OURS = ("plain", "draftline", "lookup")  # methods of `bench decode` with one and the same answer

Answer = dict[str, Any]  # task, method and text, as `bench decode --answers` writes them; likely


def read_answers(path: Path) -> list[tuple[Task, Answer]]:
    """Return the edits that were answered, with one answer each. Raises EditError or OSError."""
    tasks = {task.name: task for task in every_task() if task.kind in EDITS}
    try:
        answers = json.loads(path.read_text("utf-8"))["answers"]
        known = [one for one in answers if one["task"] in tasks and one["method"] in OURS]
        found = {one["task"]: one for one in known if one["text"]}
    except (ValueError, KeyError, TypeError):
        found = {}
    if not found:
        remedy = "`python -m bench decode --kinds file,edit --answers FILE`"
        raise EditError(f"{path}: no answers to edits: write them with {remedy}")
    return [(tasks[name], answer) for name, answer in found.items()]


def answered(path: Path, whole: bool, tokenizer: Tokenizer) -> list[Replay]:
    """Return the replays of answers that are whole files, or selections.

    Raises EditError, also where there are none, or OSError.
    """
    found = [
        replay_of(path, task, answer, tokenizer)
        for task, answer in read_answers(path)
        if (task.request.selection is None) == whole
    ]
    if not found:
        kind = "whole files" if whole else "selections"
        raise EditError(f"{path}: no answers to edits of {kind}: choose the other --mode")
    return found


def replay_of(path: Path, task: Task, answer: Answer, tokenizer: Tokenizer) -> Replay:
    """Make the replay of an answer. Raises EditError if it was recorded with another tokenizer."""
    request, likely = task.request, answer.get("likely", [])
    first, output = edit_texts(request).first, tokenizer.encode(answer["text"])
    head, rest = tokenizer.encode(request.text[:first]), tokenizer.encode(request.text[first:])
    if likely and list(map(len, likely)) != [LIKELY] * len(output):
        raise EditError(f"{path}: {task.name} was recorded with another model: name it: --model")
    package, whole = f"{fence_language(request.path)}:model", request.selection is None
    return Replay(
        task.name, package, task.name, request.path, head + rest, len(head), output, request.text,
        whole, likely,
    )  # fmt: skip


def likely_tokens(engine: Engine, task: Task, text: str) -> list[list[int]]:
    """Return the most likely tokens at each token of an answer. For the engine's own thread."""
    import torch

    from research.train.teacher_forcing import forced_rows

    encoder, target = engine.parts.tokenizer, engine.parts.target
    prompt, output = prompt_of(task.request, encoder).ids, encoder.encode(text)
    rows = forced_rows(target, [*prompt, *output[:-1]], len(prompt) - 1)
    every = [torch.as_tensor(logits).topk(LIKELY).indices for _, logits, _ in rows]
    return torch.cat(every).tolist()  # type: ignore[no-any-return]


def main(arguments: list[str] | None = None) -> int:
    parser = argument_parser("replay-answers", __doc__)
    parser.add_argument("answers", type=Path, help="what `bench decode --answers` wrote")
    parser.add_argument("out", type=Path, help="the file to write")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="the model that answered")
    options = parser.parse_args(arguments)
    try:
        answers = read_answers(options.answers)
        with Engine(Config(model=options.model, library=False)) as engine:
            for task, answer in answers:
                say(task.name)
                work = partial(likely_tokens, engine, task, answer["text"])
                answer["likely"] = in_engine_thread(engine, work)
        lines = ",\n".join(json.dumps(answer) for _, answer in answers)
        write_text(options.out, f'{{"answers": [\n{lines}\n]}}\n')
    except (EditError, WeightsError, ValueError, RuntimeError) as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(f"{error.filename or options.answers}: {error.strerror or error}")
    return 0
