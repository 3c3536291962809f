"""Files of training records: JSON lines, or one JSON list.

`resume_samples` generates samples one at a time and appends each to a file, so that an interrupted
run continues where it stopped. The first line records what the samples are made from; a file made
from something else is rejected.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from engine.records import RequestError

Report = Callable[[str], None]
QUESTION_FIELDS = ("turns", "prompt", "question", "instruction")


class SampleError(ValueError):
    """A file of records that cannot be used. The message is one line."""


def resume_samples(
    file: Path,
    header: dict[str, Any],
    count: int,
    make: Callable[[int], dict[str, Any]],
    report: Report = lambda line: None,
    noun: str = "answer",
) -> Iterator[dict[str, Any]]:
    """Yield `count` samples: those in `file`, then new ones, which are appended.

    New ones come from `make(number)`. `header`: what the samples are made from; it has a key
    "questions". `noun`: for the report.
    """
    existing = _resume(file, header)
    yield from existing
    with file.open("a", encoding="utf-8") as out:
        for number in range(len(existing), count):
            try:
                sample = make(number)
            except RequestError as error:
                raise SampleError(f"question {number + 1}: {error}") from error
            out.write(json.dumps(sample) + "\n")
            out.flush()
            os.fsync(out.fileno())
            report(f"{noun} {number + 1} of {count}: {len(sample['tokens'])} tokens")
            yield sample


def _resume(file: Path, header: dict[str, Any]) -> list[dict[str, Any]]:
    """Read the complete samples in `file`; a partial last line is truncated."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = file.read_bytes().split(b"\n")[:-1] if file.is_file() else []
    head = json.dumps(header).encode()
    if not lines:
        file.write_bytes(head + b"\n")
        return []
    if lines[0] != head:
        raise SampleError(
            f"{file}: made from other questions or models: remove it, or choose another folder"
        )
    os.truncate(file, sum(len(line) + 1 for line in lines))
    try:
        return [json.loads(line) for line in lines[1:]]
    except ValueError as error:
        raise SampleError(f"{file}: damaged ({error}): remove it to start again") from error


def read_records(file: Path, errors: str = "replace") -> Iterator[tuple[str, Any]]:
    """Yield (location, record) for each record, without the header of `resume_samples`.

    `errors`: how invalid UTF-8 is handled. Raises SampleError if the file cannot be read or parsed.
    """
    try:
        text = file.read_text("utf-8", errors=errors)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise SampleError(f"{file}: unreadable: {why}: give another file") from error
    found: list[tuple[int, Any]] = []
    try:
        parsed = json.loads(text)
        found = list(enumerate(parsed if isinstance(parsed, list) else [parsed], 1))
        unit = "entry"
    except (ValueError, RecursionError):
        unit = "line"
        for number, line in enumerate(text.splitlines(), 1):
            try:
                if line.strip():
                    found.append((number, json.loads(line)))
            except (ValueError, RecursionError):
                raise SampleError(
                    f"{file}, line {number}: not JSON: give one object per line, or one list"
                ) from None
    for number, record in found:
        if not (number == 1 and isinstance(record, dict) and "questions" in record):
            yield f"{file}, {unit} {number}", record


def read_questions(file: Path) -> list[str]:
    """Read the questions in a file.

    Its records have `turns` (the first one is used), `prompt`, `question` or `instruction` (with
    `input`, as Alpaca's). Raises SampleError.
    """
    found = []
    for where, record in read_records(file, errors="strict"):
        question = _question(record)
        if not question.strip():
            names = ", ".join(QUESTION_FIELDS)
            raise SampleError(f"{where}: no question: a record needs one of {names}")
        found.append(question)
    if not found:
        raise SampleError(f"{file}: contains no question: give another file")
    return found


def _question(record: Any) -> str:
    """Find the question of a record; "" if there is none."""
    if not isinstance(record, dict):
        return ""
    for name in QUESTION_FIELDS:
        value = record.get(name)
        if isinstance(value, list):
            value = value[0] if value else ""
        if isinstance(value, str) and value.strip():
            extra = record.get("input") if name == "instruction" else None
            return f"{value}\n\n{extra}" if isinstance(extra, str) and extra.strip() else value
    return ""
