"""The question to a client's user before a model is downloaded.

It says which model, its size, and the space on the disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

from lsp_server.protocol.question import chosen_answer

if TYPE_CHECKING:
    from engine.weights.fetch.download import Download
    from lsp_server.protocol.protocol import Server
    from lsp_server.shared_engine import SharedEngine

NOT_NOW = "Not Now"


async def ask_to_download(server: Server, engine: SharedEngine, client: str) -> None:
    """Ask this client's user, if there is something to ask and nobody else is being asked."""
    offers = engine.take_question(client)
    if not offers:
        return
    titles_of = {f"Download {download.model}": download for download in offers}
    titles = [*titles_of, NOT_NOW]
    chosen = await chosen_answer(server, types.MessageType.Info, question(offers), titles)
    offer = titles_of.get(chosen) if chosen else None
    engine.answer(offer.model if offer else None)


def question(offers: list[Download]) -> str:
    """Write the question as one paragraph."""
    free = f"{offers[0].free / 1e9:.0f} GB are free on that disk."
    if len(offers) == 1:
        model, about = offers[0].model, offers[0].about
        return f"Draftline needs {model} on this machine, a download of {about}. {free}"
    larger, *others = sorted(offers, key=lambda one: -one.size)
    rest = ", ".join(
        f"or the smaller and faster {download.model} ({download.about})" for download in others
    )
    return (
        f"Draftline needs a language model on this machine, downloaded once: {larger.model} "
        f"({larger.about}), which answers better, {rest}. {free}"
    )
