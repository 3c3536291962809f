"""The engine that all clients of this process share.

It is loaded in the background, and replaced when its clients agree on another model. Next to it may
be one of a smaller model for completions, and one of a model for next edits. Independent of the
protocol. The engine may be that of another machine, which is connected to again when it is lost.

A model that is not on this machine is fetched only after a client's user has agreed to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from engine.config import DEFAULT_MODEL, next_edit_model
from engine.model.slots import Slots

if TYPE_CHECKING:
    from engine.engine import Engine
    from engine.remote.any_engine import EditorEngine
    from engine.remote.engine_url import EngineUrl
    from engine.remote.http_engine import HttpEngine
    from engine.remote.openai_engine import OpenAiEngine
    from engine.weights.fetch.download import Download

log = logging.getLogger(__name__)

# Options of the engine next to the main one, whose prompts are short.
SECOND_ENGINE: dict[str, Any] = {"max_context": 8192, "cached_sequences": 2, "cache_bytes": 1 << 29}

# Seconds between attempts to reach another machine, doubled each time.
MIN_PAUSE_S, MAX_PAUSE_S = 1.0, 30.0

# idle: no client has configured a model yet; asking: a user must agree to the download first
State = Literal["idle", "asking", "loading", "ready", "error"]
Listener = Callable[[], None]  # the state changed; called from any thread
OnProgress = Callable[[str, int, int], None]  # (what, done, total)


class NotReady(Exception):
    """A request without a model, when none is being loaded; the message says why."""


class Superseded(NotReady):
    """A request that was cancelled while it waited for the model."""


class NextEdits(NamedTuple):
    """A model for next edits and its format, as the command line names them; "" if it does not."""

    model: str = ""
    format: str = ""


class ModelChoice(NamedTuple):
    """A client's configuration. Without a model: the usual one."""

    model: str
    device: str


class _FetchCancelled(Exception):
    """A download that a user has cancelled."""


class SharedEngine:
    """The shared engine with its `state`, and a `message` for the user about it."""

    def __init__(
        self,
        model: str | None = None,
        fetch: bool = False,
        main: SharedEngine | None = None,
        next_edits: NextEdits | None = None,
        elsewhere: EngineUrl | None = None,
    ) -> None:
        """Prepare the engine; nothing is loaded yet.

        `model` and `next_edits` override what clients configure. `fetch`: a missing model is
        fetched without asking. `main`: the engine next to which this one runs another model, as
        long as a client wants that. They take turns. `elsewhere`: the engine of another machine,
        whatever clients configure.
        """
        self.state: State = "idle"
        self.message = ""
        self.engine: EditorEngine | None = None
        self.elsewhere = elsewhere
        self.loads = 0  # loads that were started
        self.is_fetching = False  # the model is being downloaded
        self.listeners: list[Listener] = []
        self.progress: list[OnProgress] = main.progress if main else []
        self.slots: Slots = main.slots if main else Slots()
        self.next_edits = next_edits or NextEdits()
        self._model, self._fetch, self._main = model, fetch, main
        self._usual = ""  # the model of clients that name none; "" before it is known
        self._choices: dict[str, ModelChoice] = {}  # by client
        self._wanted: ModelChoice | None = None  # the one that is loaded, or being loaded
        self._offers: list[Download] = []  # while `asking`
        self._asking = ""  # the client whose user is being asked
        self._cancel_fetch = threading.Event()
        self._lock = threading.Lock()
        self._next_is_loading = threading.Lock()  # held while a model next to this one is loaded
        self._thread: threading.Thread | None = None
        self._closed = False

    @cached_property
    def for_next_edits(self) -> SharedEngine:
        """The engine of a model for next edits, next to this one."""
        return SharedEngine(next_edit_model(self.next_edits.model), self._fetch, self)

    @cached_property
    def for_completions(self) -> SharedEngine:
        """The engine of a smaller model for completions, next to this one."""
        return SharedEngine(fetch=self._fetch, main=self)

    @property
    def engines(self) -> tuple[SharedEngine, ...]:
        """This engine, and those next to it."""
        return self, self.for_completions, self.for_next_edits

    @property
    def model(self) -> str:
        """The model in use, loaded or not; of another machine, its address until it is reached."""
        if self.elsewhere:
            return self.engine.info.model if self.engine else str(self.elsewhere)
        return self._wanted.model if self._wanted else ""

    @property
    def device(self) -> str:
        """The device in use, as it is configured."""
        return self._wanted.device if self._wanted else ""

    @property
    def clients(self) -> int:
        """The clients that have configured a model."""
        return len(self._choices)

    # -- what clients want -------------------------------------------------------------------------

    def configure(self, client: str, model: str, device: str) -> None:
        """Load the model that a client wants, or with "" the usual one.

        It is loaded unless others use another, in which case they share that one until they agree.
        """
        names_none = not (self._model or model or self.elsewhere)
        usual = self._usual or (_usual_model() if names_none else "")
        with self._lock:
            self._usual = usual
            self._choices.pop(client, None)
            self._choices[client] = ModelChoice(model, device)
            started = self._decide(retry=True)
        if started:
            self._notify()

    def leave(self, client: str) -> None:
        """Forget a client that is gone. Those that remain may now agree on another model."""
        with self._lock:
            self._choices.pop(client, None)
            started = self._decide(retry=False)
            was_asking, self._asking = self._asking == client, ""
            unused = self._unload() if self._main and not self._choices else None
        if unused:
            threading.Thread(target=unused.close, name="unloading", daemon=True).start()
        if started or was_asking:
            self._notify()

    def other_model_for(self, client: str) -> str | None:
        """Return the model that a client wants and does not get, because others use this one."""
        with self._lock:
            choice = self._choices.get(client)
            wanted = self._resolved(choice) if choice else None
            if wanted is None or self._wanted in (None, wanted):
                return None
            other = wanted.model != self.model
            return wanted.model if other else f"{wanted.model} on {wanted.device}"

    def _resolved(self, choice: ModelChoice) -> ModelChoice:
        if self.elsewhere:
            model = self._model or choice.model
            return ModelChoice(model if self.elsewhere.is_openai else "", str(self.elsewhere))
        return ModelChoice(self._model or choice.model or self._usual, choice.device)

    def _decide(self, retry: bool) -> bool:
        """Start loading if no client wants the model in use, or with `retry` if it failed.

        Returns whether it was started. The lock is held.
        """
        choices = [self._resolved(choice) for choice in self._choices.values()]
        if self._closed or not choices:
            return False
        if self._wanted in choices and not (retry and self.state == "error"):
            return False
        self._start(choices[-1], fetch=self._fetch)
        return True

    def _start(self, wanted: ModelChoice, fetch: bool) -> None:
        self._wanted = wanted
        self.loads += 1
        what = f"connecting to {self.elsewhere}" if self.elsewhere else f"loading {wanted.model}"
        self.state, self.message = "loading", what
        self.is_fetching = fetch and bool(self._offers)
        self._offers, self._asking = [], ""
        self._cancel_fetch.clear()
        previous = self._thread
        self._thread = threading.Thread(
            target=self._load, args=(wanted, fetch, previous), name="loading", daemon=True
        )
        self._thread.start()

    def _unload(self) -> EditorEngine | None:
        """Forget the model in use, as nobody wants it any more; the caller closes its engine.

        The lock is held.
        """
        self._cancel_fetch.set()
        self._wanted, self.state, self.message = None, "idle", ""
        engine, self.engine = self.engine, None
        return engine

    # -- consent to a download ---------------------------------------------------------------------

    def take_question(self, client: str) -> list[Download]:
        """Return the downloads to offer to the user of this client.

        There are none if nothing is to be asked, or if a client's user is being asked already.
        """
        with self._lock:
            if self.state != "asking" or self._asking:
                return []
            self._asking = client
            return self._offers

    @property
    def offers(self) -> list[Download]:
        """The downloads of which a user may choose one."""
        return self._offers

    def fetch(self, model: str) -> None:
        """Take the user's choice of a download. Raises ValueError if it is not offered."""
        if model not in [offer.model for offer in self._offers]:
            raise ValueError(f"{model[:80]}: is not offered for download now")
        self.answer(model)

    def answer(self, model: str | None) -> None:
        """Take the user's choice of one of the downloads, or of none of them."""
        with self._lock:
            if self.state != "asking" or self._wanted is None or self._closed:
                return
            if model is None:
                name = self._wanted.model
                self.state, self._offers = "error", []
                self.message = (
                    f"{name} is not on this machine, and was not fetched: restart the server to be "
                    f"asked again, or run `draftline models pull {name}`"
                )
            else:
                if self._wanted.model == self._usual:
                    self._usual = model
                self._start(ModelChoice(model, self._wanted.device), fetch=True)
        self._notify()

    def cancel_fetch(self) -> None:
        """End a running download."""
        self._cancel_fetch.set()

    # -- the engine --------------------------------------------------------------------------------

    @property
    def loaded(self) -> EditorEngine | None:
        """The engine of the configured model, if it is loaded."""
        return self.engine if self.state == "ready" else None

    @property
    def local(self) -> Engine | None:
        """The engine, if it is loaded and runs in this process."""
        return cast("Engine | None", self.loaded) if self.elsewhere is None else None

    @property
    def is_pending(self) -> bool:
        """Whether the model is yet to be loaded or to fail."""
        return self.state in ("idle", "asking", "loading")

    async def ready(self) -> EditorEngine:
        """Return the engine, once it is loaded.

        Raises NotReady if that failed, and after `close`.
        """
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(changed.set)

        self.listeners.append(wake)
        try:
            while True:
                changed.clear()
                with self._lock:
                    if self._closed:
                        raise NotReady("the server is shutting down")
                    if self.state == "error":
                        raise NotReady(self.message)
                    if self.loaded is not None:
                        return self.loaded
                await changed.wait()
        finally:
            self.listeners.remove(wake)

    def close(self, timeout: float) -> None:
        """Cancel all jobs and wait up to `timeout` seconds for the model's thread."""
        if self._main is None:
            for second in (self.for_completions, self.for_next_edits):
                second.close(timeout)
        self.cancel_fetch()
        with self._lock:
            self._closed = True
            engine, self.engine = self.engine, None
        self._notify()
        if engine:
            closing = threading.Thread(target=engine.close, daemon=True)
            closing.start()
            closing.join(timeout)

    def report(self, what: str, done: int, total: int) -> None:
        """Pass on the progress of loading or indexing; from any thread."""
        for listener in list(self.progress):
            listener(what, done, total)

    def _load(self, wanted: ModelChoice, fetch: bool, previous: threading.Thread | None) -> None:
        if previous:
            previous.join()
        with self._lock:
            old, self.engine = self.engine, None
        if old:
            old.close()
        engine: EditorEngine | None = None
        offers: list[Download] = []
        state: State = "ready"
        message = ""
        try:
            with self._main._next_is_loading if self._main else contextlib.nullcontext():
                if self._main and not self._main.elsewhere:
                    self._check_memory(wanted.model, self._main)
                offers = self._downloads(wanted.model)
                if offers and not fetch:
                    state, message = "asking", f"may {wanted.model} be downloaded?"
                else:
                    self.is_fetching = bool(offers)
                    engine = self._engine(wanted)
        except _FetchCancelled:
            state = "error"
            message = f"{wanted.model}: the download was cancelled: restart the server to resume it"
        except Exception as error:  # the server keeps running, and reports it
            log.debug("the model was not loaded", exc_info=error)
            what = str(error) if self.elsewhere else f"{wanted.model}: {error}"
            state, message = "error", " ".join(what.split())
        self.is_fetching = False
        with self._lock:
            is_current = wanted == self._wanted and not self._closed
            if is_current:
                self.engine, self.state, self.message = engine, state, message
                self._offers = offers if state == "asking" else []
        if engine and not is_current:
            engine.close()
        self._notify()

    def _downloads(self, model: str) -> list[Download]:
        """List what must be fetched to load a model: it, or the usual ones.

        Any of the usual ones will do.
        """
        if self.elsewhere:
            return []
        from engine.weights.fetch.download import downloads

        return downloads(None if model == self._usual and not self._model else model)

    def _check_memory(self, model: str, main: SharedEngine) -> None:
        """Raise WeightsError where a model does not fit into memory next to the main one."""
        from engine.weights.catalogue.builtins import NEXT_EDITS
        from engine.weights.model_list import Machine, check_both_fit

        instead = NEXT_EDITS if self is main.for_next_edits else {}
        check_both_fit(model, main.model, Machine.this(), instead)

    def _engine(self, wanted: ModelChoice) -> EditorEngine:
        from engine import Config, Engine

        if self.elsewhere:
            return self._connect(self.elsewhere, wanted.model)

        def progress(what: str, done: int, total: int) -> None:
            if self._cancel_fetch.is_set():
                raise _FetchCancelled
            self.report(what, done, total)

        config = Config(model=wanted.model, device=wanted.device)
        if self._main:
            config = replace(config, **SECOND_ENGINE)
        return Engine(config, progress, self.slots, on_failure=self._on_failed)

    def _connect(self, url: EngineUrl, model: str) -> HttpEngine | OpenAiEngine:
        """Connect to the engine of another machine, as soon as it can be reached.

        `model`: which one of a server of OpenAI's protocol.
        """
        from engine.remote.http_engine import HttpEngine
        from engine.remote.link import Lost
        from engine.remote.openai_engine import OpenAiEngine

        pause = MIN_PAUSE_S
        while True:
            try:
                if url.is_openai:
                    return OpenAiEngine(url, model, on_lost=self._on_lost)
                engine = HttpEngine(url, self.report, lambda: self._closed, self._on_lost)
                engine.encode("")  # loads the tokenizer
                return engine
            except Lost as error:
                if self._closed:
                    raise
                if pause == MIN_PAUSE_S:
                    log.warning("%s", error)
                self.message = f"{error} Trying again."
                self._notify()
            self._cancel_fetch.wait(pause)
            pause = min(2 * pause, MAX_PAUSE_S)

    def _on_lost(self, why: str) -> None:
        """Connect again to the other machine, which was lost. Called from any thread."""
        with self._lock:
            if self.state != "ready" or self._wanted is None or self._closed:
                return
            self._start(self._wanted, fetch=False)
            self.message = why
        self._notify()

    def _on_failed(self, why: str) -> None:
        """Note that the engine answers no more. Called from the model's thread."""
        with self._lock:
            if self.state != "ready" or self._closed:
                return
            self.state = "error"
            self.message = f"{self.model}: the model has failed ({why}): restart the server"
        self._notify()

    def _notify(self) -> None:
        for listener in list(self.listeners):
            listener()


def _usual_model() -> str:
    """Return the model of clients that name none."""
    from engine.weights.errors import WeightsError
    from engine.weights.fetch.download import usual_model

    try:
        return usual_model()
    except WeightsError:  # the name can be no model's, which loading reports
        return DEFAULT_MODEL
