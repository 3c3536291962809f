"""Recorded edits as tokens, for training and for `bench/replay`.

A file of edits has one JSON record per line with `before` and `after`, the file's `path`, and the
`package` with `old_version` and `new_version`, which together name a step. In mode "file" the
answer is the new file; in mode "hunk" it is the new lines of each hunk of the unified diff.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np

from index.workspace.token_cache import SPLIT_PROBE, Encoder

Mode = Literal["file", "hunk"]
CONTEXT_LINES = 3  # unchanged lines around the changes of a hunk
WORD_ENDS_LINE = re.compile(r"(?<=[0-9A-Za-z])(?=\n)")
REQUIRED_FIELDS = ("before", "after", "path", "package", "old_version", "new_version")


class EditError(ValueError):
    """A file of edits that cannot be read. The message is one line: file, line number, remedy."""


@dataclass(frozen=True, slots=True)
class RecordedEdit:
    """One record, as text."""

    id: str
    package: str
    step: str  # "package old_version -> new_version"
    path: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Replay:
    """One answer to replay, in tokens."""

    id: str
    package: str
    step: str  # replays of one step see each other's old files
    path: str
    prediction: list[int]  # the old file
    start: int  # its token at which the answer starts: 0, or the hunk's first
    output: list[int]  # the new file, or the hunk's new lines; never empty
    before: str = ""  # the old file's text
    whole: bool = False  # the output is the whole file
    # the model's most likely tokens at each of `output`, best first; empty where none are recorded
    likely: list[list[int]] = field(default_factory=list)


def read(path: Path) -> list[RecordedEdit]:
    """Read all edits of a file. Raises EditError for invalid lines, or OSError."""
    edits = []
    try:
        lines = path.read_text("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise EditError(f"{path}: not UTF-8 (byte {error.start}): convert the file") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            edits.append(_edit(f"{path}, line {number}", line))
    if not edits:
        raise EditError(f"{path}: contains no edits: give one JSON object per line")
    return edits


def _edit(where: str, line: str) -> RecordedEdit:
    try:
        record: Any = json.loads(line)
    except ValueError:
        raise EditError(f"{where}: not JSON: give one object per line") from None
    if not isinstance(record, dict):
        raise EditError(
            f"{where}: not a JSON object: give it the fields {', '.join(REQUIRED_FIELDS)}"
        )
    for name in REQUIRED_FIELDS:
        value = record.get(name)
        if not isinstance(value, str) or not value:
            what = (
                "is missing" if value is None else "is empty" if value == "" else "is not a string"
            )
            raise EditError(f"{where}: {name!r} {what}: give it a string or remove the record")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise EditError(f"{where}: {name!r} has a lone surrogate: repair it") from None
    before, after, path, package, old, new = (record[name] for name in REQUIRED_FIELDS)
    step = f"{package} {old} -> {new}"
    return RecordedEdit(
        str(record.get("id") or f"{step}: {path}"), package, step, path, before, after
    )


def load(
    path: Path | str, mode: Mode, encoder: Encoder, package: str = "", limit: int = 0
) -> list[Replay]:
    """Load the replays of a file's edits, in order.

    `package`: the only one whose edits count, if given; `limit`: maximum number of records, 0 for
    all.
    """
    edits = [edit for edit in read(Path(path)) if not package or edit.package == package]
    return replays(edits[: limit or None], mode, encoder)


def replays(edits: list[RecordedEdit], mode: Mode, encoder: Encoder) -> list[Replay]:
    """Make one replay per edit, or per hunk."""
    rows = [(edit, number, *part) for edit in edits for number, part in enumerate(cut(edit, mode))]
    pieces = Pieces(encoder, [text for row in rows for text in row[2:]])
    found = []
    for edit, number, above, old, rest, new in rows:
        head, output = pieces.ids(above), pieces.ids(new)
        prediction = head + pieces.ids(old) + pieces.ids(rest)
        name = edit.id if mode == "file" else f"{edit.id}#{number}"
        step, path, before = edit.step, edit.path, edit.before
        if output:  # emptied files have nothing to replay
            replay = Replay(
                name, edit.package, step, path, prediction, len(head), output, before,
                mode == "file",
            )  # fmt: skip
            found.append(replay)
    return found


class Pieces:
    """A tokenizer of texts in pieces, split where tokenizers always split.

    Each distinct piece is encoded once: the hunks of a file share most of theirs. Lists of ids
    share their ints.
    """

    def __init__(self, encoder: Encoder, texts: list[str]) -> None:
        *parts, whole = encoder.encode_batch([*SPLIT_PROBE, "".join(SPLIT_PROBE)])
        self.splits = np.array_equal(np.concatenate(parts), whole)
        pieces = list({piece for text in texts for piece in self.split(text)})
        encoded = encoder.encode_batch(pieces)
        self.encoded = {text: ids.tolist() for text, ids in zip(pieces, encoded, strict=True)}

    def split(self, text: str) -> list[str]:
        return WORD_ENDS_LINE.split(text) if self.splits else [text]

    def ids(self, text: str) -> list[int]:
        return list(chain.from_iterable(map(self.encoded.__getitem__, self.split(text))))


def cut(edit: RecordedEdit, mode: Mode) -> list[tuple[str, str, str, str]]:
    """Cut an edit into its answers.

    For each: the old text above it, the old text it replaces, the old text below it, and the
    answer.
    """
    if mode == "file":
        return [("", edit.before, "", edit.after)]
    return list(hunks(edit.before, edit.after))


def hunks(before: str, after: str) -> Iterator[tuple[str, str, str, str]]:
    """Cut an edit as `cut` does, into the hunks of a unified diff."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    for group in SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(CONTEXT_LINES):
        (_, a, _, c, _), (_, _, b, _, d) = group[0], group[-1]
        yield "".join(old[:a]), "".join(old[a:b]), "".join(old[b:]), "".join(new[c:d])


def other_files(replays: list[Replay]) -> dict[str, list[tuple[str, str]]]:
    """Collect path and old text of all files of each step, including the replayed one."""
    found: dict[str, dict[str, str]] = {}
    for replay in replays:
        found.setdefault(replay.step, {})[replay.path] = replay.before
    return {step: list(files.items()) for step, files in found.items()}
