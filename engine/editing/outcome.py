"""What an edit's answer comes to: a text that is checked, asked for once more where a check fails,
and shown with the warnings that remain.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from engine.editing.checks import failed_checks
from engine.editing.edits import EditRefused, apply
from engine.editing.instruction import code_names, wanted_names, words
from engine.editing.moved_imports import move_imports
from engine.editing.side import FailedCheck
from engine.records import Done, Request

BROKEN, LOST = ("syntax", "brackets"), ("definitions", "deleted")  # kinds of checks


@dataclass(frozen=True, slots=True)
class Outcome:
    """The whole file after an edit, and the checks that it fails; for an edit made by rule what the
    rule did and what the user should know, in one line each."""

    text: str
    failed: tuple[FailedCheck, ...] = ()
    rule: str = ""
    notes: tuple[str, ...] = ()

    @property
    def is_nonsense(self) -> bool:
        """Whether the code is broken and a part of it lost: nothing to choose hunks from."""
        kinds = {check.kind for check in self.failed}
        return not kinds.isdisjoint(BROKEN) and not kinds.isdisjoint(LOST)

    @property
    def warnings(self) -> list[str]:
        """What to check before the edit is accepted; one line each."""
        return [check.warning for check in self.failed]

    @property
    def warning(self) -> str:
        """All of that in one line; "" if every check passes."""
        return "; ".join(self.warnings)


def judge(request: Request, done: Done, checks: bool = True) -> Outcome:
    """The answer's text with new imports moved, and the checks that it fails; without `checks` the
    text alone. Raises EditRefused if it is unusable."""
    text = apply(request, done)
    if not checks:
        return Outcome(text)
    failed = failed_checks(request, text)
    if all(check.kind != "hidden" for check in failed):
        text = move_imports(request, text)
    return Outcome(text, tuple(failed))


def second_request(request: Request, first: Outcome) -> Request | None:
    """The request to make after an outcome that fails checks, which it names; None if it fails
    none. A request of its own: speculation changes neither answer."""
    if not first.failed:
        return None
    hints = " ".join(dict.fromkeys(check.hint for check in first.failed))
    return replace(request, instruction=f"{request.instruction.strip()}\n{hints}")


def better(request: Request, first: Outcome, second: Done) -> Outcome:
    """The first outcome, or that of the second answer if it changes something and fails fewer
    checks of the first request. Raises EditRefused if the better one is nonsense."""
    best = first
    with suppress(EditRefused):
        again = judge(request, second)
        if again.text != request.text and len(again.failed) < len(first.failed):
            best = again
    if best.is_nonsense:
        raise EditRefused(
            f"the model answered twice, and {best.warning}: say more precisely what to change, "
            "select fewer lines, or try a larger model"
        )
    return best


def why_unchanged(request: Request) -> str:
    """Why an edit may have changed nothing, in one line for the user."""
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
