"""Trying an edit that a client shows: a command of the user runs on the document as it is now."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from engine.editing.edits import EditRefused
from engine.editing.outcome import Outcome
from engine.editing.running import sandbox
from engine.editing.running.trial import parse_command
from engine.editing.side import FailedCheck
from engine.records import Request
from lsp_server.editing.edit import current_document, display_name
from lsp_server.protocol.messages import failed

if TYPE_CHECKING:
    from lsp_server.protocol.messages import TryEditParams
    from lsp_server.protocol.protocol import Server
    from lsp_server.session import Session


async def try_edit(server: Server, session: Session, params: TryEditParams) -> dict[str, Any]:
    """Run a command on an edit that is shown: the handler of draftline/tryEdit.

    The command is the user's, typed for this edit. What else was to be checked stays so, whatever
    the command says.
    """
    document = current_document(server, params.textDocument)
    before = Request("edit", params.before, path=document.source_path)
    text = document.text.text
    if text == before.text:
        raise failed(f"{display_name(document)}: no change is left to check: make an edit first")

    def run() -> Outcome:
        trial = session.trial(document.path, parse_command(params.command))
        if trial is None:
            raise EditRefused(f"{display_name(document)}: not in a file: save it first")
        if trial.needs_sandbox:
            sandbox.ensure()
        earlier = [one for one in params.warnings if not one.startswith(f"`{trial.name}` ")]
        edited = Outcome(text, tuple(FailedCheck("shown", warning, "") for warning in earlier))
        if not trial.words:
            return trial.lint(before, edited)
        return trial.with_cause(before, trial.try_outcome(before, edited))

    try:
        outcome = await asyncio.to_thread(run)
    except EditRefused as reason:
        raise failed(reason) from None
    return {"seen": outcome.seen, "warnings": outcome.warnings}
