"""Two texts as hunks that can be taken or left, one by one, and side by side as escaped HTML.

A hunk is a run of whole lines; lines end in "\\n", "\\r\\n" or "\\r", as for engine/editing/edits.py. Texts
are exact: what is not in a hunk that was taken stays as it is, character for character. It knows
nothing of models or of Gradio.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from difflib import SequenceMatcher
from html import escape
from itertools import pairwise, zip_longest
from typing import NamedTuple

from engine.editing.edits import BOM, LINE, LINE_END, MAX_EXACT_PIECES, WORD, plain
from ui.terminal import visible

CONTEXT = 3  # lines that are shown around a hunk
FOLDED = 400  # equal lines that can be unfolded, at most
PAIRS = 4000  # pairs of lines that are compared word by word to find which belong together
ALIKE = 0.4  # two lines with at least this share of words in common are versions of one
LONGEST = 2000  # characters of a line whose words are compared
ENDS = {"\n": "LF", "\r\n": "CRLF", "\r": "CR", "": "no line end"}
Pair = tuple[int | None, int | None]  # a line of the old text beside one of the new text


class Hunk(NamedTuple):
    """Lines `start:stop` of the old text become lines `first:last` of the new one; from 0."""

    start: int
    stop: int
    first: int
    last: int


def lines(text: str) -> list[str]:
    """Whole lines, with their ends."""
    found: list[str] = LINE.findall(text)
    return found


def hunks(old: str, new: str) -> list[Hunk]:
    """What differs, in order; between two hunks there is at least one equal line."""
    ours, theirs = lines(old), lines(new)
    head = _common(ours, theirs)
    tail = _common(ours[head:][::-1], theirs[head:][::-1])
    a, b = ours[head : len(ours) - tail], theirs[head : len(theirs) - tail]
    codes = SequenceMatcher(None, a, b, len(b) > MAX_EXACT_PIECES).get_opcodes()
    return [
        Hunk(head + i, head + j, head + k, head + m) for tag, i, j, k, m in codes if tag != "equal"
    ]


def with_hunks(old: str, new: str, found: Sequence[Hunk], taken: Collection[int]) -> str:
    """The old text with those of the hunks, by their numbers, that were taken."""
    ours, theirs = lines(old), lines(new)
    out, at = [], 0
    for number, one in enumerate(found):
        out += ours[at : one.start]
        out += theirs[one.first : one.last] if number in taken else ours[one.start : one.stop]
        at = one.stop
    return "".join(out + ours[at:])


def typed_over(exact: str, typed: str) -> str:
    """What a person made of a text in a box, where every line end is "\\n": lines that were not
    touched keep their exact characters, the others end as most lines do. Where none of several
    lines is left it is another text."""
    body = exact.lstrip(BOM)
    typed = plain(typed)
    if plain(exact) == typed:
        return exact
    ours, new = lines(body), lines(typed)
    if len(ours) > 1 and not any(one.strip() for one in {*lines(plain(exact))} & {*new}):
        return typed
    end = line_end(exact)
    out, at = [exact[: len(exact) - len(body)]], 0
    for one in hunks(plain(exact), typed):
        changed = [line.replace("\n", end) for line in new[one.first : one.last]]
        out += ours[at : one.start] + changed
        at = one.stop
    out += ours[at:]
    for number, (before, line) in enumerate(pairwise(out), 1):
        if before.endswith("\r") and line.startswith("\n"):  # else both ends become one
            out[number] = "\r" + line[1:]
    return "".join(out)


def line_end(text: str) -> str:
    """The most frequent line end; "\\n" where there is none."""
    found = Counter(LINE_END.findall(text)).most_common(1)
    return found[0][0] if found else "\n"


def counted(found: Sequence[Hunk]) -> str:
    """How much changes, in words."""
    removed, added = (
        sum(one.stop - one.start for one in found),
        sum(o.last - o.first for o in found),
    )
    many = f"{len(found)} change{'s' * (len(found) != 1)}"
    return f"{many}: {added} line{'s' * (added != 1)} written, {removed} replaced or removed"


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """How many leading elements are the same."""
    return next(
        (n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


# -- side by side ----------------------------------------------------------------------------------


def side_by_side(old: str, new: str, found: Sequence[Hunk]) -> str:
    """Both texts, old left and new right, every hunk with a box to tick; all of them ticked."""
    ours, theirs = lines(old), lines(new)
    out, at, shift = [], 0, 0  # shift: how many lines further down the new text is
    for number, one in enumerate(found):
        out.append(_equal(ours, at, one.start, shift, at > 0, True))
        out.append(_hunk(number, len(found), one, ours, theirs))
        at, shift = one.stop, one.last - one.stop
    out.append(_equal(ours, at, len(ours), shift, bool(found), False))
    every = "".join(
        f'<button type="button" data-all="{value}">{name}</button>'
        for value, name in ((1, "Accept all"), (0, "Reject all"))
    )
    return (
        f'<div class="diff"><div class="diff-head"><span>{counted(found)}</span>'
        f'<span class="diff-all">{every}</span></div>{"".join(out)}</div>'
    )


def _hunk(number: int, of: int, one: Hunk, ours: Sequence[str], theirs: Sequence[str]) -> str:
    old, new = [], []
    for row, (i, k) in enumerate(
        beside(ours[one.start : one.stop], theirs[one.first : one.last]), 1
    ):
        left = None if i is None else ours[one.start + i]
        right = None if k is None else theirs[one.first + k]
        marked = _marked(left or "", right or "")
        if i is not None:
            old.append(_line("old", row, one.start + i + 1, "del", marked[0]))
        if k is not None:
            new.append(_line("new", row, one.first + k + 1, "ins", marked[1]))
    where = _where(one)
    return (
        f'<div class="hunk" role="group" aria-label="change {number + 1}, {where}">'
        f'<label class="take"><input type="checkbox" data-hunk="{number}" checked> '
        f"Accept <span>change {number + 1} of {of}, {where}</span></label>"
        f'<div class="rows">{"".join(old + new)}</div></div>'
    )


def _where(one: Hunk) -> str:
    if one.start == one.stop:
        return f"new after line {one.start}" if one.start else "new at the beginning"
    if one.stop == one.start + 1:
        return f"line {one.start + 1}"
    return f"lines {one.start + 1} to {one.stop}"


def _equal(
    ours: Sequence[str], start: int, stop: int, shift: int, after: bool, before: bool
) -> str:
    """Equal lines: those next to a hunk are shown, the others folded."""
    first = min(stop, start + CONTEXT * after)
    last = max(first, stop - CONTEXT * before)
    if last - first <= 2:  # a fold takes a line, too
        return _rows(ours, start, stop, shift)
    folded = f"{last - first} equal lines"
    if last - first <= FOLDED:
        inside = _rows(ours, first, last, shift)
        folded = f'<details class="fold"><summary>{folded}</summary>{inside}</details>'
    else:
        folded = f'<div class="fold">{folded}</div>'
    return _rows(ours, start, first, shift) + folded + _rows(ours, last, stop, shift)


def _rows(ours: Sequence[str], start: int, stop: int, shift: int) -> str:
    if start == stop:
        return ""
    out = []
    for row, number in enumerate(range(start, stop), 1):
        text = _text(ours[number])
        out.append(_line("old", row, number + 1, "span", text))
        out.append(_line("new same", row, number + shift + 1, "span", text))
    return f'<div class="rows">{"".join(out)}</div>'


def _line(kind: str, row: int, number: int, tag: str, html: str) -> str:
    hidden = ' aria-hidden="true"' if kind == "new same" else ""  # it was read on the left already
    return (
        f'<div class="line {kind} is-{tag}" style="--row:{row}"{hidden}>'
        f'<span class="no">{number}</span><{tag}>{html}</{tag}></div>'
    )


def _text(line: str) -> str:
    """A line without its end, escaped; control characters are made visible."""
    return escape(visible(LINE_END.sub("", line)))


def _marked(old: str, new: str) -> tuple[str, str]:
    """Two versions of a line, the words that differ marked; and its end, if only that differs."""
    a, b = (LINE_END.sub("", text) for text in (old, new))
    if a == b and old != new:
        sides = [
            f'{_text(text)}<mark class="end">{ENDS[text[len(a) :]]}</mark>' for text in (old, new)
        ]
        return sides[0], sides[1]
    if not a.strip() or not b.strip() or max(len(a), len(b)) > LONGEST or not _alike(a, b):
        return _text(old), _text(new)
    ours, theirs = WORD.findall(a), WORD.findall(b)
    left: list[str] = []
    right: list[str] = []
    for tag, i, j, k, m in SequenceMatcher(None, ours, theirs, False).get_opcodes():
        for out, text in ((left, "".join(ours[i:j])), (right, "".join(theirs[k:m]))):
            shown = escape(visible(text))
            out.append(shown if tag == "equal" or not shown else f"<mark>{shown}</mark>")
    return "".join(left), "".join(right)


def beside(old: Sequence[str], new: Sequence[str]) -> list[Pair]:
    """Which lines of a hunk stand in one row: versions of one line, and what is left between."""
    rows: list[Pair] = []
    i = k = 0
    for a, b in [*_versions(old, new), (len(old), len(new))]:
        rows += zip_longest(range(i, a), range(k, b))
        if a < len(old):
            rows.append((a, b))
        i, k = a + 1, b + 1
    return rows


def _versions(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Pairs (old, new) of lines that are alike, in order, with the most in common in all."""
    if not old or not new or len(old) * len(new) > PAIRS:
        return
    same = [[_likeness(a, b) for b in new] for a in old]
    best = [[0.0] * (len(new) + 1) for _ in range(len(old) + 1)]  # of what follows
    for i in reversed(range(len(old))):
        for k in reversed(range(len(new))):
            paired = best[i + 1][k + 1] + same[i][k] if same[i][k] >= ALIKE else 0.0
            best[i][k] = max(paired, best[i + 1][k], best[i][k + 1])
    i = k = 0
    while i < len(old) and k < len(new):
        if best[i][k] == best[i + 1][k]:
            i += 1
        elif best[i][k] == best[i][k + 1]:
            k += 1
        else:
            yield i, k
            i, k = i + 1, k + 1


def _alike(a: str, b: str) -> bool:
    return _likeness(a, b) >= ALIKE


def _likeness(a: str, b: str) -> float:
    """The share of words that two lines have in common, blanks aside."""
    ours, theirs = (Counter(filter(str.strip, WORD.findall(x[:LONGEST]))) for x in (a, b))
    most = max(ours.total(), theirs.total())
    return (ours & theirs).total() / most if most else 0.0
