"""What was asked on the page and answered, for each user and browser, while the server runs.

In memory only, and bounded: the oldest go. A reload of the page finds it again, by a number that
the browser keeps.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import NamedTuple

from ui.web.transcript import Entry

MOST = 30  # entries of a browser
BROWSERS = 256
SHORTEST = 16  # characters of a browser's number: a shorter one could be guessed

# The number that the browser keeps; a new one at its first visit.
BROWSER = """() => {
  const key = "draftline-browser";
  try {
    const kept = localStorage.getItem(key);
    if (kept) return kept;
  } catch { return ""; }
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const made = Array.from(bytes, (one) => one.toString(16).padStart(2, "0")).join("");
  localStorage.setItem(key, made);
  return made;
}"""

# The inputs of an event with this number as the second, which the page may not yet have been told.
WITH_BROWSER = f"""(...given) => {{
  given[1] ||= ({BROWSER})();
  return given;
}}"""


class Numbered(NamedTuple):
    """An entry, by the number that nothing else of its history has."""

    number: int
    entry: Entry


class History:
    """The entries of one browser, oldest first. Any thread may call."""

    def __init__(self) -> None:
        self.key = secrets.token_hex(16)  # of its exported files
        self._entries: list[Numbered] = []
        self._next = 1
        self._lock = Lock()

    def list(self) -> Sequence[Numbered]:
        with self._lock:
            return tuple(self._entries)

    def add(self, entry: Entry, instead: int | None = None) -> Numbered:
        """Keep it; in the place of the entry of that number, where it is still there."""
        with self._lock:
            made = Numbered(self._next, entry)
            self._next += 1
            places = [at for at, one in enumerate(self._entries) if one.number == instead]
            if places:
                self._entries[places[0]] = made
            else:
                self._entries.append(made)
                del self._entries[:-MOST]
            return made

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()


class Histories:
    """All of them."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], History] = OrderedDict()
        self._lock = Lock()

    def of(self, user: str | None, browser: object, session: str | None) -> History:
        """That of a user's browser; of this session only, where the browser keeps no number."""
        known = isinstance(browser, str) and len(browser) >= SHORTEST
        key = (user or "", str(browser) if known else f"session {session}")
        with self._lock:
            history = self._kept.setdefault(key, History())
            self._kept.move_to_end(key)
            while len(self._kept) > BROWSERS:
                self._kept.popitem(last=False)
            return history
