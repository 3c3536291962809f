"""Updates with marks, made from recorded edits: the old file, the update, the new file."""

from __future__ import annotations

import difflib
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from engine.editing.edits import line_count, plain

SEED = 20261123
MARKS = {"python": "# {}", "html": "<!-- {} -->", "css": "/* {} */", "lua": "-- {}", "sql": "-- {}"}
MARK = "... existing code ..."


class Task(NamedTuple):
    """One update to merge into `before`; right if it becomes `after`."""

    name: str
    path: str
    before: str
    update: str
    after: str

    def passes(self, new: str) -> bool:
        """Whether a new text is right. Blank lines around the file do not count."""
        return plain(new).strip() == plain(self.after).strip()


def update_of(old: Sequence[str], new: Sequence[str], context: int, mark: str) -> str:
    """An update with `context` lines around every change, and marks for the lines between."""
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    out: list[str] = []
    at = 0  # line of `new` up to which all is in the update
    for group in matcher.get_grouped_opcodes(context):
        if group[0][3] > at:
            out.append(mark)
        at = group[-1][4]
        out += new[group[0][3] : at]
    if at < len(new):
        out.append(mark)
    return "\n".join(out) + "\n"


def load(files: Sequence[Path], lines: tuple[int, int], sample: int, context: int) -> list[Task]:
    """A fixed sample of the recorded edits of files with so many lines. ValueError where a record
    lacks a field, OSError where a file cannot be read."""
    found = []
    for file in files:
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
            try:
                record = json.loads(line)
                before, after = record["before"], record["after"]
                name, path = record["id"], record.get("path", "")
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{file}:{number}: no recorded edit ({error!r})") from error
            if not lines[0] <= line_count(before) <= lines[1]:
                continue
            old, new = (plain(text).strip("\n").split("\n") for text in (before, after))
            mark = MARKS.get(record.get("language", "python"), "// {}").format(MARK)
            if old != new and not any(MARK in one for one in old + new):
                update = update_of(old, new, context, mark)
                found.append(Task(name, path, before, update, after))
    found.sort(key=lambda task: task.name)
    return random.Random(SEED).sample(found, min(sample, len(found)))
