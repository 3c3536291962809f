"""The move of an edit to the latest version of its document, which the client may change meanwhile.

What has changed since the request is stored as regions of the old text and of the latest one that
replaces them. What was typed and undone again leaves no region. Pure: offsets in, offsets out.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.editing.edits import Change, common_prefix


class Conflict(ValueError):
    """An edit of a place that the user changed meanwhile."""


class Region(NamedTuple):
    """The text `new_start:new_stop` of the latest text in place of `start:stop` of the old one."""

    start: int
    stop: int
    new_start: int
    new_stop: int

    @property
    def shift(self) -> int:
        """How far the text after the region has moved."""
        return self.new_stop - self.stop

    def overlaps(self, start: int, stop: int) -> bool:
        """Return whether the region overlaps a span of the old text.

        It does if they share characters, or if one has the other inside. An insertion at the span's
        start or stop is outside.
        """
        return self.start < stop and self.stop > start


class Rebase:
    """The changes of one document since a request. Offsets are in code points."""

    def __init__(self, text: str, span: tuple[int, int] | None) -> None:
        self.text = self.latest = text
        self.span = span or (0, len(text))  # the part of `text` that is being edited
        self.regions: list[Region] = []  # ordered, and unchanged text between them
        self.is_lost = False  # a conflict lasted, or the document was closed

    @property
    def has_conflict(self) -> bool:
        """Whether the text of the edited span is another now."""
        return any(region.overlaps(*self.span) for region in self.regions)

    def record(self, start: int, stop: int, latest: str) -> None:
        """Record that `start:stop` of the text was replaced, which made it `latest`.

        Replacing the whole text is taken for the smallest change that has the same effect.
        """
        growth = len(latest) - len(self.latest)
        head, tail = _common_ends(self.latest[start:stop], latest[start : stop + growth])
        start, stop = start + head, stop - tail
        before = [region for region in self.regions if region.new_stop < start]
        after = [region for region in self.regions if region.new_start > stop]
        merged = self.regions[len(before) : len(self.regions) - len(after)]
        low = min([start, *(region.new_start for region in merged)])
        high = max([stop, *(region.new_stop for region in merged)])
        known = [Region(0, 0, 0, 0), *before, *merged]
        old_low, old_high = low - known[len(before)].shift, high - known[-1].shift
        high += growth
        head, tail = _common_ends(self.text[old_low:old_high], latest[low:high])
        region = Region(old_low + head, old_high - tail, low + head, high - tail)
        is_changed = region.start < region.stop or region.new_start < region.new_stop
        self.regions = [
            *before,
            *([region] if is_changed else []),
            *(Region(a, b, c + growth, d + growth) for a, b, c, d in after),
        ]
        self.latest = latest

    def moved(self, changes: list[Change]) -> list[Change]:
        """Move changes of the old text to the latest one.

        Raises Conflict if the user changed the edited span or another place that is to change.
        """
        if self.has_conflict:
            raise Conflict
        return [self._moved(change) for change in changes]

    def _moved(self, change: Change) -> Change:
        first, last = self.span
        shift = 0
        for region in self.regions:
            if region.overlaps(change.start, change.stop):
                raise Conflict
            if region.start == change.start == change.stop == region.stop:  # both insert here
                if change.start not in self.span:
                    raise Conflict
                if change.start == last > first:  # what the user typed follows the span
                    break
            if region.stop <= change.start:
                shift = region.shift
        start, stop = change.start + shift, change.stop + shift
        if "\r\n" in (self.latest[start - 1 : start + 1], self.latest[stop - 1 : stop + 1]):
            raise Conflict  # no editor has a position inside a line end
        return Change(start, stop, change.text)


def _common_ends(one: str, other: str) -> tuple[int, int]:
    """Count the characters of the common prefix, and of the common suffix of what follows it."""
    head = common_prefix(one, other)
    return head, common_prefix(one[head:][::-1], other[head:][::-1])
