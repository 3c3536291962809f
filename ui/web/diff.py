"""The difference of two texts: hunks to accept one by one, and a side-by-side view as HTML.

A hunk is a run of whole lines, which end in "\\n", "\\r\\n" or "\\r", as in engine.editing.edits.
Text outside of the accepted hunks is preserved exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from difflib import SequenceMatcher
from html import escape
from itertools import zip_longest
from typing import NamedTuple

from engine.editing.edits import BOM, LINE, LINE_END, WORD, align, plain
from ui.common.terminal import visible

CONTEXT_LINES = 3  # lines around a hunk
MAX_UNFOLDABLE_LINES = 400
MAX_LINE_PAIRS = 4000  # pairs of lines in a hunk; larger ones are not aligned line by line
MIN_SIMILARITY = 0.4  # share of common words of two versions of a line
MAX_COMPARED_CHARS = 2000  # characters of a line whose words are compared
LINE_END_NAMES = {"\n": "LF", "\r\n": "CRLF", "\r": "CR", "": "no line end"}
RowPair = tuple[int | None, int | None]  # indices of an old and a new line in one row


class Hunk(NamedTuple):
    """Lines `old_start:old_stop` of the old text become `new_start:new_stop` of the new one."""

    old_start: int
    old_stop: int
    new_start: int
    new_stop: int


def split_lines(text: str) -> list[str]:
    """Return the lines with their ends."""
    lines: list[str] = LINE.findall(text)
    return lines


def find_hunks(old: str, new: str) -> list[Hunk]:
    """Return the differences in order; at least one equal line separates two hunks."""
    old_lines, new_lines = split_lines(old), split_lines(new)
    return [Hunk(*run) for same, *run in align(old_lines, new_lines) if not same]


def apply_hunks(old: str, new: str, hunks: Sequence[Hunk], accepted: Collection[int]) -> str:
    """Return the old text with the accepted hunks, given by index."""
    old_lines, new_lines = split_lines(old), split_lines(new)
    out, position = [], 0
    for index, hunk in enumerate(hunks):
        out += old_lines[position : hunk.old_start]
        if index in accepted:
            out += new_lines[hunk.new_start : hunk.new_stop]
        else:
            out += old_lines[hunk.old_start : hunk.old_stop]
        position = hunk.old_stop
    return "".join(out + old_lines[position:])


def apply_typing(exact: str, typed: str) -> str:
    """`exact` as edited in a text box, which turns every line end into "\\n".

    Unchanged lines keep their exact characters, changed ones get the most common line end. If none
    of several lines is left, it is a new text and returned as typed."""
    body = exact.lstrip(BOM)
    typed = plain(typed)
    if plain(exact) == typed:
        return exact
    lines, typed_lines = split_lines(body), split_lines(typed)
    unchanged = {*split_lines(plain(exact))} & {*typed_lines}
    if len(lines) > 1 and not any(line.strip() for line in unchanged):
        return typed
    end = common_line_end(exact)
    out, position = [exact[: len(exact) - len(body)]], 0
    for hunk in find_hunks(plain(exact), typed):
        out += lines[position : hunk.old_start]
        out += [line.replace("\n", end) for line in typed_lines[hunk.new_start : hunk.new_stop]]
        position = hunk.old_stop
    out += lines[position:]
    for index in range(1, len(out)):
        if out[index - 1].endswith("\r") and out[index].startswith("\n"):
            out[index] = "\r" + out[index][1:]  # "\r\n" would be one line end
    return "".join(out)


def common_line_end(text: str) -> str:
    """Return the most common line end, "\\n" by default."""
    most_common = Counter(LINE_END.findall(text)).most_common(1)
    return most_common[0][0] if most_common else "\n"


def describe_hunks(hunks: Sequence[Hunk]) -> str:
    """Return the number of changes and lines."""
    removed = sum(hunk.old_stop - hunk.old_start for hunk in hunks)
    added = sum(hunk.new_stop - hunk.new_start for hunk in hunks)
    changes = f"{len(hunks)} change{'s' * (len(hunks) != 1)}"
    return f"{changes}: {added} line{'s' * (added != 1)} added, {removed} removed"


# -- side by side ----------------------------------------------------------------------------------


def side_by_side(old: str, new: str, hunks: Sequence[Hunk]) -> str:
    """Show the old text left and the new one right, with a ticked checkbox for each hunk."""
    old_lines, new_lines = split_lines(old), split_lines(new)
    out, position, shift = [], 0, 0  # shift: line number in the new text minus that in the old
    for index, hunk in enumerate(hunks):
        out.append(_equal_lines(old_lines, position, hunk.old_start, shift, position > 0, True))
        out.append(_hunk(index, len(hunks), hunk, old_lines, new_lines))
        position, shift = hunk.old_stop, hunk.new_stop - hunk.old_stop
    out.append(_equal_lines(old_lines, position, len(old_lines), shift, bool(hunks), False))
    buttons = "".join(
        f'<button type="button" data-all="{value}">{name}</button>'
        for value, name in ((1, "Accept all"), (0, "Reject all"))
    )
    return (
        f'<div class="diff"><div class="diff-head"><span>{describe_hunks(hunks)}</span>'
        f'<span class="diff-all">{buttons}</span></div>{"".join(out)}</div>'
    )


def _hunk(
    index: int, count: int, hunk: Hunk, old_lines: Sequence[str], new_lines: Sequence[str]
) -> str:
    old = old_lines[hunk.old_start : hunk.old_stop]
    new = new_lines[hunk.new_start : hunk.new_stop]
    left, right = [], []
    for row, (i, k) in enumerate(pair_lines(old, new), 1):
        marked = _mark_words("" if i is None else old[i], "" if k is None else new[k])
        if i is not None:
            left.append(_line("old", row, hunk.old_start + i + 1, "del", marked[0]))
        if k is not None:
            right.append(_line("new", row, hunk.new_start + k + 1, "ins", marked[1]))
    where = _location(hunk)
    return (
        f'<div class="hunk" role="group" aria-label="change {index + 1}, {where}">'
        f'<label class="take"><input type="checkbox" data-hunk="{index}" checked> '
        f"Accept <span>change {index + 1} of {count}, {where}</span></label>"
        f'<div class="rows">{"".join(left + right)}</div></div>'
    )


def _location(hunk: Hunk) -> str:
    start, stop = hunk.old_start, hunk.old_stop
    if start == stop:
        return f"new after line {start}" if start else "new at the beginning"
    if stop == start + 1:
        return f"line {stop}"
    return f"lines {start + 1} to {stop}"


def _equal_lines(
    lines: Sequence[str], start: int, stop: int, shift: int, after_hunk: bool, before_hunk: bool
) -> str:
    """Equal lines: those next to a hunk are shown, the others folded."""
    first = min(stop, start + CONTEXT_LINES * after_hunk)
    last = max(first, stop - CONTEXT_LINES * before_hunk)
    if last - first <= 2:  # the fold itself takes a line
        return _rows(lines, start, stop, shift)
    folded = f"{last - first} equal lines"
    if last - first <= MAX_UNFOLDABLE_LINES:
        inside = _rows(lines, first, last, shift)
        folded = f'<details class="fold"><summary>{folded}</summary>{inside}</details>'
    else:
        folded = f'<div class="fold">{folded}</div>'
    return _rows(lines, start, first, shift) + folded + _rows(lines, last, stop, shift)


def _rows(lines: Sequence[str], start: int, stop: int, shift: int) -> str:
    if start == stop:
        return ""
    out = []
    for row, number in enumerate(range(start, stop), 1):
        text = _escaped(lines[number])
        out.append(_line("old", row, number + 1, "span", text))
        out.append(_line("new same", row, number + shift + 1, "span", text))
    return f'<div class="rows">{"".join(out)}</div>'


def _line(kind: str, row: int, number: int, tag: str, html: str) -> str:
    hidden = (
        ' aria-hidden="true"' if kind == "new same" else ""
    )  # a screen reader has read the left one
    return (
        f'<div class="line {kind} is-{tag}" style="--row:{row}"{hidden}>'
        f'<span class="no">{number}</span><{tag}>{html}</{tag}></div>'
    )


def _escaped(line: str) -> str:
    """Return a line without its end, with visible control characters."""
    return escape(visible(LINE_END.sub("", line)))


def _mark_words(old: str, new: str) -> tuple[str, str]:
    """Return two versions of a line with marks around the words that differ.

    If nothing else differs, they are around the line end.
    """
    a, b = (LINE_END.sub("", text) for text in (old, new))
    if a == b and old != new:
        sides = [
            f'{_escaped(text)}<mark class="end">{LINE_END_NAMES[text[len(a) :]]}</mark>'
            for text in (old, new)
        ]
        return sides[0], sides[1]
    too_long = max(len(a), len(b)) > MAX_COMPARED_CHARS
    if not a.strip() or not b.strip() or too_long or _similarity(a, b) < MIN_SIMILARITY:
        return _escaped(old), _escaped(new)
    old_words, new_words = WORD.findall(a), WORD.findall(b)
    left: list[str] = []
    right: list[str] = []
    for tag, i, j, k, m in SequenceMatcher(None, old_words, new_words, False).get_opcodes():
        for out, text in ((left, "".join(old_words[i:j])), (right, "".join(new_words[k:m]))):
            shown = escape(visible(text))
            out.append(shown if tag == "equal" or not shown else f"<mark>{shown}</mark>")
    return "".join(left), "".join(right)


def pair_lines(old: Sequence[str], new: Sequence[str]) -> list[RowPair]:
    """Return the rows of a hunk: similar lines share a row, and so do the lines between these."""
    rows: list[RowPair] = []
    i = k = 0
    for a, b in [*_similar_pairs(old, new), (len(old), len(new))]:
        rows += zip_longest(range(i, a), range(k, b))
        if a < len(old):
            rows.append((a, b))
        i, k = a + 1, b + 1
    return rows


def _similar_pairs(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Align similar lines with the largest total similarity, by dynamic programming."""
    if not old or not new or len(old) * len(new) > MAX_LINE_PAIRS:
        return
    similarity = [[_similarity(a, b) for b in new] for a in old]
    best = [[0.0] * (len(new) + 1) for _ in range(len(old) + 1)]  # total of old[i:] and new[k:]
    for i in reversed(range(len(old))):
        for k in reversed(range(len(new))):
            paired = 0.0
            if similarity[i][k] >= MIN_SIMILARITY:
                paired = best[i + 1][k + 1] + similarity[i][k]
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


def _similarity(a: str, b: str) -> float:
    """Return the share of words that two lines have in common, white space aside."""
    words_a, words_b = (
        Counter(filter(str.strip, WORD.findall(line[:MAX_COMPARED_CHARS]))) for line in (a, b)
    )
    longer = max(words_a.total(), words_b.total())
    return (words_a & words_b).total() / longer if longer else 0.0
