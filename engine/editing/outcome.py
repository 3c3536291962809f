"""The outcome of an edit: a text, with warnings where it fails a check."""

from __future__ import annotations

from dataclasses import dataclass

from engine.editing.instruction import code_names, wanted_names, words
from engine.editing.side import FailedCheck
from engine.records import Request

BROKEN, LOST = ("syntax", "brackets"), ("definitions", "deleted")  # kinds of checks


@dataclass(frozen=True, slots=True)
class Outcome:
    """The whole file after an edit, and the checks that it fails.

    For an edit made by rule: what the rule did and what the user should know, in one line each.
    `checked`: the user's command that passes; `looked_at`: what the checks looked at.
    """

    text: str
    failed: tuple[FailedCheck, ...] = ()
    rule: str = ""
    notes: tuple[str, ...] = ()
    checked: str = ""
    looked_at: str = "nothing looked at"

    @property
    def seen(self) -> str:
        """How far the edit can be trusted, in one line, with the same words for every client."""
        if self.failed:
            return f"check this: {self.warning}"
        if self.checked:
            return f"checked by {self.checked}"
        return "made by rule" if self.rule else f"not run: {self.looked_at}"

    @property
    def is_nonsense(self) -> bool:
        """Whether the code is broken and a part of it lost: nothing to choose hunks from."""
        kinds = {check.kind for check in self.failed}
        return not kinds.isdisjoint(BROKEN) and not kinds.isdisjoint(LOST)

    @property
    def warnings(self) -> list[str]:
        """The things to check before the edit is accepted; one line each."""
        return [check.warning for check in self.failed]

    @property
    def warning(self) -> str:
        """All warnings in one line; "" if every check passes."""
        return "; ".join(self.warnings)


def why_unchanged(request: Request) -> str:
    """Say why an edit may have changed nothing, in one line for the user."""
    start, stop = request.selection or (0, len(request.text))
    known = words(request.text[start:stop])
    wanted = wanted_names(request.instruction)
    names = [name for name in code_names(request.instruction) if name not in wanted]
    missing = [name for name in names if name not in known]
    if missing and len(missing) == len(names):
        where = "the selected lines" if request.selection else "the text"
        return f"`{missing[0]}` does not occur in {where}"
    return (
        "the model repeated the text: say more precisely what to change and where, select fewer "
        "lines, or try a larger model"
    )
