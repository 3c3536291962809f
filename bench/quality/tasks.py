"""Records of EditEval and CanItEdit as edits of whole files and of selections.

CanItEdit's licence forbids training on it: it is only evaluated, nothing is fitted on it, and its
text stays in its files. EditEval's records with an even index are for tuning only.
"""

from __future__ import annotations

import ast
import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from engine import Request

FILES = ("editeval.jsonl", "canitedit.jsonl")
MODES = ("file", "selection")
PLACE = "{{Code}}"  # the place where EditEval's tests put the answer


@dataclass(frozen=True, slots=True)
class Record:
    """An edit with tests. `asked`: instructions by kind."""

    name: str
    before: str
    after: str
    tests: str
    asked: dict[str, str]

    def program(self, code: str) -> str:
        """Return a script that ends without an error if `code` passes the tests."""
        return self.tests.replace(PLACE, code)


# -- reading -----------------------------------------------------------------------------------


def read(folder: Path) -> tuple[list[Record], list[Record]]:
    """Read EditEval and CanItEdit. Raises ValueError or OSError with a one-line message."""
    editeval, canitedit = (list(_records(folder / name)) for name in FILES)
    return editeval, canitedit


def _records(path: Path) -> Iterator[Record]:
    make = _editeval if path.name == FILES[0] else canitedit
    for number, line in enumerate(path.read_text("utf-8").rstrip("\n").split("\n"), 1):
        try:
            yield make(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{path}, line {number}: {error!r}: expected a record of {' or '.join(FILES)}"
            ) from error


def _editeval(raw: dict[str, Any]) -> Record:
    around = raw["context"] or PLACE
    tests = f"{around}\n\n{raw['tests']}\n\ncheck()\n"
    asked = {"instruction": raw["instruction"]}
    return Record(str(raw["id"]), raw["before"], raw["after"], tests, asked)


def canitedit(raw: dict[str, Any]) -> Record:
    """Make a record of CanItEdit."""
    asked = {kind: raw[f"instruction_{kind}"] for kind in ("descriptive", "lazy")}
    tests = f"{PLACE}\n\n{raw['tests']}\n"
    return Record(f"CanItEdit/{raw['id']}", raw["before"], raw["after"], tests, asked)


def spread(records: Sequence[Record], count: int) -> list[Record]:
    """`count` records, evenly spread; all if there are no more."""
    count = min(count, len(records))
    return [records[n * len(records) // count] for n in range(count)]


def chosen(folder: Path, count: int, tune: bool) -> dict[str, list[Record]]:
    """Return the sample of each set: for the report, or for tuning."""
    editeval, canitedit = read(folder)
    if tune:
        return {"editeval-even": spread(editeval[::2], count)}
    return {"editeval": spread(editeval[1::2], count), "canitedit": spread(canitedit, count // 2)}


# -- asking ------------------------------------------------------------------------------------


def request(record: Record, kind: str, mode: str) -> Request:
    """Make the request for an edit by one instruction in one mode."""
    span = selection(record.before, record.after) if mode == "selection" else None
    return Request(
        "edit",
        text=record.before,
        path="task.py",
        selection=span,
        instruction=record.asked[kind],
    )


def selection(before: str, after: str) -> tuple[int, int]:
    """Return the code point range of the lines that differ.

    The functions (else statements) around them are included: a selection by someone who knows where
    the change belongs.
    """
    old, new = before.split("\n"), after.split("\n")
    kept = {i for i, _ in common(old, new)}
    places = {i for i in range(len(old)) if i not in kept} | set(_inserted(old, new))
    blocks = [_block(before, place) for place in places] or [(0, len(old) - 1)]
    first, last = min(a for a, _ in blocks), max(b for _, b in blocks)
    starts = [0]
    for line in old:
        starts.append(starts[-1] + len(line) + 1)
    return starts[first], min(starts[last + 1], len(before))


def _inserted(old: list[str], new: list[str]) -> Iterator[int]:
    """Return the line of `old` that each pure insertion follows, else the first."""
    pairs = [(-1, -1), *common(old, new), (len(old), len(new))]
    for (i, k), (j, m) in pairwise(pairs):
        if j == i + 1 and m > k + 1:
            while i > 0 and not old[i].strip():
                i -= 1
            yield max(i, 0)


def _block(text: str, place: int) -> tuple[int, int]:
    """First and last line (from 0) of the innermost function, else statement, around a line.

    All lines if the text is not Python; the line itself if no statement contains it.
    """
    try:
        tree = ast.parse(textwrap.dedent(text))
    except SyntaxError:
        return 0, text.count("\n")
    found: dict[bool, tuple[int, int]] = {}
    for node in ast.walk(tree):  # outer nodes come before inner ones
        if isinstance(node, ast.stmt):
            above = [one.lineno for one in getattr(node, "decorator_list", [])]
            first, last = min([node.lineno, *above]) - 1, (node.end_lineno or node.lineno) - 1
            if first <= place <= last:
                function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                found[function] = first, last
    return found.get(True) or found.get(False) or (place, place)


# -- what must stay ----------------------------------------------------------------------------


def untouched(before: str, after: str, ours: str) -> tuple[int, int]:
    """Count the bytes of the lines that the right answer keeps.

    Counts how many of these bytes `ours` keeps in the same order, too.
    """
    old = before.split("\n")
    left = [old[i] for i, _ in common(old, after.split("\n"))]
    kept = [left[i] for i, _ in common(left, ours.split("\n"))]
    return sum(map(_bytes, left)), sum(map(_bytes, kept))


def common(a: Sequence[str], b: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs (line of a, line of b) of equal lines in order, with the most bytes in all."""
    best = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]  # bytes common to a[i:] and b[k:]
    for i in reversed(range(len(a))):
        here, below, weight = best[i], best[i + 1], _bytes(a[i])
        for k in reversed(range(len(b))):
            if a[i] == b[k]:
                here[k] = weight + below[k + 1]
            else:
                here[k] = max(here[k + 1], below[k])
    pairs, i, k = [], 0, 0
    while i < len(a) and k < len(b):
        if a[i] == b[k]:
            pairs.append((i, k))
            i, k = i + 1, k + 1
        elif best[i + 1][k] >= best[i][k + 1]:
            i += 1
        else:
            k += 1
    return pairs


def _bytes(line: str) -> int:
    return len(line.encode("utf-8", "replace")) + 1  # with its line break
