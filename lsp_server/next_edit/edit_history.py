"""The recent edits of a client over all its documents, as small changes of whole lines.

Keystrokes in neighbouring lines are merged into one net edit, which disappears when the lines are
back to what they were and moves with its lines when text above it changes. Language-independent;
keeps no documents.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import lru_cache
from pathlib import PurePosixPath
from typing import NamedTuple

from engine.editing.edits import COMBINING_MARKS, LINE_END, common_prefix

MAX_EDITS = 20
MAX_EDIT_CHARS = 4000  # characters; a larger change is new text rather than an edit
SETTLED_AFTER_S = 3.0  # seconds; a change of added lines this old is an edit of its own
MAX_COMPARED_LINES = 60  # lines of an edit; those of a longer one are not paired
MAX_COMPARED_TOKENS = 400  # tokens of a line; a longer one is not compared by tokens
MIN_LINE_SIMILARITY = 0.5  # share of equal tokens for a line to count as the new form of another

# A name with its version, as in `actions/checkout@v4`: another name has another version.
VERSIONED = r"\w[\w./-]{0,200}+@(?:v?\d[\w.+-]*|[0-9a-f]{7,40}\b)"
NAME = rf"[\w${COMBINING_MARKS}]+"
HYPHENATED_NAME = rf"-{{0,2}}{NAME}(?:-+{NAME})*-*"
OTHER_TOKEN = r"[^\S\r\n]+|."
STRING = r"""(?:[\w$]*)(?:"(?:[^"\\\r\n]|\\.)*"|'(?:[^'\\\r\n]|\\.)*')"""
TOKENS = {  # (is coarse, has names with hyphens)
    (coarse, hyphens): re.compile("|".join((*strings, VERSIONED, name, OTHER_TOKEN)), re.DOTALL)
    for coarse, strings in ((False, ()), (True, (STRING,)))
    for hyphens, name in ((False, NAME), (True, HYPHENATED_NAME))
}
HYPHENATED_SUFFIXES = frozenset((  # files of CSS, YAML and Lisp, in which names may have hyphens
    ".css", ".scss", ".sass", ".less", ".yaml", ".yml", ".lisp", ".lsp", ".cl", ".el", ".clj",
    ".cljs", ".cljc", ".edn", ".scm", ".ss", ".rkt", ".fnl",
))  # fmt: skip


def has_hyphenated_names(path: str) -> bool:
    """Return whether `-` belongs to the names of a file."""
    return PurePosixPath(path).suffix.lower() in HYPHENATED_SUFFIXES


@dataclass(frozen=True, slots=True)
class RecentEdit:
    """A replacement of `before` by `after`, which starts at `start` in the current text.

    Both are whole lines without the final line end.
    """

    uri: str
    start: int  # code points
    before: str
    after: str
    touched: float  # time of the last change, on the caller's clock
    path: str = ""  # tells the document's language; "" if the URI does

    @property
    def stop(self) -> int:
        return self.start + len(self.after)


class EditHistory:
    """The latest MAX_EDITS edits of one client."""

    def __init__(self) -> None:
        # Least recently touched first; edits of one document never overlap.
        self._edits: list[RecentEdit] = []

    def edits(self) -> list[RecentEdit]:
        """Return all edits, the most recently touched one last."""
        return list(self._edits)

    def forget(self, uri: str) -> None:
        """Drop a closed document's edits: its text may differ when it is opened again."""
        self._edits = [edit for edit in self._edits if edit.uri != uri]

    def record(
        self, uri: str, before: str, start: int, stop: int, new: str, now: float, path: str = ""
    ) -> None:
        """Record that `before[start:stop]` was replaced by `new`."""
        start, stop, new = trim_common(before, start, stop, new)
        if start == stop and not new:
            return
        low, high = whole_lines(before, start, stop)
        overlapping = [e for e in self._edits if e.uri == uri and low <= e.stop and e.start <= high]
        edit = _merged(uri, before, (start, stop, new), (low, high), overlapping, now)
        given = [one for one in overlapping if self._is_settled(one, now)]
        if given and edit and edit.before != edit.after:
            left = [one for one in overlapping if one not in given]
            edit = _merged(uri, before, (start, stop, new), (low, high), left, now)
        moved = len(new) - (stop - start)
        kept = [
            _shifted(past, moved) if past.uri == uri and past.start > high else past
            for past in self._edits
            if past not in overlapping
        ]
        if edit and edit.before != edit.after:
            kept.append(replace(edit, path=path))
        self._edits = kept[-MAX_EDITS:]

    def _is_settled(self, edit: RecentEdit, now: float) -> bool:
        """Return whether the edit only added lines, and did so a while or another edit ago.

        A change in these lines is then an edit of its own rather than part of the addition.
        """
        settled = edit is not self._edits[-1] or now - edit.touched > SETTLED_AFTER_S
        old, new = (LINE_END.sub("\n", text) for text in (edit.before, edit.after))
        added = not old.strip() or new.startswith(old + "\n") or new.endswith("\n" + old)
        return settled and added and new != old


def whole_lines(text: str, start: int, stop: int) -> tuple[int, int]:
    """Widen `start:stop` to whole lines, without the final line end."""
    low = text.rfind("\n", 0, start) + 1
    low = max(low, text.rfind("\r", low, start) + 1)
    high = text.find("\n", stop)
    high = len(text) if high < 0 else high
    end = text.find("\r", stop, high)
    return low, high if end < 0 else end


def _shifted(edit: RecentEdit, by: int) -> RecentEdit:
    return replace(edit, start=edit.start + by)


def _merged(
    uri: str,
    text: str,
    change: tuple[int, int, str],
    lines: tuple[int, int],
    overlapping: list[RecentEdit],
    now: float,
) -> RecentEdit | None:
    """Merge the change and the edits that its lines overlap into one; None if that is too large."""
    start, stop, new = change
    low = min(lines[0], *(edit.start for edit in overlapping), lines[0])
    high = max(lines[1], *(edit.stop for edit in overlapping), lines[1])
    if high - low > MAX_EDIT_CHARS or len(new) > MAX_EDIT_CHARS:
        return None
    pieces, at = [], low
    for edit in sorted(overlapping, key=lambda edit: edit.start):
        pieces += [text[at : edit.start], edit.before]
        at = edit.stop
    before = "".join((*pieces, text[at:high]))
    return RecentEdit(uri, low, before, text[low:start] + new + text[stop:high], now)


def trim_common(text: str, start: int, stop: int, new: str) -> tuple[int, int, str]:
    """Trim the common prefix and suffix of old and new from a change (start, stop, new text)."""
    old = text[start:stop]
    head = common_prefix(old, new)
    old, new = old[head:], new[head:]
    tail = common_prefix(old[::-1], new[::-1])
    return start + head, stop - tail, new[: len(new) - tail]


# -- edits by line and token -------------------------------------------------------------------


class Replacement(NamedTuple):
    """A replacement in one line of `old` by `new`, which starts at `at` in the current text."""

    old: str
    new: str
    at: int


class ChangedLine(NamedTuple):
    """The old and the new text of a line; the new one starts at `at` in the current text."""

    old: str
    new: str
    at: int
    hyphens: bool = False  # whether they belong to names


@lru_cache(maxsize=4 * MAX_EDITS)
def changed_lines(edit: RecentEdit) -> tuple[ChangedLine, ...]:
    """Find the lines that an edit changed in part: not those added, deleted or rewritten."""
    old, new = (list(_lines(text)) for text in (edit.before, edit.after))
    ours, theirs = [text for _, text in old], [text for _, text in new]
    out: list[ChangedLine] = []
    if max(len(ours), len(theirs)) > MAX_COMPARED_LINES:
        return ()
    for tag, i, j, k, m in SequenceMatcher(None, ours, theirs, False).get_opcodes():
        if tag != "replace":
            continue
        for text in ours[i:j]:
            found = next((n for n in range(k, m) if _alike(text, theirs[n])), None)
            if found is not None:
                at = edit.start + new[found][0]
                out.append(
                    ChangedLine(
                        text, theirs[found], at, has_hyphenated_names(edit.path or edit.uri)
                    )
                )
                k = found + 1
    return tuple(out)


@lru_cache(maxsize=64 * MAX_EDITS)
def replacements(line: ChangedLine) -> tuple[Replacement, ...]:
    """Find the runs of tokens that were replaced, inserted or deleted in a line."""
    ours, theirs = (tokens(each, hyphens=line.hyphens) for each in (line.old, line.new))
    found, at = [], [line.at]
    for token in theirs:
        at.append(at[-1] + len(token))
    for tag, i, j, k, m in token_opcodes(ours, theirs):
        if tag != "equal":
            found.append(Replacement("".join(ours[i:j]), "".join(theirs[k:m]), at[k]))
    return tuple(found)


def tokens(line: str, coarse: bool = False, hyphens: bool = False) -> list[str]:
    """Split a line into words, runs of blanks and single characters.

    A name with its version is one token, with `hyphens` a name that has some, and with `coarse` a
    string literal.
    """
    found: list[str] = TOKENS[coarse, hyphens].findall(line)
    return found


def token_opcodes(old: list[str], new: list[str]) -> Sequence[tuple[str, int, int, int, int]]:
    """Return difflib's opcodes that turn `old` into `new`; none for very long lines."""
    if max(len(old), len(new)) > MAX_COMPARED_TOKENS:
        return []
    return SequenceMatcher(None, old, new, False).get_opcodes()


def _alike(old: str, new: str) -> bool:
    ours, theirs = ([token for token in tokens(text) if token.strip()] for text in (old, new))
    if not ours or not theirs or max(len(ours), len(theirs)) > MAX_COMPARED_TOKENS:
        return False
    return SequenceMatcher(None, ours, theirs, False).ratio() >= MIN_LINE_SIMILARITY


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (offset, text without its line end) of each line."""
    at = 0
    for end in LINE_END.finditer(text):
        yield at, text[at : end.start()]
        at = end.end()
    yield at, text[at:]
