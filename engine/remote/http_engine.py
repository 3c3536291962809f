"""An engine of another machine, which `draftline serve` offers there.

It is an `EditorEngine`. Prompts are made and answered over there; the tokenizer, for those who
count tokens or index files, is fetched once and stored.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from engine.config import Config
from engine.records import Done, Event, Info, Request, Step
from engine.remote.address import HELLO_TIMEOUT_S, Address, AddressError, check_running, connect
from engine.remote.engine_url import EngineUrl
from engine.remote.link import READ_TIMEOUT_S, LinkError, Lost, Refused, check_silence
from engine.remote.link_engine import LinkEngine, LinkJob, max_bytes
from engine.remote.messages import (
    HTTP_PATH,
    HTTP_PROTOCOL,
    BadMessage,
    Host,
    OtherProtocol,
    Submission,
    done_from_json,
    event_from_json,
    host_from_json,
    to_json,
)
from engine.remote.secret_texts import without_secrets
from engine.remote.tokenizer_files import MAX_SENT_BYTES, read_sent, store, stored

if TYPE_CHECKING:
    from engine.remote.sent_workspace import SentWorkspace
    from engine.weights import Progress
    from index.workspace.workspace import Workspace

LOADING_STATUS = 503  # the status of a server whose model is being loaded
LOADING_PAUSE_S = 1.0  # seconds before it is asked again


class HttpJob(LinkJob):
    """A request that another machine answers."""

    unanswerable = (400, 413)

    def __init__(self, request: Request, engine: HttpEngine, number: str) -> None:
        super().__init__(request, engine.context)
        self.number = number
        self._engine = engine

    def fail(self, error: LinkError) -> None:
        """End the job without the server, and hang up."""
        self.hang_up()
        super().fail(error)
        if isinstance(error, Lost):
            self._engine.on_lost(str(error))

    def cancel(self) -> None:
        """Stop after the current forward pass. The Done has the text written so far."""
        if self._done is None and self.error is None:
            self._engine.cancel(self)

    def _next(self) -> Event:
        if self.error is None:
            began = time.monotonic()
            try:
                for line in self.lines:
                    if line:
                        return self._passed(_event(line))
                    check_silence(self._engine.url, began)
                self.fail(Lost(f"{self._engine.url}: the connection was lost: ask again"))
            except LinkError as error:
                self.fail(error)
            except BadMessage as error:
                self.fail(LinkError(f"{self._engine.url}: a wrong answer: {error}"))
        return Done("failed", error=str(self.error))

    def _passed(self, event: Event) -> Event:
        """Pass an event on.

        At the end of the answer its connection is freed for the next request. Raises LinkError if
        there is more text than was asked for.
        """
        if isinstance(event, Step):
            self.chars_left -= len(event.text) + len(event.reasoning)
            if self.chars_left < 0:
                raise LinkError(f"{self._engine.url}: the answer does not end: use another server")
        else:
            with contextlib.suppress(LinkError):
                next(self.lines, None)
        return event


def _event(line: bytes) -> Event:
    """Parse a line of an answer.

    Raises BadMessage.
    """
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadMessage("not JSON") from error
    fields = message if isinstance(message, dict) else {}
    return (
        done_from_json(fields["done"]) if "done" in fields else event_from_json(fields.get("event"))
    )


class HttpEngine(LinkEngine):
    """The engine of a server at an address. A context manager."""

    workspace: SentWorkspace | None = None

    def __init__(
        self,
        url: EngineUrl,
        progress: Progress | None = None,
        stop: Callable[[], bool] = lambda: False,
        on_lost: Callable[[str], None] = lambda why: None,
        folder: Path | None = None,
    ) -> None:
        """Wait until the server has loaded its model, or `stop` says that nobody waits.

        `on_lost` is called, in any thread, with one line when the connection fails. `folder`: the
        model's, where it is on this machine. AddressError, LinkError; OSError where nothing listens
        at a socket.
        """
        if url.socket is not None:
            with connect(Address(path=url.socket)) as wire:
                check_running(wire, Address(path=url.socket))
        super().__init__(url, on_lost, {"draftline-protocol": str(HTTP_PROTOCOL)})
        self.name = uuid4().hex  # this client's, among those with the same key
        self._numbers = itertools.count(1)
        try:
            self.host: Host = self._hello(progress or (lambda *_: None), stop)
            self.folder = folder or self._tokenizer_folder()
        except BaseException:
            self.link.close()
            raise
        engine = self.host.server.engine
        if engine is None:
            raise AddressError(f"{url}: no model is loaded there: start the server again")
        where = "" if url.socket else f" of {url.host}"
        self.info: Info = engine._replace(device=engine.device + where)
        self.config = Config(model=self.info.model, device=self.host.server.device)

    def _hello(self, progress: Progress, stop: Callable[[], bool]) -> Host:
        silence_s = HELLO_TIMEOUT_S if self.url.socket else READ_TIMEOUT_S
        while True:
            try:
                return host_from_json(self.link.get(f"{HTTP_PATH}/info", silence_s))
            except Refused as error:
                if error.status == 404:
                    raise AddressError(
                        f"{self.url}: no draftline server of this version answers there: update "
                        f"it, or write openai:{self.url} for a server of OpenAI's protocol"
                    ) from error
                if error.status != LOADING_STATUS or stop():
                    raise
                progress("waiting for the server's model", 0, 0)
            except BadMessage as error:
                raise AddressError(
                    f"{self.url}: another program answers there, not `draftline serve`: check the "
                    "address"
                ) from error
            except OtherProtocol as error:
                raise AddressError(
                    f"{self.url}: speaks {error}, and this is protocol {HTTP_PROTOCOL}: install "
                    "the same version on both machines"
                ) from error
            time.sleep(LOADING_PAUSE_S)

    def _tokenizer_folder(self) -> Path:
        """Return the folder of the model's tokenizer, which is fetched if it is not stored here."""
        from engine.weights import home

        digest = self.host.tokenizer
        if len(digest) != 64 or not all(char in "0123456789abcdef" for char in digest):
            raise AddressError(f"{self.url}: names a tokenizer by no digest: check the address")
        known = stored(home(), digest)
        if known is not None:
            return known
        try:
            sent = self.link.get_bytes(f"{HTTP_PATH}/tokenizer", MAX_SENT_BYTES)
            return store(home(), digest, read_sent(sent))
        except BadMessage as error:
            raise AddressError(f"{self.url}: {error}: start the server again") from error
        except OSError as error:
            why = f"the tokenizer of {self.url} cannot be stored ({error.strerror or error})"
            raise LinkError(f"{home()}: {why}: free some space there") from error

    def submit(
        self,
        request: Request,
        speculation: bool = True,
        *,
        client: str = "",
        workspace: Workspace | None = None,
        cancelled: Callable[[], bool] = lambda: False,
        urgency: int | None = None,
    ) -> HttpJob:
        """Queue a request, as `Engine.submit` does.

        RequestError where it cannot be answered, or may hold secrets; a server that cannot be
        reached ends the job with one line.
        """
        if self.url.socket is None:
            request = without_secrets(request, self.url.host, workspace or self.workspace)
        job = HttpJob(request, self, f"{self.name}-{next(self._numbers)}")
        if cancelled():
            job.fail(LinkError("cancelled"))
            return job
        sent = getattr(workspace or self.workspace, "name", "")
        submission = Submission(request, speculation, f"{self.name} {client}", sent, urgency)
        body = {"id": job.number, "submission": to_json(submission)}
        most = max_bytes(request, self.context)
        job.start(self.link.lines(f"{HTTP_PATH}/submit", body, most=most))
        return job

    def cancel(self, job: HttpJob) -> None:
        """Ask the server, without waiting, to end a job."""
        self._in_background(f"{HTTP_PATH}/cancel", {"id": job.number})

    def forget(self, client: str = "") -> None:
        """Ask the server, without waiting, to forget the answers to a client."""
        self._in_background(f"{HTTP_PATH}/forget", {"client": f"{self.name} {client}"})

    def _in_background(self, path: str, body: dict[str, Any]) -> None:
        def post() -> None:
            with contextlib.suppress(LinkError, RuntimeError):  # lost, as is read, too; or closed
                self.link.post(path, body)

        threading.Thread(target=post, name="draftline-link", daemon=True).start()

    def open_workspace(
        self, roots: str | Path | Sequence[str | Path], gitignore: bool = True
    ) -> SentWorkspace:
        """Index folders and send their texts to the server; the caller closes the index."""
        from engine.remote.sent_workspace import SentWorkspace
        from engine.weights import home

        return SentWorkspace(roots, self.encoder, home(), gitignore, self.url)
