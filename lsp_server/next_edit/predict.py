"""Next-edit prediction: the first candidate whose new text is accepted.

What is certain is written by its rule. About the other candidates the model is asked, one after the
other; its answers are cached, so asking again costs nothing.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from engine.editing.edits import Change, EditRefused, apply, changes
from engine.records import RequestError
from lsp_server.next_edit.candidate import Candidate, rejection_reason
from lsp_server.next_edit.closed_files import closed_documents, is_unchanged
from lsp_server.next_edit.rules import changed_names, find_candidates
from lsp_server.shared_engine import NotReady

if TYPE_CHECKING:
    from engine.records import Done, Request
    from index.workspace.workspace import Workspace
    from lsp_server.next_edit.edit_history import RecentEdit
    from lsp_server.protocol.text_sync import OpenDocument, OpenDocuments

MAX_TRIED = 3  # candidates that the model is asked about for one request
CACHED_ANSWERS = 64
MODEL_SLOT = ("next", "model")  # requests to models made for next edits; a keystroke cancels them


Place = tuple[Candidate, "OpenDocument"]  # with the version that the offsets refer to


class Client(Protocol):
    """The part of a session that predictions need."""

    documents: OpenDocuments

    def recent_edits(self) -> tuple[list[RecentEdit], dict[str, str]]: ...

    def is_current(self, document: OpenDocument) -> bool: ...

    async def ask(self, request: Request, slot: tuple[str, str]) -> Done: ...


def source_paths(client: Client) -> dict[str, str]:
    """Map the URIs of the open documents to paths that tell their languages."""
    return {document.uri: document.source_path for document in client.documents}


@dataclass(frozen=True, slots=True)
class NextEdit:
    """New text for lines of a document, or the reason why there is none."""

    reason: str
    document: OpenDocument | None = None
    start: int = 0  # code points, where the lines start
    stop: int = 0
    new_lines: str = ""
    candidate: Candidate | None = None  # for an edit by rule

    def changes(self) -> list[Change]:
        """Find the smallest changes of the document that make the new lines."""
        assert self.document
        start = self.start
        found = changes(self.document.text.text[start : self.stop], self.new_lines)
        return [
            Change(candidate.start + start, candidate.stop + start, candidate.text)
            for candidate in found
        ]


class NextEditPredictor:
    """A predictor of the next edit of one client."""

    def __init__(self) -> None:
        # (instruction, old lines) -> new lines, None if they were rejected
        self._answers: OrderedDict[tuple[str, str], str | None] = OrderedDict()

    async def candidates(self, client: Client, uri: str, offset: int) -> list[Place]:
        """Find candidates for the next edit, best first.

        Does not ask the model; searches in a thread: the event loop never waits for it.
        """
        edits, texts = client.recent_edits()
        documents = {document.uri: document for document in client.documents}
        paths = source_paths(client)
        found = await asyncio.to_thread(find_candidates, edits, texts, uri, offset, paths)
        return [(candidate, documents[candidate.uri]) for candidate in found]

    async def elsewhere(
        self, client: Client, workspace: Workspace, uri: str, offset: int
    ) -> list[Place]:
        """Find candidates in indexed files that are not open.

        Reads and compares in a thread, too.
        """
        (edits, texts), documents = client.recent_edits(), [*client.documents]
        paths = source_paths(client)

        def find() -> list[Place]:
            changed = changed_names(edits, texts, uri, offset, paths)
            closed = closed_documents(changed, workspace, documents) if changed else {}
            if not closed:
                return []
            homes = {home: texts[home] for _, home in changed}
            of_closed = {uri: document.text.text for uri, document in closed.items()}
            found = find_candidates(edits, homes | of_closed, uri, offset, paths)
            return [
                (candidate, closed[candidate.uri]) for candidate in found if candidate.uri in closed
            ]

        return await asyncio.to_thread(find)

    async def predict(
        self,
        client: Client,
        places: list[Place],
        closed: Collection[str] = (),
        sure: bool = False,
    ) -> NextEdit:
        """Predict from the first of these candidates for which the model has an acceptable text.

        `closed`: the URIs of the files that are not open. Candidates of a document that has changed
        since, or changes while the model is asked, are dropped. `sure`: the model is not asked.
        """
        reason = "no next edit: nothing that was changed lately asks for another change"

        async def is_current(document: OpenDocument) -> bool:
            if document.uri not in closed:
                return client.is_current(document)
            is_open = any(other.path == document.path for other in client.documents)
            return not is_open and await asyncio.to_thread(is_unchanged, document)

        if sure:
            places = [(one, document) for one, document in places if not one.instruction]
        for candidate, document in places[:MAX_TRIED]:
            if not await is_current(document):
                continue
            span = candidate.start, candidate.stop
            if not candidate.instruction:
                return NextEdit(candidate.reason, document, *span, candidate.expected, candidate)
            key = (candidate.instruction, document.text.text[candidate.start : candidate.stop])
            if key not in self._answers:
                try:
                    new, rejected = await self._ask(client, document, candidate)
                except (NotReady, RequestError) as error:
                    return NextEdit(str(error))
                if rejected == "cancelled":
                    return NextEdit("cancelled, or a newer request took its place")
                self._remember(key, None if rejected else new)
                reason = f"{candidate.reason}: {rejected}" if rejected else reason
            answer = self._answers.get(key)
            if answer is not None and await is_current(document):
                return NextEdit(candidate.reason, document, *span, answer, candidate)
        return NextEdit(reason)

    def _remember(self, key: tuple[str, str], answer: str | None) -> None:
        self._answers[key] = answer
        while len(self._answers) > CACHED_ANSWERS:
            self._answers.popitem(last=False)

    async def _ask(
        self, client: Client, document: OpenDocument, candidate: Candidate
    ) -> tuple[str, str]:
        """Ask for the model's new text for a candidate; also say why it is rejected, if it is."""
        text = document.text.text
        request = candidate.request(text, document.source_path, document.version)
        done = await client.ask(request, ("next", ""))
        if done.reason == "cancelled":
            return "", "cancelled"
        try:
            whole = await asyncio.to_thread(apply, request, done)
        except EditRefused as refused:
            return "", str(refused)
        new = whole[candidate.start : len(whole) - (len(text) - candidate.stop)]
        rejected = rejection_reason(candidate, text[candidate.start : candidate.stop], new)
        return new, rejected or ""
