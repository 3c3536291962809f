"""Recorded edits as tokens: what bench/replay/replay.py replays, and what weights are trained on.

A file of edits is JSONL: one record a line with `before` and `after`, the file's `path`, and the
`package` with its `old_version` and `new_version`, which together are one step. In mode "file" the
answer is the new file; in mode "hunk" it is the new lines of each hunk of the unified diff.
No drafter and no model is known here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np

from index.workspace.token_cache import SPLIT_PROBE, Encoder

Mode = Literal["file", "hunk"]
CONTEXT_LINES = 3  # unchanged lines around a change that belong to its hunk
WORD_ENDS_LINE = re.compile(r"(?<=[0-9A-Za-z])(?=\n)")
REQUIRED_FIELDS = ("before", "after", "path", "package", "old_version", "new_version")


class EditError(ValueError):
    """A file of edits that cannot be read; the message is one line: file, line number, remedy."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One record of the file, as text."""

    id: str
    package: str
    step: str  # "package old_version -> new_version"
    path: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Replay:
    """One answer to be drafted again, in tokens."""

    id: str
    package: str
    step: str  # "package old_version -> new_version": replays of one step see each other's files
    path: str
    prediction: list[int]  # the old file
    start: int  # where in it the answer starts to repeat it: 0, or the first token of the hunk
    output: list[int]  # the new file, or the new lines of the hunk; never empty
    before: str = ""  # the old file's text
    whole: bool = False  # the output is the whole file


def read(path: Path) -> list[Edit]:
    """All edits of a file. BadEdits names the line that is wrong; OSError where it is not there."""
    edits = []
    try:
        lines = path.read_text("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise EditError(f"{path}: not UTF-8 (byte {error.start}): convert it") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            edits.append(_edit(f"{path}, line {number}", line))
    if not edits:
        raise EditError(f"{path}: no edits in it: one JSON object a line is needed")
    return edits


def _edit(where: str, line: str) -> Edit:
    try:
        record: Any = json.loads(line)
    except ValueError:
        raise EditError(f"{where}: not JSON: one object a line is needed") from None
    if not isinstance(record, dict):
        raise EditError(f"{where}: not a JSON object: give it fields {', '.join(REQUIRED_FIELDS)}")
    for name in REQUIRED_FIELDS:
        value = record.get(name)
        if not isinstance(value, str) or not value:
            what = "is missing" if value is None else "is empty" if value == "" else "is no text"
            raise EditError(f"{where}: {name!r} {what}: give it a text or leave the record out")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise EditError(f"{where}: {name!r} has half a character: repair it") from None
    before, after, path, package, old, new = (record[name] for name in REQUIRED_FIELDS)
    step = f"{package} {old} -> {new}"
    return Edit(str(record.get("id") or f"{step}: {path}"), package, step, path, before, after)


def load(
    path: Path | str, mode: Mode, encoder: Encoder, package: str = "", limit: int = 0
) -> list[Replay]:
    """The replays of a file's edits, in its order. `package`: only this one's; `limit`: of the
    file's records at most so many, 0 for all."""
    edits = [edit for edit in read(Path(path)) if not package or edit.package == package]
    return replays(edits[: limit or None], mode, encoder)


def replays(edits: list[Edit], mode: Mode, encoder: Encoder) -> list[Replay]:
    """A replay for each edit, or for each of its hunks."""
    rows = [(edit, number, *one) for edit in edits for number, one in enumerate(cut(edit, mode))]
    pieces = Pieces(encoder, [text for row in rows for text in row[2:]])
    found = []
    for edit, number, above, old, rest, new in rows:
        head, output = pieces.ids(above), pieces.ids(new)
        prediction = head + pieces.ids(old) + pieces.ids(rest)
        name = edit.id if mode == "file" else f"{edit.id}#{number}"
        step, path, before = edit.step, edit.path, edit.before
        if output:  # a file that was emptied leaves nothing to be written
            found.append(
                Replay(
                    name,
                    edit.package,
                    step,
                    path,
                    prediction,
                    len(head),
                    output,
                    before,
                    mode == "file",
                )
            )
    return found


class Pieces:
    """Texts in pieces that tokenizers split a text at in any case, each tokenised once: the hunks
    of a file have most of theirs in common. Lists of ids share their ints."""

    def __init__(self, encoder: Encoder, texts: list[str]) -> None:
        *parts, whole = encoder.encode_batch([*SPLIT_PROBE, "".join(SPLIT_PROBE)])
        self.apart = np.array_equal(np.concatenate(parts), whole)
        pieces = list({piece for text in texts for piece in self.split(text)})
        encoded = encoder.encode_batch(pieces)
        self.known = {text: ids.tolist() for text, ids in zip(pieces, encoded, strict=True)}

    def split(self, text: str) -> list[str]:
        return WORD_ENDS_LINE.split(text) if self.apart else [text]

    def ids(self, text: str) -> list[int]:
        return list(chain.from_iterable(map(self.known.__getitem__, self.split(text))))


def cut(edit: Edit, mode: Mode) -> list[tuple[str, str, str, str]]:
    """For each answer: the old text above it, what it replaces, the old text below it; and it."""
    if mode == "file":
        return [("", edit.before, "", edit.after)]
    return list(hunks(edit.before, edit.after))


def hunks(before: str, after: str) -> Iterator[tuple[str, str, str, str]]:
    """Each hunk of a unified diff: the old text above it, its old lines, the old text below it, and
    its new lines."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    for group in SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(CONTEXT_LINES):
        (_, a, _, c, _), (_, _, b, _, d) = group[0], group[-1]
        yield "".join(old[:a]), "".join(old[a:b]), "".join(old[b:]), "".join(new[c:d])


def other_files(replays: list[Replay]) -> dict[str, list[tuple[str, str]]]:
    """By step: path and old text of its files. Whoever replays one of them leaves it out."""
    found: dict[str, dict[str, str]] = {}
    for replay in replays:
        found.setdefault(replay.step, {})[replay.path] = replay.before
    return {step: list(files.items()) for step, files in found.items()}
