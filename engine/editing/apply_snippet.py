"""Merges an update, as agents and chat models write it, into a file: a snippet in which marks,
`... existing code ...` in a comment, stand for the lines that stay as they are.

The snippet's chunks between marks begin and end with lines of the file, their anchors. A chunk
replaces everything from its first anchor to its last: lines between them that it does not repeat
are deleted, as the instructions of the agents that write such snippets say. Where there is one
place for every chunk, `merge` needs no model; else a model writes the file, and
`engine.editing.apply_answer` refuses what the update did not ask for.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from engine.editing.edits import EditRefused, plain, strip_blank_lines
from engine.editing.merge_ways import (
    END,
    MAX_LINES,
    START,
    Lines,
    MergeWays,
    Options,
    merge_ways,
    only_way,
)

MAX_MARK_CHARS = 200  # of a line that is a mark
MAX_CHUNKS = 1000  # of an update that is merged without a model
MAX_PLACES = 1000  # in the file of a line that an anchor begins with
MAX_ANCHOR_LINES = 50  # that are compared while an anchor is in several places
OUTER_LINES = 2  # at each end of a chunk that must place it too, without the blank ones
MAX_LASTS = 20  # places where a chunk may end, by where it begins
VERSION_SHARE = 2 / 3  # of outermost lines that a new version of them still has
MAX_NAMED_LINES = 5  # in an error
EXAMPLE = "`... existing code ...`"

DOTS = r"(?:\.{3,}|\u2026)"
MARK = re.compile(
    rf"[^\w.\u2026]*{DOTS}[^.\u2026]*\b(?:existing|unchanged|remaining|rest)\b[^.\u2026]*{DOTS}"
    r"[^\w.\u2026]*",
    re.IGNORECASE,
)
ONLY_DOTS = re.compile(rf"[^\w.\u2026]*{DOTS}[^\w.\u2026]*")
COMMENTS = ("#", "//", "--", "/*", "*", "<!--", "{/*", "{#", ";", "%")
HEAD = re.compile(r"[^(=:{]*\w")  # of a line: `def load`, `LIMIT`; what a change of it leaves
ELIDED = re.compile(rf"{DOTS}|\b(?:rest of|unchanged|the same|omitted)\b", re.IGNORECASE)
FOREIGN = {  # what another format's lines begin with: its name
    "search and replace blocks": ("<<<<<<< SEARCH", ">>>>>>> REPLACE", "------- SEARCH"),
    "a patch": ("*** Begin Patch", "*** Update File:", "*** End Patch"),
    "a diff": ("diff --git ", "@@ -", "--- a/", "+++ b/"),
    "a prompt of another model": (
        "<|marker_", "<|editable_region_", "<|user_cursor", "<|file_sep|>", "<|fim_", "<[fim-",
        "<updated-code>", "</updated-code>", "<update>", "</update>",
    ),
}  # fmt: skip


class Merge(NamedTuple):
    """The file's new text in its `plain` form, or why that takes a model."""

    text: str | None
    doubt: str = ""  # one line
    ways: MergeWays | None = None  # to place the chunks, where the doubt is only which


@dataclass(frozen=True)
class Chunk:
    """Lines of an update between two marks."""

    lines: Lines  # without blank lines beside the marks; START where no mark is before them, END
    number: int  # of its first line in the update, from 1
    before: int = 0  # blank lines after the mark before it
    after: int = 0  # blank lines before the mark after it

    @property
    def name(self) -> str:
        """What an error calls it."""
        return f"the chunk at line {self.number} of the update"

    def is_new(self, known: Counter[str]) -> bool:
        """Whether it has no line of the file (`known`), at an end of the file and not indented: it
        is added there."""
        inner = [line for line in self.lines if line not in (START, END)]
        ends = (self.lines[0] == START) != (self.lines[-1] == END)
        new = not any(known[line.strip()] for line in inner if line.strip())
        return ends and new and not inner[0][0].isspace()

    def is_common(self, file: Sequence[str], known: Counter[str]) -> bool:
        """Whether nothing says which of several places it has: the file has none of its lines once,
        and no line that begins like a new one of it."""
        inner = [line for line in self.lines if line.strip() and line not in (START, END)]
        new = {_head(line) for line in inner if not known[line.strip()]} - {""}
        return all(known[line.strip()] != 1 for line in inner) and new.isdisjoint(map(_head, file))

    def resembles_end(self, file: Sequence[str]) -> bool:
        """Whether a new line begins with the same word as the file's first or last one, beside
        which it is added: it may replace that one. The file is within START and END."""
        end = file[1] if self.lines[0] == START else file[-2]
        words = [line.split(" ")[0] for line in (end, *self.lines)]
        return words[0] != "" and end not in self.lines and words[0] in words[1:]

    def is_version_of(self, old: Sequence[str], head: int, tail: int) -> bool:
        """Whether its lines after the first `head` and before the last `tail` are a new version of
        other ones: most of the outermost of those are among them, or lines that begin alike."""
        new = set(map(_head, self.lines[head : len(self.lines) - tail])) - {""}
        full = [line for line in old if line.strip()]
        indents = [len(line) - len(line.lstrip()) for line in full]
        least = min(indents, default=0)
        outer = [_head(line) for line, n in zip(full, indents, strict=True) if n == least]
        return bool(outer) and sum(one in new for one in outer) >= VERSION_SHARE * len(outer)

    def written(self, first: int, last: int) -> list[str]:
        """Its lines in place of those of the file from `first` to `last`, with the blank ones
        around it where it is added at one line."""
        added = first == last and len(self.lines) > 1
        return [*[""] * (self.before * added), *self.lines, *[""] * (self.after * added)]


@dataclass(frozen=True)
class Fit:
    """Where a chunk fits: the lines of the file that may be the first and the last that it
    replaces. They are found by anchors, the longest runs of lines at the chunk's ends that the file
    has too."""

    firsts: tuple[int, ...]
    lasts: tuple[int, ...]
    head: int  # lines of the anchor at the start
    tail: int  # lines of the anchor at the end
    apart: int  # how far the last line is behind the first one, at least
    narrow: bool = False  # one of several places was taken, because it keeps all lines there

    def narrowed(self, part: Chunk) -> Fit:
        """The only place in which the chunk adds lines and replaces none; as it is if there is no
        such place, or another one."""
        size = self.head + self.tail
        ends = {*self.lasts}
        found = [first for first in self.firsts if first + size - 1 in ends]
        if len(found) != 1 or size >= len(part.lines):
            return self
        return replace(self, firsts=(found[0],), lasts=(found[0] + size - 1,), narrow=True)

    def shows_no_change(self, part: Chunk) -> bool:
        """Whether the chunk is in the file as it is, and more than a line that says where the next
        one is: lines may have been deleted beside blank ones, or between equal ones."""
        return self.head == len(part.lines) and (self.head > 1 or part.before + part.after > 0)

    def doubt(
        self, part: Chunk, file: Sequence[str], known: Counter[str], first: int, last: int
    ) -> str:
        """Why the lines from `first` to `last`, the only ones that the chunk fits, may not be those
        that it replaces; "" where that is sure. `known`: the file's lines, counted."""
        old = file[first + self.head : last + 1 - self.tail]
        if old and part.is_version_of(old, self.head, self.tail):
            return ""
        sure = self.sure(part, known)
        keeps = last + 1 - first == self.head + self.tail <= len(part.lines)
        if not (all(sure) or (keeps and any(sure))):
            return f"{part.name} begins or ends with a line that the file has often"
        by_end = (part.lines[0] == START and self.head == 1) or (
            part.lines[-1] == END and self.tail == 1
        )
        if by_end and (old or part.resembles_end(file)):
            return f"{part.name} may replace lines at an end of the file, or add some"
        return ""

    def sure(self, part: Chunk, known: Counter[str]) -> list[bool]:
        """Whether either anchor has a line that the file (`known`) has once, or several lines:
        one like `)` may be another that happens to be near. New lines at an end of the file have
        no anchors but that end."""
        anchors = part.lines[: self.head], part.lines[len(part.lines) - self.tail :]
        return [
            part.is_new(known)
            or sum(map(bool, map(str.strip, anchor))) > 1
            or any(line in (START, END) or known[line.strip()] == 1 for line in anchor)
            for anchor in anchors
        ]

    def beside(self, part: Chunk, file: Sequence[str], first: int, last: int) -> list[list[str]]:
        """The chunk with the lines that it replaces, before and after its new ones."""
        stay = file[first + self.head : last + 1 - self.tail]
        if not stay or self.head + self.tail > len(part.lines):
            return []
        inner = len(part.lines) - self.tail
        head, new, tail = part.lines[: self.head], part.lines[self.head : inner], part.lines[inner:]
        return [[*head, *stay, *new, *tail], [*head, *new, *stay, *tail]]


# -- the update --------------------------------------------------------------------------------


def snippet(update: str) -> str:
    """An update in its `plain` form, without blank lines around it and the code fence that chat
    models put around code."""
    text = plain(update)
    first, last = strip_blank_lines(text, 0, len(text))
    lines = text[first:last].rstrip().split("\n")
    fence = re.match(r"\s*(```+|~~~+)", lines[0])
    if fence and len(lines) > 1 and lines[-1].strip() == fence[1]:
        return snippet("\n".join(lines[1:-1]))
    return "\n".join(lines)


def is_mark(line: str) -> bool:
    """Whether a line of an update stands for lines of the file."""
    return len(line) <= MAX_MARK_CHARS and MARK.fullmatch(line) is not None


def chunks(lines: Sequence[str]) -> list[Chunk]:
    """The chunks of an update's lines."""
    found: list[Chunk] = []
    every = [START, *lines, END]
    start = 0
    for at in range(len(every) + 1):
        if at < len(every) and not is_mark(every[at]):
            continue
        part, number, start = every[start:at], start, at + 1
        before = next((n for n, line in enumerate(part) if line.strip(" \t")), len(part))
        after = next((n for n, line in enumerate(part[::-1]) if line.strip(" \t")), 0)
        part = part[before : len(part) - after]
        if part and part not in ([START], [END]):
            first = number + before + (part[0] == START)
            found.append(Chunk(tuple(part), first, before, after))
    return found


# -- merging without a model -------------------------------------------------------------------


def merge(text: str, update: str) -> Merge:
    """Merge an update into a file's text if there is exactly one way. EditRefused, and then a model
    would not know either, where it fits nowhere or in several places, or is no such update."""
    body = plain(text)
    first, last = strip_blank_lines(body, 0, len(body))
    shown = snippet(update)
    old, new = body[first:last].split("\n"), shown.split("\n")
    if not body.strip():
        old = []
    known = Counter(map(str.strip, old))
    _refuse_foreign(new, known)
    if not shown.strip():
        raise EditRefused(
            "the update is empty, it would empty the file: write the changed lines, "
            f"and {EXAMPLE} for the others"
        )
    marks = sum(map(is_mark, new))
    if not old:
        return Merge(None, "the file is empty, and the update has marks") if marks else Merge(shown)
    if any(is_mark(line) for line in old):
        return Merge(None, f"the file itself has a line like {EXAMPLE}")
    parts = chunks(new)
    if len(parts) > MAX_CHUNKS:
        return Merge(None, f"the update has more than {MAX_CHUNKS} chunks")
    if not parts:
        raise EditRefused(f"the update has nothing but {EXAMPLE}: write the changed lines too")
    for number, line in enumerate(new, 1):
        if line.strip() not in known and not is_mark(line) and is_elision(line):
            return Merge(None, f"line {number} of the update may stand for other lines")
    if not _resembles(new, old, known) and not _adds(parts, known):
        raise EditRefused(
            "the update fits nowhere: none of its lines is in the file or begins like one: repeat "
            "a line of the file before and after each change"
        )
    if not marks:
        return Merge(None, f"the update has no {EXAMPLE}")
    return _placed([START, *old, END], parts, known, body[:first].count("\n"))


def ways_of(text: str, update: str) -> MergeWays | None:
    """The ways in which an update can be placed in a file's text, if they are known."""
    try:
        found = merge(text, update)
    except EditRefused:
        return None
    return found.ways if found.text is None else only_way(found.text.split("\n"))


def is_elision(line: str) -> bool:
    """Whether a line may stand for others although it is no mark: `...` alone, `# rest of the
    class`, a mark behind code."""
    text = line.strip()
    return len(text) <= MAX_MARK_CHARS and (
        ONLY_DOTS.fullmatch(text) is not None
        or (text.startswith(COMMENTS) and ELIDED.search(text) is not None)
        or "existing code" in text
    )


def _refuse_foreign(lines: Sequence[str], known: Counter[str]) -> None:
    """Raise EditRefused for an update in another format."""
    for number, line in enumerate(lines, 1):
        start = line.strip()
        for name, beginnings in FOREIGN.items():
            if start.startswith(beginnings) and start not in known:
                raise EditRefused(
                    f"line {number} of the update belongs to {name}: write the changed lines as "
                    f"they shall be, and {EXAMPLE} for the others"
                )


def _resembles(new: Sequence[str], old: Sequence[str], known: Counter[str]) -> bool:
    """Whether a line of the update is in the file, or begins like one: `def load(path, mode):`."""
    if any(known[line.strip()] for line in new if line.strip()):
        return True
    heads = set(map(_head, old)) - {""}
    return any(_head(line) in heads for line in new if not is_mark(line))


def _head(line: str) -> str:
    found = HEAD.match(line.strip())
    return found[0] if found else ""


def _adds(parts: Sequence[Chunk], known: Counter[str]) -> bool:
    return any(part.is_new(known) for part in parts)


def _placed(file: list[str], parts: list[Chunk], known: Counter[str], above: int) -> Merge:
    """The file with every chunk in its place. `known`: its lines without blanks, counted. `above`:
    blank lines before those of `file`."""
    back = file[::-1]
    both = (file, _line_places(file)), (back, _line_places(back))
    fits = [_fit(part, known, *both) for part in parts]
    for part, fit in zip(parts, fits, strict=True):
        if not fit.firsts or not fit.lasts:
            if len(parts) == 1 and len(fit.firsts + fit.lasts) > 1 and part.is_common(file, known):
                raise EditRefused(_ambiguous(part, fit, above))
            which = "ends" if fit.firsts else "begins"
            return Merge(None, f"{part.name} {which} with a line that is not in the file")
    leftmost, rightmost = _leftmost(fits), _rightmost(fits)
    narrow = [
        fit.narrowed(part) if one != other and not part.is_common(file, known) else fit
        for part, fit, one, other in zip(parts, fits, leftmost, rightmost, strict=False)
    ]
    if leftmost and _leftmost(narrow):
        fits, leftmost, rightmost = narrow, _leftmost(narrow), _rightmost(narrow)
    if not leftmost or not rightmost:
        doubt = "the update's chunks are not in the order of the file"
        outer = [_fit(part, known, *both, OUTER_LINES) for part in parts]
        return Merge(None, doubt, _ways(file, parts, outer))
    for part, fit, one, other in zip(parts, fits, leftmost, rightmost, strict=True):
        if one != other:
            if part.is_common(file, known):
                raise EditRefused(_ambiguous(part, fit, above))
            return Merge(None, f"{part.name} fits in several places", _ways(file, parts, fits))
    doubts = [""] * len(parts)
    for number, (part, fit, place) in enumerate(zip(parts, fits, leftmost, strict=True)):
        if fit.shows_no_change(part):
            return Merge(None, f"{part.name} shows no change: it may stand for a deletion")
        doubts[number] = fit.doubt(part, file, known, *place)
    if any(doubts):
        return Merge(None, next(filter(None, doubts)), _ways(file, parts, fits, doubts))
    outer = [_fit(part, known, *both, OUTER_LINES) for part in parts]
    outer = [fit if fit.narrow else one for fit, one in zip(fits, outer, strict=True)]
    for part, one, other in zip(parts, _leftmost(outer), _rightmost(outer), strict=True):
        if one != other:
            return Merge(None, f"{part.name} may fit in several places", _ways(file, parts, outer))
    return Merge(_joined(file, parts, leftmost))


def _ways(
    file: list[str], parts: list[Chunk], fits: list[Fit], doubts: Sequence[str] = ()
) -> MergeWays | None:
    """All arrangements of the chunks; None if there are none, or too many. Where there is a doubt
    about one, the lines of the file that it replaces may stay, before or after its own."""
    every: list[Options] = []
    room = MAX_LINES
    for part, fit, doubt in zip(parts, fits, doubts or [""] * len(parts), strict=True):
        own: dict[int, list[tuple[int, Lines]]] = {}
        for at, first in enumerate(fit.firsts):
            start = bisect_left(fit.lasts, first + fit.apart)
            stop = start + MAX_LASTS
            if at + 1 < len(fit.firsts):  # there it replaces fewer lines up to the same one
                nearer = bisect_left(fit.lasts, fit.firsts[at + 1] + fit.apart)
                stop = min(stop, max(start + 1, nearer))
            own[first] = [
                (last + 1, tuple(lines))
                for last in fit.lasts[start:stop]
                for lines in (
                    part.written(first, last),
                    *(fit.beside(part, file, first, last) if doubt else ()),
                )
            ]
            room -= sum(len(lines) for _, lines in own[first]) + 1
            if room < 0:
                return None
        every.append(own)
    return merge_ways(file, every)


def _ambiguous(part: Chunk, fit: Fit, above: int) -> str:
    """The error of a chunk that fits in several places, which it names."""
    places = fit.firsts if len(fit.firsts) > 1 else fit.lasts
    named = [str(place + above) for place in places[:MAX_NAMED_LINES]]
    more = ", ..." if len(places) > MAX_NAMED_LINES else ""
    return (
        f"{part.name} fits in several places, at the lines {', '.join(named)}{more} of the file: "
        "repeat a line that the file has once, before and after the change"
    )


FileLines = tuple[list[str], dict[str, list[int]]]  # of a file, and the places of each


def _line_places(lines: list[str]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for place, line in enumerate(lines):
        places.setdefault(line, []).append(place)
    return places


def _fit(
    part: Chunk,
    known: Counter[str],
    file: FileLines,
    back: FileLines,
    outer: int | None = None,
) -> Fit:
    """Where a chunk fits. `back`: the file from its end. `outer`: lines of an anchor at most,
    without the blank ones."""
    last = len(file[0]) - 1
    if part.is_new(known):
        end = 0 if part.lines[0] == START else last
        return Fit((end,), (end,), 1, 1, 0)
    firsts, head = _anchor(file, _first_lines(part.lines, outer))
    behind, tail = _anchor(back, _first_lines(part.lines[::-1], outer))
    lasts = tuple(last - place for place in reversed(behind))
    return Fit(firsts, lasts, head, tail, int(len(part.lines) > 1))


def _first_lines(lines: Sequence[str], most: int | None) -> Sequence[str]:
    """The first `most` lines that are not blank, with the blank ones among them."""
    full = [at for at, line in enumerate(lines) if line.strip(" \t")]
    return lines if most is None or len(full) <= most else lines[: full[most]]


def _anchor(file: FileLines, lines: Sequence[str]) -> tuple[tuple[int, ...], int]:
    """Where the longest run of the first of `lines` begins in the file, and its length."""
    text, known = file
    places = known.get(lines[0], [])
    size = 1 if places else 0
    if len(places) > MAX_PLACES:
        return tuple(places), size
    while places and size < len(lines) and (len(places) == 1 or size < MAX_ANCHOR_LINES):
        ends = len(text) - size
        longer = [at for at in places if at < ends and text[at + size] == lines[size]]
        if not longer:
            break
        places, size = longer, size + 1
    return tuple(places), size


Places = list[tuple[int, int]]  # the first and the last line that each chunk replaces


def _leftmost(fits: list[Fit]) -> Places:
    """The first places that the chunks can have in their order; [] if there are none. In no other
    arrangement is any of them further up."""
    found: Places = []
    free = 0
    for fit in fits:
        first = fit.firsts[bisect_left(fit.firsts, free) :][:1]
        last = fit.lasts[bisect_left(fit.lasts, first[0] + fit.apart) :][:1] if first else ()
        if not last:
            return []
        found.append((first[0], last[0]))
        free = last[0] + 1
    return found


def _rightmost(fits: list[Fit]) -> Places:
    """The last places that the chunks can have in their order; [] if there are none."""
    found: Places = []
    free: float = float("inf")
    for fit in reversed(fits):
        last = fit.lasts[: bisect_right(fit.lasts, free)][-1:]
        first = fit.firsts[: bisect_right(fit.firsts, last[0] - fit.apart)][-1:] if last else ()
        if not first:
            return []
        found.append((first[0], last[0]))
        free = first[0] - 1
    return found[::-1]


def _joined(file: list[str], parts: list[Chunk], places: Places) -> str:
    """The file with each chunk in place of the lines that it replaces."""
    out: list[str] = []
    at = 0
    for part, (first, last) in zip(parts, places, strict=True):
        out += [*file[at:first], *part.written(first, last)]
        at = last + 1
    return "\n".join(line for line in out + file[at:] if line not in (START, END))
