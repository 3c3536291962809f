"""The answers and summaries of each user and browser, kept beside the user's documents.

Bounded for each user: the oldest are dropped. The browser keeps a random id, by which a reload of
the page finds its history again, also after the server was started again.
"""

from __future__ import annotations

import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from pydantic import BaseModel, ValidationError

from engine.atomic_write import write_atomically
from index.cache_folder import keep_newest, make_cache_folder
from ui.web.transcript import Entry

MAX_ENTRIES, MAX_SUMMARIES = 30, 20  # entries, summaries of a browser
MAX_BROWSERS = 64  # browsers of a user
FILE_LEVELS = 2  # folders of the cache's own: a user's, and the one that holds all users'
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


logger = logging.getLogger(__name__)


class HistoryEntry(NamedTuple):
    """An entry and its number, which is unique within a history.

    Only questions of the same topic may refer to each other.
    """

    number: int
    entry: Entry
    topic: int = 0


class Kept(BaseModel):
    """What a history's file has."""

    entries: list[HistoryEntry] = []
    summaries: dict[str, Entry] = {}
    topic: int = 0


class History:
    """The entries of one browser, oldest first, and the last summary of each document.

    Thread-safe.
    """

    def __init__(self, file: Path | None = None) -> None:
        """Read the history that a file has. Without one it is in memory only."""
        self.key = secrets.token_hex(16)  # names the folder of its exported files
        self._file = file
        self._kept = _read(file) if file else Kept()
        self._next_number = 1 + max((one.number for one in self._kept.entries), default=0)
        self._lock = Lock()

    def list(self) -> Sequence[HistoryEntry]:
        with self._lock:
            return tuple(self._kept.entries)

    @property
    def topic(self) -> int:
        """The topic of the next question."""
        return self._kept.topic

    def begin_topic(self) -> None:
        """Let no further question refer to the entries so far."""
        with self._lock:
            if self._kept.entries:
                self._kept.topic = self._kept.entries[-1].topic + 1
                self._write()

    def add(self, entry: Entry, replaces: int | None = None) -> HistoryEntry:
        """Append an entry, or put it in place of the one numbered `replaces`, if that exists."""
        with self._lock:
            added = HistoryEntry(self._next_number, entry, self._kept.topic)
            self._next_number += 1
            entries = self._kept.entries
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
        """Remove the entry with this number, if it is there."""
        with self._lock:
            self._kept.entries = [one for one in self._kept.entries if one.number != number]
            self._write()

    def summary(self, document: str) -> Entry | None:
        with self._lock:
            return self._kept.summaries.get(document)

    def put_summary(self, document: str, summary: Entry) -> None:
        with self._lock:
            summaries = self._kept.summaries
            summaries.pop(document, None)
            summaries[document] = summary
            for oldest in [*summaries][:-MAX_SUMMARIES]:
                del summaries[oldest]
            self._write()

    def clear(self) -> None:
        with self._lock:
            self._kept.entries.clear()
            self._write()

    def _write(self) -> None:
        """Store the history, readable for its user alone. Failure is only logged."""
        if self._file is None:
            return
        try:
            make_cache_folder(self._file.parent, FILE_LEVELS)
            write_atomically(self._file, self._kept.model_dump_json().encode(), 0o600)
            keep_newest(self._file.parent.glob("history-*.json"), MAX_BROWSERS)
        except (OSError, ValueError) as error:  # ValueError: no valid Unicode
            logger.warning("%s: cannot store the answers: %s", self._file, error)


def _read(file: Path) -> Kept:
    try:
        return Kept.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return Kept()
    except (OSError, ValidationError) as error:
        reason = str(error).partition("\n")[0]
        logger.warning("%s: cannot read the answers of earlier days: %s", file, reason)
        return Kept()


class Histories:
    """The histories of all users; of each user the least recently used are dropped. Thread-safe."""

    def __init__(self, folder_of: Callable[[str | None], Path | None] = lambda user: None) -> None:
        """`folder_of`: maps a user to the folder of the user's documents, None for none."""
        self._folder_of = folder_of
        self._histories: dict[str | None, OrderedDict[str, History]] = {}
        self._lock = Lock()

    def of(self, user: str | None, browser_id: object, session: str | None) -> History:
        """Return the history of a user's browser.

        It is of this session alone if the browser has no id.
        """
        key, file = f"session {session}", None
        if isinstance(browser_id, str) and MIN_ID_CHARS <= len(browser_id) <= MAX_ID_CHARS:
            key, folder = browser_id, self._folder_of(user)
            name = sha256(browser_id.encode("utf-8", "replace")).hexdigest()[:32]
            file = folder / f"history-{name}.json" if folder else None
        with self._lock:
            histories = self._histories.setdefault(user, OrderedDict())
            if key not in histories:
                histories[key] = History(file)
            histories.move_to_end(key)
            if len(histories) > MAX_BROWSERS:
                histories.popitem(last=False)
            return histories[key]
