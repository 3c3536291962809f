"""Memory: what this session wrote, so that later answers may copy it. It is not kept on disk.

An answer belongs to a client and to the file it was written for; it is forgotten with either.
"""

from __future__ import annotations

import threading
from collections import deque

MOST = 2048  # tokens of one client's answers that are offered


class Memory:
    """The last answers of each client. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: deque[tuple[str, str, list[int]]] = deque(maxlen=64)

    def add(self, client: str, path: str, tokens: list[int]) -> None:
        """An answer for the file `path` was written."""
        if tokens:
            with self._lock:
                self._answers.append((client, path, tokens[-MOST:]))

    def of(self, client: str) -> list[list[int]]:
        """The client's answers, newest last, MOST tokens at most."""
        found: list[list[int]] = []
        room = MOST
        with self._lock:
            answers = list(self._answers)
        for whose, _, tokens in reversed(answers):
            if whose == client and len(tokens) <= room:
                found.insert(0, tokens)
                room -= len(tokens)
        return found

    def forget(self, path: str | None = None, client: str | None = None) -> None:
        """Drop what was written for a file, or for a client."""
        with self._lock:
            kept = [one for one in self._answers if one[1] != path and one[0] != client]
            self._answers.clear()
            self._answers.extend(kept)
