"""The language server of one client: maps each message to a feature and returns its answer.

`create` makes one `Server` per client; they share the engine. The logic is in the features.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from engine.weights.model_list import Machine, Row, all_rows
from lsp_server.chat import explain
from lsp_server.chat.chat import chat
from lsp_server.chat.commit_message import commit_message
from lsp_server.completion.completion_cache import Completion
from lsp_server.completion.inline import PromptLayout, complete, names_to_import
from lsp_server.completion.read_ahead import ReadAhead
from lsp_server.editing import code_actions
from lsp_server.editing.at_cursor import edit_target, placed_code
from lsp_server.editing.edit import (
    EditResult,
    current_document,
    edit,
    not_applied,
)
from lsp_server.editing.edit_files import edit_files
from lsp_server.editing.find_files import find_files
from lsp_server.editing.rename_places import find_rename_places
from lsp_server.editing.try_edit import try_edit
from lsp_server.editing.workspace_edit import changed_document
from lsp_server.figures import stats_of, status_of
from lsp_server.initialize import start
from lsp_server.next_edit.by_model import ModelPredictor
from lsp_server.next_edit.candidate import Candidate
from lsp_server.next_edit.predict import NextEdit, Place
from lsp_server.protocol.messages import (
    AskParams,
    ChatParams,
    CommitMessageParams,
    CursorParams,
    EditFilesParams,
    EditParams,
    EditTargetParams,
    FindFilesParams,
    NextEditParams,
    PlaceCodeParams,
    RenamePlacesParams,
    ShownParams,
    TryEditParams,
    failed,
)
from lsp_server.protocol.protocol import Server
from lsp_server.protocol.text_sync import OpenDocument, path_of
from lsp_server.session import Session
from lsp_server.shared_engine import NotReady, SharedEngine
from lsp_server.sharing.engine_methods import add_engine_methods

log = logging.getLogger(__name__)

TRIGGER_CHARACTERS = [".", "(", " ", "\n", ":", "=", "{", ","]
NEXT_EDIT_RADIUS_LINES = 40  # lines on either side; inline completion shows next edits in them


def create(shared_engine: SharedEngine, notice: str = "") -> Server:
    """Create the server of a client that has just connected; `notice` is shown to its user.

    Call it on the event loop.
    """
    server = Server()
    session = Session(
        shared_engine, server.documents, server.protocol.notify, f"client {id(server)}"
    )
    server.on_close.append(session.close)
    start(server, session, notice)
    add_engine_methods(server, shared_engine, session.name)
    read_ahead = ReadAhead(session)
    _documents(server, session, read_ahead)
    _completions(server, session, read_ahead.layout)
    _edits(server, session)
    _questions(server, session)
    _commands(server, session)
    return server


def _documents(server: Server, session: Session, read_ahead: ReadAhead) -> None:
    feature = server.feature

    @feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: types.DidOpenTextDocumentParams) -> None:
        document = server.documents.get(params.text_document.uri)
        session.on_open(document)
        read_ahead.on_open(document)

    @feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def changed(params: types.DidChangeTextDocumentParams) -> None:
        session.on_change(server.documents.get(params.text_document.uri), params.content_changes)

    @feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: types.DidCloseTextDocumentParams) -> None:
        session.on_close(params.text_document.uri)

    @feature(types.TEXT_DOCUMENT_DID_SAVE)
    def saved(params: types.DidSaveTextDocumentParams) -> None:
        pass  # the open document is indexed, not the file

    @feature("draftline/cursor")
    def moved(params: CursorParams) -> None:
        uri = params.textDocument.uri
        if uri in server.documents:
            document = server.documents.get(uri)
            read_ahead.on_cursor(document, server.documents.offset(document, params.position))

    @feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def watched(params: types.DidChangeWatchedFilesParams) -> None:
        session.index.refresh([path for change in params.changes if (path := path_of(change.uri))])


def _completions(server: Server, session: Session, layout: PromptLayout) -> None:
    feature = server.feature

    @feature(types.TEXT_DOCUMENT_INLINE_COMPLETION, types.InlineCompletionOptions())
    async def inline(params: types.InlineCompletionParams) -> types.InlineCompletionList:
        document = server.documents.get(params.text_document.uri)
        offset = server.documents.offset(document, params.position)
        invoked = params.context.trigger_kind == types.InlineCompletionTriggerKind.Invoked
        await session.configured()
        shows_next = session.shows_next_inline and not session.disabled_reason(document, "nextEdit")
        if shows_next and (found := await _next_edit_nearby(document, offset, params)):
            return types.InlineCompletionList([found])
        if not invoked and (why := session.disabled_reason(document, "ghostText")):
            session.reason = why
            return types.InlineCompletionList([])
        made = await complete(session, document, offset, invoked, layout)
        here = server.documents.position(document, offset)
        return types.InlineCompletionList([_inline(here, item) for item in made])

    async def _next_edit_nearby(
        document: OpenDocument, offset: int, params: types.InlineCompletionParams
    ) -> types.InlineCompletionItem | None:
        """Find a next edit close to the cursor, for clients that show it as a completion."""
        line = params.position.line
        places = [
            (one, where)
            for one, where in await session.next_edits.candidates(session, document.uri, offset)
            if where is document
            and abs(document.text.line_of(one.start) - line) <= NEXT_EDIT_RADIUS_LINES
        ]
        sure = session.settings.eager.sure
        found = await session.next_edits.predict(session, places[:1], sure=sure)
        if found.document is not document:
            return None
        start, stop = found.start, found.stop
        typed = document.text.text[start:offset]
        if start <= offset <= stop and not found.new_lines.startswith(typed):
            return None  # clients draw an inline completion from the cursor on only
        session.reason = f"offered: {found.reason}"
        where = server.documents.range(document, start, stop)
        return types.InlineCompletionItem(insert_text=found.new_lines, range=where)

    @feature(
        types.TEXT_DOCUMENT_COMPLETION,
        types.CompletionOptions(trigger_characters=TRIGGER_CHARACTERS),
    )
    async def completion(params: types.CompletionParams) -> types.CompletionList:
        document = server.documents.get(params.text_document.uri)
        offset = server.documents.offset(document, params.position)
        await session.configured()
        place, names = await names_to_import(session, document, offset)
        made = []
        if session.shared_engine.is_pending:  # a popup waits for all of its providers
            session.reason = "the model is being loaded"
        else:
            made = await complete(session, document, offset, False, layout)
        here, typed = server.documents.position(document, offset), place.typed if place else ""
        word = types.Range(server.documents.position(document, offset - len(typed)), here)
        items = [_name_item(name, number, word) for number, name in enumerate(names)]
        items += [
            _item(server, document, offset, here, item)
            for item in made
            if typed + item.text not in names
        ]
        return types.CompletionList(is_incomplete=True, items=items)

    @feature("textDocument/didShowCompletion")
    def shown(params: ShownParams) -> None:
        session.completions.record_state(_id(params.item), "shown")

    @feature("textDocument/didPartiallyAcceptCompletion")
    def partly(params: ShownParams) -> None:
        session.completions.record_state(_id(params.item), "partly", params.acceptedLength)

    @server.command("draftline.accepted")
    def accepted(id: str) -> None:
        session.completions.record_state(id, "accepted")


def _accept(one: Completion) -> types.Command:
    return types.Command(title="Accepted", command="draftline.accepted", arguments=[one.id])


def _inline(position: types.Position, one: Completion) -> types.InlineCompletionItem:
    where = types.Range(position, position)
    return types.InlineCompletionItem(insert_text=one.text, range=where, command=_accept(one))


def _item(
    server: Server, document: OpenDocument, offset: int, position: types.Position, one: Completion
) -> types.CompletionItem:
    """Make an item that passes the editor's filter: it starts with the word at the cursor."""
    start, text = offset, document.text.text
    while start and (text[start - 1].isalnum() or text[start - 1] == "_"):
        start -= 1
    word = text[start:offset]
    where = types.Range(server.documents.position(document, start), position)
    return types.CompletionItem(
        label=(word + one.text.strip("\n").split("\n")[0]).strip() or one.text.strip(),
        kind=types.CompletionItemKind.Text,
        detail="Draftline",
        documentation=word + one.text,
        filter_text=word + one.text.strip(),
        sort_text="\0",
        text_edit=types.TextEdit(where, word + one.text),
        insert_text_mode=types.InsertTextMode.AsIs,
        command=_accept(one),
    )


def _name_item(name: str, number: int, word: types.Range) -> types.CompletionItem:
    """Make the item of a name that an import may bring, the first of which is listed first."""
    return types.CompletionItem(
        label=name,
        kind=types.CompletionItemKind.Reference,
        sort_text=f"\0\0{number:03}",
        text_edit=types.TextEdit(word, name),
    )


def _id(item: types.InlineCompletionItem) -> str:
    arguments = item.command.arguments if item.command else None
    return str(arguments[0]) if arguments else ""


def _edits(server: Server, session: Session) -> None:
    feature, documents = server.feature, server.documents
    predictor = ModelPredictor(session.name)

    async def run(params: EditParams) -> EditResult:
        how = code_actions.rewrite if params.keepDefinitions else edit
        return await how(server, session, params)

    @feature("draftline/edit")
    async def by_instruction(params: EditParams) -> dict[str, Any]:
        result = await run(params)
        return result.answer(changed(result, params))

    def changed(result: EditResult, params: EditParams) -> types.WorkspaceEdit | None:
        label = result.label(params.instruction[:80])
        return changed_document(server, result.document, result.changes, label)

    @feature("draftline/renamePlaces")
    async def places(params: RenamePlacesParams) -> dict[str, Any] | None:
        return await find_rename_places(server, session, params)

    @feature("draftline/editTarget")
    async def target(params: EditTargetParams) -> dict[str, Any]:
        return await edit_target(server, params)

    @feature("draftline/placeCode")
    async def placed(params: PlaceCodeParams) -> dict[str, Any]:
        return await placed_code(server, params)

    @feature("draftline/tryEdit")
    async def tried(params: TryEditParams) -> dict[str, Any]:
        return await try_edit(server, session, params)

    @feature("draftline/findFiles")
    async def found_files(params: FindFilesParams) -> dict[str, Any]:
        return await find_files(session, params)

    @feature("draftline/editFiles")
    async def several(params: EditFilesParams) -> dict[str, Any]:
        return await edit_files(server, session, params)

    @server.command("draftline.edit")
    async def command(params: EditParams) -> dict[str, Any]:
        result = await run(params)
        made, applied = changed(result, params), False
        if made is not None and (why := not_applied(server, result)):
            warned = types.ShowMessageParams(types.MessageType.Warning, f"Draftline: {why}")
            server.window_show_message(warned)
        elif made is not None:
            request = types.ApplyWorkspaceEditParams(edit=made, label="Draftline")
            try:
                applied = (await server.workspace_apply_edit_async(request)).applied
            except JsonRpcException as error:  # the edit is in the answer, so it is not lost
                log.warning("the client did not apply an edit: code %s", error.code)
        return {"applied": applied, **result.answer(made)}

    @feature("draftline/nextEdit")
    async def next_edit(params: NextEditParams) -> dict[str, Any]:
        document = current_document(server, params.textDocument)
        offset = server.documents.offset(document, params.position)
        await session.configured()
        if why := session.disabled_reason(document, "nextEdit"):
            return {"edit": None, "location": None, "reason": why, "others": []}
        by_model = await predictor.predict(session, document, offset)
        if by_model and by_model.document:
            return next_edit_answer(by_model, [])
        next_edits, more = session.next_edits, list[Place]()
        places = await next_edits.candidates(session, document.uri, offset)
        if session.workspace and all(one.uri != document.uri for one, _ in places):
            more = await next_edits.elsewhere(session, session.workspace, document.uri, offset)
        places = [(one, where) for one, where in places if session.is_current(where)] + more
        closed = {where.uri for _, where in more}
        found = await next_edits.predict(session, places, closed, session.settings.eager.sure)
        listed = [other(one, where) for one, where in places if one is not found.candidate]
        if found.document is None:
            why = by_model.reason if by_model else found.reason
            return {"edit": None, "location": None, "reason": why, "others": []}
        answer = next_edit_answer(found, listed)
        if found.document.uri in closed:
            without_version(answer["edit"])
        return answer

    def next_edit_answer(found: NextEdit, others: list[dict[str, Any]]) -> dict[str, Any]:
        assert found.document
        where = documents.range(found.document, found.start, found.stop)
        made = changed_document(server, found.document, found.changes(), found.reason)
        location = {"uri": found.document.uri, "range": where}
        return {"edit": made, "location": location, "reason": found.reason, "others": others}

    def other(candidate: Candidate, document: OpenDocument) -> dict[str, Any]:
        """Describe a further place of a next edit, for a list."""
        where = documents.range(document, candidate.start, candidate.stop)
        return {"uri": document.uri, "range": where, "label": candidate.reason}

    def without_version(made: types.WorkspaceEdit | None) -> None:
        """Drop the version of a file that is not open, in the edit of one document."""
        for change in (made and made.document_changes) or ():
            if isinstance(change, types.TextDocumentEdit):
                change.text_document.version = None

    kinds = [code_actions.REWRITE, code_actions.FIX, code_actions.EXPLAIN]

    @feature(
        types.TEXT_DOCUMENT_CODE_ACTION,
        types.CodeActionOptions(code_action_kinds=kinds, resolve_provider=True),
    )
    def listed(params: types.CodeActionParams) -> list[types.CodeAction]:
        document = server.documents.get(params.text_document.uri)
        return code_actions.actions(server, session, document, params)

    @feature(types.CODE_ACTION_RESOLVE)
    async def resolved(params: types.CodeAction) -> types.CodeAction:
        return await code_actions.resolve(server, session, params)


def _questions(server: Server, session: Session) -> None:
    @server.feature("draftline/ask")
    async def request(params: AskParams) -> dict[str, Any]:
        if not params.question.strip():
            raise failed("the question is empty: say what you want to know")
        return await explain.ask(server, session, params, "Asking about")

    @server.feature("draftline/explain")
    async def explained(params: AskParams) -> dict[str, Any]:
        return await explain.ask(server, session, params, "Explaining")

    @server.feature("draftline/chat")
    async def chatted(params: ChatParams) -> dict[str, Any]:
        return await chat(server, session, params)

    @server.feature("draftline/commitMessage")
    async def message(params: CommitMessageParams) -> dict[str, Any]:
        return await commit_message(server, session, params)


def _model(row: Row) -> dict[str, Any]:
    """Describe a model in the answer to draftline/models: what a client shows, and no paths."""
    return {
        "name": row.name,
        "default": row.default,
        "where": row.where,  # Draftline's cache, another program, or how to get it
        "bytes": row.bytes,  # on disk or, not yet there, to download
        "present": not row.download_bytes,
        "memoryBytes": row.memory_bytes,  # estimate
        "fits": row.fits_in_words,  # into memory: yes, not now, no
        "licence": row.licence,
        "tokensPerSecond": round(row.speed) or None,  # without drafts, predicted
    }


def _commands(server: Server, session: Session) -> None:
    command = server.command

    @command("draftline.status")
    def status() -> dict[str, Any]:
        return status_of(session)

    @command("draftline.stats")
    def stats() -> dict[str, Any]:
        return stats_of(session)

    @command("draftline.why")
    def why() -> dict[str, str]:
        return {"why": session.reason}

    @server.feature("draftline/models")
    async def models(params: Any) -> dict[str, Any]:
        rows, problems = await asyncio.to_thread(lambda: all_rows(Machine.this(measured=True)))
        return {"models": [_model(row) for row in rows], "problems": problems}

    @command("draftline.cancel")
    def cancel() -> dict[str, int]:
        return {"cancelled": session.cancel()}

    @command("draftline.toggle")
    def toggle() -> dict[str, bool]:
        session.enabled = not session.enabled
        session.send_status()
        return {"enabled": session.enabled}

    @command("draftline.download")
    def download(model: str) -> dict[str, str]:
        try:
            session.shared_engine.fetch(model)
        except ValueError as reason:
            raise failed(reason) from None
        return {"model": model}

    @command("draftline.reindex")
    async def reindex() -> dict[str, int]:
        try:
            await session.configured()
            await session.shared_engine.ready()
            return await session.index.reindex()
        except (NotReady, OSError) as reason:
            raise failed(reason) from None
