"""Checks of an update that was merged into a file, and of what a model wrote of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice, pairwise

from engine.editing.apply_snippet import EXAMPLE, ways_of
from engine.editing.deletions import Ends, FullLine, equal_lines, hunks, lines_of, repeated, unasked
from engine.editing.diff import is_patch
from engine.editing.edits import EditRefused, align, apply, plain, strip_blank_lines
from engine.editing.losses import MARKDOWN
from engine.editing.merge_ways import MergeWays
from engine.editing.placement import FullChunk, Placement, Replaced, Search, TooManyPlacements
from engine.editing.snippet import snippet
from engine.editing.update_marks import is_elision, is_mark
from engine.records import Done, Request

MAX_SHOWN_CHARS = 60  # characters of a line in an error
MAX_PLACEMENTS = 50  # placements of the chunks in one answer that are checked
MAX_TEXTS = 16  # that an update may stand for, and that are checked before a model is asked
EVERY_WAY = "every way to place the update would be refused"
MORE_LINES = "repeat more lines of the file around each change"
REMEDY = f"{MORE_LINES}, or try a larger model"


class Merged:
    """A file, an update, and the text that shall be the file with the update merged into it."""

    def __init__(self, request: Request, text: str) -> None:
        self._path = request.path
        headings = request.path.lower().endswith(MARKDOWN)
        self._update = snippet(request.update, request.text).split("\n")
        self._old_rows, self._new_rows = plain(request.text).split("\n"), plain(text).split("\n")
        self._old = lines_of(self._old_rows, headings)
        self._new = lines_of(self._new_rows, headings)
        marks = [is_mark(line) for line in self._update]
        self._ends = Ends(any(marks) and not marks[0], any(marks) and not marks[-1])
        self._old_texts, self._new_texts = _texts(self._old), _texts(self._new)

    def unasked(self) -> list[str]:
        """Return the lines of the file that were deleted without the update asking for it.

        If it is not known how the text came of the update, these are all deleted ones. A diff asks
        for each.
        """
        if is_patch("\n".join(self._update)):
            return []
        if self._placement is None:
            runs = align(self._old_texts, self._new_texts)
            return [line for same, i, j, _, _ in runs if not same for line in self._old_texts[i:j]]
        return self._of_file(self._unasked(self._placement, by_model=False))

    def without_successor(self) -> list[str]:
        """Return the lines of `unasked`, and those deleted with no new ones in their place."""
        return self.unasked() + [line for old, new in self.changes() if not new for line in old]

    def changes(self) -> list[tuple[list[str], list[str]]]:
        """Return what the update's chunks replace: the file's lines and the new ones."""
        return [
            (self._old_texts[slice(*hunk.old)], self._new_texts[slice(*hunk.new)])
            for group in self._placement or ()
            for hunk in hunks(self._old, self._new, group)
        ]

    @cached_property
    def _placement(self) -> Placement | None:
        """The placement of the chunks by which the fewest lines were deleted unasked.

        None if no placement is known.
        """
        found: list[tuple[int, Placement]] = []
        with suppress(TooManyPlacements):
            for placement in self._placements():
                spans = self._unasked(placement, by_model=False)
                found.append((sum(stop - start for start, stop in spans), placement))
        return min(found, key=lambda one: one[0])[1] if found else None

    def _of_file(self, spans: Iterable[tuple[int, int]]) -> list[str]:
        return [line for span in spans for line in self._old_texts[slice(*span)]]

    def checked(self) -> str:
        """Return the text, with the lines that stayed as the file has them.

        Raises EditRefused where the text has lines of neither the file nor the update, lacks lines
        of the update, or lacks or repeats lines of the file where the update does not show it.
        """
        if self._only_adds():
            return "\n".join(self._new_rows)
        self._check_lines()
        errors = []
        try:
            for placement in self._placements():
                error = self._error(placement)
                if error is None:
                    return self._restored(placement)
                errors.append(error)
        except TooManyPlacements:
            errors.append(f"the file has too many equal lines to check the answer: {REMEDY}")
        raise EditRefused(errors[0] if errors else self._out_of_place())

    def _only_adds(self) -> bool:
        """Return whether the text is the file, with the update in one of the ways to place it."""
        left = iter(self._new_texts)
        if not all(line in left for line in self._old_texts):
            return False
        ways = ways_of("\n".join(self._old_rows), "\n".join(self._update), self._path)
        body = "\n".join(self._new_rows)
        first, last = strip_blank_lines(body, 0, len(body))
        return ways is not None and ways.allow(body[first:last].split("\n"))

    def _placements(self) -> Iterator[Placement]:
        parts, after = chunks_of(self._update)
        return islice(
            Search(self._old_texts, self._new_texts, parts, after).placements(), MAX_PLACEMENTS
        )

    def _unasked(self, placement: Placement, by_model: bool) -> list[tuple[int, int]]:
        """Return the spans of the file's lines that were deleted without being asked for."""
        return [
            span
            for group in placement
            for span in unasked(self._old, self._new, group, self._ends, by_model)
        ]

    def _error(self, placement: Placement) -> str | None:
        """Say why the text must not be what the update says, if its chunks are placed so."""
        if lost := self._unasked(placement, by_model=True):
            return self._left_out(*lost[0])
        for group in placement:
            if line := repeated(self._old, self._new, group):
                return _repeats(line)
        return None

    def _left_out(self, start: int, stop: int) -> str:
        first, last = self._old[start].row + 1, self._old[stop - 1].row + 1
        lines = f"the lines {first} to {last}" if first < last else f"line {first}"
        return (
            f"the merge leaves out {lines} of the file, which the update does not ask for: {REMEDY}"
        )

    def _check_lines(self) -> None:
        """Check that the text consists of lines of the file and of the update's chunks.

        Raises EditRefused where it has a mark, or a line of neither the file nor the update, or not
        the chunks of the update, whole and in their order.
        """
        shown = {line.strip() for line in self._update}
        old = set(self._old_texts)
        known = old | shown
        for line in self._new:
            if is_mark(line.text) and line.text not in old:
                raise EditRefused(f"the model left {EXAMPLE} in line {line.row + 1}: {REMEDY}")
            if line.text not in known:
                raise EditRefused(
                    f"the model wrote line {line.row + 1}, which is neither in the file nor in the "
                    f"update: {REMEDY}"
                )
        lines, at = self._new_texts, 0
        for part in chunks_of(self._update)[0]:
            size = len(part.lines)
            places = (n for n in range(at, len(lines)) if lines[n] == part.lines[0])
            found = next((n for n in places if tuple(lines[n : n + size]) == part.lines), None)
            if found is None:
                raise EditRefused(
                    f"the model did not write the chunk at line {part.number} of the update as it "
                    f"is: write {EXAMPLE} wherever lines stay, or try a larger model"
                )
            at = found + size

    def _out_of_place(self) -> str:
        """Say why no placement of the chunks explains the text."""
        old, new = self._old_texts, self._new_texts
        shown = {line.strip() for line in self._update}
        for same, i, j, k, m in align(old, new):
            if not same and (again := [line for line in new[k:m] if line not in shown]):
                return _repeats(again[0])
            if not same and i < j and not {*old[i:j]} & {*new}:
                return self._left_out(i, j)
        return f"the merge moves or leaves out lines of the file where it has marks: {REMEDY}"

    def _restored(self, placement: Placement) -> str:
        """Return the text, with the lines that stayed as the file has them.

        The chunks are indented as the lines that they repeat. Raises EditRefused where a chunk is
        not indented as the update has it.
        """
        new = [*self._new_rows]
        wanted = iter(self._update)
        for group in placement:
            for part in pairwise(sorted({*group.new, *group.seams})):
                margin = self._margin(group, part, wanted)
                for line in self._new[slice(*part)]:
                    new[line.row] = margin + new[line.row]
        found: list[str] = []
        row = stayed = 0  # rows of the new text and lines of the file up to which all is found
        ends = [(group.old[0], group.new[0]) for group in placement]
        for number, (first, start) in enumerate([*ends, (len(self._old), len(self._new))]):
            if kept := self._old[stayed:first]:
                found += new[row : self._new[start - len(kept)].row]
                found += self._old_rows[kept[0].row : kept[-1].row + 1]
                row = self._new[start - 1].row + 1
            stayed = placement[number].old[1] if number < len(placement) else first
        return "\n".join(found + new[row:])

    def _margin(self, group: Replaced, part: tuple[int, int], update: Iterator[str]) -> str:
        """Return the white space that a chunk's lines lack, judged by those that the file has too.

        `update`: the lines of the update from the chunk on. Raises EditRefused where the chunk is
        not indented as the update has it.
        """
        lines = self._new[slice(*part)]
        shown = [next(line for line in update if line.strip() == one.text) for one in lines]
        own = [_white(self._new_rows[one.row]) for one in lines]
        levels = sorted(
            {
                (len(_white(a).expandtabs()), len(b.expandtabs()))
                for a, b in zip(shown, own, strict=True)
            }
        )
        if any(a[0] == b[0] or a[1] >= b[1] for a, b in pairwise(levels)):
            raise EditRefused(
                f"the model indented line {lines[0].row + 1} and those below it other than the "
                f"update: {REMEDY}"
            )
        pairs = [
            (i, k - part[0])
            for i, k in equal_lines(self._old, self._new, group)
            if k in range(*part)
        ]
        missing = {(_white(self._old_rows[self._old[i].row]), own[k]) for i, k in pairs}
        lacks = {old.removesuffix(new) if old.endswith(new) else "" for old, new in missing}
        if len(lacks) == 1:
            return lacks.pop()
        return ""


def refusal(request: Request, ways: MergeWays) -> str:
    """Say why every text that an update may stand for would be refused.

    "" where one would not be, or where they are too many to check.
    """
    why = ""
    for lines in ways.texts(MAX_TEXTS):
        try:
            Merged(request, apply(request, Done("stop", "\n".join(lines), matched=""))).checked()
        except EditRefused as error:
            reason = str(error).removesuffix(f": {REMEDY}")
            why = why or f"{EVERY_WAY}, the likeliest since {reason}: {MORE_LINES}"
        else:
            return ""
    return why


def _texts(lines: Sequence[FullLine]) -> list[str]:
    return [line.text for line in lines]


def _white(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _repeats(line: str) -> str:
    return f"the merge repeats the line {line!r:.{MAX_SHOWN_CHARS}} of the file: {REMEDY}"


def chunks_of(update: Sequence[str]) -> tuple[list[FullChunk], tuple[str, ...]]:
    """Split an update into chunks, and return the lines after the last one that may be marks.

    Lines that may be marks end a chunk too.
    """
    found: list[FullChunk] = []
    lines: list[str] = []
    between: list[str] = []
    number = 0
    for row, line in enumerate([*update, ""], 1):
        text, doubt = line.strip(), is_elision(line) and not is_mark(line)
        if text and not doubt and not is_mark(line):
            number = number if lines else row
            lines.append(text)
            continue
        if lines and (text or row > len(update)):
            found.append(FullChunk(tuple(lines), number, tuple(between)))
            lines, between = [], []
        between += [text] * doubt
    return found, tuple(between)
