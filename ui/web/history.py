"""The answers and summaries of each user and browser, while the server runs.

In memory only, and bounded for each user: the oldest are dropped. The browser keeps a random id, by
which a reload of the page finds its history again.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import NamedTuple

from ui.web.transcript import Entry

MAX_ENTRIES, MAX_SUMMARIES = 30, 20  # entries, summaries of a browser
MAX_BROWSERS = 64  # browsers of a user
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


class History:
    """The entries of one browser, oldest first, and the last summary of each document.

    Thread-safe.
    """

    def __init__(self) -> None:
        self.key = secrets.token_hex(16)  # names the folder of its exported files
        self._entries: list[HistoryEntry] = []
        self._summaries: OrderedDict[str, Entry] = OrderedDict()
        self._next_number = 1
        self._topic = 0
        self._lock = Lock()

    def list(self) -> Sequence[HistoryEntry]:
        with self._lock:
            return tuple(self._entries)

    @property
    def topic(self) -> int:
        """The topic of the next question."""
        return self._topic

    def begin_topic(self) -> None:
        """Let no further question refer to the entries so far."""
        with self._lock:
            if self._entries:
                self._topic = self._entries[-1].topic + 1

    def add(self, entry: Entry, replaces: int | None = None) -> HistoryEntry:
        """Append an entry, or put it in place of the one numbered `replaces`, if that exists."""
        with self._lock:
            added = HistoryEntry(self._next_number, entry, self._topic)
            self._next_number += 1
            for index, existing in enumerate(self._entries):
                if existing.number == replaces:
                    self._entries[index] = added = added._replace(topic=existing.topic)
                    return added
            self._entries.append(added)
            del self._entries[:-MAX_ENTRIES]
            return added

    def summary(self, document: str) -> Entry | None:
        with self._lock:
            return self._summaries.get(document)

    def put_summary(self, document: str, summary: Entry) -> None:
        with self._lock:
            self._summaries[document] = summary
            self._summaries.move_to_end(document)
            while len(self._summaries) > MAX_SUMMARIES:
                self._summaries.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()


class Histories:
    """The histories of all users; of each user the least recently used are dropped. Thread-safe."""

    def __init__(self) -> None:
        self._histories: dict[str | None, OrderedDict[str, History]] = {}
        self._lock = Lock()

    def of(self, user: str | None, browser_id: object, session: str | None) -> History:
        """Return the history of a user's browser.

        It is of this session alone if the browser has no id.
        """
        key = f"session {session}"
        if isinstance(browser_id, str) and MIN_ID_CHARS <= len(browser_id) <= MAX_ID_CHARS:
            key = browser_id
        with self._lock:
            histories = self._histories.setdefault(user, OrderedDict())
            history = histories.setdefault(key, History())
            histories.move_to_end(key)
            if len(histories) > MAX_BROWSERS:
                histories.popitem(last=False)
            return history
