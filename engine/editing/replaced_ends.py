"""The lines of a file that new ones at an end of an update's chunk replace.

Where lines do not tell it, the reason is returned too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from engine.editing.blocks import KEY, LEAVES, head_of, indent, is_same_block
from engine.editing.like_lines import resembles
from engine.editing.merge_ways import END, START
from engine.editing.syntax import QUOTES
from engine.editing.update_chunk import CLOSES, File, UpdateChunk

APART = 2  # blank lines between definitions
FAR = 10  # lines to the next place of a new line, for each new one, that cannot be meant
FEW = 3  # lines above a new block that may stand elsewhere too
COMMENT_LINE = re.compile(r"\s*(?:#|//|/?\*)")
LABEL = re.compile(r"(?:case|default|else|elif|except|finally|catch|end)\b|\W")


def replaced_after(part: UpdateChunk, file: File, row: int, at: int) -> tuple[int, str]:
    """Find the line after those that a chunk replaces, or say why that is not known.

    The chunk's lines after `row`, which is line `at` of the file, are new.
    """
    text, new = file.text, part.text[row + 1 :]
    stop = at + 1
    doubt = f"{part.name} ends with new lines, which may replace others"
    if file.is_body and any(line in file.places for line in new):
        return stop, doubt
    if part.text[row] == START and not _is_in_body(part, file):
        return stop, _added_at_end(part, file, text[stop])
    for number, line in enumerate(new, row + 1):
        rest = part.text[number:]
        least = min(map(indent, rest))
        following = text[stop]
        if following == END or indent(following) < least:
            return stop, "" if indent(text[stop - 1]) >= least else doubt
        is_apart = blank_lines(file.full, stop) and not blank_lines(part.full, number)
        if is_apart and not _may_replace(rest, text[stop:]):
            near = text[stop : stop + FAR * len(rest)]
            return stop, doubt if rest[-1] in near else ""
        if _same_key(line, following) and indent(text[stop + 1]) <= indent(following):
            stop += 1
            continue
        block = _block(text[stop : stop + len(rest) + 1], least)
        leaves = indent(rest[-1]) == least and LEAVES.match(rest[-1].strip())
        if leaves and 0 < len(block) <= len(rest):
            return stop + len(block), ""
        return stop, doubt if not file.is_body or _may_replace(new, text[stop:]) else ""
    return stop, ""


def replaced_before(part: UpdateChunk, file: File, row: int, at: int) -> tuple[int, str]:
    """Find the first line that a chunk replaces, or say why that is not known.

    The chunk's lines before `row`, which is line `at` of the file, are new.
    """
    text = file.text
    doubt = f"{part.name} begins with new lines, which may replace others"
    if part.text[row] == END:
        if not _is_in_body(part, file):
            return at, _added_at_end(part, file, text[at - 1])
        ends = [line for line in text[:at] if not line[0].isspace() and not CLOSES.fullmatch(line)]
        if LEAVES.match(ends[-1]):
            return at - 1, "" if at > 2 and leaves_too(part.inner, text[at - 1 : at]) else doubt
    if any(line in file.places for line in part.text[:row]):
        return at, doubt
    if file.is_body and row > 1 and _same_key(part.text[0], text[at - 1]):
        return at - 1, doubt if _may_replace(part.text[1:row], text[: at - 1][::-1]) else ""
    for number in range(row - 1, -1, -1):
        line, previous = part.text[number], text[at - 1]
        least = min(map(indent, part.text[: number + 1]))
        if previous == START or indent(previous) < least:
            return at, "" if indent(text[at]) >= least else doubt
        if _same_key(line, previous) and indent(text[at]) <= indent(previous):
            at -= 1
            continue
        if row == 1 and indent(previous) == indent(line) < indent(text[at]):
            return at - 1, "" if is_same_block(previous, line) else doubt
        return at, doubt if not file.is_body or _may_replace(
            part.text[:row], text[:at][::-1]
        ) else ""
    return at, ""


def _may_replace(new: Sequence[str], near: Sequence[str]) -> bool:
    """Return whether new lines may stand for one of the next lines, or keep it from being run."""
    least = min(map(indent, new))
    return any(indent(line) == least and LEAVES.match(line.strip()) for line in new) or any(
        indent(line) == indent(other)
        and (
            is_same_block(line, other)
            or "" != head_of(line) == head_of(other)
            or resembles(line, other)
        )
        for line in [line for line in near if not COMMENT_LINE.match(line)][: len(new) + FEW]
        for other in new
    )


def leaves_too(new: Sequence[str], old: Sequence[str]) -> bool:
    """Return whether a line that leaves a block has one in its place, below lines that are new."""
    if len(old) != 1 or not new or indent(new[-1]) != indent(old[0]):
        return False
    return all(LEAVES.match(lines[-1].strip()) for lines in (new, old))


def _is_in_body(part: UpdateChunk, file: File) -> bool:
    """Return whether a chunk of new lines is added to the body of a definition."""
    return file.is_body and part.is_new(Counter(map(str.strip, file.text)))


def _added_at_end(part: UpdateChunk, file: File, neighbour: str) -> str:
    """Say why a chunk without lines of the file may not be added at an end, next to a line."""
    known = Counter(map(str.strip, file.text))
    words = [line.split(" ")[0] for line in part.inner]
    heads = set(map(head_of, part.inner)) - {""}
    if (
        heads.isdisjoint(map(head_of, file.text))
        and part.is_new(known)
        and neighbour.split(" ")[0] not in words
        and not neighbour.startswith(QUOTES)  # of a docstring, which stays the first
    ):
        return ""
    return f"{part.name} may replace lines at an end of the file, or add some"


def _block(lines: list[str], least: int) -> list[str]:
    """Return the first lines, all at one indentation, that end before one with less than `least`.

    Returns [] where no line ends them, or where not all are plain statements.
    """
    stop = next((n for n, line in enumerate(lines) if line == END or indent(line) < least), None)
    block = lines[:stop]
    plain = all(indent(line) == least and not LABEL.match(line.strip()) for line in block)
    return block if stop is not None and plain else []


def _same_key(line: str, other: str) -> bool:
    """Return whether two lines give the same name a value, and neither builds on the other's."""
    one, two = KEY.match(line.strip()), KEY.match(other.strip())
    if indent(line) != indent(other) or not one or not two or one[1] != two[1]:
        return False
    name = re.compile(rf"(?<![\w.]){re.escape(one[1].split()[-1])}(?!\w)")
    return not any(name.search(found.string, found.end()) for found in (one, two))


def blank_lines(full: list[int], at: int) -> int:
    """Count the blank lines before a line; many at an end."""
    return full[at] - full[at - 1] - 1 if 0 < at < len(full) else APART
