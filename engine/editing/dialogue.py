"""The dialogue that makes an edit: a rule if one is certain, else the model.

The model is asked once more where its answer fails a check. A dialogue does no I/O: it yields what
to ask the model, and is sent the answer. So the same one serves callers that wait in a thread and
callers on an event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from engine.editing import imports, rename_request
from engine.editing.blank_lines import keep_blank_lines
from engine.editing.checks import check_edit
from engine.editing.edits import EditRefused, apply
from engine.editing.moved_imports import move_imports
from engine.editing.outcome import Outcome
from engine.editing.rename import rename
from engine.editing.running import sandbox
from engine.editing.scopes.names import Unsure
from engine.editing.side import FailedCheck
from engine.editing.text_rules import edit_text
from engine.records import Done, Request

if TYPE_CHECKING:
    from engine.editing.running.trial import Trial

OTHER_TEMPERATURE = 0.7  # of the candidates after the first, where that is greedy
MAX_INSTRUCTION_CHARS = 300  # characters; longer instructions are left to the model

logger = logging.getLogger(__name__)


class Ask(NamedTuple):
    """A request for the model; with the second one, the outcome of the first answer."""

    request: Request
    first: Outcome | None = None


Dialogue = Generator[Ask, Done, Outcome]


def dialogue(request: Request, checks: bool = True, trial: Trial | None = None) -> Dialogue:
    """Edit by a rule, else by the model; without `checks` by the model alone.

    With a `trial` linters look at the edit; if it has a command, that is run, and of several
    answers the first that passes is taken. Raises EditRefused.
    """
    if trial and trial.needs_sandbox:
        sandbox.ensure()
    if checks and (made := by_rule(request)):
        if not trial or not trial.words:
            return made
        return trial.with_cause(request, trial.try_outcome(request, made))
    if trial and trial.words:
        return (yield from tried_dialogue(request, trial, checks))
    return (yield from model_dialogue(request, checks, trial))


def tried_dialogue(request: Request, trial: Trial, checks: bool = True) -> Dialogue:
    """Edit by the model: the first candidate that passes the trial and the checks, else the best.

    The first candidate is the answer to the request itself, the others are sampled. Raises
    EditRefused if none is usable.
    """
    tried: dict[str, Outcome] = {}
    refused: EditRefused | None = None
    previous: Outcome | None = None
    for number in range(trial.candidates):
        done = yield Ask(candidate(request, number), previous)
        try:
            outcome = judge(request, done, checks)
        except EditRefused as error:
            refused = error
            previous = Outcome(request.text, (FailedCheck("refused", str(error), ""),))
            continue
        if outcome.text not in tried:
            tried[outcome.text] = trial.try_outcome(request, outcome)
        previous = tried[outcome.text]
        if previous.checked and not previous.failed:
            return previous
        if not previous.failed:  # nothing changed
            previous = replace(previous, failed=(FailedCheck("unchanged", "nothing changed", ""),))
    changed = [one for one in tried.values() if one.text != request.text]
    if changed:
        best = min(changed, key=lambda one: (not one.checked, len(one.failed)))
        return _refuse_nonsense(trial.with_cause(request, best))
    if tried:
        return tried[request.text]
    assert refused is not None
    raise refused


def candidate(request: Request, number: int) -> Request:
    """Return the request for a candidate: the request itself, then samples with other seeds."""
    if number == 0:
        return request
    temperature = request.temperature or OTHER_TEMPERATURE
    return replace(request, temperature=temperature, seed=request.seed + number)


def model_dialogue(request: Request, checks: bool = True, trial: Trial | None = None) -> Dialogue:
    """Edit by the model, whose second answer may be the better one if the first fails a check.

    Raises EditRefused.
    """
    first = judge(request, (yield Ask(request)), checks)
    if checks and trial:
        first = trial.lint(request, first)
    if not first.failed:
        return first
    second = yield Ask(_second_request(request, first), first)
    return better(request, first, second, trial)


def advance(steps: Dialogue, done: Done | None = None) -> Ask | Outcome:
    """Start a dialogue or answer it, and return what it asks next, or its outcome.

    Takes long for large texts. Raises EditRefused.
    """
    try:
        return next(steps) if done is None else steps.send(done)
    except StopIteration as end:
        outcome: Outcome = end.value
        return outcome


async def hold(steps: Dialogue, ask: Callable[[Ask], Awaitable[Done]]) -> Outcome:
    """Hold a dialogue on an event loop, which it never blocks. Raises EditRefused."""
    from asyncio import to_thread

    step = await to_thread(advance, steps)
    while isinstance(step, Ask):
        step = await to_thread(advance, steps, await ask(step))
    return step


def by_rule(request: Request) -> Outcome | None:
    """Make the edit exactly if a rule can; return None to leave it to the model.

    A rule reads the instruction narrowly: what asks for anything else is the model's. Raises
    EditRefused for an edit that cannot be made: a name that is not there, or one that is taken.
    """
    if request.kind != "edit" or len(request.instruction) > MAX_INSTRUCTION_CHARS:
        return None
    try:
        if renames := rename_request.read(request.instruction):
            done = rename(request.path, request.text, request.selection, renames)
            return Outcome(done.text, rule=done.title, notes=done.notes)
        if edit := imports.read(request.instruction):
            text, title = imports.tidy(request.path, request.text, request.selection, edit)
            return Outcome(text, rule=title)
        if made := edit_text(request.path, request.text, request.selection, request.instruction):
            return Outcome(made[0], rule=made[1])
    except Unsure as reason:
        logger.info("left to the model, not made by rule: %s", reason)
    return None


def judge(request: Request, done: Done, checks: bool = True) -> Outcome:
    """Keep blank lines, move the answer's new imports, and check it; without `checks` do nothing.

    Raises EditRefused if it is unusable.
    """
    text = apply(request, done)
    if not checks:
        return Outcome(text)
    outcome = check_edit(request, keep_blank_lines(request, text))
    if any(check.kind == "hidden" for check in outcome.failed):
        return outcome
    return replace(outcome, text=move_imports(request, outcome.text))


def _second_request(request: Request, first: Outcome) -> Request:
    """Repeat the request and name what fails.

    It is a request of its own: speculation changes neither answer.
    """
    hints = " ".join(dict.fromkeys(check.hint for check in first.failed))
    return replace(request, instruction=f"{request.instruction.strip()}\n{hints}")


def better(request: Request, first: Outcome, second: Done, trial: Trial | None = None) -> Outcome:
    """Choose the second answer if it changes something and fails fewer checks, else the first.

    Both are held to the first request. Raises EditRefused if the better one is nonsense.
    """
    best = first
    with suppress(EditRefused):
        again = judge(request, second)
        if trial:
            again = trial.lint(request, again)
        if again.text != request.text and len(again.failed) < len(first.failed):
            best = again
    return _refuse_nonsense(best)


def _refuse_nonsense(best: Outcome) -> Outcome:
    """Return the best outcome. Raises EditRefused if it is nonsense."""
    if best.is_nonsense:
        raise EditRefused(
            f"the model answered more than once, and {best.warning}: say more precisely what to "
            "change, select fewer lines, or try a larger model"
        )
    return best
