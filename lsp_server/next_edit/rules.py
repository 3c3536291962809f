"""Where the next change is due, from the recent edits and the cursor; what to ask the model there,
and whether its answer may be shown.

Three rules: a name was replaced and stands elsewhere, too; the head of a function was changed and
calls of it do not fit; one line was changed as lines like it were not. The rules only say where and
what; nothing is changed here, and no model is run.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from pathlib import PurePosixPath

from lsp_server.next_edit.candidate import Place, accept, request
from lsp_server.next_edit.edit_history import (
    Edit,
    Line,
    Swap,
    changed_part,
    hunks,
    lines,
    swaps,
    tokens,
    whole_lines,
)
from lsp_server.next_edit.renames import (
    KEYWORDS,
    OBJECT,
    Sources,
    is_global,
    is_known,
    is_name,
    is_other_thing,
    is_same,
    reach,
)
from lsp_server.next_edit.signatures import Head, arguments, fits, gone_parameters, heads, is_head
from lsp_server.next_edit.source_text import WIDE, Source, joins

__all__ = ["MOST", "Place", "accept", "places", "request"]

MOST = 8  # places
NEAR = 30  # lines between like lines
ALMOST = 0.6  # of a line's words and signs that a like line has, too, where it is the only example
AROUND = 1500  # code points around an edit in which the head of its function is looked for
TAKEN = ("names", "required", "keywords", "rest", "any_keyword")  # of a Head: what it takes
RENAME = REPEAT = "Replace every `{old}` with `{new}`."
SIGNATURE = "Change the call of `{name}` to match its new signature `{new}`."
Found = tuple[tuple[bool, bool, int, bool, int], Place]  # (rank, place)


def places(edits: list[Edit], documents: Mapping[str, str], uri: str, cursor: int) -> list[Place]:
    """Where the next change is due, best first; `edits`: the last touched one last."""
    sources = {name: Source(name, text) for name, text in documents.items()}
    edits = [
        edit
        for edit in edits
        if edit.uri in documents and documents[edit.uri][edit.start : edit.stop] == edit.after
    ]
    found: list[Found] = []
    for age in range(len(edits)):
        for rule in (_renames, _signatures, _repeats):
            for at, place in rule(sources, edits, len(edits) - 1 - age):
                source = sources[place.uri]
                here = place.uri == uri
                inside = here and place.start <= cursor <= place.stop
                before = here and at < cursor and not inside
                distance = 0 if inside else abs(at - cursor) if here and not before else at
                rank = (source.is_quiet(at), not here, age, before, distance)
                found.append((rank, place))
    chosen: list[Place] = []
    typed = _typed(edits, uri, cursor)
    for _, place in sorted(found, key=lambda one: one[0]):
        busy = place.uri == uri and typed and place.start <= typed[1] and typed[0] <= place.stop
        taken = any(
            place.uri == one.uri and place.start <= one.stop and one.start <= place.stop
            for one in chosen
        )
        if not busy and not taken and place.stop - place.start <= WIDE:
            chosen.append(place)
    return chosen[:MOST]


def _typed(edits: list[Edit], uri: str, cursor: int) -> tuple[int, int] | None:
    """The edit in which something is being typed: no whole words changed there, or the cursor is
    still at one of them."""
    for edit in edits:
        if edit.uri == uri and edit.start <= cursor <= edit.stop:
            words = _words(edit)
            if not words or any(at <= cursor <= at + len(new) for _, new, at in words):
                return edit.start, edit.stop
    return None


# -- a name was replaced -----------------------------------------------------------------------


def _renames(sources: Sources, edits: list[Edit], number: int) -> Iterator[tuple[int, Place]]:
    home = sources[edits[number].uri]
    undone = {(new, old) for one in edits[number:] for old, new, _ in _words(one)}
    words = _words(edits[number])
    for old, new, at in () if home.prose and len(words) > 1 else words:
        if not is_name(old, new) or home.is_quiet(at) or (old, new) in undone:
            continue
        if is_other_thing(home, edits, old, new, at):
            continue
        kind, start, stop = reach(home, old, new, at)
        if kind != "local" and (len(old) == 1 or is_known(home, old)):
            continue
        wider = kind == "member" or (kind == "module" and is_global(sources, old, new))
        for source in sources.values() if wider else [home]:
            low, high = (start, stop) if source is home else (0, len(source.text))
            same = partial(is_same, source, home, kind, old)
            first = at if source is home else low
            spots = chain(source.words(old, first, high), source.words(old, low, first))
            for spot in islice(spots, 200):
                if same(spot) and not _is_own(source, edits, number, old, spot):
                    yield spot, _rename(source, old, new, spot, same, (low, high))


def _rename(
    source: Source,
    old: str,
    new: str,
    spot: int,
    same: Callable[[int], bool],
    limits: tuple[int, int],
) -> Place:
    start, stop = source.statement(spot, spot)
    quiet = source.is_quiet(spot)
    low, high = max(start, limits[0]), min(stop, limits[1])
    at, pieces = start, []
    for each in source.words(old, low, high):
        if source.is_quiet(each) == quiet and same(each):
            pieces += [source.text[at:each], new]
            at = each + len(old)
    expected = "".join((*pieces, source.text[at:stop]))
    reason = f"{old} was renamed to {new}"
    owner = OBJECT.search(source.left(spot))
    prefix = owner[0] if owner and owner[1] else ""  # "self.": else small models leave it out
    asked = RENAME.format(old=prefix + old, new=prefix + new)
    return Place(source.uri, start, stop, "rename", asked, reason, old, new, expected)


def _words(edit: Edit) -> list[Swap]:
    return [swap for line in lines(edit) for swap in swaps(line)]


def _is_own(source: Source, edits: list[Edit], number: int, old: str, spot: int) -> bool:
    """Whether the user wrote the old name there: after the renaming, or in place of another."""
    for n, edit in enumerate(edits):
        if edit.uri != source.uri or not edit.start <= spot <= edit.stop:
            continue
        if any(at <= spot < at + len(new) for _, new, at in _words(edit)):
            return True
        if n > number and edit.after.count(old) > edit.before.count(old):
            return True
    return False


# -- a function's head was changed -------------------------------------------------------------


def _signatures(sources: Sources, edits: list[Edit], number: int) -> Iterator[tuple[int, Place]]:
    edit = edits[number]
    home = sources[edit.uri]
    for old, new, at in _heads_changed(home, edit):
        member, name = home.block(at) is not None, new.name
        if name in ("__init__", "__new__", "constructor"):
            name, member = home.block(at) or "", False
        inner = None if member else next(home.scopes(at, outer=True), None)
        for source in [home] if inner else sources.values():
            low, high = inner if inner else (0, len(source.text))
            for spot in islice(source.words(name, low, high) if name else (), 300):
                start, stop = source.line(spot)
                if stop - start > WIDE:
                    continue
                call = arguments(source, spot, name)
                if call is None or source.is_quiet(spot) or is_head(source, spot):
                    continue
                found = OBJECT.search(source.left(spot))
                if (
                    source.python
                    and bool(found) != member
                    and not (found and found[1] == PurePosixPath(home.uri).stem)
                ):
                    continue
                if fits(source, old, call[0]) and not fits(source, new, call[0]):
                    yield spot, _call(source, source is home, old, new, name, spot, call[2])


def _call(
    source: Source, at_home: bool, old: Head, new: Head, name: str, spot: int, closed: int
) -> Place:
    start, stop = source.statement(spot, closed)
    was, now = (name + head.text.removeprefix(head.name) for head in (old, new))
    asked = SIGNATURE.format(name=name, new=now)
    gone, fresh = gone_parameters(source.uri, was, now), gone_parameters(source.uri, now, was)
    for verb, names in (("Remove", gone), ("Add", fresh)):
        if names:
            asked += f" {verb} the argument {' and '.join(f'`{each}`' for each in names)}."
    elsewhere = source.text
    if at_home:
        elsewhere = source.text[: new.at] + source.text[new.closed :]
    unknown = frozenset(n for n in fresh if not re.search(rf"\b{re.escape(n)}\b", elsewhere))
    head = dataclasses.replace(new, name=name)
    reason = f"{was} is now {now}"
    return Place(
        source.uri, start, stop, "signature", asked, reason, was, now, "", head, unknown
    )  # fmt: skip


def _heads_changed(source: Source, edit: Edit) -> Iterator[tuple[Head, Head, int]]:
    """(head as it was, as it is, where its name stands) of functions that take other arguments."""
    text = source.text
    low, high = whole_lines(text, max(edit.start - AROUND, 0), min(edit.stop + AROUND, len(text)))
    then = Source(edit.uri, text[low : edit.start] + edit.before + text[edit.stop : high])
    was, now = heads(then, 0, len(then.text)), heads(source, low, high)
    if [head.name for head in was] != [head.name for head in now]:
        names = Counter(head.name for head in was), Counter(head.name for head in now)
        was, now = (
            sorted((h for h in each if all(n[h.name] == 1 for n in names)), key=lambda h: h.name)
            for each in (was, now)
        )
    for old, new in zip(was, now, strict=True):
        if any(getattr(old, each) != getattr(new, each) for each in TAKEN):
            yield old, new, new.at


# -- the same change on like lines -------------------------------------------------------------


def _repeats(sources: Sources, edits: list[Edit], number: int) -> Iterator[tuple[int, Place]]:
    edit = edits[number]
    source = sources[edit.uri]
    mine = [(each, line) for each in edits for line in lines(each)]
    done = {line.at for each, line in mine if each.uri == edit.uri}
    for line in lines(edit):
        renamed = any(
            is_name(old, new) and not is_known(source, old)
            and not is_other_thing(source, edits, old, new, at)
            for old, new, at in swaps(line)
        )  # fmt: skip
        if renamed and not source.is_quiet(line.at):
            continue
        change = [(old, new) for old, new, _ in swaps(line)]
        often = sum([(a, b) for a, b, _ in swaps(each)] == change for _, each in mine)
        for start, stop in source.near(line.at, NEAR):
            text = source.text[start:stop]
            expected = None if start in done else _alike(line, text, often > 1)
            if expected is not None and expected != text:
                was, now = _difference(text, expected)
                asked = REPEAT.format(old=was, new=now)
                reason = f"the same change as on line {source.number(line.at)}"
                yield start, Place(
                    edit.uri, start, stop, "repeat", asked, reason, line.old.strip(),
                    line.new.strip(), expected,
                )  # fmt: skip


def _alike(line: Line, text: str, often: bool) -> str | None:
    """`text` with a line's change, where it is like that line's old text; None where it is not."""
    for coarse in (False, True):
        ours, theirs, here = (tokens(each.strip(), coarse) for each in (line.old, line.new, text))
        if len(ours) != len(here) or list(map(_shape, ours)) != list(map(_shape, here)):
            continue
        kept, same, out, fits_all = 0, 0, [], True
        for tag, i, j, k, m in hunks(ours, theirs):
            if tag == "equal":
                words = [(a, b) for a, b in zip(ours[i:j], here[i:j], strict=True) if a.strip()]
                kept, same = kept + len(words), same + sum(a == b for a, b in words)
                out += here[i:j]
            else:
                fits_all = fits_all and ours[i:j] == here[i:j]
                out += theirs[k:m]
        if fits_all and kept and (often or same / kept >= ALMOST):
            left = text[: len(text) - len(text.lstrip())]
            return left + "".join(out) + text[len(text.rstrip()) :]
    return None


def _difference(old: str, new: str) -> tuple[str, str]:
    """The part of a line that changed, widened to where there are blanks."""
    start, stop, middle = changed_part(old, 0, len(old), new)
    low = max(old.rfind(" ", 0, start), old.rfind("\t", 0, start)) + 1
    found = re.compile(r"\s").search(old, stop)
    high = found.start() if found else len(old)
    return old[low:high], old[low:start] + middle + old[stop:high]


def _shape(token: str) -> str:
    """What kind of token it is; signs and keywords stand for themselves."""
    if token in KEYWORDS or not (joins(token[0]) or token.isspace() or token[-1] in "\"'"):
        return token
    if token.isspace():
        return " "
    return '"' if token[-1] in "\"'" else "0" if token[0].isdigit() else "w"
