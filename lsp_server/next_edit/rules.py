"""The rules that find candidates for the next edit from the recent edits and the cursor.

Three rules: a name was replaced and occurs elsewhere; a signature was changed and calls no longer
fit; a line was changed and similar lines nearby were not. No model is run here.
"""

from __future__ import annotations

import dataclasses
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from types import MappingProxyType

from engine.editing.scopes.names import Place
from engine.editing.signatures import (
    Signature,
    call_fits,
    find_calls,
    find_signatures,
    missing_parameters,
)
from lsp_server.next_edit.call_arguments import with_new_arguments
from lsp_server.next_edit.candidate import Candidate
from lsp_server.next_edit.edit_history import (
    ChangedLine,
    RecentEdit,
    changed_lines,
    replacements,
    token_opcodes,
    tokens,
    trim_common,
)
from lsp_server.next_edit.renames import (
    KEYWORDS,
    MAX_PLACES,
    Reference,
    Sources,
    defines,
    mentions,
    places_elsewhere,
    reference,
    renamed,
    replaced,
)
from lsp_server.next_edit.source_text import MAX_CANDIDATE_CHARS, SourceText, is_identifier_char

MAX_CANDIDATES = 8
MAX_DOCUMENT_CHARS = 1 << 18  # characters; larger documents are not searched
REPEAT_RADIUS_LINES = 30  # lines on either side that are searched for similar ones
MIN_SHARED_TOKENS = 0.6  # share of tokens that must be equal if the change was made once only
MAX_CALLS = 300  # calls of a function in a document
MAX_RECEIVER_CHARS = 80
CONSTRUCTORS = ("__init__", "__new__", "constructor")
PARAMETER_FIELDS = ("positional", "required", "keyword_only", "variadic", "variadic_keywords")
REPLACE_INSTRUCTION = "Replace `{old}` by `{new}`."
SIGNATURE_INSTRUCTION = "Change the call of `{name}` to match its new signature `{new}`."
Changed = tuple[str, str]  # a name that other files may use, and the URI where it was changed
Ranked = tuple[bool, int, Candidate]  # (in a comment, offset, candidate)
NO_PATHS: Mapping[str, str] = MappingProxyType({})
Found = tuple[tuple[bool, bool, int, bool, int], Candidate]  # (rank, candidate)


def find_candidates(
    edits: list[RecentEdit],
    documents: Mapping[str, str],
    uri: str,
    cursor: int,
    paths: Mapping[str, str] = NO_PATHS,
) -> list[Candidate]:
    """Find candidates for the next edit, best first.

    `edits` ends with the most recent one; `paths` tell the languages of documents whose URIs do
    not.
    """
    edits = _valid(edits, documents)
    sources = {
        name: SourceText(name, text, edits, paths.get(name, ""))
        for name, text in documents.items()
        if len(text) <= MAX_DOCUMENT_CHARS
    }
    found: list[Found] = []
    for age in range(len(edits)):
        for rule in (_renames, _signatures, _repeats):
            for in_text, at, candidate in rule(sources, edits, len(edits) - 1 - age):
                here = candidate.uri == uri
                inside = here and candidate.start <= cursor <= candidate.stop
                before = here and at < cursor and not inside
                distance = 0 if inside else abs(at - cursor) if here and not before else at
                rank = (in_text, not here, age, before, distance)
                found.append((rank, candidate))
    chosen: list[Candidate] = []
    active = _being_typed(edits, uri, cursor)
    for _, candidate in sorted(found, key=lambda one: one[0]):
        if len(chosen) == MAX_CANDIDATES:
            break
        in_progress = active is not None and candidate.overlaps(uri, *active)
        is_taken = any(candidate.overlaps(other.uri, other.start, other.stop) for other in chosen)
        is_short = candidate.stop - candidate.start <= MAX_CANDIDATE_CHARS
        if is_short and not in_progress and not is_taken:
            chosen.append(candidate)
    return chosen


def changed_names(
    edits: list[RecentEdit],
    documents: Mapping[str, str],
    uri: str,
    cursor: int,
    paths: Mapping[str, str] = NO_PATHS,
) -> list[Changed]:
    """Find the names that were changed and that other files may use; that changed last first.

    They are those that were renamed, and those of functions whose parameters changed. `edits` ends
    with the most recent one.
    """
    active = _being_typed(edits, uri, cursor)
    edits = _valid(edits, documents)
    sources: Sources = {}
    found: dict[Changed, None] = {}
    for edit in reversed(edits):
        if edit.uri == uri and (edit.start, edit.stop) == active:
            continue
        text, path = documents[edit.uri], paths.get(edit.uri, "")
        home = sources.setdefault(edit.uri, SourceText(edit.uri, text, edits, path))
        for swap in replaced(edit):
            meant = renamed(home, edits, swap)
            if meant and meant.kind in {"member", "module"}:
                found[swap.old, edit.uri] = None
        for _, signature in _changed_signatures(home, edits, edit):
            found[signature.name, edit.uri] = None
    return list(found)


def _valid(edits: list[RecentEdit], documents: Mapping[str, str]) -> list[RecentEdit]:
    """Return the edits that are in the documents, of those that are searched."""
    return [
        edit
        for edit in edits
        if len(text := documents.get(edit.uri, "")) <= MAX_DOCUMENT_CHARS
        and text[edit.start : edit.stop] == edit.after
        and edit.uri in documents
    ]


def _being_typed(edits: list[RecentEdit], uri: str, cursor: int) -> tuple[int, int] | None:
    """Find the span of the edit that is still being typed.

    In such an edit no whole words changed, or the cursor is still at one of them.
    """
    for edit in edits:
        if edit.uri == uri and edit.start <= cursor <= edit.stop:
            words = replaced(edit)
            if not words or any(at <= cursor <= at + len(new) for _, new, at in words):
                return edit.start, edit.stop
    return None


# -- renames -----------------------------------------------------------------------------------


def _renames(sources: Sources, edits: list[RecentEdit], number: int) -> Iterator[Ranked]:
    home = sources[edits[number].uri]
    undone = {(swap.new, swap.old) for edit in edits[number:] for swap in replaced(edit)}
    swaps = replaced(edits[number])
    for swap in () if home.language is None and len(swaps) > 1 else swaps:
        old, new, at = swap
        meant = renamed(home, edits, swap) if (old, new) not in undone else None
        for source, groups in _places(sources, home, meant, old, new) if meant else ():
            for in_text, group in zip((False, True), groups, strict=True):
                first = bisect_left(group, at, key=_start) if source is home else 0
                for place in islice((*group[first:], *group[:first]), MAX_PLACES):
                    low, high = source.line_span(place.start)
                    typed = _was_typed(source, edits, number, old, place.start)
                    if high - low <= MAX_CANDIDATE_CHARS and not typed:
                        yield in_text, place.start, _rename(source, old, new, place, group)


def _places(
    sources: Sources, home: SourceText, meant: Reference, old: str, new: str
) -> Iterator[tuple[SourceText, tuple[list[Place], list[Place]]]]:
    """Yield each document with the places where a name is in its code, and in its other text."""
    yield home, (meant.places, mentions(home, old, meant.span))
    wide = meant.kind == "member" or (
        meant.kind == "module" and any(defines(each, old, new) for each in sources.values())
    )
    for source in sources.values() if wide else ():
        if source is not home and (found := places_elsewhere(source, home, meant.kind, old)):
            yield source, (found, mentions(source, old, (0, len(source.text))))


def _start(place: Place) -> int:
    return place.start


def _rename(source: SourceText, old: str, new: str, spot: Place, same: list[Place]) -> Candidate:
    start, stop = source.statement_span(spot.start)
    at, pieces = start, []
    low, high = (bisect_left(same, each, key=_start) for each in (start, stop))
    for place in same[low:high]:
        pieces += [source.text[at : place.start], place.form.replace("{}", new)]
        at = place.stop
    expected = "".join((*pieces, source.text[at:stop]))
    reason = f"{old} was renamed to {new}"
    return Candidate(
        source.uri, start, stop, "rename", "", reason, old, new, expected, path=source.path
    )  # fmt: skip


def _was_typed(
    source: SourceText, edits: list[RecentEdit], number: int, old: str, spot: int
) -> bool:
    """Return whether the user wrote the old name there: after the rename or in place of another."""
    for n, edit in enumerate(edits):
        if edit.uri != source.uri or not edit.start <= spot <= edit.stop:
            continue
        if any(at <= spot < at + len(new) for _, new, at in replaced(edit)):
            return True
        if n > number and edit.after.count(old) > edit.before.count(old):
            return True
    return False


# -- signatures --------------------------------------------------------------------------------


def _signatures(sources: Sources, edits: list[RecentEdit], number: int) -> Iterator[Ranked]:
    edit = edits[number]
    home = sources[edit.uri]
    for old, new in _changed_signatures(home, edits, edit):
        name, at = new.name, new.name_at
        if new.owner and name in (*CONSTRUCTORS, new.owner[0]):
            name, at = new.owner
        meant = reference(home, name, at)
        own = _own_calls(sources, new) if meant and meant.kind == "member" else None
        for source, (places, _) in _places(sources, home, meant, name, name) if meant else ():
            shown = None
            spots = {place.start for place in islice(places, MAX_CALLS)} - {new.name_at}
            calls = find_calls(source.tree, spots) if source.tree else []
            for call in calls:
                start, stop = source.line_span(call.name_at)
                if stop - start > MAX_CANDIDATE_CHARS:
                    continue
                if call_fits(old, call) and not call_fits(new, call):
                    shown = shown or _call(source, source is home, old, new, name)
                    start, _ = source.statement_span(call.name_at)
                    _, stop = source.statement_span(call.close_at)
                    found = dataclasses.replace(shown, start=start, stop=stop)
                    head = source.text[max(0, call.name_at - MAX_RECEIVER_CHARS) : call.name_at]
                    if (own is None or own.search(head)) and (
                        made := with_new_arguments(source, (start, stop), calls, old, new)
                    ):
                        found = dataclasses.replace(found, instruction="", expected=made)
                    yield False, call.name_at, found


def _own_calls(sources: Sources, method: Signature) -> re.Pattern[str]:
    """Return the pattern of what is before a call that is certainly one of a class's method.

    That is the class, or the object itself where Python's files define no other of this name.
    """
    defined = re.compile(rf"\bdef\s+{re.escape(method.name)}\b")
    texts = [source.text for source in sources.values() if source.language == "python"]
    receivers = [re.escape(method.owner[0])] if method.owner else []
    if sum(len(defined.findall(text)) for text in texts) == 1:
        receivers += ["self", "cls"]
    return re.compile(rf"(?<![\w.])(?:{'|'.join(receivers)})\.$" if receivers else r"(?!)")


def _call(
    source: SourceText, at_home: bool, old: Signature, new: Signature, name: str
) -> Candidate:
    """Make a candidate of what all calls in a source have in common, which is read once.

    It has no place yet.
    """
    was, now = (name + head.text.removeprefix(head.name) for head in (old, new))
    instruction = SIGNATURE_INSTRUCTION.format(name=name, new=now)
    removed, added = missing_parameters(old, new), missing_parameters(new, old)
    for verb, names in (("Remove", removed), ("Add", added)):
        if names:
            instruction += f" {verb} the argument {' and '.join(f'`{each}`' for each in names)}."
    elsewhere = source.text
    if at_home:
        elsewhere = source.text[: new.name_at] + source.text[new.close_at :]
    unknown = frozenset(added).difference(re.findall(r"[\w$]+", elsewhere))
    signatures = dataclasses.replace(old, name=name), dataclasses.replace(new, name=name)
    reason = f"{was} is now {now}"
    return Candidate(
        source.uri, 0, 0, "signature", instruction, reason, was, now, "", signatures, unknown,
        source.path,
    )  # fmt: skip


def _changed_signatures(
    source: SourceText, edits: list[RecentEdit], edit: RecentEdit
) -> Iterator[tuple[Signature, Signature]]:
    """Yield (old signature, new signature) of functions whose parameters an edit changed."""
    now = find_signatures(source.tree, edit.start, edit.stop) if source.tree else []
    if not now:
        return
    then, start = source.before(edits, edit)
    was = find_signatures(then.tree, start, start + len(edit.before)) if then.tree else []
    if [head.name for head in was] != [head.name for head in now]:
        names = Counter(head.name for head in was), Counter(head.name for head in now)
        was, now = (
            sorted((h for h in each if all(n[h.name] == 1 for n in names)), key=lambda h: h.name)
            for each in (was, now)
        )
    for old, new in zip(was, now, strict=True):
        if any(getattr(old, each) != getattr(new, each) for each in PARAMETER_FIELDS):
            yield old, new


# -- repetition --------------------------------------------------------------------------------


def _repeats(sources: Sources, edits: list[RecentEdit], number: int) -> Iterator[Ranked]:
    edit = edits[number]
    source = sources[edit.uri]
    mine = [line for each in edits for line in changed_lines(each)]
    done = {line.at for each in edits if each.uri == edit.uri for line in changed_lines(each)}
    for line in changed_lines(edit):
        if any(renamed(source, edits, swap) for swap in replacements(line)):
            continue
        change = [(old, new) for old, new, _ in replacements(line)]
        repeated = sum([(a, b) for a, b, _ in replacements(each)] == change for each in mine) > 1
        for start, stop in source.neighbouring_lines(line.at, REPEAT_RADIUS_LINES):
            if start in done or stop - start > MAX_CANDIDATE_CHARS:
                continue
            text = source.text[start:stop]
            expected = _with_same_change(line, text, repeated)
            if expected is not None and expected != text:
                was, now = _difference(text, expected)
                instruction = REPLACE_INSTRUCTION.format(old=was, new=now)
                reason = f"the same change as on line {source.line_number(line.at)}"
                yield False, start, Candidate(
                    edit.uri, start, stop, "repeat", instruction, reason, line.old.strip(),
                    line.new.strip(), expected,
                )  # fmt: skip


def _with_same_change(line: ChangedLine, text: str, repeated: bool) -> str | None:
    """Make the change of `line` to `text`; None if that is not similar to the old line."""
    for coarse in (False, True):
        ours, theirs, here = (
            tokens(each.strip(), coarse, line.hyphens) for each in (line.old, line.new, text)
        )
        if len(ours) != len(here) or list(map(_shape, ours)) != list(map(_shape, here)):
            continue
        kept, same, out, same_change = 0, 0, [], True
        for tag, i, j, k, m in token_opcodes(ours, theirs):
            if tag == "equal":
                words = [(a, b) for a, b in zip(ours[i:j], here[i:j], strict=True) if a.strip()]
                kept, same = kept + len(words), same + sum(a == b for a, b in words)
                out += here[i:j]
            else:
                same_change = same_change and ours[i:j] == here[i:j]
                out += theirs[k:m]
        if same_change and kept and (repeated or same / kept >= MIN_SHARED_TOKENS):
            left = text[: len(text) - len(text.lstrip())]
            return left + "".join(out) + text[len(text.rstrip()) :]
    return None


def _difference(old: str, new: str) -> tuple[str, str]:
    """Find the changed part of a line, old and new, widened to the next blanks."""
    start, stop, middle = trim_common(old, 0, len(old), new)
    low = max(old.rfind(" ", 0, start), old.rfind("\t", 0, start)) + 1
    found = re.compile(r"\s").search(old, stop)
    high = found.start() if found else len(old)
    return old[low:high], old[low:start] + middle + old[stop:high]


def _shape(token: str) -> str:
    """Classify a token as word, number, string or blank; others stand for themselves."""
    if token in KEYWORDS or not (
        is_identifier_char(token[0]) or token.isspace() or token[-1] in "\"'"
    ):
        return token
    if token.isspace():
        return " "
    return '"' if token[-1] in "\"'" else "0" if token[0].isdigit() else "w"
