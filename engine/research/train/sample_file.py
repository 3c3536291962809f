"""Samples in a file, one JSON object a line: made one by one, each kept once it is whole.

The first line says what they are made from; a file that was made from something else is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from engine.records import RequestError

Report = Callable[[str], None]


class SampleError(ValueError):
    """A file of samples that cannot be used; the message is one line."""


def resume_samples(
    file: Path,
    start: dict[str, Any],
    count: int,
    make: Callable[[int], dict[str, Any]],
    report: Report = lambda line: None,
    what: str = "answer",
) -> Iterator[dict[str, Any]]:
    """`count` samples by their numbers: read where they are there, else made and written. `start`
    (what they are made from) has "questions" among its keys. `what` a sample is called."""
    known = _resume(file, start)
    yield from known
    with file.open("a", encoding="utf-8") as out:
        for number in range(len(known), count):
            try:
                sample = make(number)
            except RequestError as error:
                raise SampleError(f"question {number + 1}: {error}") from error
            out.write(json.dumps(sample) + "\n")
            out.flush()
            os.fsync(out.fileno())
            report(f"{what} {number + 1} of {count}: {len(sample['tokens'])} tokens")
            yield sample


def _resume(file: Path, start: dict[str, Any]) -> list[dict[str, Any]]:
    """What is whole in `file`; the rest of it is cut off."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = file.read_bytes().split(b"\n")[:-1] if file.is_file() else []
    head = json.dumps(start).encode()
    if not lines:
        file.write_bytes(head + b"\n")
        return []
    if lines[0] != head:
        raise SampleError(
            f"{file}: made from other questions or models: remove it, or name another folder"
        )
    os.truncate(file, sum(len(line) + 1 for line in lines))
    try:
        return [json.loads(line) for line in lines[1:]]
    except ValueError as error:
        raise SampleError(f"{file}: damaged ({error}): remove it, and it is made again") from error


def read_records(file: Path) -> Iterator[tuple[str, Any]]:
    """(where, record) of a file of JSON lines, or of one JSON list; what `keep` wrote first is
    left out. BadSamples names what is not there, or no JSON."""
    try:
        text = file.read_text("utf-8", errors="replace")
    except OSError as error:
        raise SampleError(
            f"{file}: unreadable: {error.strerror}: name a file of samples"
        ) from error
    found: list[Any] = []
    try:
        whole = json.loads(text)
        found, name = whole if isinstance(whole, list) else [whole], "entry"
    except ValueError:
        name = "line"
        for number, line in enumerate(text.splitlines(), 1):
            try:
                found.append(json.loads(line))
            except ValueError:
                raise SampleError(
                    f"{file}, line {number}: not JSON: one object a line, or one list"
                ) from None
    for number, record in enumerate(found, 1):
        if not (number == 1 and isinstance(record, dict) and "questions" in record):
            yield f"{file}, {name} {number}", record
