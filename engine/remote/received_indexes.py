"""The indexes of workspaces that clients of other machines keep here.

There is one for each key and workspace. No key is ever answered from another's texts.

A client sends the names and digests of its files, then the texts that are missing here. Everything
is in memory: a full disk harms nothing, and an end of the server leaves nothing. Times are this
machine's own, so that clocks may differ.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from operator import itemgetter
from time import monotonic
from typing import Any, NamedTuple
from uuid import uuid4

from engine.remote.messages import MAX_NAME_BYTES, BadMessage
from index.workspace.file_filter import MAX_FILE_BYTES
from index.workspace.received_workspace import ReceivedWorkspace
from index.workspace.roots import FileText
from index.workspace.segment import IndexedDocument
from index.workspace.token_cache import Encoder, digest

log = logging.getLogger(__name__)

FORGET_AFTER_S = 30 * 60.0  # seconds without a client before an index is forgotten
DELETE_WITHIN_S = 10 * 60.0  # seconds until a deleted text is gone from memory
TIDY_EVERY_S = 60.0
EXPUNGE_AFTER_S = DELETE_WITHIN_S / 2  # seconds; the rest is time to rewrite a large index
MAX_INDEXES = 64
MAX_FILES = 100_000  # files of an index
MAX_NAMES_CHARS = 16 << 20  # characters of all names of an index
MAX_INDEX_CHARS = 256 << 20  # characters of an index's texts
MAX_COPIED_CHARS = 4 << 20  # characters of an index's texts that have another name too
MAX_DEAD_CHARS = 64 << 20  # characters of an index's deleted texts that are in memory
ENTRY_CHARS = 200  # characters that a file counts for besides name and text; bytes it takes
MAX_CHARS = 1 << 30  # characters of all indexes, entries and names included
MAX_MISSING = 10_000  # digests named in one answer
NAME_CHARS = 64


class IndexesFull(Exception):
    """A workspace is too large, or there are too many. One line."""


class _Index:
    """One workspace of one key."""

    def __init__(self, encoder: Encoder, now: float) -> None:
        self.workspace = ReceivedWorkspace(encoder)
        self.lock = threading.Lock()
        self.revision = ""  # the revision of `wanted`; no other index has ever had it
        self.wanted: dict[str, bytes] = {}  # digests of the client's files by name
        self.chars: dict[str, int] = {}  # characters of the texts that are here, by name
        self.size = 0  # `_size_of` what it has, or is about to have
        self.seen = now  # when a client used it last
        self.deleted: float | None = None  # when the oldest text was deleted that is in memory
        self.dead = 0  # characters of deleted texts that are in memory


class _Change(NamedTuple):
    """The effect of a message on an index, before any of it is made."""

    wanted: dict[str, bytes]  # all files of the client
    lost: list[str]  # names whose texts are dropped
    copied: dict[str, IndexedDocument]  # names for texts that are here
    added: list[FileText]
    chars: dict[str, int]  # characters of the texts that are here then, by name


class ReceivedIndexes:
    """All indexes of a server; used from any thread. `clock`: seconds."""

    def __init__(self, encoder: Encoder, clock: Callable[[], float] = monotonic) -> None:
        self._encoder, self._clock = encoder, clock
        self._indexes: dict[tuple[str, str], _Index] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._tidying: threading.Thread | None = None

    def find(self, owner: str, name: str) -> ReceivedWorkspace | None:
        """Find the workspace of this name that this key keeps here."""
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
            change = _change(index, files, deleted, texts)
            self._reserve(owner, index, _size_of(change))
            if files or deleted or not index.revision:
                index.revision = uuid4().hex
            self._make(index, change)
            return {"revision": index.revision, "missing": _missing(index)}

    def _index(self, owner: str, name: str) -> _Index:
        dropped: list[_Index] = []
        with self._lock:
            if self._closed.is_set():
                raise IndexesFull("the server ends: try again later")
            found = self._indexes.get((owner, name))
            if found is None:
                if len(self._indexes) >= MAX_INDEXES:
                    counts = Counter(key for key, _ in self._indexes)
                    dropped = [self._taken_from_largest(owner, counts, 1, self._too_many())]
                found = self._indexes[owner, name] = _Index(self._encoder, self._clock())
            if self._tidying is None:
                self._tidying = threading.Thread(target=self._tidy, name="indexes", daemon=True)
                self._tidying.start()
        for index in dropped:
            index.workspace.close()
        return found

    def _too_many(self) -> IndexesFull:
        return IndexesFull(
            f"the server keeps {MAX_INDEXES} workspaces already: close one, and wait "
            f"{FORGET_AFTER_S / 60:g} minutes"
        )

    def _reserve(self, owner: str, index: _Index, size: int) -> None:
        """Count what an index will have.

        Where all indexes have too many, those of keys with more than this one are dropped.
        IndexesFull.
        """
        full = IndexesFull(f"the server keeps {MAX_CHARS >> 20} MiB of text already: try later")
        dropped = []
        with self._lock:
            before, index.size = index.size, size
            try:
                while size > before and self._size() > MAX_CHARS:
                    sizes: Counter[str] = Counter()
                    for (key, _), one in self._indexes.items():
                        sizes[key] += one.size
                    dropped.append(self._taken_from_largest(owner, sizes, 0, full))
            except IndexesFull:
                index.size = before
                raise
            finally:
                for one in dropped:
                    one.workspace.close()

    def _size(self) -> int:
        return sum(index.size for index in self._indexes.values())

    def _taken_from_largest(
        self, owner: str, shares: Counter[str], more: int, full: IndexesFull
    ) -> _Index:
        """Remove the least recently used index of the key that has the most.

        Only if this is more than `owner` has with `more`: a client that still uses the index sends
        it again. Raises `full` otherwise.
        """
        largest, most = max(shares.items(), key=itemgetter(1), default=("", 0))
        if largest == owner or most <= shares[owner] + more:
            raise full
        indexes = ((one.seen, name) for (key, name), one in self._indexes.items() if key == largest)
        return self._indexes.pop((largest, min(indexes)[1]))

    def _make(self, index: _Index, change: _Change) -> None:
        """Apply a change to its index."""
        for path, document in change.copied.items():
            index.workspace.copy(document, path)
        replaced = change.copied.keys() | {file.path for file in change.added}
        index.dead += sum(index.chars[path] for path in change.lost)
        index.workspace.drop(path for path in change.lost if path not in replaced)
        index.workspace.put(change.added)
        index.wanted, index.chars = change.wanted, change.chars
        if change.lost and index.deleted is None:
            index.deleted = self._clock()
        if index.dead > MAX_DEAD_CHARS:
            _purge(index)

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
                    _purge(index)

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


def _purge(index: _Index) -> None:
    """Erase deleted texts from memory."""
    index.deleted, index.dead = None, 0
    index.workspace.purge()


def _change(
    index: _Index, files: dict[str, bytes], deleted: list[str], texts: dict[bytes, str]
) -> _Change:
    """Work out the effect of a message on an index.

    Nothing is made before all is counted. IndexesFull.
    """
    wanted = {**index.wanted}
    for path in deleted:
        wanted.pop(path, None)
    wanted |= files
    if len(wanted) > MAX_FILES:
        raise IndexesFull(f"over {MAX_FILES:,} files: open a smaller folder")
    if sum(map(len, wanted)) > MAX_NAMES_CHARS:
        raise IndexesFull(
            f"over {MAX_NAMES_CHARS >> 20} MiB of names of files: open a smaller folder"
        )
    held = {document.path: document for document in index.workspace.documents}
    here = {document.digest: document for document in held.values()}
    chars = {
        path: index.chars[path] for path, one in held.items() if wanted.get(path) == one.digest
    }
    named = {wanted[path] for path in chars}
    chars_left = MAX_COPIED_CHARS - (
        sum(chars.values()) - sum({wanted[p]: n for p, n in chars.items()}.values())
    )
    copied: dict[str, IndexedDocument] = {}
    added: list[FileText] = []
    for path, own in wanted.items():
        if path in chars or (own not in here and own not in texts):
            continue
        size = index.chars[here[own].path] if own in here else len(texts[own])
        if own in named:
            if size > chars_left:
                continue  # the text is here under another name
            chars_left -= size
        named.add(own)
        chars[path] = size
        if own in here:
            copied[path] = here[own]
        else:
            added.append(FileText(path, texts[own], own, None))
    if sum(chars.values()) > MAX_INDEX_CHARS:
        raise IndexesFull(f"over {MAX_INDEX_CHARS >> 20} MiB of text: open a smaller folder")
    lost = [path for path, one in held.items() if wanted.get(path) != one.digest]
    return _Change(wanted, lost, copied, added, chars)


def _size_of(change: _Change) -> int:
    """Count the characters that stand for an index.

    They are its texts, and for all files, also those without a text yet, a name and an entry.
    """
    names = sum(map(len, change.wanted)) + ENTRY_CHARS * len(change.wanted)
    return names + sum(change.chars.values())


def _missing(index: _Index) -> list[str]:
    """List the digests of files whose texts are not here."""
    here = {index.wanted[path] for path in index.chars}
    found = (own.hex() for own in index.wanted.values() if own not in here)
    return [*dict.fromkeys(found)][:MAX_MISSING]


def _checked(body: Any) -> tuple[dict[str, bytes], list[str], dict[bytes, str]]:
    """Read the files, deleted names and texts of a client's message.

    Raises BadMessage.
    """
    if not isinstance(body, dict):
        raise BadMessage("not an object")
    files, deleted, texts = body.get("files", {}), body.get("deleted", []), body.get("texts", {})
    if not isinstance(files, dict) or not isinstance(texts, dict) or not isinstance(deleted, list):
        raise BadMessage("files, deleted, texts: not an object, a list and an object")
    if max(len(files), len(deleted), len(texts)) > MAX_FILES:
        raise IndexesFull(f"over {MAX_FILES:,} files: open a smaller folder")
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
    if len(path) * 4 > MAX_NAME_BYTES and len(path.encode()) > MAX_NAME_BYTES:
        raise BadMessage(f"files: a name of over {MAX_NAME_BYTES:,} bytes: rename it")
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
