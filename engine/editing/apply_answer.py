"""The text of a file with an update merged into it: a model must have written what the update
says."""

from __future__ import annotations

from collections.abc import Sequence

from engine.editing.apply_snippet import EXAMPLE, is_elision, is_mark, snippet, ways_of
from engine.editing.edits import EditRefused, align, apply, plain, strip_blank_lines
from engine.records import Done, Request

MAX_SHOWN_CHARS = 60  # of a line, in an error


def merged(text: str) -> Done:
    """A text that was merged without a model, as the answer to a request."""
    return Done("stop", text, matched="")


def apply_answer(request: Request, done: Done) -> str:
    """The file's new text. EditRefused if the answer must not reach the file: as for any edit, or
    because a model changed what the update does not ask for."""
    new = apply(request, done)
    if done.usage.forwards:
        _check(request.text, request.update, new)
    return new


def _check(text: str, update: str, new: str) -> None:
    """Raise EditRefused where `new` has lines of neither the file nor the update, lacks lines of
    the update, or lacks lines of the file where the update shows no change. Indentation is not
    compared. A text in one of the ways to place the update is right."""
    body = plain(new)
    first, last = strip_blank_lines(body, 0, len(body))
    ways = ways_of(text, update)
    if ways and ways.allow(body[first:last].split("\n")):
        return
    old, lines = (list(map(str.strip, plain(one).split("\n"))) for one in (text, new))
    shown = {line.strip() for line in snippet(update).split("\n")}
    known = shown | {*old}
    for number, line in enumerate(lines, 1):
        if is_mark(line) and line not in old:
            raise EditRefused(
                f"the model left {EXAMPLE} in line {number}: repeat more lines of the file around "
                "each change, or try a larger model"
            )
        if line not in known:
            raise EditRefused(
                f"the model wrote line {number}, which is neither in the file nor in the update: "
                "repeat more lines of the file around each change, or try a larger model"
            )
    numbers = [number for number, line in enumerate(old, 1) if line]
    old, lines = [*filter(None, old)], [*filter(None, lines)]
    _check_chunks(lines, update)
    for same, i, j, k, m in align(old, lines):
        if other := [line for line in lines[k:m] if not same and line not in shown]:
            raise EditRefused(
                f"the model repeated the line {other[0]!r:.{MAX_SHOWN_CHARS}} of the file: repeat "
                "more lines of the file around each change, or try a larger model"
            )
        if not same and k == m and i < j and not _is_shown(old, i, j, shown):
            raise EditRefused(
                f"the model left out the lines {numbers[i]} to {numbers[j - 1]} of the file, which "
                "the update does not ask for: repeat more lines of the file around each change, or "
                "try a larger model"
            )


def _check_chunks(lines: Sequence[str], update: str) -> None:
    """Raise EditRefused unless the chunks of an update are in `lines`, whole and in their order.
    Neither indentation nor blank lines are compared; lines that may be marks end a chunk too."""
    at = 0
    for part in _shown_chunks(snippet(update).split("\n")):
        shown = [line for _, line in part]
        places = (n for n in range(at, len(lines)) if lines[n] == shown[0])
        found = next((n for n in places if lines[n : n + len(shown)] == shown), None)
        if found is None:
            raise EditRefused(
                f"the model did not write the chunk at line {part[0][0]} of the update as it is: "
                f"write {EXAMPLE} wherever lines stay, or try a larger model"
            )
        at = found + len(shown)


def _shown_chunks(lines: Sequence[str]) -> list[list[tuple[int, str]]]:
    """The chunks of an update, each as its numbered lines, stripped and without blank ones."""
    found: list[list[tuple[int, str]]] = [[]]
    for number, line in enumerate(lines, 1):
        if is_mark(line) or is_elision(line):
            found.append([])
        elif line.strip():
            found[-1].append((number, line.strip()))
    return [part for part in found if part]


def _is_shown(old: list[str], start: int, stop: int, shown: set[str]) -> bool:
    """Whether the update has the lines around a deletion; there are no blank lines. Where equal
    lines make it one of several equal deletions, any of them counts."""
    while start and old[start - 1] == old[stop - 1]:
        start, stop = start - 1, stop - 1
    while True:
        if {*old[max(0, start - 1) : start], *old[stop : stop + 1]} <= shown:
            return True
        if stop == len(old) or old[start] != old[stop]:
            return False
        start, stop = start + 1, stop + 1
