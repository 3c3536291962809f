"""An edit of a file by an instruction, for programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine.editing.dialogue import Ask, advance, dialogue
from engine.editing.diff import diff
from engine.editing.edits import EditRefused, line_count, line_span, too_long
from engine.editing.running.trial import CANDIDATES, make_trial
from engine.editing.side import FailedCheck
from engine.editing.text_file import read_text, replace_text
from engine.records import Done, Request, RequestError


@dataclass(frozen=True, slots=True)
class Edit:
    """A file's text before and after an edit, which is not written yet. `print` shows the diff."""

    path: Path
    old: str
    new: str
    rule: str = ""  # what a rule did; "" where the model answered
    warnings: tuple[str, ...] = ()  # checks that it fails, one line each
    notes: tuple[str, ...] = ()  # what the user should know of a rule, one line each
    seen: str = ""  # how far it can be trusted, in one line; "" if nothing changes

    @property
    def diff(self) -> str:
        """The unified diff, which `git apply` accepts; "" if nothing changes."""
        return diff(self.old, self.new, self.path)

    def write(self, force: bool = False) -> None:
        """Replace the file, at once or not at all.

        Raises EditRefused for an edit with warnings, without `force`; FileError if the file has
        changed meanwhile.
        """
        if self.warnings and not force:
            raise EditRefused(
                f"{self.path}: not written: {'; '.join(self.warnings)}: say more precisely what to "
                "change, or write it all the same with write(force=True)"
            )
        replace_text(self.path, self.new, self.old)

    def __str__(self) -> str:
        notes = [f"{self.seen}\n"] if self.seen else []
        notes += [f"note: {note}\n" for note in self.notes]
        return "".join([self.diff or f"{self.path}: nothing changed\n", *notes]).rstrip("\n")


def edit_file(
    ask: Callable[[Request], Done],
    path: str | Path,
    instruction: str,
    lines: tuple[int, int] | None = None,
    max_tokens: int | None = None,
    model: str = "",
    check: Sequence[str] = (),
    candidates: int = CANDIDATES,
) -> Edit:
    """Make the edit of a file, or of these lines of it (from 1, both included).

    `ask` gives the answer of a `model`, whose name tells whether it can edit so much at once.
    `check`: the words of a command that is run on each of at most so many `candidates`, beside the
    current folder and not in it; the first that passes is taken.
    Raises FileError for a file that cannot be read, RequestError where the instruction is empty or
    the request does not fit the model, EditRefused for an answer that must not be used.
    """
    if not instruction.strip():
        raise RequestError("the instruction is empty: say what to change")
    file = Path(path)
    text = read_text(file)
    request = Request(
        "edit",
        text,
        path=str(file),
        selection=None if lines is None else selection_of(text, lines),
        instruction=instruction,
        max_tokens=max_tokens,
    )
    steps = dialogue(request, trial=make_trial(check, file, candidates=candidates))
    outcome = advance(steps)
    while isinstance(outcome, Ask):
        outcome = advance(steps, ask(outcome.request))
    if not outcome.rule and (why := too_long(request, model)):
        outcome = replace(outcome, failed=(FailedCheck("length", why, ""), *outcome.failed))
    seen = outcome.seen if outcome.text != text else ""
    warnings = tuple(outcome.warnings)
    return Edit(file, text, outcome.text, outcome.rule, warnings, outcome.notes, seen)


def selection_of(text: str, lines: tuple[int, int]) -> tuple[int, int]:
    """Return the code points of lines, from 1, both included. Raises RequestError."""
    first, last = lines
    count = line_count(text)
    if not 1 <= first <= last <= count:
        raise RequestError(f"lines {first} to {last}: the file has {count} lines, from 1")
    return line_span(text, first, last)
