"""The answers and summaries of each user and browser, kept beside the user's documents.

Bounded for each user: the oldest are dropped. The browser keeps a random id, by which a reload of
the page finds its history again, also after the server was started again.
"""

from __future__ import annotations

import logging
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from pydantic import BaseModel, ValidationError

from engine.atomic_write import write_atomically
from index.cache_folder import keep_newest, make_cache_folder
from ui.web.transcript import Entry

logger = logging.getLogger(__name__)

MAX_ENTRIES, MAX_SUMMARIES = 30, 20  # entries, summaries of a browser
MAX_BROWSERS = 64  # browsers of a user
FILE_NAME, FILE_LEVELS = "history-{}.json", 2  # its folder, a user's, is in that of all users
MIN_ID_CHARS = 16  # characters; a shorter browser id could be guessed
MAX_ID_CHARS = 64

# JavaScript: the browser's id, which is created on the first visit.
BROWSER_ID = """() => {
  const key = "draftline-browser";
  try {
    const kept = localStorage.getItem(key);
    if (kept) return kept;
  } catch { return ""; }
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const id = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  localStorage.setItem(key, id);
  return id;
}"""

# JavaScript: an event's inputs, whose second is set to the id in case the page has none yet.
WITH_BROWSER_ID = f"""(...inputs) => {{
  inputs[1] ||= ({BROWSER_ID})();
  return inputs;
}}"""


class HistoryEntry(NamedTuple):
    """An entry and its number, which is unique within a history.

    Only questions of the same topic may refer to each other.
    """

    number: int
    entry: Entry
    topic: int = 0


class StoredHistory(BaseModel):
    """What is kept of a history."""

    entries: list[HistoryEntry] = []
    summaries: dict[str, Entry] = {}  # by document; the newest last
    topic: int = 0


class History:
    """The entries of one browser, oldest first, and the last summary of each document.

    Thread-safe.
    """

    def __init__(self, file: Path | None = None) -> None:
        """Read what an earlier server has kept in this file. Without one it is in memory only."""
        self.key = secrets.token_hex(16)  # names the folder of its exported files
        self._file = file
        self._stored = _read(file) if file else StoredHistory()
        self._next_number = 1 + max((one.number for one in self._stored.entries), default=0)
        self._lock = Lock()

    def list(self) -> Sequence[HistoryEntry]:
        with self._lock:
            return tuple(self._stored.entries)

    @property
    def topic(self) -> int:
        """The topic of the next question."""
        return self._stored.topic

    def begin_topic(self) -> None:
        """Let no further question refer to the entries so far."""
        with self._lock:
            if self._stored.entries:
                self._stored.topic = self._stored.entries[-1].topic + 1
                self._write()

    def add(self, entry: Entry, replaces: int | None = None) -> HistoryEntry:
        """Append an entry, or put it in place of the one numbered `replaces`, if that exists."""
        with self._lock:
            entries = self._stored.entries
            added = HistoryEntry(self._next_number, entry, self._stored.topic)
            self._next_number += 1
            for index, existing in enumerate(entries):
                if existing.number == replaces:
                    entries[index] = added = added._replace(topic=existing.topic)
                    break
            else:
                entries.append(added)
                del entries[:-MAX_ENTRIES]
            self._write()
            return added

    def remove(self, number: int) -> None:
        """Remove the entry with this number, if it exists."""
        with self._lock:
            entries = self._stored.entries
            entries[:] = [one for one in entries if one.number != number]
            self._write()

    def summary(self, document: str) -> Entry | None:
        with self._lock:
            return self._stored.summaries.get(document)

    def put_summary(self, document: str, summary: Entry) -> None:
        with self._lock:
            summaries = self._stored.summaries
            summaries.pop(document, None)
            summaries[document] = summary
            for oldest in [*summaries][:-MAX_SUMMARIES]:
                del summaries[oldest]
            self._write()

    def clear(self) -> None:
        """Forget all entries and summaries."""
        with self._lock:
            self._stored = StoredHistory()
            self._write()

    def _write(self) -> None:
        """Keep the history in its file, readable for its user alone. Failure is only logged."""
        if self._file is None:
            return
        try:
            make_cache_folder(self._file.parent, FILE_LEVELS)
            write_atomically(self._file, self._stored.model_dump_json().encode(), 0o600)
            keep_newest(self._file.parent.glob(FILE_NAME.format("*")), MAX_BROWSERS)
        except (OSError, ValueError) as error:  # ValueError: no valid Unicode
            logger.warning("%s: cannot store the answers: %s", self._file, error)


def _read(file: Path) -> StoredHistory:
    try:
        return StoredHistory.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return StoredHistory()
    except (OSError, ValidationError) as error:
        reason = str(error).partition("\n")[0]
        logger.warning("%s: cannot read the answers: %s", file, reason)
        return StoredHistory()


def folder_of(folder: Path | None, user: str | None) -> Path | None:
    """Return a user's folder in that of all users; without users there is one."""
    name = sha256(user.encode()).hexdigest()[:16] if user else "local"
    return folder / name if folder else None


class Histories:
    """The histories of all users; of each user the least recently used are dropped. Thread-safe."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder`: that of all users' documents; None: the histories are in memory."""
        self._folder = folder
        self._histories: dict[str | None, OrderedDict[str, History]] = {}
        self._lock = Lock()

    def of(self, user: str | None, browser_id: object, session: str | None) -> History:
        """Return the history of a user's browser.

        It is of this session alone if the browser has no id.
        """
        key, file = f"session {session}", None
        if isinstance(browser_id, str) and MIN_ID_CHARS <= len(browser_id) <= MAX_ID_CHARS:
            key, folder = browser_id, folder_of(self._folder, user)
            name = sha256(browser_id.encode("utf-8", "replace")).hexdigest()[:32]
            file = folder / FILE_NAME.format(name) if folder else None
        with self._lock:
            histories = self._histories.setdefault(user, OrderedDict())
            if key not in histories:
                histories[key] = History(file)
            histories.move_to_end(key)
            if len(histories) > MAX_BROWSERS:
                histories.popitem(last=False)
            return histories[key]
