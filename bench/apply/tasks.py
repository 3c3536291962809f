"""Updates with marks, made from recorded edits: the old file, the update, the new file."""

from __future__ import annotations

import difflib
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from engine.editing.edits import line_count, plain
from research.train.edit_records import RecordedEdit, read

SEED = 20261123
MARK = "... existing code ..."
COMMENTS = {  # file's suffix -> comment; others have //
    ".py": "# {}", ".sh": "# {}", ".rb": "# {}", ".toml": "# {}", ".yml": "# {}", ".yaml": "# {}",
    ".html": "<!-- {} -->", ".md": "<!-- {} -->", ".css": "/* {} */", ".lua": "-- {}",
    ".sql": "-- {}",
}  # fmt: skip


class Task(NamedTuple):
    """One update to merge into `before`; right if it becomes `after`."""

    name: str
    path: str
    before: str
    update: str
    after: str

    def passes(self, new: str) -> bool:
        """Return whether a new text is right. Blank lines around the file do not count."""
        return plain(new).strip() == plain(self.after).strip()


def update_of(old: Sequence[str], new: Sequence[str], context: int, mark: str) -> str:
    """Make an update with `context` lines around every change.

    Marks stand for the lines between.
    """
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


def load(
    files: Sequence[Path],
    lines: tuple[int, int],
    context: int,
    packages: Sequence[str] = (),
) -> list[Task]:
    """Load the recorded edits of files with so many lines, in a fixed random order.

    They are of these packages or of all. EditError where a file is no such data, OSError where it
    cannot be read.
    """
    every = [edit for file in files for edit in read(file)]
    chosen = [edit for edit in every if not packages or edit.package in packages]
    found = [
        task
        for edit in sorted(chosen, key=lambda edit: edit.id)
        if lines[0] <= line_count(edit.before) <= lines[1] and (task := task_of(edit, context))
    ]
    random.Random(SEED).shuffle(found)
    return found


def task_of(edit: RecordedEdit, context: int) -> Task | None:
    """Make the task of a recorded edit.

    None where the update would be the whole file or nothing, or the file has such marks itself.
    """
    old, new = (plain(text).strip("\n").split("\n") for text in (edit.before, edit.after))
    mark = COMMENTS.get(Path(edit.path).suffix, "// {}").format(MARK)
    update = update_of(old, new, context, mark)
    if old == new or update.count(MARK) == 0 or any(MARK in line for line in old + new):
        return None
    return Task(edit.id, edit.path, edit.before, update, edit.after)
