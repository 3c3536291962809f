"""One client: its settings, its index, what it is waiting for, and what is told about that.

Everything here runs on the event loop. What an answer is lives in the features; messages are read
and written by `lsp_server.server`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import asdict
from time import monotonic
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from engine.aio import follow
from engine.records import Done, Request, Step
from lsp_server.completion.completion_cache import CompletionCache
from lsp_server.completion.in_flight import CompletionInFlight
from lsp_server.next_edit.edit_history import EditHistory
from lsp_server.next_edit.predict import NextEditPredictor
from lsp_server.protocol.positions import Text
from lsp_server.protocol.text_sync import Document, Documents
from lsp_server.settings import Settings, parse
from lsp_server.shared_engine import NotReady, SharedEngine, Superseded
from lsp_server.workspace_index import Indexing

if TYPE_CHECKING:
    from engine.engine import Engine
    from engine.worker import Job
    from index.workspace.workspace import Workspace

log = logging.getLogger(__name__)

FADE = 0.97  # of what is known of tokens a second, with each pass
UNDO = 0.5  # s in which a change may be undone before an edit of the text is cancelled for it
Tell = Callable[[str, Any], None]  # a notification: method, params
Change = types.TextDocumentContentChangeEvent
Slot = tuple[str, str]  # (what for, URI): a newer request takes the older one's place


class Session:
    """State of one client. `tell` sends it a notification."""

    def __init__(
        self, shared_engine: SharedEngine, documents: Documents, tell: Tell, name: str
    ) -> None:
        self.shared_engine, self.documents, self.tell, self.name = (
            shared_engine,
            documents,
            tell,
            name,
        )
        self.settings = Settings()
        self.enabled = True
        self.index = Indexing(shared_engine, documents, self.spawn, self.tell_status)
        self.edit_history = EditHistory()
        self.shown = CompletionCache()
        self.why = "nothing was asked for yet"
        self.writing: dict[str, CompletionInFlight] = {}  # completions under way, by URI
        self.next_edits = NextEditPredictor()
        self.wants_status = self.has_instruction_box = self.shows_next_inline = False
        self._lately = (0.0, 0.0)  # tokens written and seconds that took, older ones fading
        # Answers cancelled, tokens written and accepted, passes; s of reading, writing, and wasted
        # on cancelled answers.
        self.totals: defaultdict[str, float] = defaultdict(float)
        self._jobs: dict[Job, Slot] = {}
        self._waiting: dict[asyncio.Task[Engine], Slot] = {}  # requests that wait for the model
        self._configured = asyncio.Event()
        self._seen: dict[str, Text] = {}  # what `edit_history` knows of each buffer
        self._tasks: set[asyncio.Task[None]] = set()
        self._warned: list[str] = []  # of the latest settings
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def begin(self) -> None:
        """The client said hello. On the event loop."""
        self._loop = asyncio.get_running_loop()
        self.shared_engine.clients += 1
        self.shared_engine.listeners.append(self._on_engine_changed)

    # -- settings and model ----------------------------------------------------------------

    def configure(self, *given: Any) -> list[str]:
        """Take settings over, the later ones first; warnings that were not told last time, one a
        wrong key or a model that cannot be had."""
        warnings: list[str] = []
        for values in given:
            self.settings, more = parse(values, self.settings)
            warnings += more
        if refused := self.shared_engine.load(self.settings.model, self.settings.device):
            warnings.append(refused)
        self.index.configure(gitignore=self.settings.respectGitignore)
        self._configured.set()
        new = [one for one in dict.fromkeys(warnings) if one not in self._warned]
        self._warned = warnings
        return new

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it beside everything else."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._spawned)

    def _spawned(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.warning("%s: %s", type(error).__name__, error)

    async def configured(self) -> None:
        """Wait until the client's settings are known."""
        await self._configured.wait()

    async def engine(self, slot: Slot) -> Engine:
        """The engine, once the settings are known and the model is loaded. Raises NotReady if it
        cannot be loaded, and Superseded if the slot is cancelled or used by a newer request."""
        if self._configured.is_set() and self.shared_engine.loaded is not None:
            return self.shared_engine.loaded
        for older in [task for task, own in self._waiting.items() if own == slot]:
            older.cancel()

        async def wait() -> Engine:
            await self.configured()
            return await self.shared_engine.ready()

        waiting = asyncio.get_running_loop().create_task(wait())
        self._waiting[waiting] = slot
        try:
            return await waiting
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task and task.cancelling():
                raise
            reason = "a newer request took its place, or it was cancelled"
            raise Superseded(reason) from None
        finally:
            del self._waiting[waiting]

    @property
    def workspace(self) -> Workspace | None:
        """The index, where it is one of the tokens of the model in use."""
        return self.index.workspace

    def off(self, document: Document) -> str | None:
        """Why nothing is to be offered in a document; None where something is."""
        if not self.enabled:
            return "draftline is turned off: draftline.toggle turns it on"
        return self.settings.why_not(document.language, document.path)

    def is_current(self, document: Document) -> bool:
        """Whether a document is open and has not changed since it was obtained."""
        return document.uri in self.documents and self.documents.get(document.uri) is document

    def is_starting(self) -> bool:
        """Whether model or index are still being loaded."""
        return self.shared_engine.state == "loading" or self.index.is_busy()

    def _on_engine_changed(self) -> None:
        """The model's state changed; from any thread."""

        def changed() -> None:
            self.tell_status()
            if self.shared_engine.state == "error" and not self.wants_status and not self._closed:
                kind, message = types.MessageType.Error, f"Draftline: {self.shared_engine.message}"
                self.tell("window/showMessage", types.ShowMessageParams(kind, message))
            if self.shared_engine.engine is not None:
                self.spawn(self.index.open())

        if self._loop and not self._closed:
            try:
                self._loop.call_soon_threadsafe(changed)
            except RuntimeError as error:  # the loop is closed: the client is gone
                log.debug("%s", error)

    def touch(self, document: Document) -> None:
        """A buffer is open or changed: soon it is indexed as it is."""
        self._seen[document.uri] = document.text
        self.index.touch(document)

    def changed(self, document: Document, changes: Sequence[Change]) -> None:
        """A buffer was changed; what exactly tells of the next edit."""
        before, now = self._seen[document.uri], monotonic()
        for change in changes:
            if isinstance(change, types.TextDocumentContentChangePartial):
                start, stop = self.documents.span_in(before, change.range)
            else:
                start, stop = 0, len(before.text)
            self.edit_history.record(document.uri, before.text, start, stop, change.text, now)
            before = before.change(start, stop, change.text) if len(changes) > 1 else before
        if writing := self.writing.get(document.uri):
            writing.on_document_change(document.text.text)
        if ("edit", document.uri) in self._jobs.values():
            asyncio.get_running_loop().call_later(UNDO, self._moved_on, document.uri)
        self.touch(document)

    def _moved_on(self, uri: str) -> None:
        """Cancel the edits of a text that is another by now: their answers would be refused."""
        now = self.documents.get(uri).text.text if uri in self.documents else None
        for job, slot in self._jobs.items():
            if slot == ("edit", uri) and job.request.text != now:
                job.cancel()

    def close_buffer(self, uri: str) -> None:
        """A buffer was closed: what the disk says counts again."""
        self._seen.pop(uri, None)
        self.edit_history.forget(uri)
        for each in ("edit", "complete", "ask"):
            self.cancel((each, uri))
        self.index.close_buffer(uri)

    # -- asking the model ----------------------------------------------------------------------

    async def ask(
        self,
        request: Request,
        slot: Slot,
        on_step: Callable[[Step], bool | None] = lambda step: None,
        seconds: float | None = None,
    ) -> Done:
        """Waits for the model, then: how it ended: "stop" also where `on_step` said True, "length"
        also after `seconds`. What asked before for the same slot is cancelled. NotReady where no
        model can be loaded; RequestError where the request cannot be answered."""
        try:
            engine = await self.engine(slot)
        except Superseded:
            return Done("cancelled")
        self.cancel(slot)
        try:
            job = engine.submit(request, self.settings.speculation, self.workspace, self.name)
        except RuntimeError as error:  # it was closed since
            raise NotReady(f"another model is being loaded ({error})") from error
        self._jobs[job] = slot
        self.tell_status()
        done = Done("length")  # where the time is over
        spent, last = 0.0, monotonic()
        try:
            async with asyncio.timeout(seconds), aclosing(follow(job)) as events:
                async for event in events:
                    if isinstance(event, Done):
                        done = event
                        continue
                    spent, last = spent + event.seconds, monotonic()
                    self._count(event)
                    if on_step(event):
                        done = Done("stop")
                        break
        except TimeoutError:
            log.debug("out of time")
        except asyncio.CancelledError:
            done = Done("cancelled")
            raise
        finally:
            del self._jobs[job]
            if done.reason == "cancelled":
                self.totals["cancelled"] += 1
                self.totals["wasted"] += spent and spent + monotonic() - last  # the pass under way
            self.tell_status()
        return done

    def cancel(self, slot: Slot | None = None) -> int:
        """Cancel what is asked for a slot, or everything; how many that were."""
        running = self._jobs | self._waiting
        cancelled = [each for each, own in running.items() if slot in (None, own)]
        for each in cancelled:
            each.cancel()
        return len(cancelled)

    def _count(self, step: Step) -> None:
        """One pass. Tokens behind the end of an answer are counted as well."""
        total = self.totals
        if step.prefill:
            total["reading"] += step.seconds
            return
        tokens = step.accepted + 1
        total["tokens"] += tokens
        total["accepted"] += step.accepted
        total["passes"] += 1
        total["writing"] += step.seconds
        self._lately = (self._lately[0] * FADE + tokens, self._lately[1] * FADE + step.seconds)

    # -- what is told --------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Status, as in the contract."""
        state: str = self.shared_engine.state
        message = self.shared_engine.message
        if state == "ready":
            state = "busy" if self._jobs else "ready"
        if not self.enabled:
            state, message = "off", "turned off: draftline.toggle turns it on"
        engine, tokens = self.shared_engine.engine, self.totals["tokens"]
        written, seconds = self._lately
        return {
            "state": "loading" if state == "idle" else state,
            "message": message,
            "model": self.shared_engine.model or self.settings.model,
            "device": engine.info.device if engine else self.settings.device,
            "tokensPerSecond": round(written / seconds, 1) if seconds else None,
            "acceptedShare": round(self.totals["accepted"] / tokens, 3) if tokens else None,
            "files": len(self.workspace.documents) if self.workspace else None,
            "tokens": self.workspace.size if self.workspace else None,
        }

    def tell_status(self) -> None:
        """To the client, if it wants to know."""
        if self.wants_status and not self._closed:
            self.tell("draftline/status", self.status())

    def stats(self) -> dict[str, Any]:
        """Figures of this client's answers and index. Nothing of it leaves the machine."""
        engine = self.shared_engine.engine
        return {
            **self.status(),
            "answers": dict(self.totals),
            "completions": {**self.shown.counts, "acceptedCharacters": self.shown.accepted},
            "readingTokensPerSecond": round(engine.info.prefill_tokens_per_s, 1)
            if engine
            else None,
            "running": len(self._jobs),
            "index": asdict(self.workspace.stats()) if self.workspace else None,
        }

    async def close(self) -> None:
        """The client is gone: cancel its requests, then save its index without blocking the event
        loop, on which other clients wait."""
        if self._closed:
            return
        self._closed = True
        if self._loop:
            self.shared_engine.clients -= 1
            self.shared_engine.listeners.remove(self._on_engine_changed)
        self.cancel()
        if self.shared_engine.engine:
            self.shared_engine.engine.forget(client=self.name)
        await asyncio.to_thread(self.index.close)
