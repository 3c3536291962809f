"""A question to a client's user, with a few answers to choose from."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lsprotocol import types
from pygls.exceptions import JsonRpcException

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lsp_server.protocol.protocol import Server

log = logging.getLogger(__name__)


async def chosen_answer(
    server: Server, kind: types.MessageType, question: str, answers: Sequence[str]
) -> str | None:
    """Ask the client's user; return the chosen answer.

    None without one, and for a client that cannot ask.
    """
    actions = [types.MessageActionItem(title) for title in answers]
    params = types.ShowMessageRequestParams(kind, question, actions)
    try:
        chosen = await server.window_show_message_request_async(params)
    except JsonRpcException as error:
        log.warning("the client does not ask its user: code %s", error.code)
        return None
    return chosen.title if chosen else None
