"""Merging of an update, as agents and chat models write it, into a file.

An update is a snippet in which marks, `... existing code ...` in a comment, stand for the lines
that stay as they are. The snippet's chunks between marks begin and end with lines of the file. A
chunk replaces all lines between those, so it deletes the ones that it does not repeat, if they are
few or have new ones in their place. Where there is one such reading of every chunk
(`engine.editing.readings`), `merge` needs no model; else a model writes the file, and
`engine.editing.apply_answer` refuses what the update did not ask for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from engine.editing.added_or_replaced import added_or_replaced
from engine.editing.blocks import head_of, indent
from engine.editing.diff import is_patch, patched
from engine.editing.edits import EditRefused, common_prefix, plain, strip_blank_lines
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
from engine.editing.placed_imports import IMPORT_LINE, clash, with_imports
from engine.editing.readings import Reading, readings
from engine.editing.snippet import indented_like, snippet
from engine.editing.syntax import parse
from engine.editing.update_chunk import File, UpdateChunk
from engine.editing.update_marks import is_elision, is_mark
from engine.editing.whole_definitions import MARK as MARK_STATEMENT
from engine.editing.whole_definitions import Doubt, LineRules, Settled, merge_definitions

MAX_CHARS = 2_000_000  # characters of a file and an update that are merged without a model
MAX_CHUNKS = 1000  # chunks of an update that is merged without a model
MAX_STEPS = 500_000  # lines of the file times chunks; they take half a second
MAX_NAMED_LINES = 5  # lines named in an error
EXAMPLE = "`... existing code ...`"

FOREIGN = {  # name of another format -> beginnings of its lines
    "search and replace blocks": ("<<<<<<< SEARCH", ">>>>>>> REPLACE", "------- SEARCH"),
    "a patch": ("*** Begin Patch", "*** Update File:", "*** End Patch"),
    "a diff": ("diff --git ", "@@ -", "--- a/", "+++ b/"),
    "a prompt of another model": (
        "<|marker_", "<|editable_region_", "<|user_cursor", "<|file_sep|>", "<|fim_", "<[fim-",
        "<updated-code>", "</updated-code>", "<update>", "</update>",
    ),
}  # fmt: skip


class Merge(NamedTuple):
    """A file's new text after a merge, or why the merge takes a model.

    The text is in its `plain` form, without empty lines around it.
    """

    text: str | None
    doubt: str = ""  # one line
    ways: MergeWays | None = None  # the ways to place the chunks, where the doubt is only which


# -- the update --------------------------------------------------------------------------------


def chunks(lines: Sequence[str]) -> list[UpdateChunk]:
    """Split an update's lines into chunks."""
    found: list[UpdateChunk] = []
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
            found.append(UpdateChunk(tuple(part), first, before, after))
    return found


# -- merging without a model -------------------------------------------------------------------


def merge(text: str, update: str, path: str = "") -> Merge:
    """Merge an update into a file's text if there is exactly one way.

    Where lines do not tell it, its definitions may (`engine.editing.whole_definitions`). Raises
    EditRefused where the update fits nowhere or in several places, or is no such update; a model
    would not know either.
    """
    found = _merge(text, update, path)
    if found.text is None:
        return found
    body = plain(text)
    first, last = strip_blank_lines(body, 0, len(body))
    around = (body[:first], body[last:]) if body.strip() else ("", "")
    return found._replace(text=found.text.join(around).strip("\n"))


def _merge(text: str, update: str, path: str = "") -> Merge:
    """Merge an update into a file's text, without the blank lines around it."""
    if len(text) + len(update) > MAX_CHARS:
        return Merge(None, "the file and the update are too long to be compared")
    body = plain(text)
    first, last = strip_blank_lines(body, 0, len(body))
    shown = snippet(update, text)
    old = body[first:last].split("\n")
    new = indented_like(shown.split("\n"), old)
    if not body.strip():
        old = []
    known = Counter(map(str.strip, old))
    if is_patch(shown) and not known[shown.split("\n")[0].strip()]:
        return Merge("\n".join(patched(old, shown.split("\n"))))
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
    imports = _new_imports(path, old, parts, known) if marks else []
    if imports:
        parts = [part for part in parts if not _only_imports(part)]
        if not parts:
            return Merge(with_imports(path, "\n".join(old), imports))
    file, above = File([START, *old, END]), body[:first].count("\n")
    try:
        named = merge_definitions(path, "\n".join(old), "\n".join(new), RULES)
    except Doubt as error:
        doubt = error
    else:
        by_lines = partial(_placed, file, parts, known, above, path, imports)
        found = _agreed(named, by_lines) if marks else Merge(named)
        return _if_certain(found, path, old, new, parts)
    if not _resembles(new, old, known) and not _adds(parts, known):
        raise EditRefused(
            "the update fits nowhere: none of its lines is in the file or begins like one: repeat "
            "a line of the file before and after each change"
        )
    if not marks or isinstance(doubt, Settled):
        return Merge(None, str(doubt) or f"the update has no {EXAMPLE}")
    if number := _blank_chunk(new):
        return Merge(None, f"line {number} of the update is blank: lines may be deleted there")
    found = _placed(file, parts, known, above, path, imports)
    if found.text is None:
        return found._replace(doubt=str(doubt) or found.doubt)
    return _if_certain(found, path, old, new, parts)


def _if_certain(
    found: Merge, path: str, old: Sequence[str], new: Sequence[str], parts: Sequence[UpdateChunk]
) -> Merge:
    """Return a merge, unless it lacks a line of the update or may delete a definition.

    Imports may be in other lines, and the file's line may have words before it: `export default`.
    """
    if found.text is None:
        return found
    full = [line.rstrip() for line in found.text.split("\n") if line.strip()]
    lines = {line.split(None, words)[-1] for line in full for words in range(3)} | {""}
    for number, line in enumerate(map(str.strip, new), 1):
        if line not in lines and not is_mark(line) and not IMPORT_LINE.fullmatch(line):
            return Merge(None, f"nothing tells the place of line {number} of the update")
    shown = [part.text for part in parts]
    if both := added_or_replaced(path, "\n".join(old), found.text, shown):
        doubt = f"the update may add `{both.added}` as well as replace `{both.replaced}` by it"
        return Merge(None, doubt, _either(old, both.lines, found.text.split("\n")))
    return found


def _either(old: Sequence[str], *texts: list[str]) -> MergeWays | None:
    """Return the ways of a file to become one of these texts; None if one has no lines."""
    file, *every = ([START, *lines, END] for lines in (old, *texts))
    first = min(common_prefix(file, new) for new in every)
    last = min(common_prefix(file[:first:-1], new[:first:-1]) for new in every)
    stop = len(file) - last
    options = {first: [(stop, tuple(new[first : len(new) - last])) for new in every]}
    return merge_ways(file, [options]) if all(texts) else None


def _agreed(named: str, by_lines: Callable[[], Merge]) -> Merge:
    """Return the merge of definitions, `named`, unless the lines of the update give another one."""
    try:
        found = by_lines()
    except EditRefused:  # they have no place
        return Merge(named)
    if found.text is None:
        return Merge(named)
    if found.text.split() != named.split():
        return Merge(None, "the update's lines and its definitions fit in different ways")
    return found  # with the blank lines that the update shows


def _merge_body(old: str, new: str) -> str:
    """Merge an update of the lines of a definition into them. Raises Doubt."""
    sides: list[tuple[str, list[str]]] = []
    for text in (old, new):
        rows = text.split("\n")
        full = [line for line in rows if line.strip() and not is_mark(line)] or [""]
        margin = full[0][: indent(full[0])]
        if any(not line.startswith(margin) for line in full):
            raise Settled("the body of a definition has lines that are not indented")
        sides.append((margin, [line[len(margin) :] if line.strip() else line for line in rows]))
    (margin, lines), (_, shown) = sides
    file = File([START, *lines, END], is_body=True)
    parts = chunks([EXAMPLE if RULES.is_mark(line) else line for line in shown])
    if not parts:
        return old
    try:
        found = _placed(file, parts, Counter(map(str.strip, lines)), 0)
    except EditRefused as error:
        raise Settled(str(error)) from error
    if found.text is None:
        raise Settled(re.sub(r"the (chunk) at line \d+", r"a \1", found.doubt))
    return "\n".join(margin + line if line.strip() else line for line in found.text.split("\n"))


RULES = LineRules(lambda line: line.strip() == MARK_STATEMENT or is_mark(line), _merge_body)


def _only_imports(part: UpdateChunk) -> bool:
    return all(IMPORT_LINE.fullmatch(line) for line in part.inner)


def _new_imports(
    path: str, old: Sequence[str], parts: Sequence[UpdateChunk], known: Counter[str]
) -> list[str]:
    """Return the imports in chunks of nothing else; none if the file may have one of them."""
    found = [line for part in parts if _only_imports(part) for line in part.inner]
    had = [line.strip() for line in old if IMPORT_LINE.fullmatch(line.strip())]
    if any(known[line.strip()] or any(clash(line, other) for other in had) for line in found):
        return []
    return found if found and parse(path, "") else []


def ways_of(text: str, update: str, path: str = "") -> MergeWays | None:
    """Return the ways in which an update can be placed in a file's text, if they are known.

    Where its definitions tell none, its lines may.
    """
    try:
        found = _merge(text, update, path)
        if found.text is None and found.ways is None:
            found = _merge(text, update)
    except EditRefused:
        return None
    return found.ways if found.text is None else only_way(found.text.split("\n"))


def _blank_chunk(lines: Sequence[str]) -> int:
    """Return the number of the first of several blank lines alone between marks; 0 for none."""
    marks = [number for number, line in enumerate(lines) if is_mark(line)]
    return next(
        (
            first + 2
            for first, last in pairwise(marks)
            if last - first > 2 and not any(map(str.strip, lines[first + 1 : last]))
        ),
        0,
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
    """Return whether a line of the update is in the file, or begins like one of it.

    `def load(path, mode):` begins like `def load(path):`.
    """
    if any(known[line.strip()] for line in new if line.strip()):
        return True
    heads = set(map(head_of, old)) - {""}
    return any(head_of(line) in heads for line in new if not is_mark(line))


def _adds(parts: Sequence[UpdateChunk], known: Counter[str]) -> bool:
    return any(part.is_new(known) for part in parts)


def _placed(
    file: File,
    parts: list[UpdateChunk],
    known: Counter[str],
    above: int,
    path: str = "",
    imports: list[str] | None = None,
) -> Merge:
    """Return the file with every chunk in its place, or why that is not certain.

    `known`: the file's lines without blanks, counted. `above`: how many blank lines are before
    those of `file`. `imports`: what is added to those of the file `path`. Raises EditRefused for a
    chunk that nothing tells where it belongs.
    """
    words = sum(1 + len(part.lines) // 64 for part in parts)  # words of bits for all lines
    if words * len(file.lines) > MAX_STEPS:
        return Merge(None, "the file and the update are too long to be compared")
    every = [readings(part, file) for part in parts]
    for part, own in zip(parts, every, strict=True):
        if not own:
            return Merge(None, f"{part.name} has no line of the file")
    fitting = _in_order(every)
    if not all(fitting):
        doubt = "the update's chunks are not in the order of the file"
        return Merge(None, doubt, _ways(file, parts, every))
    for part, own in zip(parts, fitting, strict=True):
        if any(not reading.cost and _is_there(reading, file) for reading in own):
            if part.only_locates:
                continue
            return Merge(None, f"{part.name} shows no change: it may stand for a deletion")
        if len(own) > 1:
            if part.is_common(file, known):
                raise EditRefused(_ambiguous(part, own, above))
            return Merge(None, f"{part.name} fits in several places", _ways(file, parts, fitting))
    for _, own in zip(parts, fitting, strict=True):
        if own[0].doubt:
            return Merge(None, own[0].doubt, _ways(file, parts, fitting))
    last = fitting[-1][0]
    if parts[-1].lines[-1] != END and last.deleted and last.stop == len(file.lines) - 1:
        doubt = f"{parts[-1].name} would leave no line for the mark after it"
        return Merge(None, doubt, _ways(file, parts, fitting))
    if file.is_body and parts[0].lines[0] != START and fitting[0][0].start == 1:
        return Merge(None, f"{parts[0].name} would leave no line for the mark before it")
    if hidden := _may_hide_deletion(file, parts, [own[0] for own in fitting]):
        doubt = f"{hidden.name} has blank lines at an end: lines may be deleted there"
        return Merge(None, doubt, _ways(file, parts, fitting))
    merged = _joined(file.lines, [own[0] for own in fitting])
    if merged == "\n".join(file.lines[1:-1]):
        return Merge(None, "the update shows no change: it may stand for a deletion")
    return Merge(with_imports(path, merged, imports or []))


def _may_hide_deletion(
    file: File, parts: list[UpdateChunk], chosen: list[Reading]
) -> UpdateChunk | None:
    """Find a chunk that shows nothing but blank lines at an end, and may hide a deletion there.

    It does if that many lines are shown at every other end of an update: then a tool has written
    the update, and lines next to the blank ones are gone.
    """
    ends: list[tuple[UpdateChunk, int, int]] = []  # blank lines, and all that stay, up to a change
    for part, one in zip(parts, chosen, strict=True):
        old, new = [*file.lines[one.start : one.stop]], [*one.lines]
        for blank, mark, lines in (
            (part.before, part.lines[0] != START, (old, new)),
            (part.after, part.lines[-1] != END, (old[::-1], new[::-1])),
        ):
            if mark:
                ends.append((part, blank, blank + common_prefix(*lines)))
    others = {shown for _, blank, shown in ends if not 0 < blank < shown}
    return next((part for part, blank, shown in ends if {blank} == others and blank < shown), None)


def _is_there(one: Reading, file: File) -> bool:
    return tuple(file.lines[one.start : one.stop]) == one.lines


def _in_order(every: list[list[Reading]]) -> list[list[Reading]]:
    """Keep those of each chunk's readings for which all chunks have one, in their order."""
    found = []
    free = 0
    for own in every:
        own = [reading for reading in own if reading.start >= free]
        free = min((reading.stop for reading in own), default=0)
        found.append(own)
    end = float("inf")
    for number, own in reversed([*enumerate(found)]):
        own = [reading for reading in own if reading.stop <= end]
        end = max((reading.start for reading in own), default=end)
        found[number] = own
    return found


def _ways(file: File, parts: list[UpdateChunk], every: list[list[Reading]]) -> MergeWays | None:
    """Return all arrangements of the chunks' readings; None if there are none, or too many.

    Where there is a doubt about a reading, the lines of the file that it replaces may stay, before
    or after its own.
    """
    found: list[Options] = []
    lines_left = MAX_LINES
    for own in every:
        options: dict[int, list[tuple[int, Lines]]] = {}
        for reading in own:
            for lines in (reading.lines, *(_next_to(reading, file) if reading.doubt else ())):
                options.setdefault(reading.start, []).append((reading.stop, tuple(lines)))
                lines_left -= len(lines)
        found.append(options)
    return merge_ways(file.lines, found) if lines_left > 0 else None


def _next_to(one: Reading, file: File) -> list[list[str]]:
    """Return the lines of a reading with those that it replaces, before and after its new ones."""
    old, new = [*file.lines[one.start : one.stop]], [*one.lines]
    first = common_prefix(old, new)
    last = min(common_prefix(old[::-1], new[::-1]), len(old) - first, len(new) - first)
    before, after = new[:first], new[len(new) - last :]
    stay, own = old[first : len(old) - last], new[first : len(new) - last]
    return [[*before, *stay, *own, *after], [*before, *own, *stay, *after]] if stay else []


def _ambiguous(part: UpdateChunk, own: list[Reading], above: int) -> str:
    """Write the error of a chunk that fits in several places, which it names."""
    places = sorted({reading.start for reading in own})
    named = [str(place + above) for place in places[:MAX_NAMED_LINES]]
    more = ", ..." if len(places) > MAX_NAMED_LINES else ""
    return (
        f"{part.name} fits in several places, at the lines {', '.join(named)}{more} of the file: "
        "repeat a line that the file has once, before and after the change"
    )


def _joined(file: Sequence[str], chosen: list[Reading]) -> str:
    """Return the file with the lines of the chosen readings."""
    out: list[str] = []
    at = 0
    for reading in chosen:
        out += [*file[at : reading.start], *reading.lines]
        at = reading.stop
    return "\n".join(line for line in [*out, *file[at:]] if line not in (START, END))
