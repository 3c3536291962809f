"""One instruction for several files.

Each file is edited and checked by itself, and all edits together are one WorkspaceEdit with a
change annotation a file. Nothing is applied here. What cannot be edited has an error in its line of
the answer, and the other files go on; a cancelled request has no answer at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from engine.editing import rename_request
from engine.editing.dialogue import Ask, dialogue, hold, model_dialogue
from engine.editing.edits import BOM, EditRefused, changes, too_long
from engine.editing.instruction import code_names, wanted_names
from engine.editing.outcome import Outcome, why_unchanged
from engine.editing.parts import MAX_PARTS, named_parts
from engine.editing.rename_files import Doubtful, rename_files
from engine.editing.rename_request import RenameRequest
from engine.editing.text_file import FileError, read_text
from engine.records import Done, Request, RequestError, Step
from lsp_server.editing.edit import check_secret
from lsp_server.editing.find_files import (
    files_with,
    indexed_paths,
    large_files,
    large_files_with,
)
from lsp_server.editing.workspace_edit import FileChanges, changed_files
from lsp_server.protocol.messages import EditFilesParams, Progress, cancelled, failed
from lsp_server.protocol.positions import Text
from lsp_server.protocol.question import chosen_answer
from lsp_server.protocol.text_sync import path_of
from lsp_server.shared_engine import NotReady, Superseded

if TYPE_CHECKING:
    from lsp_server.protocol.protocol import Server
    from lsp_server.protocol.text_sync import OpenDocuments
    from lsp_server.session import Session

MAX_FILES = 100
SLOT = ("files", "")  # a newer request replaces the older one
PREFILL_SHARE = 0.3  # share of a file's part of the progress bar
ANYWAY, CANCEL = "Rename Anyway", "Cancel"


@dataclass(slots=True)
class FileEdit:
    """A file of the request, its text before and after, and what the answer says about it."""

    uri: str
    path: str = ""
    old: str = ""
    new: str | None = None
    rule: str = ""
    seen: str = ""
    warnings: list[str] = field(default_factory=list)
    note: str = ""
    error: str = ""
    tokens: int = 0
    requests: int = 0
    seconds: float = 0.0

    @property
    def changed(self) -> bool:
        return not self.error and self.new is not None and self.new != self.old

    @property
    def name(self) -> str:
        return (self.path or self.uri).rsplit("/", 1)[-1]

    def take(self, outcome: Outcome) -> None:
        """Store an outcome for the whole file."""
        self.new, self.rule, self.seen = outcome.text, outcome.rule, outcome.seen
        self.warnings, self.note = [*outcome.warnings], "; ".join(outcome.notes)

    def label(self, instruction: str) -> str:
        """Return the name of the file's change in the client's preview."""
        if self.rule:
            return f"{self.name} \N{EM DASH} made by rule: {self.rule}"
        warning = f" \N{EM DASH} check this: {'; '.join(self.warnings)}" if self.warnings else ""
        return f"{self.name} \N{EM DASH} {instruction[:80]}{warning}"

    def answer(self) -> dict[str, Any]:
        """Return the file's line of the answer."""
        figures = {"tokens": self.tokens, "requests": self.requests}
        return {
            "uri": self.uri,
            "changed": self.changed,
            "rule": self.rule or None,
            "warnings": self.warnings,
            "seen": self.seen if self.changed else None,
            "note": self.note or None,
            "error": self.error or None,
            "stats": figures | {"seconds": round(self.seconds, 3)},
        }


async def edit_files(server: Server, session: Session, params: EditFilesParams) -> dict[str, Any]:
    """Edit several files: the handler of draftline/editFiles.

    Raises a protocol error if nothing can be edited, and RequestCancelled if the request is
    cancelled or a newer one takes its place.
    """
    if not params.instruction.strip():
        raise failed("the instruction is empty: say what should change")
    if not params.files:
        raise failed("no files: choose some")
    uris = dict.fromkeys(params.files)
    if len(uris) > MAX_FILES:
        raise failed(f"{len(uris)} files: choose at most {MAX_FILES} at a time")
    await session.configured()
    files = await _read(session.documents, [*uris])
    progress = Progress(server, params.workDoneToken, params.partialResultToken)
    progress.begin(f"Editing {len(files)} files", lambda: session.cancel(SLOT))
    message = None
    try:
        together = await _edit_all(server, session, params.instruction, files, progress)
    except Superseded as reason:
        raise cancelled(str(reason)) from None
    except (NotReady, EditRefused) as reason:
        message = str(reason)
        raise failed(reason) from None
    finally:
        progress.end(message)
    versions = await _unchanged(session.documents, files)
    if together and (errors := [file.error for file in files if file.error]):
        raise failed(errors[0])
    edit = changed_files(
        server,
        [
            FileChanges(
                file.uri, versions[file.uri], _text_edits(server, file),
                file.label(params.instruction),
            )
            for file in files
            if file.changed
        ],
    )  # fmt: skip
    return {"edit": edit, "files": [file.answer() for file in files]}


# -- reading -----------------------------------------------------------------------------------


async def _read(documents: OpenDocuments, uris: list[str]) -> list[FileEdit]:
    """Read the files, each once: their texts, or why they cannot be edited."""
    files: dict[str, FileEdit] = {}
    for uri in uris:
        file = FileEdit(uri, path_of(uri) or "")
        file.uri = _open_uri(documents, file)
        if file.path and file.uri not in documents:
            await asyncio.to_thread(_read_file, file)
        elif file.uri in documents:
            file.old = documents.get(file.uri).text.text
        else:
            file.error = f"{uri}: neither open nor a file on this machine: open it first"
        files.setdefault(file.path or uri, file)
    return [*files.values()]


def _open_uri(documents: OpenDocuments, file: FileEdit) -> str:
    """Find the URI under which a file is open, which clients may write in several ways."""
    if file.uri in documents or not file.path:
        return file.uri
    return next((document.uri for document in documents if document.path == file.path), file.uri)


def _read_file(file: FileEdit) -> None:
    try:
        file.old = read_text(Path(file.path)).removeprefix(BOM)  # as editors have it
    except FileError as error:
        file.error = str(error)


async def _unchanged(documents: OpenDocuments, files: list[FileEdit]) -> dict[str, int | None]:
    """Find the version of each file whose text is still the one that was edited.

    It is None for files that are not open. Files whose text has changed get an error.
    """
    versions: dict[str, int | None] = {}
    for file in [edited for edited in files if edited.changed]:
        file.uri = _open_uri(documents, file)
        now = FileEdit(file.uri, file.path)
        if file.uri in documents:
            document = documents.get(file.uri)
            now.old, versions[file.uri] = document.text.text, document.version
        else:
            await asyncio.to_thread(_read_file, now)
            versions[file.uri] = None
        if now.error or now.old != file.old:
            file.error = now.error or f"{file.name}: the text changed meanwhile: ask again"
    return versions


# -- editing -----------------------------------------------------------------------------------


async def _edit_all(
    server: Server, session: Session, instruction: str, files: list[FileEdit], progress: Progress
) -> bool:
    """Edit the files that could be read.

    Returns whether all of them must change or none, as those of a rename. Raises EditRefused if
    none may.
    """
    readable = [file for file in files if not file.error]
    if session.settings.checks and (renames := rename_request.read(instruction)):
        began = perf_counter()
        try:
            done = await _renamed(session, renames, readable)
        except Doubtful as doubt:
            answers = (ANYWAY, CANCEL)
            kind = types.MessageType.Warning
            if await chosen_answer(server, kind, f"Draftline: {doubt}.", answers) != ANYWAY:
                raise
            done = await _renamed(session, renames, readable, anyway=True)
        if done:
            for file in readable:
                file.seconds = perf_counter() - began
            return True
    for number, file in enumerate(readable):
        progress.file(file.uri, number + 1, len(readable))
        began = perf_counter()
        try:
            await _edit(session, instruction, file, _Share(progress, file, number, len(readable)))
        except (EditRefused, RequestError, FileError) as reason:
            file.error = f"{file.name}: {reason}"
        file.seconds = perf_counter() - began
    return False


async def _renamed(
    session: Session, renames: list[RenameRequest], files: list[FileEdit], anyway: bool = False
) -> bool:
    """Make the renames by rule where the names are used; return whether they were made.

    Raises EditRefused, and Doubtful unless they are to be made `anyway`.
    """
    old = [each.old for each in renames]
    chosen = {file.path or file.uri for file in files}
    documents = [*session.documents]
    if session.shared_engine.loaded is not None:
        await session.index.open()
    texts, complete = await asyncio.to_thread(files_with, documents, indexed_paths(session), old)
    more, all_searched = await asyncio.to_thread(large_files_with, large_files(session), old)
    texts += [found for found in more if all(found.path != each.path for each in documents)]
    complete = complete and all_searched and session.workspace is not None
    others = {
        text.path or text.uri: text.text for text in texts if (text.path or text.uri) not in chosen
    }
    given = {file.path or file.uri: file.old for file in files}
    made = await asyncio.to_thread(rename_files, given, others, renames, anyway)
    if made is None:
        return False
    for file in files:
        done = made[file.path or file.uri]
        file.take(Outcome(done.text, rule=done.title, notes=done.notes))
        if not file.changed:
            file.note = file.note or f"`{old[0]}` is not in this file"
        elif not complete:
            unknown = f"not all files of the workspace were searched for `{old[0]}`"
            file.note = f"{file.note}; {unknown}" if file.note else unknown
    return True


class _TooLong(EditRefused):
    """An edit of more text than the model should edit at once."""


async def _edit(session: Session, instruction: str, file: FileEdit, share: _Share) -> None:
    """Edit one file, or the parts of it that the instruction names. Raises EditRefused."""
    is_open = file.uri in session.documents
    path = session.documents.get(file.uri).source_path if is_open else file.path
    request = Request("edit", file.old, path, instruction=instruction)

    async def ask(question: Ask) -> Done:
        await session.engine(SLOT)
        if file.uri in session.documents:
            await check_secret(session, session.documents.get(file.uri))
        if why := too_long(question.request, session.shared_engine.model):
            raise _TooLong(why)
        return await _ask(session, question, file, share)

    try:
        trial = session.trial(file.path)
        file.take(await hold(dialogue(request, session.settings.checks, trial), ask))
    except _TooLong as why:
        await _edit_parts(session, request, file, ask, str(why))
        return
    if not file.rule:
        file.note = "" if file.changed else why_unchanged(request)


async def _edit_parts(
    session: Session,
    request: Request,
    file: FileEdit,
    ask: Callable[[Ask], Awaitable[Done]],
    why: str,
) -> None:
    """Edit the parts of a file that the instruction names.

    `why`: the file is too long as a whole. Raises EditRefused.
    """
    wanted = wanted_names(request.instruction)
    names = [name for name in code_names(request.instruction) if name not in wanted]
    parts = await asyncio.to_thread(named_parts, request.path, file.old, names)
    if not parts:
        raise EditRefused(f"{why}: name the functions to change as code, such as `main()`")
    if len(parts) > MAX_PARTS:
        raise EditRefused(f"{why}, and {len(parts)} functions have the names: be more specific")
    text = file.old
    warnings: list[str] = []
    for part in reversed(parts):  # from the end, so that the places of the others stay
        one = replace(request, text=text, selection=part)
        outcome = await hold(model_dialogue(one, session.settings.checks), ask)
        text, warnings = outcome.text, [*outcome.warnings, *warnings]
    file.new, file.warnings = text, warnings
    file.note = "only the functions that have the names were edited" if file.changed else (
        why_unchanged(request)
    )  # fmt: skip


async def _ask(session: Session, question: Ask, file: FileEdit, share: _Share) -> Done:
    if question.first:
        share.restart()
    done = await session.ask(question.request, SLOT, share.step)
    if done.reason == "cancelled":
        raise cancelled("the edits were cancelled, or newer ones took their place")
    file.tokens += done.usage.completion_tokens
    file.requests += 1
    return done


class _Share:
    """One file's part of the progress."""

    def __init__(self, progress: Progress, file: FileEdit, number: int, of: int) -> None:
        self._progress, self._name = progress, file.name
        self._start, self._size = number / of, 1 / of
        self._chars, self._expected = 0, max(1, len(file.old))
        self._report(0.0)

    def step(self, step: Step) -> None:
        """Report that the model has read or written more."""
        self._chars += len(step.text)
        self._progress.text(step.text)
        if step.prefill:
            self._report(PREFILL_SHARE * step.prefill[0] / step.prefill[1])
        else:
            written = min(1.0, self._chars / self._expected)
            self._report(PREFILL_SHARE + (1 - PREFILL_SHARE) * written)

    def restart(self) -> None:
        """Report that the file's answer is written again."""
        self._chars = 0
        self._progress.restart(f"{self._name}: asking again")

    def _report(self, share: float) -> None:
        self._progress.report(self._name, self._start + self._size * share)


# -- the answer --------------------------------------------------------------------------------


def _text_edits(server: Server, file: FileEdit) -> list[types.TextEdit]:
    """Return a file's smallest changes."""
    text, encoding = Text.of(file.old), server.documents.encoding

    def at(offset: int) -> types.Position:
        return types.Position(*text.position(offset, encoding))

    return [
        types.TextEdit(types.Range(at(change.start), at(change.stop)), change.text)
        for change in changes(file.old, file.new or "")
    ]
