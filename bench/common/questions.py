"""Prompts from public data sets: Spec-Bench, HumanEval, CanItEdit, and middles to fill in.

The files are named by path; none of them ships with this repository. Samples are always the same.
Whether an answer is right is not judged here.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from bench.common.tasks import Task
from bench.quality.tasks import canitedit
from bench.quality.tasks import request as edit_request
from engine import Request
from engine.drafting.stdlib_ngram import python_files
from index.workspace.file_filter import Skipped, read

MT_BENCH = (
    "writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities",
)  # fmt: skip
KINDS = {  # kinds of `python -m bench decode` -> Spec-Bench's categories
    "summarization": ("summarization",),
    "chat": MT_BENCH,
    "translation": ("translation",),
    "qa": ("qa",),
    "math": ("math_reasoning",),
    "rag": ("rag",),
}
MIN_LINES, LINES_ABOVE, LINES_BELOW = 8, 60, 20  # lines around an infilled line
STOP_STRINGS = ("\nclass ", "\ndef ", "\n#", "\nif ", "\nprint(")  # ends of HumanEval functions


@dataclass(frozen=True, slots=True)
class Question:
    """A conversation, or a single request of another kind."""

    id: int | str
    category: str
    turns: tuple[str, ...]  # the user's turns
    request: Request | None = None  # instead of turns

    @property
    def group(self) -> str:
        """The category in tables, where MT-bench's eight categories are one."""
        return "mt_bench" if self.category in MT_BENCH else self.category

    def request_after(self, answers: Sequence[str], limit: int) -> Request:
        """Make the request for the next turn, given the answers so far.

        The answer has at most `limit` tokens.
        """
        if self.request is not None:
            most = self.request.max_tokens or limit
            return replace(self.request, max_tokens=min(limit, most))
        messages = []
        for turn, answer in zip(self.turns, answers, strict=False):
            messages += [{"role": "user", "content": turn}]
            messages += [{"role": "assistant", "content": answer}]
        messages.append({"role": "user", "content": self.turns[len(answers)]})
        return Request("chat", messages=tuple(messages), max_tokens=limit)


# -- files ---------------------------------------------------------------------------------------


def spec_bench(path: Path) -> list[Question]:
    """Read Spec-Bench's question.jsonl or a file of the same form, with any categories."""
    return _read(path, _conversation, "a record has question_id, category, turns")


def human_eval(path: Path) -> list[Question]:
    """Read HumanEval: the head of each function is completed."""
    return _read(path, _function, "a record has task_id, prompt")


def can_it_edit(path: Path) -> list[Question]:
    """Read CanItEdit: whole files, edited by the longer of two instructions."""
    return _read(path, _edit, "a record has id, before, after, tests and both instructions")


def infilling(path: Path) -> list[Question]:
    """Read middles to fill in. Raises ValueError or OSError with a one-line message.

    `path`: a file like santacoder-fim-task, or a folder, with a line of each *.py file.
    """
    if path.is_dir():
        return _from_folder(path)
    return _read(path, _middle, "a record has name, prompt, suffix")


def _from_folder(folder: Path) -> list[Question]:
    """Return one middle per file, in a fixed random order, so that the first ones are a sample."""
    found: list[Question] = []
    for file in python_files(folder):
        name = file.relative_to(folder).as_posix()
        try:
            lines = read(file).splitlines(keepends=True)
        except Skipped:
            continue
        places = [n for n in range(MIN_LINES, len(lines) - MIN_LINES) if _has_code(lines[n])]
        if places:
            at = random.Random(name).choice(places)
            indent = len(lines[at]) - len(lines[at].lstrip())
            before = "".join(lines[max(at - LINES_ABOVE, 0) : at]) + lines[at][:indent]
            behind = "".join(lines[at : at + LINES_BELOW])[len(lines[at].rstrip()) :]
            record = {"name": f"{name}:{at + 1}", "prompt": before, "suffix": behind}
            found.append(_middle(record))
    if not found:
        raise ValueError(f"{folder}: no *.py file in it is long enough: name another folder")
    random.Random(0).shuffle(found)
    return found


def _has_code(line: str) -> bool:
    """Return whether a line has more than a comment or brackets."""
    text = line.strip()
    return not text.startswith("#") and any(letter.isalnum() for letter in text)


def _conversation(record: dict[str, Any]) -> Question:
    turns = record["turns"]
    if not isinstance(turns, list) or not turns or not all(isinstance(one, str) for one in turns):
        raise TypeError(f"turns {turns!r:.60}")
    name = record["question_id"]
    return Question(name if isinstance(name, int) else str(name), str(record["category"]),
                    tuple(turns))  # fmt: skip


def _function(record: dict[str, Any]) -> Question:
    request = Request("complete", text=record["prompt"], path="task.py", stop=STOP_STRINGS)
    return Question(str(record["task_id"]), "humaneval", (record["prompt"],), request)


def _middle(record: dict[str, Any]) -> Question:
    prompt, suffix = str(record["prompt"]), str(record["suffix"])
    request = Request("complete", text=prompt, suffix=suffix)  # a path would part the suffix
    return Question(str(record["name"]), "infilling", (prompt,), request)


def suffix_first(one: Question) -> Question:
    """Return a question with the suffix before the prefix (SPM)."""
    return replace(one, request=one.request and replace(one.request, suffix_first=True))


def _edit(record: dict[str, Any]) -> Question:
    known = canitedit(record)
    request = edit_request(known, "descriptive", "file")
    return Question(known.name, "canitedit", (request.instruction,), request)


def _read(path: Path, make: Callable[[dict[str, Any]], Question], form: str) -> list[Question]:
    """Read JSONL. Raises ValueError with one line for a malformed or repeated record."""
    found: list[Question] = []
    seen: set[int | str] = set()
    for number, line in enumerate(_lines(path), 1):
        try:
            one = make(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}, line {number}: {error!r}: {form}") from error
        if one.id in seen:
            raise ValueError(f"{path}, line {number}: {one.id} again: remove one of them")
        seen.add(one.id)
        found.append(one)
    if not found:
        raise ValueError(f"{path}: no question in it: name another file")
    return found


def _lines(path: Path) -> Iterator[str]:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"{path}: unreadable: {why}: name a file of questions") from error
    return (line for line in text.split("\n") if line.strip())


# -- samples -------------------------------------------------------------------------------------


def draw(every: list[Question], count: int) -> list[Question]:
    """Return a fixed sample of `count`, or all in order if there are no more."""
    return every if count >= len(every) else random.Random(0).sample(every, count)


def sample(every: list[Question], count: int) -> list[Question]:
    """Sample `count` of each group (0: all), groups interleaved.

    So what slows the machine down for a while affects all of them.
    """
    groups: dict[str, list[Question]] = {}
    for one in every:
        groups.setdefault(one.group, []).append(one)
    columns = [draw(group, count or len(group)) for group in groups.values()]
    return [one for row in zip_longest(*columns) for one in row if one is not None]


def tasks(path: Path, kinds: list[str], count: int, limit: int) -> list[Task]:
    """`count` questions of each of `kinds` as tasks of at most `limit` tokens each.

    Of a conversation only the first turn is asked. Raises ValueError with a one-line message if the
    file has another form or lacks a category.
    """
    known = spec_bench(path)
    found = []
    for kind in kinds:
        every = [one for name in KINDS[kind] for one in known if one.category == name]
        if not every:
            raise ValueError(f"{path}: no question of {', '.join(KINDS[kind])}: leave out {kind}")
        for one in random.Random(0).sample(every, min(count, len(every))):
            found.append(Task(f"{kind}-{one.id}", kind, one.request_after((), limit)))
    return found
