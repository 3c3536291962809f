"""The tasks of `python -m bench decode`.

Edits of real code, of whole files and of selections; places in it to complete; questions about
documents, summaries of them, and conversations. All are plain data in `samples`; `samples/LICENSES`
says where the code and the documents are from. None of the edits is one that a rule makes. An edit,
a completion and an answer to a question can be judged, a summary and a conversation cannot.
"""

from __future__ import annotations

import json
import random
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bench.common.edit_check import EditCheck
from engine import Done, Request
from engine.editing.edits import EditRefused, apply

FOLDER = Path(__file__).with_name("samples")
CODE, DOCUMENTS = FOLDER / "code", FOLDER / "documents"
KINDS = ("file", "edit", "completion", "question", "summary", "conversation")
EDITS = KINDS[:2]  # of whole files, and of selections
CURSOR = "¦"  # the text to complete is between two of them
ANSWER_TOKENS = 256  # tokens of a summary or of an answer at most
COMPLETION_TOKENS = 64  # tokens
TASK_TOKENS = 384  # tokens of an edit from a file
SYSTEM = "You are a helpful assistant. You answer in plain English."
SUMMARIZE = "Summarize this text in your own words. Do not copy sentences from it."


@dataclass(frozen=True)
class Task:
    """One prompt, and what decides whether an answer is right, if anything does."""

    name: str
    kind: str  # one of KINDS, Spec-Bench's, or the name of a file
    request: Request
    check: Callable[[str], bool] | None = None

    @property
    def before(self) -> str:
        """The text to edit."""
        start, stop = self.request.selection or (0, len(self.request.text))
        return self.request.text[start:stop]

    def passes(self, answer: str) -> bool | None:
        """Return whether the answer is right; None if nobody can say."""
        return None if self.check is None else self.check(answer)


def every_task() -> list[Task]:
    """Return all tasks that ship with the repository, kind by kind."""
    texts = tomllib.loads((FOLDER / "texts.toml").read_text("utf-8"))
    found = [edit(record) for record in edit_records()]
    found += [completion(record) for record in texts["completion"]]
    found += [question(record) for record in texts["question"]]
    found += [summary(path) for path in sorted(DOCUMENTS.iterdir())]
    found += [conversation(n, text) for n, text in enumerate(texts["conversations"], 1)]
    return [task for kind in KINDS for task in found if task.kind == kind]


def sample(every: list[Task], count: int) -> list[Task]:
    """Return at most `count` tasks of each kind, of as many languages as possible; all for 0.

    Which ones does not depend on chance, and fewer are a part of more.
    """
    found = []
    for kind in KINDS:
        languages: dict[str, list[Task]] = {}
        for task in every:
            if task.kind == kind:
                languages.setdefault(Path(task.request.path).suffix, []).append(task)
        # Each language has its turns at equal distances; the first turns are in order of size.
        turns = sorted(
            (place / len(tasks), -len(tasks), name, place)
            for name, tasks in languages.items()
            for place in range(len(tasks))
        )
        found += [languages[name][place] for *_, name, place in turns[: count or None]]
    return found


# -- edits -------------------------------------------------------------------------------------


@cache
def source(path: str) -> str:
    return (CODE / path).read_text("utf-8")


def edit_records() -> list[dict[str, Any]]:
    """Return the edits as they are in the files."""
    files = sorted((FOLDER / "edits").glob("*.toml"))
    return [task for file in files for task in tomllib.loads(file.read_text("utf-8"))["task"]]


def edit(record: dict[str, Any]) -> Task:
    """Make the task of a record."""
    path = record["file"]
    text = source(path)
    where = None
    if "first" in record:
        start = text.index(record["first"])
        where = (text.rfind("\n", 0, start) + 1, _end(text, record["last"], start))
    request = Request("edit", text, path, selection=where, instruction=record["instruction"])
    check = EditCheck(
        path,
        text,
        tuple(record["within"]),
        tuple(record.get("needs", ())),
        tuple(record.get("lacks", ())),
        record.get("only_adds", False),
        record.get("program", ""),
    )

    def passes(answer: str) -> bool:
        try:
            return check.accepts(apply(request, Done("stop", answer, matched="```")))
        except EditRefused:
            return False

    return Task(record["name"], "edit" if where else "file", request, passes)


def _end(text: str, last: str, start: int) -> int:
    """Return where the line with the first `last` behind `start` ends."""
    return text.index("\n", text.index(last, start) + len(last)) + 1


# -- other tasks that ship ---------------------------------------------------------------------


def completion(record: dict[str, str]) -> Task:
    """Make the task to write what is between the marks; the first line decides."""
    text = source(record["file"])
    above, gone, below = record["at"].split(CURSOR)
    start = text.index(above + gone + below) + len(above)
    request = Request(
        "complete",
        text[:start],
        record["file"],
        suffix=text[start + len(gone) :],
        max_tokens=COMPLETION_TOKENS,
    )

    def passes(answer: str) -> bool:
        lines = [" ".join(each.strip("\n").split("\n")[0].split()) for each in (answer, gone)]
        return lines[0] == lines[1]

    return Task(f"completion-{record['name']}", "completion", request, passes)


def question(record: dict[str, Any]) -> Task:
    """Make a question about a document, which an answer with all of `needs` answers."""
    text = (DOCUMENTS / record["document"]).read_text("utf-8")

    def passes(answer: str) -> bool:
        return all(re.search(one, answer, re.IGNORECASE) for one in record["needs"])

    request = asked(f"{text}\n\nQuestion about this text: {record['question']}")
    return Task(f"question-{record['name']}", "question", request, passes)


def summary(path: Path) -> Task:
    """Make a summary of a document."""
    request = asked(f"{path.read_text('utf-8')}\n\n{SUMMARIZE}")
    return Task(f"summary-{path.stem}", "summary", request)


def conversation(number: int, text: str) -> Task:
    return Task(f"conversation-{number}", "conversation", asked(text))


def asked(text: str) -> Request:
    """Make a chat of one message."""
    messages = ({"role": "system", "content": SYSTEM}, {"role": "user", "content": text})
    return Request("chat", messages=messages, max_tokens=ANSWER_TOKENS)


# -- tasks from a file -------------------------------------------------------------------------


def from_file(path: Path, count: int) -> list[Task]:
    """Return a fixed sample of `count` records of a JSONL file: id, instruction, context, before.

    The file's name is their kind, and their answers are not checked. Raises ValueError with one
    line if a record lacks a field.
    """
    records = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            record = json.loads(line)
            records.append([str(record[key]) for key in ("id", "instruction", "context", "before")])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path}, line {number}: {error!r}: a record has id, instruction, context, before"
            ) from error
    chosen = random.Random(0).sample(records, min(count, len(records)))
    return [
        Task(
            name,
            path.stem,
            Request(
                "edit",
                text=context + before,
                path="task.py",
                selection=(len(context), len(context) + len(before)) if context else None,
                instruction=instruction,
                max_tokens=TASK_TOKENS,
            ),
        )
        for name, instruction, context, before in chosen
    ]
