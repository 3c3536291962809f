"""The places where the chunks of an update may belong in a file, and what they replace there.

A chunk is aligned with the file's lines, blank ones aside, so that few lines are inserted, deleted
or replaced. A reading is sure only if no other one comes near it, and if what it deletes is stood
in for or lies close between lines that the chunk shows. The limits were found on recorded edits
with one, two and three lines around each change.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from engine.editing.blocks import (
    begins_block,
    head_of,
    indent,
    is_inside,
    is_same_block,
)
from engine.editing.edits import common_prefix
from engine.editing.line_distance import distances, matches
from engine.editing.merge_ways import END, START, Lines
from engine.editing.replaced_ends import (
    APART,
    FEW,
    blank_lines,
    leaves_too,
    replaced_after,
    replaced_before,
)
from engine.editing.update_chunk import File, UpdateChunk

MARGIN = 2  # lines by which a reading must be nearer than another one
MAX_ENDS = 20  # places that are looked at for one chunk
MAX_ALIGNED = 50_000_000  # pairs of lines between the equal ends of a chunk and its place
FIRM = 4  # cost by which another firm reading of the same lines may be further
NEAR = 3  # deleted lines of another block that may have been meant
MUCH = 1.5  # times the kept lines of a reading inside it, which is then no rival
ANCHOR_LINES = 2  # lines at each end of a firm reading
FREE = 3  # deleted lines with none in their place that cost as much as a new one
MAX_GONE = (0, 2, 12, 30)  # lines; the chunk shows none, one, two and more on either side
VERSION_SHARE = 2 / 3  # share of outermost lines that a new version of them still has


class Reading(NamedTuple):
    """The lines to write in place of lines of the file."""

    start: int
    stop: int
    lines: Lines
    cost: float  # new lines, and a share of those deleted that no new ones stand for
    repeated: float  # lines of the file that the chunk repeats, each over its count there
    anchored: bool = True  # begins and ends with lines of the file
    firm: bool = True  # begins and ends with two of them
    deleted: int = 0
    crosses: bool = False  # deletes lines of a block outside
    close: bool = True  # no blank lines between its new lines at an end and the others
    doubt: str = ""  # why the lines that it replaces may be others


# -- the places of one chunk -------------------------------------------------------------------


def readings(part: UpdateChunk, file: File) -> list[Reading]:
    """Find the readings of a chunk that may be meant, nearest first."""
    if len(part.text) == 1:
        every = [at for at, line in enumerate(file.lines) if line == part.text[0]]
        repeated = 1 / (len(every) or 1)
        return [Reading(at, at + 1, part.lines, 0, repeated) for at in every]
    found: dict[tuple[int, int, int, int], Reading] = {}
    spans = dict.fromkeys([*_spans(part.text, file.text), *_anchored(part.text, file)])
    for start, stop in spans:
        pairs = _aligned(part.text, file.text[start:stop], start)
        if pairs:
            ends = (*pairs[0], *pairs[-1])
            if ends not in found:
                found[ends] = _reading(part, file, pairs)
    return _meant([*found.values()])


def _spans(pattern: list[str], text: list[str]) -> Iterator[tuple[int, int]]:
    """Yield the spans of a text that are nearly the nearest ones to a pattern."""
    size, most = len(pattern), len(text)
    if pattern[-1] == END:
        ends, best = [most], min(distances(pattern[::-1], text[: -2 * size - 1 : -1], False))
    else:
        free = pattern[0] != START
        every = [*distances(pattern, text if free else text[: 2 * size], free)]
        best = min(every)
        ends = sorted(range(len(every)), key=every.__getitem__)[:MAX_ENDS]
    limit = min(best + MARGIN, size - 1)
    for stop in ends:
        window = text[max(0, stop - size - limit) : stop]
        for length, distance in enumerate(distances(pattern[::-1], window[::-1], False)):
            if distance <= limit:
                yield stop - length, stop


def _anchored(pattern: list[str], file: File) -> Iterator[tuple[int, int]]:
    """Yield the spans of a file that begin and end with the ends of a pattern.

    They reach from a place of the pattern's first lines to the next one of its last lines, and from
    a place of its last lines back to the one before of its first lines.
    """
    for size in range(1, ANCHOR_LINES + 1):
        firsts = file.places_of(pattern[:size])
        lasts = [at + size for at in file.places_of(pattern[-size:])]
        if len(firsts) <= MAX_ENDS:
            for start in firsts:
                after = bisect_left(lasts, start + 2 * size)
                yield from ((start, stop) for stop in lasts[after : after + 1])
        if len(lasts) <= MAX_ENDS:
            for stop in lasts:
                before = bisect_right(firsts, stop - 2 * size)
                yield from ((start, stop) for start in firsts[max(0, before - 1) : before])


def _aligned(pattern: list[str], text: list[str], start: int) -> list[tuple[int, int]]:
    """Pair the equal lines of a pattern and a part of the file's text from `start`."""
    first = common_prefix(pattern, text)
    last = min(common_prefix(pattern[::-1], text[::-1]), len(pattern) - first, len(text) - first)
    inner, other = pattern[first : len(pattern) - last], text[first : len(text) - last]
    found = matches(inner, other) if len(inner) * len(other) <= MAX_ALIGNED else []
    return [
        *((at, start + at) for at in range(first)),
        *((row + first, start + column + first) for row, column in found),
        *((len(pattern) - at, start + len(text) - at) for at in range(last, 0, -1)),
    ]


def _meant(found: list[Reading]) -> list[Reading]:
    """Choose the readings that may be meant, nearest first."""
    if not all(reading.crosses for reading in found):
        found = [
            reading
            for reading in found
            if reading.firm or not reading.crosses or reading.deleted <= NEAR
        ]
    for loose in (False, True):  # what is refuted refutes nothing
        found = [
            reading
            for reading in found
            if reading.anchored is loose or not any(_refutes(other, reading) for other in found)
        ]
    least = min((reading.cost for reading in found), default=0)
    near = [reading for reading in found if reading.cost <= least + MARGIN]
    firm = [
        reading
        for reading in found
        if reading.firm
        and any(
            _overlap(reading, other)
            and (
                reading.deleted <= other.deleted
                or reading.repeated > other.repeated
                or reading.cost <= other.cost + FIRM
            )
            for other in near
        )
    ]
    return sorted({*near, *firm})


def _overlap(one: Reading, other: Reading) -> bool:
    return one.start < other.stop and other.start < one.stop


def _refutes(one: Reading, other: Reading) -> bool:
    """Return whether a reading shows that another one cannot be meant."""
    if _overlap(one, other):
        if not other.anchored and one.anchored:
            if one.firm:  # but the one new line may stand in for its neighbour
                return other.cost >= 2 or one.cost <= other.cost or not other.close
            return not one.doubt and one.cost <= other.cost
        if not other.anchored:
            return one.cost < other.cost
        around = one.start <= other.start and other.stop <= one.stop
        if (
            one.anchored
            and around
            and one.cost < other.cost
            and one.repeated >= MUCH * other.repeated
        ):
            return True
        inside = other.start <= one.start and one.stop <= other.stop
        nearer = (one.cost, -one.repeated) < (other.cost, -other.repeated)
        return (
            one.anchored
            and nearer
            and one.deleted <= other.deleted
            and (
                not other.firm
                or (other.crosses and one.start == other.start)
                or (one.firm and not other.crosses and inside and one.repeated >= other.repeated)
            )
        )
    if one.cost == other.cost and not one.firm and one.anchored and not other.anchored:
        return False  # a line is new in both: inside, or at an end
    if one.cost <= other.cost and one.repeated >= 2 * other.repeated:
        return True
    nearer = one.cost <= other.cost - 1 or (
        one.cost <= other.cost and one.repeated >= other.repeated + 1
    )
    return one.anchored and not other.anchored and nearer


# -- one reading -------------------------------------------------------------------------------


def _reading(part: UpdateChunk, file: File, pairs: list[tuple[int, int]]) -> Reading:
    """Return the reading in which a chunk's lines are these of the file.

    `pairs`: (row, line), without blanks.
    """
    (row, first), (last_row, last) = pairs[0], pairs[-1]
    size = len(part.text)
    cost: float = row + size - 1 - last_row
    doubt, crosses, deleted = "", False, 0
    at_an_end = part.text[0] == START or part.text[-1] == END
    ends = _set_apart(part, file, pairs)
    for before, ((row1, at1), (row2, at2)) in enumerate(pairwise(pairs), 1):
        old, new = file.text[at1 + 1 : at2], part.text[row1 + 1 : row2]
        gone = _deleted(part, file, (row1, row2), (at1, at2))
        context = min(before + ends[0], len(pairs) - before + ends[1])
        if context == 1 and gone > max(0, len(old) - len(new)):
            doubt = doubt or f"{part.name} lacks blank lines of the file"
        cost += len(new) + max(0, len(old) - len(new)) / FREE
        if not old:
            continue
        deleted += len(old)
        shown = [part.text[row1], *new, part.text[row2]]
        crosses = crosses or min(map(indent, old)) < min(map(indent, shown))
        if _may_be_added(part.text, file, (row1, row2), (at1, at2), last):
            doubt = doubt or f"{part.name} may add a block before a similar one, or replace that"
        if is_version_of(new, old) or (file.is_body and leaves_too(new, old)):
            continue
        if part.text[row1] == START or part.text[row2] == END:
            inner = part.text[row + 1 : last_row], file.text[first + 1 : last]
            if is_version_of(*inner):
                continue
            doubt = f"{part.name} may replace lines at an end of the file, or add some"
        elif gone > _may_go(context):
            doubt = doubt or f"{part.name} would delete {len(old)} lines that it does not show"
        elif at_an_end and _leaves_block(old, min(map(indent, shown))):
            doubt = doubt or f"{part.name} would delete the end of a block and the next one's head"
    if crosses:
        doubt = f"{part.name} would delete lines outside of its block"
    repeated = sum(1 / file.counts[part.text[row]] for row, _ in pairs)
    start, stop = first, last + 1
    if row:
        start, why = replaced_before(part, file, row, first)
        doubt = doubt or why
    if last_row < size - 1:
        stop, why = replaced_after(part, file, last_row, last)
        doubt = doubt or why
    firm = (ends[0] > 0 or pairs[:2] == [(0, first), (1, first + 1)]) and (
        ends[1] > 0 or pairs[-2:] == [(size - 2, last - 1), (size - 1, last)]
    )
    close = all(
        part.full[at] == part.full[at - 1] + 1 for at in (row, last_row + 1) if 0 < at < size
    )
    ends_only = {part.text[one] for one, _ in pairs} <= {START, END}
    if last_row < size - 1 and part.after >= APART and not ends_only:
        doubt = doubt or f"{part.name} may replace lines after the blank ones"
    if (
        not firm
        and not ends_only
        and (
            min(part.before, APART) > blank_lines(file.full, start)
            or min(part.after, APART) > blank_lines(file.full, stop)
        )
    ):
        doubt = doubt or f"{part.name} has blank lines next to it that the file has not"
    return Reading(
        file.full[start],
        file.full[stop - 1] + 1,
        (*[""] * (part.before * ends_only), *part.lines, *[""] * (part.after * ends_only)),
        cost,
        repeated,
        row == 0 and last_row == size - 1,
        firm,
        deleted + first - start + stop - last - 1,
        crosses,
        close,
        doubt,
    )


def _leaves_block(lines: list[str], outer: int) -> bool:
    """Return whether lines begin inside a block at an indentation, and go on with another one."""
    return indent(lines[0]) > outer and any(indent(line) == outer for line in lines)


def _may_be_added(
    new: list[str], file: File, rows: tuple[int, int], lines: tuple[int, int], last: int
) -> bool:
    """Return whether the new lines between two rows of a chunk may be a block of their own.

    They may be where such a block only ends as the one does whose lines would go, where more blocks
    would go than come, and where the few lines that are shown above them stand elsewhere too.
    `last`: the last line of the file that is shown.
    """
    old, (row1, row2), (at1, at2) = file.text, rows, lines
    added = [row for row in range(row1 + 1, row2) if begins_block(new, row)]
    inside = [row for row in added if is_inside(new[row], new[row2:])]
    if not inside:
        return False
    single = row2 == len(new) - 1
    common = row1 < FEW and len(file.places_of(new[: row1 + 1])) > 1
    outer = min(indent(new[row]) for row in inside)
    gone = [
        at
        for at in range(at1 + 1, at2)
        if begins_block(old, at)
        and indent(old[at]) <= outer
        and not any(is_same_block(old[at], new[row]) for row in added)
    ]
    if len(gone) > len(added):
        return True
    for at in range(at1 + 1, at2):
        first, shown = old[at], old[at2 : last + 1]
        if not begins_block(old, at) or not is_inside(first, [*old[at + 1 : at2], *shown]):
            continue
        if any(is_same_block(first, new[row]) for row in added):
            continue
        if single or common or not is_inside(first, old[last + 1 : last + 2]):
            return True
        stop = last + 1  # the block goes on after what is shown
        while is_inside(first, old[stop : stop + 1]):
            stop += 1
        if old[stop - 1] == new[-1]:
            return True
    return False


def _set_apart(part: UpdateChunk, file: File, pairs: list[tuple[int, int]]) -> tuple[int, int]:
    """Return the blank lines that set the first and the last line of a chunk apart.

    They are around the line both in the chunk and in the file; 0 unless they are two, as between
    definitions.
    """
    (row, first), (last_row, last) = pairs[0], pairs[-1]
    full = [-1 - part.before, *part.full, len(part.lines) + part.after]
    lines = [-1, *file.full, len(file.lines)]
    found = []
    for at, line, known in (
        (row, first, row == 0),
        (last_row, last, last_row == len(part.text) - 1),
    ):
        sides = (
            min(full[at + side + 1] - full[at + side], lines[line + side + 1] - lines[line + side])
            for side in (0, 1)
        )
        found.append(APART if known and max(sides) > APART else 0)
    return found[0], found[1]


def _deleted(part: UpdateChunk, file: File, rows: tuple[int, int], lines: tuple[int, int]) -> int:
    """Count the lines that go between two that stay, blank ones too, less those that come."""
    old, new = (full[b] - full[a] for full, (a, b) in ((file.full, lines), (part.full, rows)))
    return old - new


def _may_go(shown: int) -> int:
    """Return how many lines may go between so many that a chunk shows."""
    return MAX_GONE[min(shown, len(MAX_GONE) - 1)]


def is_version_of(new: Sequence[str], old: Sequence[str]) -> bool:
    """Return whether lines are a new version of other ones.

    They are if most of the outermost of those are among them, or lines that begin alike.
    """
    heads = set(map(head_of, new)) - {""}
    least = min(map(indent, old))
    outer = [head_of(line) for line in old if indent(line) == least]
    return sum(word in heads for word in outer) >= VERSION_SHARE * len(outer)
