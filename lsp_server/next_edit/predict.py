"""The next edit: the places that rules name are put to the model one by one, until its new text of
one is good. What it said is remembered, so that asking again costs nothing."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.editing.edits import EditRefused, apply
from engine.records import RequestError
from lsp_server.next_edit import rules
from lsp_server.next_edit.rules import Place
from lsp_server.shared_engine import NotReady

if TYPE_CHECKING:
    from lsp_server.protocol.protocol import Server
    from lsp_server.protocol.text_sync import Document
    from lsp_server.session import Session

TRIES = 3  # places that the model is asked about
REMEMBERED = 64


@dataclass(frozen=True, slots=True)
class Offer:
    """New text for a place of a document, or the reason why there is none."""

    reason: str
    document: Document | None = None
    place: Place | None = None
    new: str = ""

    @property
    def text(self) -> str:
        """The document's whole new text."""
        assert self.document and self.place
        old = self.document.text.text
        return old[: self.place.start] + self.new + old[self.place.stop :]


class Offers:
    """Next edits of one client."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], str | None] = OrderedDict()  # None: no good

    def places(self, server: Server, session: Session, uri: str, offset: int) -> list[Place]:
        """Where the next edit is due, best first; asks no model."""
        texts = {document.uri: document.text.text for document in server.documents}
        return rules.places(session.recent.edits(), texts, uri, offset)

    async def find(self, server: Server, session: Session, places: list[Place]) -> Offer:
        """The first of these places for which the model has a good new text."""
        reason = "no next edit: nothing that was changed lately asks for another change"
        for place in places[:TRIES]:
            document = server.documents.get(place.uri)
            old = document.text.text[place.start : place.stop]
            key = (place.instruction, old)
            if key not in self._known:
                try:
                    new, why = await self._ask(session, document, place)
                except (NotReady, RequestError) as error:
                    return Offer(str(error))
                if why == "cancelled":
                    return Offer("cancelled, or a newer request took its place")
                self._known[key] = None if why else new
                reason = f"{place.reason}: {why}" if why else reason
                while len(self._known) > REMEMBERED:
                    self._known.popitem(last=False)
            known = self._known[key]
            now = server.documents.get(place.uri) if place.uri in server.documents else None
            if known is not None and now is document:
                return Offer(place.reason, document, place, known)
        return Offer(reason)

    async def _ask(self, session: Session, document: Document, place: Place) -> tuple[str, str]:
        """The model's new text of a place, and why it is no good, if it is not."""
        text = document.text.text
        path = document.path or document.uri
        request = rules.request(place, text, path, document.version)
        done = await session.ask(request, ("next", ""))
        if done.reason == "cancelled":
            return "", "cancelled"
        try:
            whole = apply(request, done)
        except EditRefused as refused:
            return "", str(refused)
        new = whole[place.start : len(whole) - (len(text) - place.stop)]
        return new, rules.accept(place, text[place.start : place.stop], new) or ""
