"""The indexes of workspaces that clients of other machines keep here, one for each key and
workspace. No key is ever answered from another's texts.

A client sends the names and digests of its files, then the texts that are missing here. Everything
is in memory: a full disk harms nothing, and an end of the server leaves nothing. Times are this
machine's own, so that clocks may differ.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any
from uuid import uuid4

from engine.remote.messages import BadMessage
from index.workspace.file_filter import MAX_FILE_BYTES
from index.workspace.received_workspace import ReceivedWorkspace
from index.workspace.roots import FileText
from index.workspace.segment import IndexedDocument
from index.workspace.token_cache import Encoder, digest

log = logging.getLogger(__name__)

FORGET_AFTER_S = 30 * 60.0  # without a client
DELETE_WITHIN_S = 10 * 60.0  # a deleted text is gone from memory
TIDY_EVERY_S = 60.0
EXPUNGE_AFTER_S = DELETE_WITHIN_S / 2  # which leaves time to rewrite a large index
MAX_INDEXES = 64
MAX_FILES = 100_000  # of an index
MAX_INDEX_CHARS = 256 << 20
MAX_CHARS = 1 << 30  # of all indexes
MAX_MISSING = 10_000  # digests named in one answer
NAME_CHARS = 64


class IndexesFull(Exception):
    """A workspace is too large, or there are too many. One line."""


class _Index:
    """One workspace of one key."""

    def __init__(self, encoder: Encoder, now: float) -> None:
        self.workspace = ReceivedWorkspace(encoder)
        self.lock = threading.Lock()
        self.revision = ""  # of `wanted`; no other index has ever had it
        self.wanted: dict[str, bytes] = {}  # digests of the client's files by name
        self.chars: dict[str, int] = {}  # of the texts that are here, by name
        self.seen = now  # when a client used it last
        self.deleted: float | None = None  # when the oldest text was deleted that is in memory


class ReceivedIndexes:
    """All indexes of a server; used from any thread. `clock`: seconds."""

    def __init__(self, encoder: Encoder, clock: Callable[[], float] = monotonic) -> None:
        self._encoder, self._clock = encoder, clock
        self._indexes: dict[tuple[str, str], _Index] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._tidying: threading.Thread | None = None

    def find(self, owner: str, name: str) -> ReceivedWorkspace | None:
        """The workspace of this name that this key keeps here."""
        index = self._indexes.get((owner, name))
        if index is None:
            return None
        index.seen = self._clock()
        return index.workspace

    def sync(self, owner: str, name: str, body: Any) -> dict[str, Any]:
        """Bring an index up to date with its client. Blocks.

        `body`: {"base": the revision that the client knows, "whole": whether "files" are all files
        and not only changed ones, "files": digests in hexadecimal by name, "deleted": names,
        "texts": texts by digest}. The answer has the new "revision" and the digests of texts that
        are "missing"; or it is {"stale": true}, whereupon the client sends the whole. BadMessage,
        IndexesFull.
        """
        files, deleted, texts = _checked(body)
        if not name.isalnum() or len(name) > NAME_CHARS:
            raise BadMessage("workspace: not a name")
        index = self._index(owner, name)
        with index.lock:
            index.seen = self._clock()
            if not body.get("whole"):
                if not index.revision or body.get("base") != index.revision:
                    return {"stale": True}
            else:
                deleted = [*index.wanted.keys() - files.keys()]
            if len(index.wanted.keys() | files.keys()) - len(deleted) > MAX_FILES:
                raise IndexesFull(f"over {MAX_FILES:,} files: open a smaller folder")
            if files or deleted or not index.revision:
                index.revision = uuid4().hex
            self._change(index, files, deleted)
            self._add(index, texts)
            return {"revision": index.revision, "missing": _missing(index)}

    def _index(self, owner: str, name: str) -> _Index:
        with self._lock:
            if self._closed.is_set():
                raise IndexesFull("the server ends: try again later")
            found = self._indexes.get((owner, name))
            if found is None:
                if len(self._indexes) >= MAX_INDEXES:
                    raise IndexesFull(
                        f"the server keeps {MAX_INDEXES} workspaces already: close one, and wait "
                        f"{FORGET_AFTER_S / 60:g} minutes"
                    )
                found = self._indexes[owner, name] = _Index(self._encoder, self._clock())
            if self._tidying is None:
                self._tidying = threading.Thread(target=self._tidy, name="indexes", daemon=True)
                self._tidying.start()
            return found

    def _change(self, index: _Index, files: dict[str, bytes], deleted: list[str]) -> None:
        """Take over the client's list of files."""
        known = {one.path: one for one in index.workspace.documents}
        by_digest = {one.digest: one for one in known.values()}
        chars = index.chars.copy()
        gone = [path for path in deleted if index.wanted.pop(path, None) is not None]
        index.wanted |= files
        changed = [path for path, own in files.items() if not _has(known, path, own)]
        moved = [path for path in changed if files[path] in by_digest]
        for path in moved:
            same = by_digest[files[path]]
            index.workspace.copy(same, path)
            index.chars[path] = chars[same.path]
        lost = {path for path in (*gone, *changed) if path in known}
        index.workspace.drop(lost.difference(moved))
        for path in lost.difference(moved):
            del index.chars[path]
        if lost and index.deleted is None:
            index.deleted = self._clock()

    def _add(self, index: _Index, texts: dict[bytes, str]) -> None:
        """Add the texts of files that the client has."""
        wanted = [
            FileText(path, texts[own], own, None)
            for path, own in index.wanted.items()
            if own in texts and path not in index.chars
        ]
        new = sum(len(one.text) for one in wanted)
        if sum(index.chars.values()) + new > MAX_INDEX_CHARS:
            raise IndexesFull(f"over {MAX_INDEX_CHARS >> 20} MiB of text: open a smaller folder")
        with self._lock:
            indexes = [*self._indexes.values()]
        if sum(sum([*one.chars.values()]) for one in indexes) + new > MAX_CHARS:
            raise IndexesFull(f"the server keeps {MAX_CHARS >> 20} MiB of text already: try later")
        index.workspace.put(wanted)
        for one in wanted:
            index.chars[one.path] = len(one.text)

    def tidy(self) -> None:
        """Forget the indexes that no client uses, and erase deleted texts whose time has come."""
        now = self._clock()
        with self._lock:
            unused = [key for key, one in self._indexes.items() if now - one.seen >= FORGET_AFTER_S]
            dropped = [self._indexes.pop(key) for key in unused]
            kept = [*self._indexes.values()]
        for index in dropped:
            index.workspace.close()
        for index in kept:
            if index.deleted is not None and now - index.deleted >= EXPUNGE_AFTER_S:
                with index.lock:
                    index.deleted = None
                    index.workspace.purge()

    def _tidy(self) -> None:
        while not self._closed.wait(TIDY_EVERY_S):
            try:
                self.tidy()
            except Exception as error:  # the next round tries again
                log.warning("texts of clients cannot be erased: %s", type(error).__name__)

    def close(self) -> None:
        """Forget everything."""
        self._closed.set()
        with self._lock:
            dropped, self._indexes = [*self._indexes.values()], {}
        for index in dropped:
            index.workspace.close()


def _has(known: dict[str, IndexedDocument], path: str, own: bytes) -> bool:
    return path in known and known[path].digest == own


def _missing(index: _Index) -> list[str]:
    """The digests of files whose texts are not here."""
    found = (own.hex() for path, own in index.wanted.items() if path not in index.chars)
    return [*dict.fromkeys(found)][:MAX_MISSING]


def _checked(body: Any) -> tuple[dict[str, bytes], list[str], dict[bytes, str]]:
    """The files, deleted names and texts of a client's message. Raises BadMessage."""
    if not isinstance(body, dict):
        raise BadMessage("not an object")
    files, deleted, texts = body.get("files", {}), body.get("deleted", []), body.get("texts", {})
    if not isinstance(files, dict) or not isinstance(texts, dict) or not isinstance(deleted, list):
        raise BadMessage("files, deleted, texts: not an object, a list and an object")
    if not all(isinstance(one, str) for one in deleted):
        raise BadMessage("deleted: not a list of names")
    return (
        {_name(path): _digest(own) for path, own in files.items()},
        deleted,
        {_digest(own): _text(text, own) for own, text in texts.items()},
    )


def _name(path: str) -> str:
    if not path or "\0" in path or (not path.isascii() and _has_surrogates(path)):
        raise BadMessage("files: not a name")
    return path


def _digest(text: Any) -> bytes:
    try:
        found = bytes.fromhex(text)
        if len(found) != 16:
            raise ValueError
    except (ValueError, TypeError) as error:
        raise BadMessage("files, texts: not a digest") from error
    return found


def _text(text: Any, own: str) -> str:
    if not isinstance(text, str) or len(text) > MAX_FILE_BYTES or _has_surrogates(text):
        raise BadMessage(f"texts: not a text of {MAX_FILE_BYTES >> 20} MiB")
    if digest(text).hex() != own:
        raise BadMessage("texts: a text is another one than its digest says")
    return text


def _has_surrogates(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)
