"""The ways in which the parts of an update can be placed in a file, in their order.

They are a graph of runs of lines. Every path through it is a text that the update may stand for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

MAX_LINES = 20_000  # lines in all runs of a graph

# The file's ends, as lines that no text has.
START, END = "start\n", "end\n"

Lines = tuple[str, ...]
Options = Mapping[int, Sequence[tuple[int, Lines]]]
"""Where one part may be: by the first line that it replaces, the line after the last one and the
lines in their place. The likeliest come first."""


class Run(NamedTuple):
    """Lines, and the node after them."""

    lines: Lines
    after: int


@dataclass
class MergeWays:
    """The graph of all ways. A node has the runs that may be next; they begin with `start`."""

    nodes: list[list[Run]] = field(default_factory=lambda: [[]])  # node 0: the end of the text
    start: int = 0

    def runs(self) -> Iterator[Run]:
        """Yield all runs of the graph."""
        return (run for node in self.nodes for run in node)

    @property
    def likeliest(self) -> list[str]:
        """The lines of the text in which every part is in its first place."""
        found: list[str] = []
        node = self.start
        while node:
            lines, node = self.nodes[node][0]
            found += lines
        return found

    def texts(self, most: int) -> list[Lines]:
        """Return the lines of every text, likeliest first.

        Empty if there are more than `most`, or more than MAX_LINES lines in all.
        """
        found: list[Lines] = []
        left: list[tuple[int, Lines]] = [(self.start, ())]
        while left:
            node, lines = left.pop()
            left += [(run.after, lines + run.lines) for run in reversed(self.nodes[node])]
            if not node:
                found.append(lines)
            if len(found) > most or sum(map(len, found)) > MAX_LINES:
                return []
        return found

    def allow(self, lines: Sequence[str]) -> bool:
        """Return whether these are the lines of one of the texts."""
        left, seen = [(self.start, 0)], set()
        while left:
            node, at = left.pop()
            if (node, at) in seen:
                continue
            seen.add((node, at))
            if not node and at == len(lines):
                return True
            for run, after in self.nodes[node]:
                if run == tuple(lines[at : at + len(run)]):
                    left.append((after, at + len(run)))
        return False


def only_way(lines: Sequence[str]) -> MergeWays | None:
    """Return the graph of one text; None if it has too many lines."""
    return MergeWays([[], [Run(tuple(lines), 0)]], 1) if len(lines) <= MAX_LINES else None


def merge_ways(file: Sequence[str], parts: Sequence[Options]) -> MergeWays | None:
    """Find the ways to place all `parts` in their order.

    Returns None if there are none, or too many lines. `file` and the parts' lines have START and
    END, the texts do not.
    """
    ways = MergeWays()
    lines_left = MAX_LINES

    def added(runs: list[Run]) -> int:
        nonlocal lines_left
        lines_left -= sum(len(run.lines) for run in runs)
        shown = (tuple(line for line in lines if line not in (START, END)) for lines, _ in runs)
        ways.nodes.append([Run(lines, run.after) for lines, run in zip(shown, runs, strict=True)])
        return len(ways.nodes) - 1

    def copied(start: int) -> int | None:
        """Return the node of the file from line `start` to the next of `firsts`.

        It leads to the node that is there.
        """
        at = bisect_left(firsts, start)
        if at == len(firsts):
            return None
        return added([Run(tuple(file[start : firsts[at]]), places[firsts[at]])])

    firsts, places = [len(file)], {len(file): 0}  # lines, and the nodes of the next part there
    for options in reversed(parts):
        nodes: dict[int, int | None] = {}  # line -> the node of the file from there
        own: dict[int, int] = {}
        for first in sorted(options, reverse=True):
            runs = []
            for after, lines in options[first]:
                if after not in nodes:
                    nodes[after] = copied(after)
                if (node := nodes[after]) is not None:
                    runs.append(Run(lines, node))
            if own:
                later = next(reversed(own))
                runs.append(Run(tuple(file[first:later]), own[later]))
            if runs:
                own[first] = added(runs)
            if lines_left < 0:
                return None
        firsts, places = [*reversed(own)], own
    start = copied(0)
    if start is None or lines_left < 0:
        return None
    ways.start = start
    return ways
