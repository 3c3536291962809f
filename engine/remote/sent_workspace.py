"""A workspace that an engine of another machine gets too, so that it can draft from its files.

The files that the index of this machine has are sent, and no others: what is ignored, or may hold
secrets, is not among them. Their names and digests go first, then the texts that the server lacks.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from engine.atomic_write import write_atomically
from engine.remote.engine_url import EngineUrl
from engine.remote.link import Link, LinkError, Lost
from engine.remote.messages import HTTP_PATH, HTTP_PROTOCOL, MAX_NAME_BYTES
from index.cache_folder import make_cache_folder
from index.workspace.file_filter import Skipped, read
from index.workspace.token_cache import digest
from index.workspace.workspace import Workspace

if TYPE_CHECKING:
    from index.workspace.roots import Progress
    from index.workspace.token_cache import Encoder

log = logging.getLogger(__name__)

SENDING = "sending the workspace"  # as progress names it, which counts files
SETTLE_S = 0.2  # seconds after a change, so that many are sent at once
KEEP_ALIVE_S = 60.0  # seconds; the server hears of a client that often
MIN_PAUSE_S, MAX_PAUSE_S = 1.0, 60.0  # seconds between attempts to reach it, doubled each time
BATCH_CHARS = 2 << 20
BATCH_FILES = 1000
BATCH_NAMES = 10_000  # names of files in one message
MACHINE_FILE = "machine"  # a file in the cache folder with a random name of this machine


class SentWorkspace(Workspace):
    """A `Workspace` whose texts are sent after every change, in the background, until `close`."""

    def __init__(
        self,
        roots: str | Path | Sequence[str | Path],
        encoder: Encoder,
        home: Path,
        gitignore: bool,
        url: EngineUrl,
    ) -> None:
        """Send nothing before the first change: `build` is one.

        AddressError for a bad key.
        """
        super().__init__(roots, encoder, home, gitignore)
        parts = (machine_name(home), *map(str, self.roots))
        self.name = sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()
        self._texts: dict[str, str] = {}  # texts of open buffers
        self._sender = _Sender(self, url)

    def send(self, progress: Progress | None = None) -> None:
        """Send what the server lacks, now. Raises LinkError."""
        self._sender.send(progress)

    def text_of(self, path: str, known: bytes) -> str | None:
        """Read the text of a document with this digest; None if it has changed meanwhile."""
        text = self._texts.get(path)
        if text is None:
            try:
                text = read(os.path.realpath(path))
            except Skipped:
                return None
        return text if digest(text) == known else None

    # Every change of the index is sent.

    def scan(self, progress: Progress | None = None) -> None:
        super().scan(progress)
        self._sender.wake()

    def refresh(self, paths: Collection[Path | str] | None = None) -> None:
        super().refresh(paths)
        self._sender.wake()

    def update(self, path: Path | str, text: str | None, version: int = 0) -> None:
        if text is None:
            self._texts.pop(self.key(path), None)
        else:
            self._texts[self.key(path)] = text
        super().update(path, text, version)
        self._sender.wake()

    def remove(self, path: Path | str) -> None:
        super().remove(path)
        self._sender.wake()

    def rename(self, old: Path | str, new: Path | str) -> None:
        super().rename(old, new)
        self._sender.wake()

    def close(self) -> None:
        self._sender.close()
        super().close()


class _Sender:
    """A thread that keeps the server's index of a workspace like the one of this machine."""

    def __init__(self, workspace: SentWorkspace, url: EngineUrl) -> None:
        self._workspace = workspace
        self._link = Link(url, url.key(), {"draftline-protocol": str(HTTP_PROTOCOL)})
        self._path = f"{HTTP_PATH}/workspaces/{workspace.name}"
        self._sent: dict[str, bytes] = {}  # digests by name, as the server knows them
        self._revision = ""  # the revision of these at the server; "" before all were sent
        self._turn = threading.Lock()
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Send soon."""
        if self._thread is None and not self._closed.is_set():
            self._thread = threading.Thread(target=self._run, name="sending", daemon=True)
            self._thread.start()
        self._wake.set()

    def close(self) -> None:
        """Send nothing more."""
        self._closed.set()
        self._wake.set()
        self._link.close()

    def send(self, progress: Progress | None = None) -> None:
        """Send what the server lacks. Raises LinkError."""
        with self._turn:
            answer = self._send_names()
            missing = answer["missing"]
            done, total = 0, len(missing)
            while missing and not self._closed.is_set():
                texts = self._batch(missing)
                if not texts:
                    break  # they have changed: the next change sends them
                answer = self._post({"texts": texts, "base": self._revision})
                missing = answer["missing"]
                if not texts.keys().isdisjoint(missing):
                    raise LinkError(f"{self._link.url}: does not take texts: update the server")
                done += len(texts)
                if progress:
                    progress(SENDING, done, max(total, done))

    def _send_names(self) -> dict[str, Any]:
        """Send which files changed, or all of them where the server knows others."""
        files = {
            document.path: document.digest
            for document in self._workspace.documents
            if _is_text(document.path)
        }
        changed = {path: own for path, own in files.items() if self._sent.get(path) != own}
        deleted = [path for path in self._sent if path not in files]
        answer: dict[str, Any] = {"stale": True}
        if self._revision and len(changed) + len(deleted) <= BATCH_NAMES:
            files_now = {path: own.hex() for path, own in changed.items()}
            answer = self._post({"base": self._revision, "files": files_now, "deleted": deleted})
        if answer.get("stale"):
            first, *others = batches_of(files)
            answer = self._post({"whole": True, "files": first})
            for more in others:
                answer = self._post({"base": self._revision, "files": more})
        if answer.get("stale"):
            raise LinkError(f"{self._link.url}: does not take the workspace: start it again")
        self._sent = files
        return answer

    def _post(self, body: dict[str, Any]) -> dict[str, Any]:
        """Post a message, and return the server's answer, checked."""
        answer = self._link.post(self._path, body)
        if isinstance(answer, dict) and answer.get("stale") is True:
            self._revision = ""
            return {"stale": True, "missing": []}
        revision, missing = (
            (answer.get("revision"), answer.get("missing")) if isinstance(answer, dict) else ("", 0)
        )
        if not isinstance(revision, str) or not isinstance(missing, list):
            raise LinkError(f"{self._link.url}: a wrong answer to a workspace: update the server")
        self._revision = revision
        return {"missing": [own for own in missing if isinstance(own, str)]}

    def _batch(self, missing: Iterable[str]) -> dict[str, str]:
        """Collect the texts of the first of these digests."""
        paths = {own.hex(): path for path, own in self._sent.items()}
        texts: dict[str, str] = {}
        chars_left = BATCH_CHARS
        for own in missing:
            path = paths.get(own)
            text = self._workspace.text_of(path, bytes.fromhex(own)) if path else None
            if text is not None:
                texts[own] = text
                chars_left -= len(text)
            if chars_left <= 0 or len(texts) == BATCH_FILES:
                break
        return texts

    def _run(self) -> None:
        pause, problem = MIN_PAUSE_S, ""
        while not self._closed.is_set():
            self._wake.wait(KEEP_ALIVE_S)
            self._closed.wait(SETTLE_S)
            self._wake.clear()
            try:
                if not self._closed.is_set():
                    self.send()
                if problem:
                    log.warning("the workspace is sent again")
                pause, problem = MIN_PAUSE_S, ""
            except Exception as error:  # the server drafts from less until it is reached
                if self._closed.is_set():
                    return
                if not isinstance(error, LinkError):
                    log.debug("sending failed", exc_info=error)
                if str(error) != problem:
                    problem = str(error)
                    log.warning("the workspace is not sent: %s", problem)
                self._closed.wait(pause if isinstance(error, Lost) else MAX_PAUSE_S)
                pause = min(2 * pause, MAX_PAUSE_S)
                self._wake.set()


def machine_name(home: Path) -> str:
    """Return a random name of this machine, made once.

    It distinguishes this machine's workspaces at a server from those of others.
    """
    file = home / MACHINE_FILE
    try:
        if file.is_file():
            return file.read_text("ascii")[:64]
        name = uuid4().hex
        make_cache_folder(home)
        write_atomically(file, name.encode(), 0o600)
        return name
    except (OSError, UnicodeError) as error:
        log.warning("%s: %s: the workspace is sent again at every start", file, error)
        return uuid4().hex


def batches_of(files: dict[str, bytes]) -> list[dict[str, str]]:
    """Split names and digests as messages have them, one batch at least."""
    named = [(path, own.hex()) for path, own in files.items()]
    starts = range(0, max(len(named), 1), BATCH_NAMES)
    return [dict(named[start : start + BATCH_NAMES]) for start in starts]


def _is_text(path: str) -> bool:
    """Return whether a name can be sent."""
    if not path.isascii() and any("\ud800" <= char <= "\udfff" for char in path):
        return False
    return len(path.encode()) <= MAX_NAME_BYTES
