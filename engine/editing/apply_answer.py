"""The text of a file with an update merged into it, and its checks.

A model must have written what the update says, and nothing is lost that the update does not ask to
delete.
"""

from __future__ import annotations

from dataclasses import replace

from engine.editing.checks import check_merge
from engine.editing.edits import EditRefused, apply, plain
from engine.editing.merged_text import Merged
from engine.editing.outcome import Outcome
from engine.records import Done, Request

MAX_MERGES = 50  # merges of one update into a file that others write at the same time


def merged(text: str) -> Done:
    """Wrap a text that was merged without a model as the answer to a request."""
    return Done("stop", text, matched="")


def by_model(done: Done) -> bool:
    """Return whether a model wrote an answer.

    Engines elsewhere do not tell what they did for it.
    """
    return done.matched != ""


def apply_answer(request: Request, done: Done) -> str:
    """Return the file's new text.

    Raises EditRefused if the answer must not reach the file: as for any edit, or because of what
    `apply_outcome` checks.
    """
    outcome = apply_outcome(request, done)
    if outcome.failed:
        remedy = "correct the update, or say in the instruction that it is intended"
        raise EditRefused(f"{outcome.warning}: {remedy}")
    return outcome.text


def apply_outcome(request: Request, done: Done) -> Outcome:
    """Return the file's new text, and the checks that it fails, whoever merged it.

    Raises EditRefused if the answer is unusable, or a model changed what the update does not ask
    for.
    """
    text = apply(request, done)
    merge = Merged(request, text)
    lost = None
    if not by_model(done):
        lost = merge.without_successor()
    else:
        kept = merge.checked()
        if kept != plain(text):
            text = apply(request, replace(done, text=kept))
    changes = [(merge.unasked(), []), *merge.changes()]
    return check_merge(request, text, changes, lost)
