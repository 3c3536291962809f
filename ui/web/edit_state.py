"""The state of the Edit tab: the text, the proposed changes and the undo history.

Immutable values and pure functions. The text is exact: its line ends are preserved, and so is the
absence of a final one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.editing.edits import line_count, line_span, too_long
from engine.editing.text_file import FileError, read_text
from engine.records import Request, RequestError
from ui.web.diff import (
    LINE_END_NAMES,
    Hunk,
    apply_hunks,
    apply_typing,
    common_line_end,
    find_hunks,
)

if TYPE_CHECKING:
    from engine.editing.outcome import Outcome

MAX_TEXT_BYTES = 1 << 20  # bytes; more is slow in the browser's editor
MAX_UNDO_STEPS = 20
DEFAULT_NAME = "text.txt"
LINE_RANGE = re.compile(r"([0-9]{1,9})?(?:\s*([:\u2013-])\s*([0-9]{1,9})?)?")
Lines = tuple[int, int]  # first and last, from 1


@dataclass(frozen=True)
class Proposal:
    """A text, the model's version of it, and which of the changes are accepted."""

    old: str
    new: str
    hunks: tuple[Hunk, ...]
    accepted: frozenset[int]  # indices of hunks
    lines: Lines | None  # the edited lines; None: all

    @property
    def text(self) -> str:
        """The old text with the accepted changes."""
        return apply_hunks(self.old, self.new, self.hunks, self.accepted)


@dataclass(frozen=True)
class EditState:
    """The text as it was opened or last edited. `history`: earlier texts and their line ranges."""

    text: str = ""
    proposal: Proposal | None = None
    history: tuple[tuple[str, str], ...] = ()


# -- input ----------------------------------------------------------------------------------------


def read_upload(path: Path, name: str) -> str:
    """Read a file's exact text. Raises FileError if it cannot be edited."""
    try:
        text = read_text(path)
    except FileError as error:
        raise FileError(str(error).replace(str(path), name)) from error
    if len(text.encode()) > MAX_TEXT_BYTES:
        raise FileError(f"{name}: larger than {MAX_TEXT_BYTES >> 20} MB: cut out the part to edit")
    if not text.strip():
        raise FileError(f"{name}: contains no text: choose another file")
    return text


def file_name(path: str) -> str:
    """Return a name without folders, control characters and what file names must not contain."""
    last = re.split(r"[/\\]", path.strip())[-1]
    return re.sub(r'[\x00-\x1f\x7f-\x9f<>:"|?*\u200b-\u200f\u202a-\u202e\u2066-\u2069]', "", last)[
        :120
    ].strip(". ")


def line_range(field: str, text: str) -> Lines | None:
    """Parse the lines of `10:40`, `10-40`, `10:`, `:40` or `12`; None for an empty field."""
    field = field.strip()
    if not field:
        return None
    found = LINE_RANGE.fullmatch(field)
    if not found or not (found[1] or found[3]):
        raise RequestError(f"lines {field[:40]}: not a line range: write 10:40, 10:, :40 or 12")
    count = line_count(text)
    first = int(found[1]) if found[1] else 1
    last = int(found[3]) if found[3] else count if found[2] else first
    if not 1 <= first <= count or not 1 <= last <= count:
        raise RequestError(f"lines {field}: the text has {count} lines, counted from 1")
    if first > last:
        raise RequestError(f"lines {field}: ends before it starts: write {last}:{first}")
    return first, last


def check_text(text: str, what: str = "the text") -> None:
    """Raise RequestError for a text that is empty, invalid or too long."""
    if not text.strip():
        raise RequestError(f"{what} is empty: write or paste something")
    if re.search("[\0\ud800-\udfff]", text):
        raise RequestError(f"{what} is not text (NUL or broken Unicode): paste it again")
    if len(text.encode()) > MAX_TEXT_BYTES:
        raise RequestError(f"{what} is larger than {MAX_TEXT_BYTES >> 20} MB: edit a part of it")


def make_request(text: str, name: str, lines: str, instruction: str) -> Request:
    """Make the request for an edit. Raises RequestError if a field is invalid."""
    check_text(text)
    if not instruction.strip():
        raise RequestError("the instruction is empty: say what to change")
    check_text(instruction, "the instruction")
    span = line_range(lines, text)
    selection = line_span(text, *span) if span else None
    path = file_name(name)
    return Request("edit", text, path=path, selection=selection, instruction=instruction)


def check_length(request: Request, model: str) -> None:
    """Raise RequestError if the model should not edit so much at once."""
    if reason := too_long(request, model):
        raise RequestError(f"{reason}: name the lines to edit, or tick the box for all of them")


def describe(text: str) -> str:
    """Return the number of lines, and unusual line ends."""
    if not text:
        return ""
    count = line_count(text)
    parts = [f"{count} line{'s' * (count != 1)}"]
    if (end := common_line_end(text)) != "\n":
        parts.append(f"line ends {LINE_END_NAMES[end]} (kept)")
    if not text.endswith(("\n", "\r")):
        parts.append("no final line end (kept)")
    return "; ".join(parts)


# -- transitions ----------------------------------------------------------------------------------


def set_typed_text(state: EditState, box: str) -> EditState:
    """Make the content of the box the text."""
    return replace(state, text=apply_typing(state.text, box))


def replace_text(state: EditState, box: str, lines: str, text: str) -> EditState:
    """Set another text; the one in the box goes to the undo history."""
    current = apply_typing(state.text, box)
    history = (*state.history, (current, lines))[-MAX_UNDO_STEPS:] if current else state.history
    return EditState(text, None, history)


def propose(state: EditState, request: Request, outcome: Outcome, lines: Lines | None) -> EditState:
    """Propose an edit as changes, all accepted."""
    new = outcome.text
    hunks = tuple(find_hunks(request.text, new))
    accepted = frozenset(range(len(hunks)))
    return replace(state, proposal=Proposal(request.text, new, hunks, accepted, lines))


def accept_hunks(state: EditState, indices: Iterable[Any]) -> EditState:
    """Accept these changes and no others. Invalid indices are ignored."""
    proposal = state.proposal
    if proposal is None:
        return state
    accepted = frozenset(range(len(proposal.hunks))).intersection(
        index for index in indices if isinstance(index, int)
    )
    return replace(state, proposal=replace(proposal, accepted=accepted))


def continue_from_result(state: EditState, box: str, lines: str) -> tuple[EditState, str]:
    """Make the result the text; also the range of the edited lines in it."""
    proposal = state.proposal
    if proposal is None:
        return state, lines
    continued = replace_text(state, box, lines, proposal.text)
    if proposal.lines:
        added = line_count(proposal.text) - line_count(proposal.old)
        first, last = proposal.lines[0], proposal.lines[1] + added
        lines = f"{first}:{last}" if first <= last else ""
    return continued, lines


def undo(state: EditState) -> tuple[EditState, str]:
    """Return the text before the last step, and its line range."""
    if not state.history:
        return state, ""
    *history, (text, lines) = state.history
    return EditState(text, None, tuple(history)), lines
