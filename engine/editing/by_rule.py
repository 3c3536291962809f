"""Edits that a rule makes exactly, without the model: renames, and the order of imports.

A rule either makes the whole edit and makes it right, or refuses it with the reason, or leaves it
to the model. It reads the instruction narrowly: what asks for anything else is the model's.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from engine.editing import imports, rename_request
from engine.editing.outcome import Outcome
from engine.editing.rename import rename
from engine.editing.scopes.names import Unsure

if TYPE_CHECKING:
    from engine.records import Request

MAX_INSTRUCTION_CHARS = 300  # of one that a rule reads

logger = logging.getLogger(__name__)


def by_rule(request: Request) -> Outcome | None:
    """The edit, if a rule makes what the instruction asks for; None leaves it to the model. Raises
    EditRefused if it cannot be made: a name that is not there, or one that is taken."""
    if request.kind != "edit" or len(request.instruction) > MAX_INSTRUCTION_CHARS:
        return None
    try:
        if renames := rename_request.read(request.instruction):
            done = rename(request.path, request.text, request.selection, renames)
            return Outcome(done.text, rule=done.title, notes=done.notes)
        if edit := imports.read(request.instruction):
            text, title = imports.tidy(request.path, request.text, request.selection, edit)
            return Outcome(text, rule=title)
    except Unsure as reason:
        logger.info("left to the model, not made by rule: %s", reason)
    return None
