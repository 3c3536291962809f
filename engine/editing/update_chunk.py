"""The chunks of an update, and the file that they belong to: lines, with and without blank ones."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from engine.editing.blocks import head_of
from engine.editing.merge_ways import END, START, Lines

CLOSES = re.compile(r"\s*(?:[\])}]+[;,]?|end)\s*|\s*")  # a line that ends blocks, or blank


@dataclass(frozen=True)
class FullLines:
    """Lines, of which the blank ones can be left out."""

    lines: Sequence[str]

    @cached_property
    def full(self) -> list[int]:
        """The numbers of the lines that are not blank."""
        return [at for at, line in enumerate(self.lines) if line.strip(" \t")]

    @cached_property
    def text(self) -> list[str]:
        """The lines that are not blank."""
        return [self.lines[at] for at in self.full]


@dataclass(frozen=True)
class File(FullLines):
    """A file's lines between START and END.

    `is_body`: they are the body of a definition that the update names. Then new lines next to a
    mark are added, unless they are like lines that are there.
    """

    is_body: bool = False

    @cached_property
    def counts(self) -> Counter[str]:
        """The count of each line in the file."""
        return Counter(self.text)

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """The places of each line, without blank lines."""
        found: dict[str, list[int]] = {}
        for at, line in enumerate(self.text):
            found.setdefault(line, []).append(at)
        return found

    def places_of(self, lines: Sequence[str]) -> list[int]:
        """Find where lines begin, without blank ones."""
        size = len(lines)
        first = self.places.get(lines[0], [])
        return [at for at in first if self.text[at : at + size] == lines]


@dataclass(frozen=True)
class UpdateChunk(FullLines):
    """Lines of an update between two marks."""

    lines: Lines  # without blank lines next to the marks; START or END where there is no mark
    number: int  # number of its first line in the update, from 1
    before: int = 0  # blank lines after the mark before it
    after: int = 0  # blank lines before the mark after it

    @property
    def name(self) -> str:
        """The chunk's name in an error."""
        return f"the chunk at line {self.number} of the update"

    @property
    def inner(self) -> list[str]:
        """The lines without START and END."""
        return [line for line in self.text if line not in (START, END)]

    @property
    def only_locates(self) -> bool:
        """Whether it is one line, or closes blocks, which says where the next chunk is."""
        if all(CLOSES.fullmatch(line) for line in self.inner):
            return True
        return len(self.inner) == 1 and not self.before + self.after

    def is_new(self, known: Counter[str]) -> bool:
        """Return whether the chunk is added at an end of the file.

        It is if it has no line of the file (`known`), is at an end of the file and is not indented.
        """
        ends = (self.lines[0] == START) != (self.lines[-1] == END)
        new = not any(known[line.strip()] for line in self.inner)
        return ends and new and not self.inner[0][0].isspace()

    def is_common(self, file: File, known: Counter[str]) -> bool:
        """Return whether nothing says which of several places the chunk has.

        The file has none of its lines once, and no line that begins like a new one of it.
        """
        new = {head_of(line) for line in self.inner if not known[line.strip()]} - {""}
        return all(known[line.strip()] != 1 for line in self.inner) and new.isdisjoint(
            map(head_of, file.text)
        )
