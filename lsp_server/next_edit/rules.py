"""The rules that find candidates for the next edit from the recent edits and the cursor.

Three rules: a name was replaced and occurs elsewhere; a signature was changed and calls no longer
fit; a line was changed and similar lines nearby were not. No model is run here.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from pathlib import PurePosixPath

from lsp_server.next_edit.candidate import Candidate
from lsp_server.next_edit.edit_history import (
    ChangedLine,
    RecentEdit,
    Replacement,
    changed_lines,
    replacements,
    token_opcodes,
    tokens,
    trim_common,
    whole_lines,
)
from lsp_server.next_edit.renames import (
    KEYWORDS,
    MEMBER_ACCESS,
    Sources,
    is_builtin,
    is_identifier,
    is_module_level,
    may_be_renamed,
    rename_scope,
    switches_reference,
)
from lsp_server.next_edit.signatures import (
    Signature,
    call_fits,
    find_call,
    find_signatures,
    is_definition,
    missing_parameters,
)
from lsp_server.next_edit.source_text import MAX_CANDIDATE_CHARS, SourceText, is_identifier_char

MAX_CANDIDATES = 8
MAX_DOCUMENT_CHARS = 1 << 18  # characters; larger documents are not searched
REPEAT_RADIUS_LINES = 30  # lines on either side that are searched for similar ones
MIN_SHARED_TOKENS = 0.6  # share of tokens that must be equal if the change was made once only
SIGNATURE_SEARCH_CHARS = 1500  # characters around an edit, searched for signatures
PARAMETER_FIELDS = ("positional", "required", "keyword_only", "variadic", "variadic_keywords")
REPLACE_INSTRUCTION = "Replace `{old}` by `{new}`."
SIGNATURE_INSTRUCTION = "Change the call of `{name}` to match its new signature `{new}`."
Changed = tuple[str, str]  # a name that other files may use, and the URI where it was changed
Found = tuple[tuple[bool, bool, int, bool, int], Candidate]  # (rank, candidate)


def find_candidates(
    edits: list[RecentEdit], documents: Mapping[str, str], uri: str, cursor: int
) -> list[Candidate]:
    """Find candidates for the next edit, best first. `edits` ends with the most recent one."""
    sources = {
        name: SourceText(name, text)
        for name, text in documents.items()
        if len(text) <= MAX_DOCUMENT_CHARS
    }
    edits = [
        edit
        for edit in edits
        if edit.uri in sources and documents[edit.uri][edit.start : edit.stop] == edit.after
    ]
    found: list[Found] = []
    for age in range(len(edits)):
        for rule in (_renames, _signatures, _repeats):
            for at, candidate in rule(sources, edits, len(edits) - 1 - age):
                source = sources[candidate.uri]
                here = candidate.uri == uri
                inside = here and candidate.start <= cursor <= candidate.stop
                before = here and at < cursor and not inside
                distance = 0 if inside else abs(at - cursor) if here and not before else at
                rank = (source.in_string_or_comment(at), not here, age, before, distance)
                found.append((rank, candidate))
    chosen: list[Candidate] = []
    active = _being_typed(edits, uri, cursor)
    for _, candidate in sorted(found, key=lambda one: one[0]):
        in_progress = active is not None and candidate.overlaps(uri, *active)
        is_taken = any(candidate.overlaps(other.uri, other.start, other.stop) for other in chosen)
        is_short = candidate.stop - candidate.start <= MAX_CANDIDATE_CHARS
        if is_short and not in_progress and not is_taken:
            chosen.append(candidate)
    return chosen[:MAX_CANDIDATES]


def changed_names(
    edits: list[RecentEdit], documents: Mapping[str, str], uri: str, cursor: int
) -> list[Changed]:
    """Find the names that were changed and that other files may use; that changed last first.

    They are those that were renamed, and those of functions whose parameters changed. `edits` ends
    with the most recent one.
    """
    active = _being_typed(edits, uri, cursor)
    found: dict[Changed, None] = {}
    for edit in reversed(edits):
        text = documents.get(edit.uri, "")
        if len(text) > MAX_DOCUMENT_CHARS or text[edit.start : edit.stop] != edit.after:
            continue
        if edit.uri == uri and (edit.start, edit.stop) == active:
            continue
        home = SourceText(edit.uri, text)
        for old, new, at in _words(edit):
            if (
                is_identifier(old, new)
                and len(old) > 1
                and not is_builtin(home, old)
                and not home.in_string_or_comment(at)
                and rename_scope(home, old, new, at)[0] in {"member", "module"}
            ):
                found[old, edit.uri] = None
        for _, signature in _changed_signatures(home, edit):
            found[signature.name, edit.uri] = None
    return list(found)


def _being_typed(edits: list[RecentEdit], uri: str, cursor: int) -> tuple[int, int] | None:
    """Find the span of the edit that is still being typed.

    In such an edit no whole words changed, or the cursor is still at one of them.
    """
    for edit in edits:
        if edit.uri == uri and edit.start <= cursor <= edit.stop:
            words = _words(edit)
            if not words or any(at <= cursor <= at + len(new) for _, new, at in words):
                return edit.start, edit.stop
    return None


# -- renames -----------------------------------------------------------------------------------


def _renames(
    sources: Sources, edits: list[RecentEdit], number: int
) -> Iterator[tuple[int, Candidate]]:
    home = sources[edits[number].uri]
    undone = {(new, old) for edit in edits[number:] for old, new, _ in _words(edit)}
    words = _words(edits[number])
    for old, new, at in () if home.is_prose and len(words) > 1 else words:
        if not is_identifier(old, new) or home.in_string_or_comment(at) or (old, new) in undone:
            continue
        if switches_reference(home, edits, old, new, at):
            continue
        kind, start, stop = rename_scope(home, old, new, at)
        if kind != "local" and (len(old) == 1 or is_builtin(home, old)):
            continue
        wider = kind == "member" or (kind == "module" and is_module_level(sources, old, new))
        for source in sources.values() if wider else [home]:
            low, high = (start, stop) if source is home else (0, len(source.text))
            same = partial(may_be_renamed, source, home, kind, old)
            first = at if source is home else low
            spots = chain(source.find_words(old, first, high), source.find_words(old, low, first))
            for spot in islice(spots, 200):
                if same(spot) and not _was_typed(source, edits, number, old, spot):
                    yield spot, _rename(source, old, new, spot, same, (low, high))


def _rename(
    source: SourceText,
    old: str,
    new: str,
    spot: int,
    same: Callable[[int], bool],
    limits: tuple[int, int],
) -> Candidate:
    start, stop = source.statement_span(spot, spot)
    in_literal = source.in_string_or_comment(spot)
    low, high = max(start, limits[0]), min(stop, limits[1])
    at, pieces = start, []
    for each in source.find_words(old, low, high):
        if source.in_string_or_comment(each) == in_literal and same(each):
            pieces += [source.text[at:each], new]
            at = each + len(old)
    expected = "".join((*pieces, source.text[at:stop]))
    reason = f"{old} was renamed to {new}"
    owner = MEMBER_ACCESS.search(source.line_prefix(spot))
    prefix = owner[0] if owner and owner[1] else ""  # small models drop "self." if it is not named
    instruction = REPLACE_INSTRUCTION.format(old=prefix + old, new=prefix + new)
    return Candidate(source.uri, start, stop, "rename", instruction, reason, old, new, expected)


def _words(edit: RecentEdit) -> list[Replacement]:
    return [swap for line in changed_lines(edit) for swap in replacements(line)]


def _was_typed(
    source: SourceText, edits: list[RecentEdit], number: int, old: str, spot: int
) -> bool:
    """Return whether the user wrote the old name there: after the rename or in place of another."""
    for n, edit in enumerate(edits):
        if edit.uri != source.uri or not edit.start <= spot <= edit.stop:
            continue
        if any(at <= spot < at + len(new) for _, new, at in _words(edit)):
            return True
        if n > number and edit.after.count(old) > edit.before.count(old):
            return True
    return False


# -- signatures --------------------------------------------------------------------------------


def _signatures(
    sources: Sources, edits: list[RecentEdit], number: int
) -> Iterator[tuple[int, Candidate]]:
    edit = edits[number]
    home = sources[edit.uri]
    for old, new in _changed_signatures(home, edit):
        at = new.name_at
        member, name = home.enclosing_class(at) is not None, new.name
        if name in ("__init__", "__new__", "constructor"):
            name, member = home.enclosing_class(at) or "", False
        inner = None if member else next(home.enclosing_functions(at, outer=True), None)
        for source in [home] if inner else sources.values():
            low, high = inner if inner else (0, len(source.text))
            shown = None
            for spot in islice(source.find_words(name, low, high) if name else (), 300):
                start, stop = source.line_span(spot)
                if stop - start > MAX_CANDIDATE_CHARS:
                    continue
                call = find_call(source, spot, name)
                if call is None or source.in_string_or_comment(spot) or is_definition(source, spot):
                    continue
                found = MEMBER_ACCESS.search(source.line_prefix(spot))
                if (
                    source.is_python
                    and bool(found) != member
                    and not (found and found[1] == PurePosixPath(home.uri).stem)
                ):
                    continue
                given = call.arguments
                if call_fits(source, old, given) and not call_fits(source, new, given):
                    shown = shown or _call(source, source is home, old, new, name)
                    start, stop = source.statement_span(spot, call.close_at)
                    yield spot, dataclasses.replace(shown, start=start, stop=stop)


def _call(
    source: SourceText, at_home: bool, old: Signature, new: Signature, name: str
) -> Candidate:
    """Make a candidate of what all calls in a source have in common, which is read once.

    It has no place yet.
    """
    was, now = (name + head.text.removeprefix(head.name) for head in (old, new))
    instruction = SIGNATURE_INSTRUCTION.format(name=name, new=now)
    removed, added = (
        missing_parameters(source.uri, was, now),
        missing_parameters(source.uri, now, was),
    )
    for verb, names in (("Remove", removed), ("Add", added)):
        if names:
            instruction += f" {verb} the argument {' and '.join(f'`{each}`' for each in names)}."
    elsewhere = source.text
    if at_home:
        elsewhere = source.text[: new.name_at] + source.text[new.close_at :]
    unknown = frozenset(added).difference(re.findall(r"[\w$]+", elsewhere))
    signature = dataclasses.replace(new, name=name)
    reason = f"{was} is now {now}"
    return Candidate(
        source.uri, 0, 0, "signature", instruction, reason, was, now, "", signature, unknown
    )  # fmt: skip


def _changed_signatures(
    source: SourceText, edit: RecentEdit
) -> Iterator[tuple[Signature, Signature]]:
    """Yield (old signature, new signature) of functions whose parameters changed."""
    text = source.text
    start, stop = edit.start - SIGNATURE_SEARCH_CHARS, edit.stop + SIGNATURE_SEARCH_CHARS
    low, high = whole_lines(text, max(start, 0), min(stop, len(text)))
    low, high = max(low, start - SIGNATURE_SEARCH_CHARS), min(high, stop + SIGNATURE_SEARCH_CHARS)
    then = SourceText(edit.uri, text[low : edit.start] + edit.before + text[edit.stop : high])
    was, now = find_signatures(then, 0, len(then.text)), find_signatures(source, low, high)
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


def _repeats(
    sources: Sources, edits: list[RecentEdit], number: int
) -> Iterator[tuple[int, Candidate]]:
    edit = edits[number]
    source = sources[edit.uri]
    mine = [(each, line) for each in edits for line in changed_lines(each)]
    done = {line.at for each, line in mine if each.uri == edit.uri}
    for line in changed_lines(edit):
        is_rename = any(
            is_identifier(old, new) and not is_builtin(source, old)
            and not switches_reference(source, edits, old, new, at)
            for old, new, at in replacements(line)
        )  # fmt: skip
        if is_rename and not source.in_string_or_comment(line.at):
            continue
        change = [(old, new) for old, new, _ in replacements(line)]
        repeated = sum([(a, b) for a, b, _ in replacements(each)] == change for _, each in mine)
        for start, stop in source.neighbouring_lines(line.at, REPEAT_RADIUS_LINES):
            if start in done or stop - start > MAX_CANDIDATE_CHARS:
                continue
            text = source.text[start:stop]
            expected = _with_same_change(line, text, repeated > 1)
            if expected is not None and expected != text:
                was, now = _difference(text, expected)
                instruction = REPLACE_INSTRUCTION.format(old=was, new=now)
                reason = f"the same change as on line {source.line_number(line.at)}"
                yield start, Candidate(
                    edit.uri, start, stop, "repeat", instruction, reason, line.old.strip(),
                    line.new.strip(), expected,
                )  # fmt: skip


def _with_same_change(line: ChangedLine, text: str, repeated: bool) -> str | None:
    """Make the change of `line` to `text`; None if that is not similar to the old line."""
    for coarse in (False, True):
        ours, theirs, here = (tokens(each.strip(), coarse) for each in (line.old, line.new, text))
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
