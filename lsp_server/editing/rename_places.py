"""An instruction's rename, for a client that asks the editor's own language server for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from engine.editing import rename_request
from engine.editing.rename_places import rename_places
from lsp_server.editing.edit import current_document

if TYPE_CHECKING:
    from lsp_server.protocol.messages import RenamePlacesParams
    from lsp_server.protocol.protocol import Server
    from lsp_server.session import Session


async def find_rename_places(
    server: Server, session: Session, params: RenamePlacesParams
) -> dict[str, Any] | None:
    """Find the places of an instruction's rename: the handler of draftline/renamePlaces.

    None if the instruction asks for anything but one rename, or it is not certain what is meant.
    """
    await session.configured()
    document = current_document(server, params.textDocument)
    requests = rename_request.read(params.instruction)
    if len(requests) != 1 or not session.settings.checks:
        return None
    (request,) = requests
    text, path = document.text.text, document.source_path
    selection = server.documents.span(document, params.range) if params.range else None
    places = await asyncio.to_thread(rename_places, path, text, selection, request)
    if not places:
        return None
    spans = [server.documents.range(document, place.start, place.stop) for place in places]
    return {"old": request.old, "new": request.new, "places": spans}
