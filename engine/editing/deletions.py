"""The deletions that an update asks for, told apart from those that it does not ask for.

It asks to delete lines that it leaves out between two lines that it shows, and lines that new ones
stand in for. An update may be read in several ways, and the reading that deletes least is the one
to trust. What is deleted next to an end of a chunk, or next to a mark, is therefore asked for only
where new lines are versions of it; between two shown lines only near them, or in a block that is
shown as a whole.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from engine.editing.blocks import LEAVES, SECTION, head_of
from engine.editing.edits import align
from engine.editing.placement import Replaced

MAX_NEAR_LINES = 1  # lines deleted for no new ones, between two single lines of the update
MAX_SHOWN_LINES = 10  # lines deleted for no new ones, between several lines of the update
STRONG_LINES = 2  # lines of the file next to a deletion, in the update
ALIKE_SHARE = 2 / 3  # share of the words of two lines, one of which is a new version of the other
MAX_NEARBY_LINES = 50  # lines in either direction that a new line may be a version of, too
TAB_CHARS = 8
HEADED = -10  # characters of indentation of what a heading begins

CLOSERS = (")", "]", "}", "end")


class FullLine(NamedTuple):
    """A line that is not blank."""

    text: str  # without the white space around it
    row: int  # row in its text, from 0
    indent: int  # characters before it; fewer where it is a heading


class MergeHunk(NamedTuple):
    """Lines of the file and the new ones in their place.

    `before`, `after`: the lines of the chunk that the file has too, on either side; 0 where none is
    next to the change, as at an end of the chunk, which may be at a mark.
    """

    old: tuple[int, int]
    new: tuple[int, int]
    before: int
    after: int


def lines_of(rows: Sequence[str], headings: bool) -> list[FullLine]:
    """Return the lines that are not blank. `headings`: lines that begin with # are headings."""
    return [
        FullLine(line.strip(), row, _indent(line, headings))
        for row, line in enumerate(rows)
        if line.strip()
    ]


def _indent(line: str, headings: bool) -> int:
    if SECTION.match(line.rstrip()) and (headings or line[0] == "["):
        return HEADED + len(line) - len(line.lstrip("#"))
    wide = line.expandtabs(TAB_CHARS)
    return len(wide) - len(wide.lstrip())


Run = tuple[bool, int, int, int, int]  # equal?, lines of the file, new lines


def _runs(old: Sequence[FullLine], new: Sequence[FullLine], group: Replaced) -> list[Run]:
    """Split a group of chunks and its part of the file into equal lines, and those between them."""
    (first, last), (start, stop) = group.old, group.new
    texts = ([line.text for line in old[first:last]], [line.text for line in new[start:stop]])
    return [
        (same, i + first, j + first, k + start, m + start)
        for same, i, j, k, m in align(*texts)
        if i < j or k < m
    ]


def equal_lines(
    old: Sequence[FullLine], new: Sequence[FullLine], group: Replaced
) -> Iterator[tuple[int, int]]:
    """Yield the lines of the file that a group of chunks repeats, with those of the new text."""
    for same, i, j, k, m in _runs(old, new, group):
        if same:
            yield from zip(range(i, j), range(k, m), strict=True)


def hunks(old: Sequence[FullLine], new: Sequence[FullLine], group: Replaced) -> list[MergeHunk]:
    """Return the changes of a group of chunks, in order."""
    runs = _runs(old, new, group)
    same = [at for equal, _, _, k, m in runs if equal for at in range(k, m)]
    found = []
    for equal, i, j, k, m in runs:
        if equal:
            continue
        start = max((seam for seam in group.seams if seam <= m), default=group.new[0])
        stop = min((seam for seam in group.seams if seam >= k), default=group.new[1])
        before, after = (
            bisect_left(same, k) - bisect_left(same, start),
            bisect_left(same, stop) - bisect_left(same, m),
        )
        found.append(MergeHunk((i, j), (k, m), max(before, 0), max(after, 0)))
    return found


class Ends(NamedTuple):
    """The ends of an update with marks: whether it begins and ends with lines of the new text."""

    first: bool
    last: bool


def unasked(
    old: Sequence[FullLine], new: Sequence[FullLine], group: Replaced, ends: Ends, by_model: bool
) -> list[tuple[int, int]]:
    """Find the lines of the file that were deleted without the update asking for it.

    Where a model has placed the chunks, a deletion between two shown lines must be near them too.
    """
    every = hunks(old, new, group)
    changed = {at for hunk in every for at in range(*hunk.old)}
    return [
        hunk.old
        for hunk in every
        if hunk.old[0] < hunk.old[1]
        and not (
            _is_between(old, new, hunk) and (not by_model or _is_near(old, group, hunk, changed))
        )
        and not _is_end(len(old), len(new), hunk, ends)
        and not _is_left(old, new, hunk)
        and not _is_replaced(old, new, hunk)
    ]


def repeated(old: Sequence[FullLine], new: Sequence[FullLine], group: Replaced) -> str | None:
    """Find a line that the file has once, and that stays, but a group of chunks writes again.

    It is next to the group, or its chunk is not in its place. None if there is none.
    """
    known = Counter(line.text for line in old)
    every = hunks(old, new, group)
    added = {at for hunk in every for at in range(*hunk.new)}
    own = [at for at in range(*group.new) if known[new[at].text] == 1]
    most = 2 * len(own) > group.new[1] - group.new[0]
    if own and added.issuperset(own) and (own[0] == group.new[0] or most):
        return new[own[0]].text
    texts = [line.text for line in new[slice(*group.new)]]
    head = next((at for at, _ in enumerate(texts) if at + group.new[0] not in added), len(texts))
    tail = next(
        (at for at, _ in enumerate(texts) if group.new[1] - 1 - at not in added), len(texts)
    )
    above = [line.text for line in old[: group.old[0]][-MAX_NEARBY_LINES:]]
    below = [line.text for line in old[group.old[1] :][:MAX_NEARBY_LINES]]
    nearby = _overlap(texts[:head], above) or _overlap(
        texts[len(texts) - tail :][::-1], below[::-1]
    )
    return next((line for line in nearby if known[line] == 1), None)


def _overlap(lines: Sequence[str], above: Sequence[str]) -> Sequence[str]:
    """Return the first of some lines that are also the last of those above them."""
    sizes = range(1, min(len(lines), len(above)) + 1)
    return next((lines[:size] for size in sizes if lines[:size] == above[-size:]), [])


def _is_between(old: Sequence[FullLine], new: Sequence[FullLine], hunk: MergeHunk) -> bool:
    """Return whether the update shows the lines around a deletion.

    It shows many of them, or the deletion is in the block of one of them, as no more old lines than
    new ones are further out.
    """
    (first, last), (start, stop) = hunk.old, hunk.new
    if not hunk.before or not hunk.after or _ends_earlier(old, hunk):
        return False
    if min(hunk.before, hunk.after) > STRONG_LINES:
        return True
    above, below = old[first - 1], old[last]
    inside = old[last - 1].indent > below.indent and below.text.startswith(CLOSERS)
    least = min(above.indent + (old[first].indent > above.indent), below.indent + inside)
    outer = [
        sum(line.indent < least and not line.text.startswith(CLOSERS) for line in lines)
        for lines in (old[first:last], new[start:stop])
    ]
    return outer[0] <= outer[1]


def _ends_earlier(old: Sequence[FullLine], hunk: MergeHunk) -> bool:
    """Return whether the first or the last line of a chunk is among the deleted ones too.

    Then the chunk may stand for fewer lines.
    """
    first, last = hunk.old
    ends = [old[first - 1]] * (hunk.before == 1) + [old[last]] * (hunk.after == 1)
    lines = {(line.text, line.indent) for line in old[first:last]}
    return any((line.text, line.indent) in lines for line in ends)


def _is_near(old: Sequence[FullLine], group: Replaced, hunk: MergeHunk, changed: set[int]) -> bool:
    """Return whether a deletion between shown lines is short, or all of a block."""
    first, last = hunk.old
    missing = last - first - (hunk.new[1] - hunk.new[0])
    if missing <= MAX_NEAR_LINES:
        return True
    least = min(line.indent for line in old[first:last])
    # A line that begins a block is no new last line of a chunk: it says where the next one is.
    after = STRONG_LINES if _begins_block(old, last) else hunk.after
    if min(hunk.before, after) >= STRONG_LINES and missing <= MAX_SHOWN_LINES:
        return True
    stayed = (at for at in reversed(range(group.old[0], first)) if at not in changed)
    head = next((old[at].indent for at in stayed if old[at].indent < least), None)
    if head is None:
        return False
    ends = last + hunk.after == group.old[1]
    below = group.old[1] == len(old) or old[group.old[1]].indent <= head
    return old[last].indent <= head or (ends and below)


def _begins_block(old: Sequence[FullLine], at: int) -> bool:
    return at + 1 < len(old) and old[at].indent < old[at + 1].indent


def _is_end(old: int, new: int, hunk: MergeHunk, ends: Ends) -> bool:
    """Return whether the update shows an end of the file, and at least as many new lines there."""
    first = ends.first and hunk.old[0] == hunk.new[0] == 0 and hunk.after > 0
    last = ends.last and (hunk.old[1], hunk.new[1]) == (old, new) and hunk.before > 0
    return (first or last) and hunk.old[1] - hunk.old[0] <= hunk.new[1] - hunk.new[0]


def _is_left(old: Sequence[FullLine], new: Sequence[FullLine], hunk: MergeHunk) -> bool:
    """Return whether the new lines leave the block that the deleted ones end.

    The deleted lines would not be reached.
    """
    if hunk.after or hunk.new[0] == hunk.new[1]:
        return False
    lines = [*new[slice(*hunk.new)]]
    while lines and (lines[-1].text.startswith(CLOSERS) or lines[-1].indent > lines[0].indent):
        lines.pop()
    if not lines or not LEAVES.match(lines[-1].text):
        return False
    return 0 < lines[-1].indent <= min(line.indent for line in old[slice(*hunk.old)])


def _is_replaced(old: Sequence[FullLine], new: Sequence[FullLine], hunk: MergeHunk) -> bool:
    """Return whether each deleted line has a new one, in their order, that is a version of it."""
    fresh: Iterator[FullLine] = iter(new[slice(*hunk.new)])
    return all(any(_is_version(old, at, line) for line in fresh) for at in range(*hunk.old))


def _is_version(old: Sequence[FullLine], at: int, line: FullLine) -> bool:
    """Return whether a new line is a version of that of the file, and of no other one near it."""
    nearby = [old[near].text for near in _siblings(old, at)]
    head = head_of(line.text)
    if head and head == head_of(old[at].text) and head not in map(head_of, nearby):
        return True
    share = _share(line.text, old[at].text)
    return share >= ALIKE_SHARE and all(_share(line.text, text) < share for text in nearby)


def _siblings(old: Sequence[FullLine], at: int) -> Iterator[int]:
    """Yield the other lines of a line's block that are indented as it is."""
    for step in (-1, 1):
        for near in range(at + step, at + step * (MAX_NEARBY_LINES + 1), step):
            if not 0 <= near < len(old) or old[near].indent < old[at].indent:
                break
            if old[near].indent == old[at].indent:
                yield near


def _share(one: str, other: str) -> float:
    """Return the share of the words of two lines that both have."""
    ours, theirs = (set(re.findall(r"\w+", line)) for line in (one, other))
    return len(ours & theirs) * 2 / (len(ours) + len(theirs)) if ours and theirs else 0.0
