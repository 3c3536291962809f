"""What is at the cursor: the lines that an edit changes, and where code of an answer goes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from engine.editing.definition import definition_around
from engine.editing.edits import changes
from engine.editing.place_code import place_code
from lsp_server.editing.code_actions import block_around
from lsp_server.editing.edit import current_document
from lsp_server.editing.workspace_edit import changed_document

if TYPE_CHECKING:
    from lsp_server.protocol.messages import EditTargetParams, PlaceCodeParams
    from lsp_server.protocol.protocol import Server


async def edit_target(server: Server, params: EditTargetParams) -> dict[str, Any]:
    """Find the lines that an edit without a selection changes: draftline/editTarget.

    They are the definition around the cursor, or the block of lines where there is none.
    """
    document = current_document(server, params.textDocument)
    at, text = server.documents.offset(document, params.position), document.text
    found = await asyncio.to_thread(definition_around, document.source_path, text.text, at)
    return {"range": server.documents.range(document, *(found or block_around(text, at)))}


async def placed_code(server: Server, params: PlaceCodeParams) -> dict[str, Any]:
    """Put code of an answer where it belongs in a document: draftline/placeCode."""
    document = current_document(server, params.textDocument)
    text, span = document.text.text, server.documents.span(document, params.range)

    def run() -> list[Any]:
        return changes(text, place_code(document.source_path, text, span, params.code))

    found = await asyncio.to_thread(run)
    return {"edit": changed_document(server, document, found, "From the chat")}
