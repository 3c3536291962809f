"""Reading the text around the cursor before anything is typed there.

A prompt's rows in the KV cache are reused between keys, so that the first completion at a new place
has little left to read. The engine does this while it has nothing else to do, and writes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from engine.records import RequestError
from index.workspace.file_filter import MAX_FILE_BYTES
from lsp_server.completion.inline import PromptLayout, completing, request_for

if TYPE_CHECKING:
    from engine.worker import Submitted
    from lsp_server.protocol.text_sync import OpenDocument
    from lsp_server.session import Session

    Place = tuple[OpenDocument, int]  # document, offset of the cursor

log = logging.getLogger(__name__)

PAUSE_S = 0.3  # seconds without a move of the cursor
MAX_CHARS = MAX_FILE_BYTES  # characters of a document; larger files are not indexed either


class ReadAhead:
    """Reads the prompt of a completion at the cursor, once for each line. Runs on the event loop.

    `layout` is that of the client's completions, whose prompts then begin alike. The session stops
    and resumes it.
    """

    def __init__(self, session: Session) -> None:
        self.layout = PromptLayout()
        self._session = session
        self._place: Place | None = None  # to be read
        self._latest: tuple[str, int, int] | None = None  # its URI, version and line, kept
        self._follows_cursor = False  # the client tells where the cursor is
        self._timer: asyncio.TimerHandle | None = None
        self._job: Submitted | None = None
        session.stop_reading, session.resume_reading = self.stop, self.resume

    def on_open(self, document: OpenDocument) -> None:
        """Read the start of a document, unless the client tells where its cursor is."""
        if not self._follows_cursor:
            self._move((document, 0))

    def on_cursor(self, document: OpenDocument, offset: int) -> None:
        """Read the place of the cursor, soon."""
        self._follows_cursor = True
        self._move((document, offset))

    def resume(self) -> None:
        """Read what waits for the model or the index."""
        if self._place is not None:
            self._wait()

    def stop(self) -> None:
        """Stop: something was typed or is asked for."""
        self._place = None
        if self._timer is not None:
            self._timer.cancel()
        if self._job is not None:
            self._job.cancel()

    def _move(self, place: Place) -> None:
        document, offset = place
        line = document.uri, document.version, document.text.line_of(offset)
        if line == self._latest:
            return
        self.stop()
        self._place, self._latest = place, line
        self._wait()

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(PAUSE_S, self._begin)

    def _begin(self) -> None:
        session = self._session
        if self._place is None or completing(session).local is None or session.is_starting():
            return  # `resume` follows
        session.spawn(self._read(self._place))

    async def _read(self, place: Place) -> None:
        """Let the engine read the prompt of a completion at a place, if it has nothing to do."""
        session, (document, offset) = self._session, place
        await session.configured()
        is_public = await self._is_public(document)
        if self._place is not place:
            return  # it was stopped, or the cursor has moved
        self._place = None
        engine = completing(session).local
        if not is_public or engine is None or session.is_busy or not session.is_current(document):
            return
        try:
            self._job = engine.read_ahead(
                request_for(session, engine, document, offset, self.layout)
            )
        except (RequestError, RuntimeError) as reason:  # RuntimeError: the engine is closed
            log.debug("nothing is read ahead: %s", reason)

    async def _is_public(self, document: OpenDocument) -> bool:
        """Return whether completions are on in a document that may be indexed."""
        session, text = self._session, document.text.text
        if session.disabled_reason(document, "ghostText") or len(text) > MAX_CHARS:
            return False
        path = document.path or document.uri
        return await asyncio.to_thread(session.index.why_private, path, text) is None
