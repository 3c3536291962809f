"""Memory: what this session wrote, so that later answers may copy it. It is not kept on disk.

An answer belongs to a client and to the file it was written for; it is forgotten with either. What
was written for a file that is gone from the disk is never offered. What the model itself held
likely (engine/drafting/methods/token_recycling.py) belongs to a client, too.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from engine.drafting._drafting import Recycling
from engine.drafting.methods.token_recycling import WIDTH

MAX_HISTORY_TOKENS = 2048  # tokens of one client's answers that are offered
MAX_TABLES = 4  # clients with a table of the model's own, which takes 40 bytes for each id


@dataclass(frozen=True, slots=True)
class PastAnswer:
    """What was written, for whom and for which file."""

    client: str
    path: str
    tokens: list[int]
    file: bool  # there was such a file then

    @property
    def lives(self) -> bool:
        return not self.file or Path(self.path).is_file()


class AnswerHistory:
    """The last answers of each client. Any thread may call."""

    def __init__(self, vocabulary: int = 0) -> None:
        """`vocabulary`: how many ids the model has."""
        self._lock = threading.Lock()
        self._answers: deque[PastAnswer] = deque(maxlen=64)
        self._vocabulary = vocabulary
        self._tables: dict[tuple[str, int], Recycling] = {}  # the last one used is last

    def add(self, client: str, path: str, tokens: list[int]) -> None:
        """An answer for the file `path` was written."""
        file = bool(path) and Path(path).is_file()
        if tokens:
            with self._lock:
                self._answers.append(PastAnswer(client, path, tokens[-MAX_HISTORY_TOKENS:], file))

    def of(self, client: str) -> list[list[int]]:
        """The client's answers, newest last, MOST tokens at most."""
        found: list[list[int]] = []
        room = MAX_HISTORY_TOKENS
        with self._lock:
            answers = list(self._answers)
        for one in reversed(answers):
            if one.client == client and len(one.tokens) <= room and one.lives:
                found.insert(0, one.tokens)
                room -= len(one.tokens)
        return found

    def recycling(self, client: str, width: int = WIDTH) -> Recycling:
        """The client's table of what the model held likely, `width` successors of a token; the one
        longest unused makes room."""
        key = (client, width)
        with self._lock:
            table = self._tables.pop(key, None) or Recycling(self._vocabulary, width)
            self._tables[key] = table
            if len(self._tables) > MAX_TABLES:
                del self._tables[next(iter(self._tables))]
        return table

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._answers.clear()
            self._tables.clear()

    def forget(self, path: str | None = None, client: str | None = None) -> None:
        """Drop what was written for a file, or for a client."""
        with self._lock:
            kept = [one for one in self._answers if one.path != path and one.client != client]
            self._answers.clear()
            self._answers.extend(kept)
            if client is not None:
                for key in [key for key in self._tables if key[0] == client]:
                    del self._tables[key]
