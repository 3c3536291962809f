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
from typing import NamedTuple

from engine.editing import imports, rename_request
from engine.editing.blank_lines import keep_blank_lines
from engine.editing.checks import failed_checks
from engine.editing.edits import EditRefused, apply
from engine.editing.moved_imports import move_imports
from engine.editing.outcome import Outcome
from engine.editing.rename import rename
from engine.editing.scopes.names import Unsure
from engine.editing.text_rules import edit_text
from engine.records import Done, Request

MAX_INSTRUCTION_CHARS = 300  # characters; longer instructions are left to the model

logger = logging.getLogger(__name__)


class Ask(NamedTuple):
    """A request for the model; with the second one, the outcome of the first answer."""

    request: Request
    first: Outcome | None = None


Dialogue = Generator[Ask, Done, Outcome]


def dialogue(request: Request, checks: bool = True) -> Dialogue:
    """Edit by a rule, else by the model; without `checks` by the model alone.

    Raises EditRefused.
    """
    if checks and (made := by_rule(request)):
        return made
    return (yield from model_dialogue(request, checks))


def model_dialogue(request: Request, checks: bool = True) -> Dialogue:
    """Edit by the model, whose second answer may be the better one if the first fails a check.

    Raises EditRefused.
    """
    first = judge(request, (yield Ask(request)), checks)
    if not first.failed:
        return first
    second = yield Ask(_second_request(request, first), first)
    return better(request, first, second)


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
    text = keep_blank_lines(request, text)
    failed = failed_checks(request, text)
    if all(check.kind != "hidden" for check in failed):
        text = move_imports(request, text)
    return Outcome(text, tuple(failed))


def _second_request(request: Request, first: Outcome) -> Request:
    """Repeat the request and name what fails.

    It is a request of its own: speculation changes neither answer.
    """
    hints = " ".join(dict.fromkeys(check.hint for check in first.failed))
    return replace(request, instruction=f"{request.instruction.strip()}\n{hints}")


def better(request: Request, first: Outcome, second: Done) -> Outcome:
    """Choose the second answer if it changes something and fails fewer checks, else the first.

    Both are held to the first request. Raises EditRefused if the better one is nonsense.
    """
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
