"""The text of the Edit tab: opened, typed over, edited, its changes taken or left, and undone.

Plain values and pure functions. Everything that cannot be done is one line: what and the remedy.
The text is exact: its line ends, and whether its last line has one, survive.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.editing.edits import apply, line_count, line_span, too_long
from engine.editing.text_file import FileError, read_text
from engine.records import Request, RequestError
from ui.web.diff import ENDS, Hunk, hunks, line_end, typed_over, with_hunks

if TYPE_CHECKING:
    from engine.records import Done

LARGEST = 1 << 20  # bytes of a text; more is slow in a browser's box
UNDO = 20  # texts that can be gone back to
NAMELESS = "text.txt"
RANGE = re.compile(r"([0-9]{1,9})?(?:\s*([:\u2013-])\s*([0-9]{1,9})?)?")
Lines = tuple[int, int]  # first and last, counted from 1


@dataclass(frozen=True)
class Proposal:
    """A text, what a model made of it, and which of the changes were accepted."""

    old: str
    new: str
    hunks: tuple[Hunk, ...]
    taken: frozenset[int]
    lines: Lines | None  # that were edited; None: all

    @property
    def text(self) -> str:
        """The old text with what was accepted."""
        return with_hunks(self.old, self.new, self.hunks, self.taken)


@dataclass(frozen=True)
class Sheet:
    """The text as it was opened or last edited, and the texts before it with their line ranges."""

    text: str = ""
    proposal: Proposal | None = None
    before: tuple[tuple[str, str], ...] = ()


# -- what comes in ---------------------------------------------------------------------------------


def opened(path: Path, name: str) -> str:
    """A file's exact text. FileError where it is none that can be edited here."""
    try:
        text = read_text(path)
    except FileError as error:
        raise FileError(str(error).replace(str(path), name)) from error
    if len(text.encode()) > LARGEST:
        raise FileError(f"{name}: more than {LARGEST >> 20} MB: cut out the part to be edited")
    if not text.strip():
        raise FileError(f"{name}: holds no text: choose another file")
    return text


def file_name(given: str) -> str:
    """A name without folders and without anything that no file is called."""
    last = re.split(r"[/\\]", given.strip())[-1]
    return re.sub(r'[\x00-\x1f\x7f-\x9f<>:"|?*\u200b-\u200f\u202a-\u202e\u2066-\u2069]', "", last)[
        :120
    ].strip(". ")


def line_range(given: str, text: str) -> Lines | None:
    """The lines that `10:40`, `10-40`, `10:`, `:40` or `12` names; None for an empty field."""
    given = given.strip()
    if not given:
        return None
    found = RANGE.fullmatch(given)
    if not found or not (found[1] or found[3]):
        raise RequestError(f"lines {given[:40]}: not lines: write 10:40, 10:, :40 or 12")
    count = line_count(text)
    first = int(found[1]) if found[1] else 1
    last = int(found[3]) if found[3] else count if found[2] else first
    if not 1 <= first <= count or not 1 <= last <= count:
        raise RequestError(f"lines {given}: the text has {count} lines, counted from 1")
    if first > last:
        raise RequestError(f"lines {given}: ends before it begins: write {last}:{first}")
    return first, last


def check_text(text: str, what: str = "the text") -> None:
    """RequestError where it is no text or too much of it."""
    if not text.strip():
        raise RequestError(f"{what} is empty: write or paste something")
    if re.search("[\0\ud800-\udfff]", text):
        raise RequestError(f"{what} is not text (NUL or broken Unicode): paste it again")
    if len(text.encode()) > LARGEST:
        raise RequestError(f"{what} is longer than {LARGEST >> 20} MB: edit a part of it")


def asked(
    text: str, name: str, lines: str, instruction: str, model: str, whole: bool = False
) -> Request:
    """The edit that is wanted. `whole`: of more lines than the model is trusted with, too.
    RequestError where it cannot be done."""
    check_text(text)
    if not instruction.strip():
        raise RequestError("the instruction is empty: say what to change")
    check_text(instruction, "the instruction")
    chosen = line_range(lines, text)
    why = too_long(model, line_count(text))
    if why and not chosen and not whole:
        raise RequestError(f"{why}: name the lines to edit, or tick the box for all of them")
    selection = line_span(text, *chosen) if chosen else None
    path = file_name(name)
    return Request("edit", text, path=path, selection=selection, instruction=instruction)


def described(text: str) -> str:
    """A text in a few words."""
    if not text:
        return ""
    count = line_count(text)
    parts = [f"{count} line{'s' * (count != 1)}"]
    if (end := line_end(text)) != "\n":
        parts.append(f"line ends {ENDS[end]} (kept)")
    if not text.endswith(("\n", "\r")):
        parts.append("no line end after the last one (kept)")
    return "; ".join(parts)


# -- what is made of it ----------------------------------------------------------------------------


def typed(sheet: Sheet, box: str) -> Sheet:
    """What stands in the box is the text."""
    return replace(sheet, text=typed_over(sheet.text, box))


def replaced(sheet: Sheet, box: str, lines: str, text: str) -> Sheet:
    """Another text; the one in the box can be gone back to."""
    now = typed_over(sheet.text, box)
    return Sheet(text, None, (*sheet.before, (now, lines))[-UNDO:] if now else sheet.before)


def proposed(sheet: Sheet, request: Request, done: Done, lines: Lines | None) -> Sheet:
    """The model's answer as changes, all accepted. EditRefused where it must not be used."""
    new = apply(request, done)
    found = tuple(hunks(request.text, new))
    every = frozenset(range(len(found)))
    return replace(sheet, proposal=Proposal(request.text, new, found, every, lines))


def taken(sheet: Sheet, numbers: Iterable[Any]) -> Sheet:
    """These changes are accepted, the others are not."""
    one = sheet.proposal
    if one is None:
        return sheet
    known = frozenset(range(len(one.hunks))).intersection(
        number for number in numbers if isinstance(number, int)
    )
    return replace(sheet, proposal=replace(one, taken=known))


def gone_on(sheet: Sheet, box: str, lines: str) -> tuple[Sheet, str]:
    """The result is the text now; and the lines that were edited, where they are now."""
    one = sheet.proposal
    if one is None:
        return sheet, lines
    after = replaced(sheet, box, lines, one.text)
    if one.lines:
        grown = line_count(one.text) - line_count(one.old)
        first, last = one.lines[0], one.lines[1] + grown
        lines = f"{first}:{last}" if first <= last else ""
    return after, lines


def undone(sheet: Sheet) -> tuple[Sheet, str]:
    """The text before the last step, and its lines."""
    if not sheet.before:
        return sheet, ""
    *before, (text, lines) = sheet.before
    return Sheet(text, None, tuple(before)), lines
