"""What a client changed lately, in all its documents: a few small edits of whole lines.

An edit is the net change of some neighbouring lines, however many keystrokes it took, and is gone
once these lines are what they were. It follows its lines when others above it change. No opinion
here on what comes next, no language, and no document is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from typing import NamedTuple

from engine.editing.edits import END, MARKS

LIMIT = 20  # edits
LARGE = 4000  # code points of an edit; a larger one is new text, not a change of a few lines
PAUSE = 3.0  # seconds after which lines that were added are taken as given
TALLEST = 60  # lines of an edit that are compared line by line
WIDEST = 400  # tokens of a line that is compared word by word
ALIKE = 0.5  # of the tokens, from which on a line is taken for another one's new form

TOKEN = re.compile(rf"[\w${MARKS}]+|[^\S\r\n]+|.", re.DOTALL)
COARSE = re.compile(
    rf"""(?:[\w$]*)(?:"(?:[^"\\\r\n]|\\.)*"|'(?:[^'\\\r\n]|\\.)*')|{TOKEN.pattern}""", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Edit:
    """`before` became `after`, which stands at `start` of the present text. Both are whole lines,
    without the last one's line end."""

    uri: str
    start: int  # code points
    before: str
    after: str
    touched: float  # when it last changed, in the caller's clock

    @property
    def stop(self) -> int:
        return self.start + len(self.after)


class Recent:
    """The recent edits of one client over all its documents."""

    def __init__(self) -> None:
        self._edits: list[Edit] = []  # by when they were touched; those of a file never meet

    def edits(self) -> list[Edit]:
        """All of them, the one touched last at the end."""
        return list(self._edits)

    def forget(self, uri: str) -> None:
        """The document was closed: what it says when it is opened again is not known."""
        self._edits = [edit for edit in self._edits if edit.uri != uri]

    def changed(self, uri: str, before: str, start: int, stop: int, new: str, now: float) -> None:
        """`before[start:stop]` became `new`."""
        start, stop, new = changed_part(before, start, stop, new)
        if start == stop and not new:
            return
        low, high = whole_lines(before, start, stop)
        met = [e for e in self._edits if e.uri == uri and low <= e.stop and e.start <= high]
        edit = _merged(uri, before, (start, stop, new), (low, high), met, now)
        given = [one for one in met if self._is_given(one, now)]
        if given and edit and edit.before != edit.after:
            left = [one for one in met if one not in given]
            edit = _merged(uri, before, (start, stop, new), (low, high), left, now)
        moved = len(new) - (stop - start)
        kept = [
            _shifted(one, moved) if one.uri == uri and one.start > high else one
            for one in self._edits
            if one not in met
        ]
        if edit and edit.before != edit.after:
            kept.append(edit)
        self._edits = kept[-LIMIT:]

    def _is_given(self, edit: Edit, now: float) -> bool:
        """Whether lines were only added, and that some time or another edit ago: a change in them
        is a change of what they say, not a part of adding them."""
        settled = edit is not self._edits[-1] or now - edit.touched > PAUSE
        old, new = (END.sub("\n", text) for text in (edit.before, edit.after))
        added = not old.strip() or new.startswith(old + "\n") or new.endswith("\n" + old)
        return settled and added and new != old


def whole_lines(text: str, start: int, stop: int) -> tuple[int, int]:
    """`start:stop` widened to whole lines, without the last one's line end."""
    low = text.rfind("\n", 0, start) + 1
    low = max(low, text.rfind("\r", low, start) + 1)
    high = text.find("\n", stop)
    high = len(text) if high < 0 else high
    end = text.find("\r", stop, high)
    return low, high if end < 0 else end


def _shifted(edit: Edit, by: int) -> Edit:
    return Edit(edit.uri, edit.start + by, edit.before, edit.after, edit.touched)


def _merged(
    uri: str,
    text: str,
    change: tuple[int, int, str],
    lines: tuple[int, int],
    met: list[Edit],
    now: float,
) -> Edit | None:
    """One edit of a change and of all edits that its lines meet. None where it is too large."""
    start, stop, new = change
    low = min(lines[0], *(edit.start for edit in met), lines[0])
    high = max(lines[1], *(edit.stop for edit in met), lines[1])
    if high - low > LARGE or len(new) > LARGE:
        return None
    pieces, at = [], low
    for edit in sorted(met, key=lambda edit: edit.start):
        pieces += [text[at : edit.start], edit.before]
        at = edit.stop
    before = "".join((*pieces, text[at:high]))
    return Edit(uri, low, before, text[low:start] + new + text[stop:high], now)


def changed_part(text: str, start: int, stop: int, new: str) -> tuple[int, int, str]:
    """The change without what both its sides begin and end with."""
    old = text[start:stop]
    head = _common(old, new)
    old, new = old[head:], new[head:]
    tail = _common(old, new, from_end=True)
    return start + head, stop - tail, new[: len(new) - tail]


def _common(a: str, b: str, from_end: bool = False) -> int:
    """How many code points both begin (or end) with, by halving: slices compare fast."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if from_end:
            same = a[len(a) - middle : len(a) - low] == b[len(b) - middle : len(b) - low]
        else:
            same = a[low:middle] == b[low:middle]
        low, high = (middle, high) if same else (low, middle - 1)
    return low


# -- word by word ------------------------------------------------------------------------------


class Swap(NamedTuple):
    """In one line, `old` became `new`, which stands at `at` of the present text."""

    old: str
    new: str
    at: int


class Line(NamedTuple):
    """One line's old and new text; the new one stands at `at` of the present text."""

    old: str
    new: str
    at: int


@lru_cache(maxsize=4 * LIMIT)
def lines(edit: Edit) -> tuple[Line, ...]:
    """The lines that an edit changed in part: neither added, nor deleted, nor written anew."""
    old, new = (list(_lines(text)) for text in (edit.before, edit.after))
    ours, theirs = [text for _, text in old], [text for _, text in new]
    out: list[Line] = []
    if max(len(ours), len(theirs)) > TALLEST:
        return ()
    for tag, i, j, k, m in SequenceMatcher(None, ours, theirs, False).get_opcodes():
        if tag != "replace":
            continue
        for text in ours[i:j]:
            found = next((n for n in range(k, m) if _alike(text, theirs[n])), None)
            if found is not None:
                out.append(Line(text, theirs[found], edit.start + new[found][0]))
                k = found + 1
    return tuple(out)


@lru_cache(maxsize=64 * LIMIT)
def swaps(line: Line) -> tuple[Swap, ...]:
    """The runs of tokens that were replaced, added or deleted in a line."""
    ours, theirs = tokens(line.old), tokens(line.new)
    found, at = [], [line.at]
    for token in theirs:
        at.append(at[-1] + len(token))
    for tag, i, j, k, m in hunks(ours, theirs):
        if tag != "equal":
            found.append(Swap("".join(ours[i:j]), "".join(theirs[k:m]), at[k]))
    return tuple(found)


def tokens(line: str, coarse: bool = False) -> list[str]:
    """A line's words, runs of blanks and single characters; coarse: a string is one token."""
    found: list[str] = (COARSE if coarse else TOKEN).findall(line)
    return found


def hunks(old: list[str], new: list[str]) -> Sequence[tuple[str, int, int, int, int]]:
    """How one list of tokens becomes another, as difflib says it; nothing for very long lines."""
    if max(len(old), len(new)) > WIDEST:
        return []
    return SequenceMatcher(None, old, new, False).get_opcodes()


def _alike(old: str, new: str) -> bool:
    ours, theirs = ([one for one in tokens(text) if one.strip()] for text in (old, new))
    if not ours or not theirs or max(len(ours), len(theirs)) > WIDEST:
        return False
    return SequenceMatcher(None, ours, theirs, False).ratio() >= ALIKE


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """(where it starts, a line without its end)."""
    at = 0
    for end in END.finditer(text):
        yield at, text[at : end.start()]
        at = end.end()
    yield at, text[at:]
