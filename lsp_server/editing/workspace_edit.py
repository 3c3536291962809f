"""Changes of files as a WorkspaceEdit that a client supports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from lsprotocol import types

if TYPE_CHECKING:
    from engine.editing.edits import Change
    from lsp_server.protocol.protocol import Server
    from lsp_server.protocol.text_sync import OpenDocument


class FileChanges(NamedTuple):
    """The changes of one file; `label` is shown as their name."""

    uri: str
    version: int | None  # None for a file that is not open
    edits: list[types.TextEdit]
    label: str


def changed_document(
    server: Server, document: OpenDocument, text_changes: Sequence[Change], label: str
) -> types.WorkspaceEdit | None:
    """Write changes of an open document; None without changes."""
    edits = [
        types.TextEdit(server.documents.range(document, change.start, change.stop), change.text)
        for change in text_changes
    ]
    return changed_files(server, [FileChanges(document.uri, document.version, edits, label)])


def changed_files(server: Server, files: Sequence[FileChanges]) -> types.WorkspaceEdit | None:
    """Write changes of several files; None without any."""
    files = [file for file in files if file.edits]
    if not files:
        return None
    workspace = server.client_capabilities.workspace
    able = workspace.workspace_edit if workspace else None
    if not able or not able.document_changes:
        return types.WorkspaceEdit(changes={file.uri: file.edits for file in files})
    notes: dict[str, types.ChangeAnnotation] = {}
    edits: list[types.TextDocumentEdit] = []
    for number, file in enumerate(files):
        name = f"draftline-{number}"
        marked: list[types.TextEdit | types.AnnotatedTextEdit | types.SnippetTextEdit] = [
            types.AnnotatedTextEdit(annotation_id=name, range=each.range, new_text=each.new_text)
            if able.change_annotation_support
            else each
            for each in file.edits
        ]
        identifier = types.OptionalVersionedTextDocumentIdentifier(file.uri, file.version)
        edits.append(types.TextDocumentEdit(text_document=identifier, edits=marked))
        notes[name] = types.ChangeAnnotation(label=file.label, needs_confirmation=True)
    return types.WorkspaceEdit(
        document_changes=[*edits],
        change_annotations=notes if able.change_annotation_support else None,
    )
