"""The origin of a file with an update merged into it: how it came of both.

A placement says where each chunk of the update is, which lines of the file stayed, and which ones
the chunks replaced. Lines are compared without indentation, and blank ones are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engine.editing.edits import common_prefix

MAX_COMPARED = 10_000_000  # lines in one search; many equal ones have countless placements


class FullChunk(NamedTuple):
    """Lines of an update between marks, without blank ones."""

    lines: tuple[str, ...]
    number: int  # number of the first line in the update, from 1
    before: tuple[str, ...] = ()  # what is before it and may be a mark or lines of the new text


@dataclass(frozen=True, slots=True)
class Replaced:
    """Lines of the file, and those in their place: one chunk, or several with nothing between."""

    old: tuple[int, int]  # the first line, and that after the last
    new: tuple[int, int]
    seams: frozenset[int]  # new lines before which the update has a mark


Placement = tuple[Replaced, ...]


class TooManyPlacements(Exception):
    """A search that was given up."""


@dataclass(frozen=True, slots=True)
class _State:
    """The state after a chunk was placed.

    Its group began at `start`, ends before `end`, and replaces lines of the file from `old`.
    """

    start: int
    end: int
    old: int
    seams: frozenset[int] = frozenset()


class Search:
    """The search for placements of `parts`, in their order, in `new`.

    The other lines of `new` stayed from `old`. `after`: what follows the last part and may be a
    mark or lines of the new text.
    """

    def __init__(
        self,
        old: Sequence[str],
        new: Sequence[str],
        parts: Sequence[FullChunk],
        after: tuple[str, ...] = (),
    ) -> None:
        self._old, self._new = tuple(old), tuple(new)
        self._parts, self._after = parts, after
        self._places = _places(self._old), _places(self._new)
        self._head = common_prefix(self._old, self._new)  # lines at the start that both have
        self._tail = common_prefix(self._old[::-1], self._new[::-1])
        self._left = MAX_COMPARED

    def placements(self) -> Iterator[Placement]:
        """Yield all placements, those with chunks further up first. Raises TooManyPlacements."""
        if not self._parts:
            if self._old == self._new:
                yield ()
            return
        dead: set[tuple[int, _State]] = set()
        stack: list[tuple[_State, Placement, Iterator[tuple[_State, Placement]]]] = []
        stack.append((_State(0, 0, 0), (), self._firsts()))
        found = [False]
        while stack:
            step = next(stack[-1][2], None)
            if step is None:
                state = stack.pop()[0]
                if not found.pop():
                    dead.add((len(stack), state))
                elif found:
                    found[-1] = True
                continue
            state, more = step
            if (len(stack), state) in dead:
                continue
            placed = (*stack[-1][1], *more)
            if len(stack) < len(self._parts):
                stack.append((state, placed, self._nexts(self._parts[len(stack)], state)))
                found.append(False)
                continue
            for last in self._lasts(state):
                found[-1] = True
                yield (*placed, last)

    def _firsts(self) -> Iterator[tuple[_State, Placement]]:
        """Place the first chunk in all its places: the lines before it are those of the file."""
        part = self._parts[0]
        for at in self._found(part, 0):
            for start in {at, at - len(part.before)}:
                literal = part.before if start < at else ()
                if 0 <= start <= self._head and self._new[start:at] == literal:
                    yield _State(start, at + len(part.lines), start), ()

    def _nexts(self, part: FullChunk, state: _State) -> Iterator[tuple[_State, Placement]]:
        """Place a later chunk in all its places."""
        for at in self._found(part, state.end):
            end = at + len(part.lines)
            between = self._new[state.end : at]
            if between in ((), part.before):
                seams = state.seams if between else state.seams | {at}
                yield _State(state.start, end, state.old, seams), ()
            if not between:
                continue
            for first in self._places[0].get(between[0], ()):
                self._count(len(between))
                last = first + len(between)
                if first >= state.old and self._old[first:last] == between:
                    yield _State(at, end, last), (self._closed(state, state.end, first),)

    def _lasts(self, state: _State) -> Iterator[Replaced]:
        """Close the last group: the lines after it are those of the file."""
        ends = {state.end}
        if self._new[state.end : state.end + len(self._after)] == self._after:
            ends.add(state.end + len(self._after))
        for end in sorted(ends):
            kept = len(self._new) - end
            first = len(self._old) - kept
            if kept <= self._tail and first >= state.old:
                yield self._closed(state, end, first)

    def _closed(self, state: _State, end: int, first: int) -> Replaced:
        return Replaced((state.old, first), (state.start, end), state.seams)

    def _found(self, part: FullChunk, start: int) -> Iterator[int]:
        """Find where a chunk is in the new text, from a line on."""
        for at in self._places[1].get(part.lines[0], ()):
            self._count(len(part.lines))
            if at >= start and self._new[at : at + len(part.lines)] == part.lines:
                yield at

    def _count(self, lines: int) -> None:
        self._left -= lines
        if self._left < 0:
            raise TooManyPlacements


def _places(lines: Sequence[str]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for place, line in enumerate(lines):
        places.setdefault(line, []).append(place)
    return places
