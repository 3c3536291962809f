"""The state of one client: settings, index, edit history and running requests.

Everything here runs on the event loop. `lsp_server.server` maps messages to it; the features are in
`lsp_server.completion`, `lsp_server.editing`, `lsp_server.next_edit` and `lsp_server.chat`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from lsprotocol import types

from engine.aio import Cancellation, follow
from engine.editing.running.trial import Trial, make_trial, parse_command
from engine.records import Done, Request, Step
from engine.worker import URGENCY
from lsp_server.completion.completion_cache import CompletionCache
from lsp_server.completion.in_flight import CompletionInFlight, DueCompletions
from lsp_server.editing.rebase import Rebase
from lsp_server.figures import Figures, status_of
from lsp_server.next_edit.edit_history import EditHistory, RecentEdit
from lsp_server.next_edit.predict import MODEL_SLOT, NextEditPredictor
from lsp_server.protocol.positions import Text
from lsp_server.protocol.text_sync import OpenDocument, OpenDocuments
from lsp_server.settings import Settings, parse
from lsp_server.shared_engine import NotReady, SharedEngine, Superseded
from lsp_server.sharing.second_model import SecondModel
from lsp_server.workspace_index import WorkspaceIndex

if TYPE_CHECKING:
    from engine.remote.any_engine import EditorEngine
    from engine.worker import Submitted
    from index.workspace.workspace import Workspace

log = logging.getLogger(__name__)

UNDO_GRACE_S = 0.5  # seconds; an edit survives a change of its range that is undone by then
Notify = Callable[[str, Any], None]  # send a notification: method, params
Change = types.TextDocumentContentChangeEvent
Slot = tuple[str, str]  # (feature, URI): a newer request replaces the older one


class _Running(Cancellation):
    """A request to the model.

    Cancelled before its job exists, it cancels the job once it does.
    """

    def __init__(self, slot: Slot, request: Request) -> None:
        super().__init__()
        self.slot, self.request = slot, request


class Session:
    """The state of one client. `notify` sends it a notification."""

    def __init__(
        self, shared_engine: SharedEngine, documents: OpenDocuments, notify: Notify, name: str
    ) -> None:
        self.shared_engine, self.documents = shared_engine, documents
        self.notify, self.name = notify, name
        self.settings = Settings()
        self.enabled = True
        self.index = WorkspaceIndex(shared_engine, documents, self.spawn, self._on_index_updated)
        self.edit_history = EditHistory()
        self.completions = CompletionCache()
        self.in_flight: dict[str, CompletionInFlight] = {}  # completions by URI
        self.due = DueCompletions()
        self.stop_reading: Callable[[], None] = lambda: None  # ahead of completions
        self.resume_reading: Callable[[], None] = lambda: None  # once model and index are there
        self.next_edits = NextEditPredictor()
        self.completion_model = SecondModel(name, "completionModel", "completes", shares_index=True)
        self.reason = "nothing was asked for yet"  # why the last completion was offered, or not
        self.wants_status = self.has_instruction_box = self.shows_next_inline = False
        self.has_chat = False  # the client knows the command draftline.explain
        self.on_engine_changed: Callable[[], None] = lambda: None  # on the event loop
        self.figures = Figures()
        self._running: set[_Running] = set()
        self._rebases: dict[Rebase, str] = {}  # running edits, with their URIs
        # Requests that wait for the model
        self._waiting: dict[asyncio.Task[EditorEngine], Slot] = {}
        self._configured = asyncio.Event()
        self._seen: dict[str, Text] = {}  # by URI, the text up to which edits are in the history
        self._tasks: set[asyncio.Task[None]] = set()
        self._warnings: list[str] = []  # about the latest settings
        self._shown_warnings: set[str] = set()  # those of `warn_once`
        # by URI, a version that was judged, and why it is not sent to another machine
        self._judged: dict[str, tuple[OpenDocument, str | None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        # by engine, the number of the last load whose error was shown
        self._shown_loads: dict[SharedEngine, int] = {}

    def begin(self) -> None:
        """Start: the client has sent `initialize`. Idempotent: a failed one may be repeated."""
        if self._loop is not None:
            return
        self._loop = asyncio.get_running_loop()
        for engine in self.shared_engine.engines:
            engine.listeners.append(self._on_engine_changed)

    def warn(self, message: str) -> None:
        """Show a warning to the user."""
        params = types.ShowMessageParams(types.MessageType.Warning, f"Draftline: {message}")
        self.notify("window/showMessage", params)

    def warn_once(self, message: str) -> None:
        """Show a warning that was not shown before."""
        if message not in self._shown_warnings:
            self._shown_warnings.add(message)
            self.warn(message)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background; errors are logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.warning("%s: %s", type(error).__name__, error)

    # -- settings and model --------------------------------------------------------------------

    def configure(self, *layers: Any) -> list[str]:
        """Apply settings, later layers over earlier ones.

        Returns new warnings about invalid keys or values.
        """
        warnings: list[str] = []
        for values in layers:
            self.settings, more = parse(values, self.settings)
            warnings += more
        self.shared_engine.configure(self.name, self.settings.model, self.settings.device)
        self.index.configure(gitignore=self.settings.respectGitignore)
        self._configured.set()
        new = [warning for warning in dict.fromkeys(warnings) if warning not in self._warnings]
        self._warnings = warnings
        return new

    def trial(self, path: str | None, words: Sequence[str] = ()) -> Trial | None:
        """Prepare the trial of an edit; None where there is no file.

        Without `words` the command is that of the settings. It sees the open documents as they are.
        Raises EditRefused if it cannot be run.
        """
        if path is None:
            return None
        file = Path(path)
        folder = next((one for one in self.index.roots if file.is_relative_to(one)), file.parent)
        texts = {Path(one.path): one.text.text for one in self.documents if one.path}
        if self.settings.check and not words:
            words = parse_command(self.settings.check)
        return make_trial(words, file, folder, self.settings.checkCandidates, texts=texts)

    @property
    def other_model(self) -> str | None:
        """The model of this client's settings, if other clients keep the engine from loading it."""
        return self.shared_engine.other_model_for(self.name)

    async def configured(self) -> None:
        """Wait until the client's settings are known."""
        await self._configured.wait()

    async def engine(self, slot: Slot) -> EditorEngine:
        """Return the engine, once the settings are known and the model is loaded.

        Raises NotReady if it cannot be loaded, and Superseded if the slot is cancelled or used by a
        newer request.
        """
        if self._configured.is_set() and self.shared_engine.loaded is not None:
            return self.shared_engine.loaded
        for older in [task for task, own in self._waiting.items() if own == slot]:
            older.cancel()

        async def wait() -> EditorEngine:
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
        """The index; None unless it was built for the tokenizer of the model in use."""
        return self.index.workspace

    def disabled_reason(
        self, document: OpenDocument, feature: Literal["ghostText", "nextEdit"] | None = None
    ) -> str | None:
        """Say why nothing, or nothing of one feature, is offered in a document; None if it is."""
        if not self.enabled:
            return "draftline is turned off: draftline.toggle turns it on"
        if why := self.why_withheld(document):
            return why
        if why := self.settings.disabled_reason(document.language, document.path):
            return why
        return self.settings.switched_off(feature, document.language) if feature else None

    @property
    def elsewhere(self) -> str:
        """The host of an engine on another machine; "" for one of this machine."""
        url = self.shared_engine.elsewhere
        return url.host if url else ""

    def why_withheld(self, document: OpenDocument) -> str | None:
        """Say why nothing of a document is sent to another machine of its own accord.

        None if it is sent, or if the engine is on this machine.
        """
        if not self.elsewhere:
            return None
        known = self._judged.get(document.uri)
        if known is None or known[0] is not document:
            path = document.path or document.uri
            why = self.index.why_private(path, document.text.text)
            name = path.rsplit("/", 1)[-1]
            why = f"{name}: {why}, so it is not sent to {self.elsewhere}" if why else None
            known = self._judged[document.uri] = document, why
        return known[1]

    def recent_edits(self) -> tuple[list[RecentEdit], dict[str, str]]:
        """Return the recent edits, and the texts of the open documents by URI.

        They are limited to what the engine may see.
        """
        shown = {
            document.uri: document.text.text
            for document in self.documents
            if not self.why_withheld(document)
        }
        edits = [edit for edit in self.edit_history.edits() if edit.uri in shown]
        if self.elsewhere:  # a secret that was deleted is still in an edit
            edits = [edit for edit in edits if not self.index.why_secret("", edit.before)]
        return edits, shown

    def is_starting(self) -> bool:
        """Return whether the model or the index is being loaded."""
        is_loading = any(engine.state == "loading" for engine in self.shared_engine.engines)
        return is_loading or self.index.is_busy()

    @property
    def running(self) -> int:
        """The number of requests of this client that run."""
        return len(self._running)

    @property
    def is_busy(self) -> bool:
        """Whether a request of this client runs, or waits for the model."""
        return bool(self._running or self._waiting)

    def _on_index_updated(self) -> None:
        self.send_status()
        self.resume_reading()

    def _on_engine_changed(self) -> None:
        """Follow a change of the engine's state; called from any thread."""

        def changed() -> None:
            self.send_status()
            self.on_engine_changed()
            for engine in self.shared_engine.engines:
                if engine.state == "error":
                    self._show_error(engine)
            if self.shared_engine.engine is not None:
                self.index.open_soon()
                self.resume_reading()

        if self._loop and not self._closed:
            try:
                self._loop.call_soon_threadsafe(changed)
            except RuntimeError as error:  # the loop is closed: the client is gone
                log.debug("%s", error)

    def _show_error(self, engine: SharedEngine) -> None:
        """Show why a model was not loaded, once per load.

        A quick load may fail before the client hears that it was started, and both changes then
        find the error. The status has the main model's.
        """
        has_status = self.wants_status and engine is self.shared_engine
        if has_status or self._closed or self._shown_loads.get(engine) == engine.loads:
            return
        self._shown_loads[engine] = engine.loads
        kind, message = types.MessageType.Error, f"Draftline: {engine.message}"
        self.notify("window/showMessage", types.ShowMessageParams(kind, message))

    # -- documents -----------------------------------------------------------------------------

    def is_current(self, document: OpenDocument) -> bool:
        """Return whether a document is open and has not changed since it was obtained."""
        return document.uri in self.documents and self.documents.get(document.uri) is document

    def on_open(self, document: OpenDocument) -> None:
        """Take note of a document that was opened."""
        for rebase in self._rebases_of(document.uri):  # a client that opens it once more
            rebase.record(0, len(rebase.latest), document.text.text)
        self._seen[document.uri] = document.text
        self.index.on_change(document)

    def on_change(self, document: OpenDocument, changes: Sequence[Change]) -> None:
        """Record the edits of a document that was changed, and stop what they make useless."""
        self.stop_reading()
        self.cancel(MODEL_SLOT)
        before, now = self._seen[document.uri], monotonic()
        for change in changes:
            if isinstance(change, types.TextDocumentContentChangePartial):
                start, stop = self.documents.span_in(before, change.range)
            else:
                start, stop = 0, len(before.text)
            given = before.text, start, stop, change.text, now
            self.edit_history.record(document.uri, *given, document.source_path)
            several = len(changes) > 1
            after = before.change(start, stop, change.text) if several else document.text
            for rebase in self._rebases_of(document.uri):
                rebase.record(start, stop, after.text)
            before = after
        if completion := self.in_flight.get(document.uri):
            completion.on_document_change(document.text.text)
        for rebase in self._rebases_of(document.uri):
            if rebase.has_conflict:
                asyncio.get_running_loop().call_later(UNDO_GRACE_S, self._cancel_conflict, rebase)
        self._seen[document.uri] = document.text
        self.index.on_change(document)

    @contextmanager
    def rebasing(self, document: OpenDocument, span: tuple[int, int] | None) -> Iterator[Rebase]:
        """Follow a document's changes during an edit of a span; None is the whole text."""
        rebase = Rebase(document.text.text, span)
        self._rebases[rebase] = document.uri
        try:
            yield rebase
        finally:
            del self._rebases[rebase]

    def _rebases_of(self, uri: str) -> list[Rebase]:
        return [rebase for rebase, own in self._rebases.items() if own == uri]

    def _cancel_conflict(self, rebase: Rebase) -> None:
        """Cancel an edit whose range has changed: its answer would be refused."""
        if rebase in self._rebases and rebase.has_conflict:
            rebase.is_lost = True
            for running in self._running:
                if running.slot[0] == "edit" and running.request.text is rebase.text:
                    running.cancel()

    def on_close(self, uri: str) -> None:
        """Forget a document that was closed, and cancel its requests."""
        for rebase in self._rebases_of(uri):
            rebase.is_lost = True
        self._seen.pop(uri, None)
        self._judged.pop(uri, None)
        self.edit_history.forget(uri)
        for feature in ("edit", "complete", "ask"):
            self.cancel((feature, uri))
        self.index.on_close(uri)

    # -- asking the model ----------------------------------------------------------------------

    async def ask(
        self,
        request: Request,
        slot: Slot,
        on_step: Callable[[Step], bool | None] = lambda step: None,
        timeout_s: float | None = None,
        engine: EditorEngine | None = None,
    ) -> Done:
        """Run a request, once the model is loaded, in place of an older one in the same slot.

        `engine`: another than the main model's. Ends early with "stop" when `on_step` returns True,
        and with "length" after `timeout_s`. Raises NotReady if there is no model, RequestError if
        the request cannot be answered.
        """
        self.stop_reading()
        try:
            engine = engine or await self.engine(slot)
        except Superseded:
            return Done("cancelled")
        self.cancel(slot)
        running = _Running(slot, request)
        self._running.add(running)
        self.send_status()
        done = Done("length")  # unless it ends before the timeout
        spent, last = 0.0, monotonic()
        try:
            if slot[0] == "next":
                await self.due.made()
            job = await self._submit(engine, running)
            async with asyncio.timeout(timeout_s), aclosing(follow(job)) as events:
                async for event in events:
                    if isinstance(event, Done):
                        done = event
                        continue
                    spent, last = spent + event.seconds, monotonic()
                    self.figures.count(event)
                    if on_step(event):
                        done = Done("stop")
                        break
        except TimeoutError:
            log.debug("out of time")
        except asyncio.CancelledError:
            running.cancel()
            done = Done("cancelled")
            raise
        finally:
            self._running.discard(running)
            if done.reason == "cancelled":
                totals = self.figures.totals
                totals["cancelled"] += 1
                totals["wasted"] += spent and spent + monotonic() - last  # incl. the last pass
            self.send_status()
        return done

    async def _submit(self, engine: EditorEngine, running: _Running) -> Submitted:
        """Queue the request.

        Tokenizing its prompt takes long for large texts and is then done in a thread; a
        completion's prompt is small.
        """
        request, workspace = running.request, self.workspace
        if workspace and workspace.encoder.fingerprint != engine.encoder.fingerprint:
            workspace = None
        predicts = running.slot == MODEL_SLOT

        def submit() -> Submitted:
            job = engine.submit(
                request,
                self.settings.speculation,
                client=self.name,
                workspace=workspace,
                cancelled=lambda: running.cancelled,
                urgency=URGENCY["edit"] if predicts else None,
            )
            running.attach(job)
            return job

        try:
            is_here = self.shared_engine.elsewhere is None
            at_once = request.kind == "complete" and not predicts and is_here
            return submit() if at_once else await asyncio.to_thread(submit)
        except RuntimeError as error:  # the engine was closed meanwhile
            raise NotReady(f"another model is being loaded ({error})") from error

    def cancel(self, slot: Slot | None = None) -> int:
        """Cancel the requests of a slot, or all of them; return how many there were."""
        requests: list[_Running | asyncio.Task[EditorEngine]] = []
        requests += [one for one in self._running if slot in (None, one.slot)]
        requests += [task for task, own in self._waiting.items() if slot in (None, own)]
        for request in requests:
            request.cancel()
        return len(requests)

    # -- status --------------------------------------------------------------------------------

    def send_status(self) -> None:
        """Notify the client of the status, if it asked for that."""
        if self.wants_status and not self._closed:
            self.notify("draftline/status", status_of(self))

    async def close(self) -> None:
        """Cancel the requests of a client that is gone, and save its index."""
        if self._closed:
            return
        self._closed = True
        if self._loop:
            for engine in self.shared_engine.engines:
                engine.listeners.remove(self._on_engine_changed)
                engine.leave(self.name)
        self.cancel()
        self.stop_reading()
        for task in self._tasks:
            task.cancel()
        for shared in self.shared_engine.engines:
            if shared.engine:
                shared.engine.forget(client=self.name)
        await self.index.close()
