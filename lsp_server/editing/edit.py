"""Edits by instruction: from a client's request to the smallest versioned WorkspaceEdit.

An edit is made of the document as it is when the request comes. Changes outside its range move it
meanwhile (`rebase`); if its range changes or the answer is refused, the request fails with the
reason and nothing is changed.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from engine.editing.dialogue import Ask, dialogue, hold
from engine.editing.edits import Change, EditRefused, changes, too_long
from engine.editing.outcome import Outcome, why_unchanged
from engine.records import Done, Request, RequestError, Step
from engine.remote.secret_texts import refusal
from lsp_server.editing.rebase import Conflict, Rebase
from lsp_server.protocol.messages import (
    EditParams,
    Identifier,
    Progress,
    cancelled,
    closed,
    failed,
    moved_on,
)
from lsp_server.protocol.protocol import Server
from lsp_server.protocol.text_sync import OpenDocument
from lsp_server.shared_engine import NotReady, Superseded

if TYPE_CHECKING:
    from lsp_server.session import Session

log = logging.getLogger(__name__)
CONFLICT = " where it is edited"
PREFILL_SHARE = 0.3  # share of an edit's progress bar


@dataclass(frozen=True, slots=True)
class EditResult:
    """An edit's outcome, the changes of a document that lead to it, and figures for the client."""

    document: (
        OpenDocument  # to change: its latest version, or the request's if the client moves them
    )
    outcome: Outcome  # for the version of the request
    changes: list[Change]
    stats: dict[str, Any]
    note: str = ""  # why nothing changed

    def label(self, title: str) -> str:
        """Return what the client shows as the name of the change."""
        if self.outcome.rule:
            return f"made by rule: {self.outcome.rule}"
        if self.outcome.failed or self.outcome.checked:
            return f"{title} \N{EM DASH} {self.outcome.seen}"
        return title

    def answer(self, edit: types.WorkspaceEdit | None) -> dict[str, Any]:
        """Return the result of draftline/edit."""
        version = self.document.version  # some clients get edits without one
        seen = self.outcome.seen if self.changes else None
        notes = {
            "warnings": self.outcome.warnings,
            "seen": seen,
            "note": self.note or None,
            "version": version,
        }
        return {"edit": edit, "stats": self.stats, **notes}


def current_document(server: Server, identifier: Identifier) -> OpenDocument:
    """Return the document as it is now.

    Raises ContentModified if the client means another version.
    """
    document = server.documents.get(identifier.uri)
    if identifier.version is not None and identifier.version != document.version:
        raise moved_on(display_name(document))
    return document


def display_name(document: OpenDocument) -> str:
    """Return the document's file name, for messages."""
    return (document.path or document.uri).rsplit("/", 1)[-1]


async def check_secret(session: Session, document: OpenDocument) -> None:
    """Raise RequestError if a document may hold secrets and the engine is elsewhere.

    The whole document is judged, by its own name: a part may lack the line that tells.
    """
    await session.configured()
    if host := session.elsewhere:
        path = document.path or document.uri
        why = await asyncio.to_thread(session.index.why_secret, path, document.text.text)
        if why:
            raise RequestError(refusal(display_name(document), why, host))


async def edit(server: Server, session: Session, params: EditParams, title: str = "") -> EditResult:
    """Ask the model for an edit. Raises a protocol error if there is no acceptable answer."""
    document = current_document(server, params.textDocument)
    request = Request(
        "edit",
        document.text.text,
        path=document.source_path,
        version=document.version,
        selection=server.documents.span(document, params.range) if params.range else None,
        instruction=params.instruction,
    )
    progress = Progress(server, params.workDoneToken, params.partialResultToken)
    slot = ("edit", document.uri)
    progress.begin(f"{title or 'Editing'} {display_name(document)}", lambda: session.cancel(slot))
    message = None
    follow = nullcontext() if params.ownsRange else session.rebasing(document, request.selection)
    try:
        with follow as rebase:
            return await _run(session, document, request, progress, rebase)
    except Superseded as reason:
        raise cancelled(str(reason)) from None
    except (NotReady, RequestError, EditRefused) as reason:
        message = str(reason)
        raise failed(reason) from None
    finally:
        progress.end(message)


async def _run(
    session: Session,
    document: OpenDocument,
    request: Request,
    progress: Progress,
    rebase: Rebase | None,
) -> EditResult:
    """Run the request and turn its answer into changes of the latest text.

    The answer is aligned with the document's text; unless the client moves the changes itself
    (`rebase` is None), they are moved to the latest text.
    """
    start, stop = request.selection or (0, len(request.text))
    expected_chars = max(1, stop - start)
    written_chars = 0
    slot = ("edit", document.uri)
    requests, done = 0, Done("stop")
    began = perf_counter()

    def on_step(step: Step) -> None:
        nonlocal written_chars
        written_chars += len(step.text)
        progress.text(step.text)
        if step.prefill:
            progress.report("reading", PREFILL_SHARE * step.prefill[0] / step.prefill[1])
        else:
            written = min(1.0, written_chars / expected_chars)
            progress.report("writing", PREFILL_SHARE + (1 - PREFILL_SHARE) * written)

    async def ask(question: Ask) -> Done:
        nonlocal written_chars, requests, done
        requests += 1
        if question.first:
            log.debug("asking again: %s", ", ".join(check.kind for check in question.first.failed))
            written_chars = 0
            progress.restart("asking again")
        if session.shared_engine.loaded is None:
            progress.report("loading the model", 0.0)
        await session.engine(slot)
        await check_secret(session, document)
        if why := too_long(request, session.shared_engine.model):
            raise failed(f"{display_name(document)}: {why}: select fewer lines")
        done = await session.ask(question.request, slot, on_step)
        _refuse_if_lost(session, document, rebase)
        if done.reason == "cancelled":
            raise cancelled("the edit was cancelled, or a newer one took its place")
        return done

    trial = session.trial(document.path)
    outcome = await hold(dialogue(request, session.settings.checks, trial), ask)
    text_changes = await asyncio.to_thread(changes, request.text, outcome.text)
    stats = _stats(done, perf_counter() - began)
    if outcome.rule:
        stats |= {"rule": outcome.rule, "notes": outcome.notes}
    else:
        stats |= {"requests": requests}
    note = "" if text_changes else outcome.rule or why_unchanged(request)
    latest, moved = _latest(session, document, rebase, text_changes)
    return EditResult(latest, outcome, moved, stats, note)


def _refuse_if_lost(session: Session, document: OpenDocument, rebase: Rebase | None) -> None:
    """Raise ContentModified if the document was closed, or its edited range changed for good."""
    is_open, is_lost = document.uri in session.documents, rebase is not None and rebase.is_lost
    if rebase and is_open and is_lost and rebase.has_conflict:
        raise moved_on(display_name(document), CONFLICT)
    if is_lost or not is_open:
        raise closed(display_name(document))


def _latest(
    session: Session, document: OpenDocument, rebase: Rebase | None, found: list[Change]
) -> tuple[OpenDocument, list[Change]]:
    """Return the latest version of a document, and changes of the given one moved to it.

    Raises ContentModified if the user changed the same place or closed the document.
    """
    _refuse_if_lost(session, document, rebase)
    if rebase is None:
        return document, found
    latest = session.documents.get(document.uri)
    if latest.text.text != rebase.latest:  # the session is about to hear of the change
        rebase.record(0, len(rebase.latest), latest.text.text)
    try:
        return latest, rebase.moved(found)
    except Conflict:
        raise moved_on(display_name(document), CONFLICT) from None


def _stats(done: Done, seconds: float) -> dict[str, Any]:
    """Return the figures of an answer; `seconds` since its request."""
    usage = done.usage
    tokens, decode_s = usage.completion_tokens, usage.decode_seconds
    return {
        "tokens": tokens,
        "seconds": round(seconds, 3),
        "decodeSeconds": round(decode_s, 3),
        "tokensPerSecond": round(tokens / decode_s, 1) if decode_s else None,
        "acceptedShare": round(usage.accepted / tokens, 3) if tokens else None,
        "passes": usage.forwards,
        "promptTokens": usage.prompt_tokens,
        "cachedTokens": usage.cached_tokens,
    }


def not_applied(server: Server, result: EditResult) -> str:
    """Say why an edit that fails checks must not be applied; "" if it may be.

    It must not if the client does not first show its label, which has the warnings.
    """
    workspace = server.client_capabilities.workspace
    able = workspace.workspace_edit if workspace else None
    labelled = able and able.document_changes and able.change_annotation_support
    if labelled or not result.outcome.failed:
        return ""
    return (
        f"not applied: {result.outcome.warning}: select less, or say more precisely what to change"
    )
